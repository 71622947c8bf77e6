//! In which order changes of one call are made.

use crate::input::Wanted;

/// What is made first: what others need. What is taken away goes last.
pub(super) fn rank(wanted: &Wanted) -> u8 {
    match wanted {
        Wanted::Pool { .. } | Wanted::Validation { .. } | Wanted::Template { .. } => 0,
        Wanted::Policy { .. } | Wanted::Platform { .. } => 1,
        Wanted::NoPolicy { .. } | Wanted::NoPlatform { .. } | Wanted::NoValidation { .. } => 2,
        Wanted::NoPool { .. } => 3,
        Wanted::Cluster { .. } => 4,
        Wanted::NoTemplate { .. } | Wanted::Access { .. } => 5,
    }
}
