//! Sentences about users of what a change takes away.

use alloc::vec::Vec;
use core::fmt;

use sluice_common::amount::ResourceKey;
use sluice_common::id::{PoolName, StepId, Subject, TemplateName};
use sluice_common::quantity::figure;

/// Steps or a document that use what a change takes away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// The object or amount that would be missing.
    pub what: InUse,
    /// The steps that use it.
    pub steps: Vec<StepId>,
}

/// The object or amount in use that a change takes away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InUse {
    /// An amount of a pool, or of a subject's policy there.
    Shrinks {
        pool: PoolName,
        subject: Option<Subject>,
        key: ResourceKey,
        to: u64,
        shrunk: Shrunk,
    },
    /// A pool, or a subject's policy there.
    Gone {
        pool: PoolName,
        subject: Option<Subject>,
    },
    /// Terms that let queued steps start.
    Waiting,
    /// A template that a pool names.
    Template {
        template: TemplateName,
        pool: PoolName,
    },
}

/// The amount that shrinks, and the amount in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shrunk {
    Capacity {
        used: u64,
    },
    Limit {
        used: u64,
    },
    /// The reserved amount, used by steps that are not preemptible.
    Reserved {
        used: u64,
    },
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            InUse::Shrinks {
                pool,
                subject,
                key,
                to,
                shrunk,
            } => {
                write_owner(f, pool, subject.as_ref())?;
                shrinks(f, subject.as_ref(), key, *to, *shrunk)
            }
            InUse::Gone { pool, subject } => {
                write_owner(f, pool, subject.as_ref())?;
                match subject {
                    Some(subject) => write!(f, "steps of `{subject}` run in it"),
                    None => f.write_str("steps run in it"),
                }
            }
            InUse::Waiting => match self.steps.len() {
                1 => f.write_str("a step that waits could never start and would be rejected"),
                n => write!(
                    f,
                    "{n} steps that wait could never start and would be rejected"
                ),
            },
            InUse::Template { template, pool } => {
                write!(f, "template `{template}`: pool `{pool}` names it")
            }
        }
    }
}

fn write_owner(
    f: &mut fmt::Formatter<'_>,
    pool: &PoolName,
    subject: Option<&Subject>,
) -> fmt::Result {
    match subject {
        Some(subject) => write!(f, "policy of `{subject}` in pool `{pool}`: "),
        None => write!(f, "pool `{pool}`: "),
    }
}

fn shrinks(
    f: &mut fmt::Formatter<'_>,
    subject: Option<&Subject>,
    key: &ResourceKey,
    to: u64,
    shrunk: Shrunk,
) -> fmt::Result {
    let of = |n| figure(key.as_str(), n);
    let (to, subject) = (of(to), subject.map_or("", Subject::as_str));
    match shrunk {
        Shrunk::Capacity { used } => {
            write!(
                f,
                "capacity.{key} would be {to}, and {} are in use",
                of(used)
            )
        }
        Shrunk::Limit { used } => {
            write!(
                f,
                "limit.{key} would be {to}, and `{subject}` uses {}",
                of(used)
            )
        }
        Shrunk::Reserved { used } => write!(
            f,
            "reserved.{key} would be {to}, and steps of `{subject}` that are not preemptible use {}",
            of(used)
        ),
    }
}
