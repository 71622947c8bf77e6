//! Faults that keep a GPU from being granted, as its host reports them; used on the link, in the log and in the API. A
//! GPU without a fault may be granted.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// Most process ids that a fault lists.
pub const MAX_NAMED_PIDS: usize = 16;

/// Fault of a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum GpuFault {
    /// The GPU is withheld until it is seen free or an admin restores it.
    Quarantined {
        /// Cause as a clause for people, such as `its memory is held by pid 4711`.
        why: String,
        /// Processes that hold the GPU, if any were seen.
        pids: Vec<u32>,
    },
    /// Processes that belong to no step use the GPU.
    Foreign {
        /// Ids of the processes.
        pids: Vec<u32>,
    },
    /// The GPU does not answer: it has fallen off the bus.
    Lost,
}

/// Faults by GPU UUID. Every report is complete.
pub type GpuFaults = BTreeMap<String, GpuFault>;

/// State of a host's GPUs. Each report replaces all earlier ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuStates {
    /// Faults by GPU UUID.
    pub faults: GpuFaults,
    /// Reason why the whole host should take no more work, if any.
    pub drain: Option<String>,
}

impl GpuFault {
    /// One-word name for tables.
    pub const fn as_str(&self) -> &'static str {
        match self {
            GpuFault::Quarantined { .. } => "quarantined",
            GpuFault::Foreign { .. } => "foreign",
            GpuFault::Lost => "lost",
        }
    }
}

impl fmt::Display for GpuFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GpuFault::Quarantined { why, .. } => write!(f, "quarantined: {why}"),
            GpuFault::Foreign { pids } => {
                write!(
                    f,
                    "foreign: used by {}, which no step started",
                    PidList(pids)
                )
            }
            GpuFault::Lost => f.write_str("lost: it does not answer; look at the kernel's log"),
        }
    }
}

/// Formats process ids in a sentence: `pid 7`, `pids 7 and 9`.
pub struct PidList<'a>(pub &'a [u32]);

impl fmt::Display for PidList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => f.write_str("no process that can be seen"),
            [one] => write!(f, "pid {one}"),
            [first, rest @ ..] => {
                write!(f, "pids {first}")?;
                let last = rest.len() - 1;
                rest.iter().enumerate().try_for_each(|(place, pid)| {
                    let joint = if place == last { " and" } else { "," };
                    write!(f, "{joint} {pid}")
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;

    #[test]
    fn a_fault_names_who_holds_the_gpu() {
        assert_eq!(PidList(&[]).to_string(), "no process that can be seen");
        assert_eq!(PidList(&[7]).to_string(), "pid 7");
        assert_eq!(PidList(&[7, 8, 9]).to_string(), "pids 7, 8 and 9");
        let foreign = GpuFault::Foreign { pids: vec![7, 9] };
        assert_eq!(
            foreign.to_string(),
            "foreign: used by pids 7 and 9, which no step started"
        );
        assert_eq!(
            (foreign.as_str(), GpuFault::Lost.as_str()),
            ("foreign", "lost")
        );
    }
}
