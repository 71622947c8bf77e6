//! Config of control groups.

pub use sluice_cgroups::parent_group::ParentGroup;

use super::devices::DeviceOptions;

/// Config of control groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupOptions {
    pub parent: ParentGroup,
    /// Most processes and threads of one attempt; the default is a share of what the host can have.
    pub pids_max: Option<u32>,
    /// Config of device filters.
    pub devices: DeviceOptions,
}
