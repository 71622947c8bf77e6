//! Device numbers and device nodes. The agent detects them and the supervisor filters access by them. All are character
//! devices; GPUs have no block devices.

use alloc::string::String;
use core::fmt;
use serde::{Deserialize, Serialize};

/// Major number of NVIDIA's driver, assigned in `Documentation/admin-guide/devices.txt` of Linux.
pub const NVIDIA_MAJOR: u32 = 195;

/// Major and minor number of a character device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeviceNumber {
    /// Number of the driver.
    pub major: u32,
    /// Number of the device within its driver.
    pub minor: u32,
}

impl DeviceNumber {
    /// Makes a device number from its parts.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// A device node in the file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeviceNode {
    /// Path of the node, such as `/dev/nvidia3`.
    pub path: String,
    /// Device number; may change at a reboot.
    pub number: DeviceNumber,
}
