//! What a change of terms is about, and in which order changes of one call are made.

use alloc::format;
use alloc::string::{String, ToString};

use sluice_common::id::{PoolName, Subject};

use crate::input::Wanted;

/// What is made first: what others need. What is taken away goes last.
pub(crate) fn rank(wanted: &Wanted) -> u8 {
    match wanted {
        Wanted::Pool { .. } | Wanted::Validation { .. } | Wanted::Template { .. } => 0,
        Wanted::Policy { .. } | Wanted::Platform { .. } => 1,
        Wanted::NoPolicy { .. } | Wanted::NoPlatform { .. } | Wanted::NoValidation { .. } => 2,
        Wanted::NoPool { .. } => 3,
        Wanted::Cluster { .. } => 4,
        Wanted::NoTemplate { .. } | Wanted::Access { .. } => 5,
    }
}

/// The pool that a change is about, where it is about one.
pub(crate) fn pool_of(wanted: &Wanted) -> Option<&PoolName> {
    match wanted {
        Wanted::Pool { pool, .. }
        | Wanted::Policy { pool, .. }
        | Wanted::NoPolicy { pool, .. }
        | Wanted::Platform { pool, .. }
        | Wanted::NoPlatform { pool, .. }
        | Wanted::NoPool { pool } => Some(pool),
        Wanted::Cluster { .. }
        | Wanted::Validation { .. }
        | Wanted::NoValidation { .. }
        | Wanted::Template { .. }
        | Wanted::NoTemplate { .. }
        | Wanted::Access { .. } => None,
    }
}

/// The subject whose policy a change is about, where it is about one.
pub(crate) fn subject_of(wanted: &Wanted) -> Option<&Subject> {
    match wanted {
        Wanted::Policy { subject, .. } | Wanted::NoPolicy { subject, .. } => Some(subject),
        Wanted::Pool { .. }
        | Wanted::NoPool { .. }
        | Wanted::Cluster { .. }
        | Wanted::Validation { .. }
        | Wanted::NoValidation { .. }
        | Wanted::Platform { .. }
        | Wanted::NoPlatform { .. }
        | Wanted::Template { .. }
        | Wanted::NoTemplate { .. } => None,
        Wanted::Access { .. } => None,
    }
}

/// As messages call what a change is about.
pub(crate) fn name_of(wanted: &Wanted) -> String {
    match wanted {
        Wanted::Cluster { .. } => "the cluster".to_string(),
        Wanted::Template { template, .. } | Wanted::NoTemplate { template } => {
            format!("template `{template}`")
        }
        Wanted::Access { change } => change.about(),
        Wanted::Pool { pool, .. } | Wanted::NoPool { pool } => format!("pool `{pool}`"),
        Wanted::Policy { pool, subject, .. } | Wanted::NoPolicy { pool, subject } => {
            format!("policy of `{subject}` in pool `{pool}`")
        }
        Wanted::Validation { validation, .. } | Wanted::NoValidation { validation } => {
            format!("validation `{validation}`")
        }
        Wanted::Platform { pool, platform, .. } | Wanted::NoPlatform { pool, platform } => {
            format!("platform `{platform}` of pool `{pool}`")
        }
    }
}
