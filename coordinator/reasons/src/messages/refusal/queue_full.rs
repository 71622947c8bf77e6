//! The bounds of a subject's live steps, and the sentence about a submit that would exceed one.

use alloc::format;
use alloc::string::String;

use sluice_common::amount::format_memory;
use sluice_common::id::Subject;

/// A bound of a subject's live steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueBound {
    /// Number of steps.
    Steps,
    /// Bytes in the store.
    Bytes,
}

impl QueueBound {
    /// The key of the coordinator's config that sets the bound.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Steps => "max_queued_steps",
            Self::Bytes => "max_queued_bytes",
        }
    }
}

/// A submit that would exceed a bound of its subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueFull {
    pub subject: Subject,
    pub bound: QueueBound,
    pub has: u64,
    /// The amount that would be added.
    pub asked: u64,
    pub limit: u64,
}

pub(super) fn queue_full(full: &QueueFull) -> String {
    let QueueFull {
        subject,
        bound,
        has,
        asked,
        limit,
    } = full;
    let amount = |n| match bound {
        QueueBound::Steps => format!("{n}"),
        QueueBound::Bytes => format_memory(n),
    };
    let (has, asked, limit) = (amount(*has), amount(*asked), amount(*limit));
    let has = match bound {
        QueueBound::Steps => format!("{has} steps that wait or run"),
        QueueBound::Bytes => format!("steps that wait or run of {has} in all"),
    };
    format!(
        "`{subject}` has {has}, this would add {asked}, and the maximum is {limit}: cancel some or wait until some have \
         ended, or have the operator of the coordinator raise `{}`",
        bound.key()
    )
}
