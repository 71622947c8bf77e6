//! The limits of an attempt, and values for the kernel's files.

use sluice_common::processors::CpuMode;
use sluice_common::supervision::ResourceLimits;

/// All limits of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLimits {
    /// Limits that the agent orders.
    pub limits: ResourceLimits,
    /// Whether processor time is a weight, a quota or neither.
    pub cpu_mode: CpuMode,
    /// Most processes and threads, from the supervisor's config.
    pub pids_max: u32,
}

/// A value for one of the kernel's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Name of the file in the group.
    pub file: &'static str,
    pub value: String,
    /// Whether a kernel without this file still enforces the limit.
    pub is_optional: bool,
}

impl Setting {
    pub(crate) fn new(file: &'static str, value: impl ToString) -> Self {
        Self {
            file,
            value: value.to_string(),
            is_optional: false,
        }
    }

    /// Marks the setting as one that a kernel without this file does not need.
    pub(crate) fn optional(self) -> Self {
        Self {
            is_optional: true,
            ..self
        }
    }
}
