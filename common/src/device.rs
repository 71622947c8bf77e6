//! Devices by what the kernel calls them: the two numbers of a node, whatever it is named and wherever it lies. The
//! agent finds them, the supervisor fences by them; both mean character devices, for no GPU has a block device.

use alloc::string::String;
use core::fmt;
use serde::{Deserialize, Serialize};

/// The major number of NVIDIA's driver, by the kernel's list of devices (`Documentation/admin-guide/devices.txt`).
pub const NVIDIA_MAJOR: u32 = 195;

/// The numbers of a character device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeviceNumber {
    /// Which driver.
    pub major: u32,
    /// Which of its devices.
    pub minor: u32,
}

impl DeviceNumber {
    /// From its two numbers.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// A node through which programs reach a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeviceNode {
    /// Where it lies, such as `/dev/nvidia3`.
    pub path: String,
    /// What the kernel calls it. It may change over a reboot.
    pub number: DeviceNumber,
}
