//! What an attempt may use of its host, and the file that says so to the kernel.

use sluice_common::processors::CpuMode;
use sluice_common::supervision::ResourceLimits;

/// What an attempt may use, in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// As the agent wants it.
    pub limits: ResourceLimits,
    /// What its processor time means.
    pub cpu_mode: CpuMode,
    /// Processes and threads, as the supervisor's own config wants it.
    pub pids_max: u32,
}

/// One file and what goes into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The file's name in the group.
    pub file: &'static str,
    /// What is written.
    pub value: String,
    /// Whether the limit holds without it where the kernel has no such file.
    pub may_lack: bool,
}

impl Setting {
    pub(crate) fn new(file: &'static str, value: impl ToString) -> Self {
        Self {
            file,
            value: value.to_string(),
            may_lack: false,
        }
    }

    /// As it is, where the limit holds without it on a kernel that has no such file.
    pub(crate) fn that_may_lack(self) -> Self {
        Self {
            may_lack: true,
            ..self
        }
    }
}
