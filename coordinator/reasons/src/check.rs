//! What a dry run of a submit finds, one thing at a time. The sentences are in `messages/check.rs`.

use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::id::{NodeName, PlatformName, Subject, ValidationName};

use crate::{Rejection, StepReason, Wait};

/// One thing that a dry run of a submit looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// The subject may submit to the pool.
    Policy {
        subject: Subject,
        priority: u64,
        /// Whose policy it is, if that is another's.
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
    /// The step would be rejected.
    Rejected(StepReason),
    /// The step would start at once: its hosts, and how many GPUs it would have on each.
    Starts {
        standing: StepReason,
        parts: Vec<(NodeName, usize)>,
    },
    /// The step would wait: at which place of how many, and for what.
    Waits { place: (usize, usize), wait: Wait },
}

/// How an assertion comes out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AssertionOutcome {
    /// The assertion holds for the step.
    Holds,
    /// The `when` of the assertion does not hold, so it asks for nothing.
    NotApplicable,
    /// The assertion holds on some hosts.
    HoldsOn {
        /// Number of hosts that satisfy it.
        keep: usize,
        /// Number of hosts that were checked.
        of: usize,
    },
    /// The assertion does not hold; the text has the numbers.
    Fails(String),
}
