//! What the agent keeps in its state directory for the agent that comes after it: the epoch that the host has obeyed,
//! what is wrong with its GPUs, and the warrants of its attempts.

use std::path::Path;

use sluice_common::id::BootId;

use crate::epoch::EpochFile;
use crate::gpu_file::GpuFile;
use crate::warrants::Warrants;

/// The files in which the agent keeps what outlives it.
pub(crate) struct StateFiles {
    pub(crate) epoch: EpochFile,
    pub(crate) gpus: GpuFile,
    pub(crate) warrants: Warrants,
}

impl StateFiles {
    /// Those in this state directory, for this boot.
    pub(crate) fn new(state_dir: &Path, boot_id: BootId) -> Self {
        Self {
            epoch: EpochFile::new(state_dir),
            gpus: GpuFile::new(state_dir, boot_id),
            warrants: Warrants::new(state_dir),
        }
    }
}
