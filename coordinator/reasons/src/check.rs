//! What a dry run of a submit finds, one thing at a time. The sentences are in `messages/check.rs`.

use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::id::{NodeName, PlatformName, Subject, ValidationName};

use crate::{Rejection, StepReason, Wait};

/// One thing that a dry run of a submit looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// Its subject may submit to the pool.
    Policy {
        subject: Subject,
        priority: u64,
        /// Whose policy it is, where that is another's.
        by: Option<Subject>,
        /// Whether the cluster's defaults send it to the pool.
        by_default: bool,
    },
    /// No pool takes it.
    NoPool(Rejection),
    /// The pool takes new steps of its admins alone: why, in an admin's words, and whether this is one.
    Maintenance { message: String, admin: bool },
    /// A field as it would be, and where the value is from.
    Filled {
        field: String,
        value: String,
        from: String,
    },
    /// The pool could never grant it.
    Never(Rejection),
    /// An assertion, and how it comes out.
    Assertion {
        document: ValidationName,
        platform: Option<PlatformName>,
        assert: String,
        outcome: AssertionOutcome,
    },
    /// The platforms that it asks for, any where there is none, and the hosts of them that could hold it.
    Hosts {
        platforms: Vec<PlatformName>,
        hosts: Vec<NodeName>,
    },
    /// It would be rejected.
    Rejected(StepReason),
    /// It would start at once: its hosts, and how many GPUs it would have on each.
    Starts {
        standing: StepReason,
        parts: Vec<(NodeName, usize)>,
    },
    /// It would wait: at which place of how many, and for what.
    Waits { place: (usize, usize), wait: Wait },
}

/// How an assertion comes out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AssertionOutcome {
    /// It holds for the step.
    Holds,
    /// Its `when` does not hold, so it asks for nothing.
    Unschedulable,
    /// It holds on so many hosts of so many.
    HoldsOn {
        /// How many keep it.
        keep: usize,
        /// How many were looked at.
        of: usize,
    },
    /// It does not hold, with the numbers.
    Fails(String),
}
