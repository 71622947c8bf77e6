//! What the supervisor's config says of control groups.

pub use sluice_cgroups::parent_group::ParentGroup;

use super::devices::DeviceOptions;

/// The config of groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupOptions {
    /// Where.
    pub parent: ParentGroup,
    /// Most processes and threads of one attempt; by default a share of what the host can have.
    pub pids_max: Option<u32>,
    /// How attempts are fenced from GPUs.
    pub devices: DeviceOptions,
}
