//! The object of a change, and the order in which changes of one call are made.

use alloc::format;
use alloc::string::{String, ToString};

use sluice_common::id::{PoolName, Subject};

use crate::input::Desired;

/// The order of a change: objects that others need come first, deletions last.
pub(crate) fn rank(wanted: &Desired) -> u8 {
    match wanted {
        Desired::Pool { .. }
        | Desired::Validation { .. }
        | Desired::Template { .. }
        | Desired::Topology { .. } => 0,
        Desired::Policy { .. } | Desired::Platform { .. } => 1,
        Desired::NoPolicy { .. } | Desired::NoPlatform { .. } | Desired::NoValidation { .. } => 2,
        Desired::NoPool { .. } => 3,
        Desired::Cluster { .. } => 4,
        Desired::NoTemplate { .. } | Desired::Access { .. } => 5,
    }
}

/// The pool of a change, if it is about one.
pub(crate) fn pool_of(wanted: &Desired) -> Option<&PoolName> {
    match wanted {
        Desired::Pool { pool, .. }
        | Desired::Policy { pool, .. }
        | Desired::NoPolicy { pool, .. }
        | Desired::Platform { pool, .. }
        | Desired::NoPlatform { pool, .. }
        | Desired::NoPool { pool } => Some(pool),
        Desired::Cluster { .. }
        | Desired::Topology { .. }
        | Desired::Validation { .. }
        | Desired::NoValidation { .. }
        | Desired::Template { .. }
        | Desired::NoTemplate { .. }
        | Desired::Access { .. } => None,
    }
}

/// The subject whose policy a change is about, if any.
pub(crate) fn subject_of(wanted: &Desired) -> Option<&Subject> {
    match wanted {
        Desired::Policy { subject, .. } | Desired::NoPolicy { subject, .. } => Some(subject),
        Desired::Pool { .. }
        | Desired::NoPool { .. }
        | Desired::Cluster { .. }
        | Desired::Topology { .. }
        | Desired::Validation { .. }
        | Desired::NoValidation { .. }
        | Desired::Platform { .. }
        | Desired::NoPlatform { .. }
        | Desired::Template { .. }
        | Desired::NoTemplate { .. } => None,
        Desired::Access { .. } => None,
    }
}

/// The name of the object of a change in messages.
pub(crate) fn name_of(wanted: &Desired) -> String {
    match wanted {
        Desired::Cluster { .. } => "the cluster".to_string(),
        Desired::Topology { .. } => "the topology".to_string(),
        Desired::Template { template, .. } | Desired::NoTemplate { template } => {
            format!("template `{template}`")
        }
        Desired::Access { change } => change.about(),
        Desired::Pool { pool, .. } | Desired::NoPool { pool } => format!("pool `{pool}`"),
        Desired::Policy { pool, subject, .. } | Desired::NoPolicy { pool, subject } => {
            format!("policy of `{subject}` in pool `{pool}`")
        }
        Desired::Validation { validation, .. } | Desired::NoValidation { validation } => {
            format!("validation `{validation}`")
        }
        Desired::Platform { pool, platform, .. } | Desired::NoPlatform { pool, platform } => {
            format!("platform `{platform}` of pool `{pool}`")
        }
    }
}
