//! Stored state of GPUs that are cut into slices, and what platforms ask for.

use serde::{Deserialize, Serialize};

use sluice_common::carving::{CarveFailure, CarveOrder, GpuLayout};
use sluice_common::id::PlatformName;
use sluice_common::time::Time;

use alloc::string::ToString;

/// A GPU that is being cut, or could not be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carving {
    pub layout: GpuLayout,
    /// Layout to restore after a failure.
    pub before: GpuLayout,
    pub since: Time,
    /// Failures of this layout in a row.
    #[serde(default)]
    pub failures: u32,
    /// The last failure; `None` while the GPU is being cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailedCarving>,
}

/// The failure to cut a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedCarving {
    pub why: CarveFailure,
    /// Whether the GPU is as it was before. If not, its host reports it as quarantined.
    pub is_restored: bool,
    /// Time of the next try, if the platform still asks for the same.
    pub retry_at: Time,
}

impl Carving {
    /// The order to the host.
    pub fn order(&self, gpu: &str) -> CarveOrder {
        CarveOrder {
            gpu: gpu.to_string(),
            layout: self.layout.clone(),
            before: self.before.clone(),
        }
    }
}

/// Slices that platforms ask for, of a GPU that is cut otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CarveRequest {
    /// The platform that asks for them.
    pub platform: PlatformName,
    pub layout: GpuLayout,
    /// A platform that asks for others.
    pub rival: Option<PlatformName>,
}
