//! Why a GPU is not to be granted, as its host sees it: the same words on the link, in the log and in the API. A GPU of
//! which nothing is said here is fit to be granted.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// Processes of one GPU that are named. More say nothing more to an admin who looks for one to begin with.
pub const MAX_NAMED_PIDS: usize = 16;

/// What is wrong with a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum GpuFault {
    /// It is kept back until it is seen free, or until an admin lets it in again.
    Quarantined {
        /// One clause for people, such as `its memory is held by pid 4711`.
        why: String,
        /// The processes that hold it, where some were seen.
        pids: Vec<u32>,
    },
    /// Processes that are no step's use it.
    Foreign {
        /// Which.
        pids: Vec<u32>,
    },
    /// It does not answer: it has fallen off the bus.
    Lost,
}

/// What is wrong with the GPUs of a host, by UUID: all that is wrong, each time that it is told.
pub type GpuFaults = BTreeMap<String, GpuFault>;

/// How a host stands that has GPUs. It implies all that was said before it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuStates {
    /// What is wrong with which GPU.
    pub faults: GpuFaults,
    /// Why the host as a whole is to take no more work, where it is.
    pub drain: Option<String>,
}

impl GpuFault {
    /// One word for tables.
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

/// Processes as a sentence names them: `pid 7`, `pids 7 and 9`.
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
