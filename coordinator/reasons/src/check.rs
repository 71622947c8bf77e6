//! Findings of a dry run of a submit, one by one. The sentences are in `messages/check.rs`.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::id::{NodeName, PlatformName, StepId, Subject, ValidationName};

use sluice_common::time::Time;

use crate::{Refusal, Rejection, StepReason, Wait};

/// A finding of a dry run of a submit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// The subject may submit to the pool.
    Policy {
        subject: Subject,
        priority: u64,
        /// The subject whose policy it is, if that is another.
        by: Option<Subject>,
        /// Whether the cluster's defaults route it to the pool.
        by_default: bool,
    },
    /// No pool takes it.
    NoPool(Rejection),
    /// The pool is in maintenance: the admin's message, and whether the submitter may use it all the same.
    Maintenance { message: String, admin: bool },
    /// The value that a field gets, and its origin.
    Filled {
        field: String,
        value: String,
        from: String,
    },
    /// The pool could never grant it.
    Never(Rejection),
    /// The result of an assertion.
    Assertion {
        document: ValidationName,
        platform: Option<PlatformName>,
        assert: String,
        outcome: AssertionOutcome,
    },
    /// The requested platforms (any if empty), and their hosts that could hold the step.
    Hosts {
        platforms: Vec<PlatformName>,
        hosts: Vec<NodeName>,
    },
    /// The deadline of the step has passed.
    DeadlinePassed { deadline: Time },
    /// The step is to start after one that does not exist.
    UnknownDependency { on: StepId },
    /// The id is in use, or parts cannot be paired.
    Refused(Box<Refusal>),
    /// The step would be rejected, or end because of a step after which it is to start.
    Rejected(StepReason),
    /// The step would wait for other steps or for a time.
    Later(StepReason),
    /// The step would start at once: its hosts, and the number of GPUs on each.
    Starts {
        standing: StepReason,
        parts: Vec<(NodeName, usize)>,
    },
    /// The step would be queued: its place, the length of the queue, and the reason.
    Waits { place: (usize, usize), wait: Wait },
}

/// The result of an assertion.
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
