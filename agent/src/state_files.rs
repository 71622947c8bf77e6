//! The agent's files in its state directory: the obeyed epoch, GPU states, and the warrants and endpoints of attempts.

use std::path::Path;

use sluice_common::id::BootId;

use crate::endpoint_files::EndpointFiles;
use crate::epoch::EpochFile;
use crate::gpu_file::GpuFile;
use crate::warrants::Warrants;

/// The files that outlive the agent.
pub(crate) struct StateFiles {
    pub(crate) epoch: EpochFile,
    pub(crate) gpus: GpuFile,
    pub(crate) warrants: Warrants,
    pub(crate) endpoints: EndpointFiles,
}

impl StateFiles {
    /// The files in this state directory, for this boot.
    pub(crate) fn new(state_dir: &Path, boot_id: BootId) -> Self {
        Self {
            epoch: EpochFile::new(state_dir),
            endpoints: EndpointFiles::new(state_dir, boot_id.clone()),
            gpus: GpuFile::new(state_dir, boot_id),
            warrants: Warrants::new(state_dir),
        }
    }
}
