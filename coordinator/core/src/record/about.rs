//! What a record is about: the step, the nodes that it names, the pool. Who reads the log asks it by these, and who may
//! hear of it hangs on them.

use sluice_common::environment::Environment;
use sluice_common::id::{AttemptId, NodeName, PoolName, StepId, Subject};
use sluice_common::step::StepSpec;

use crate::record;

use super::Record;

/// What a record is about.
pub enum About<'a> {
    /// A step that was submitted: what was asked for.
    Submitted(&'a StepId, &'a StepSpec),
    /// A step as a whole.
    Step(&'a StepId),
    /// One attempt of a step; the host of it, where one host is meant.
    Attempt(&'a AttemptId, Option<&'a NodeName>),
    /// A host.
    Node(&'a NodeName),
    /// A pool, or a platform of it.
    Pool(&'a PoolName),
    /// What a subject may in a pool.
    Policy(&'a PoolName, &'a Subject),
    /// The cluster as a whole.
    Cluster,
    /// Templates.
    Templates,
    /// Validations.
    Validations,
    /// Tokens by which hosts join, into whichever pool; the host, where one is named.
    Joining(Option<&'a NodeName>),
    /// Who may do what.
    Access,
    /// Who did what.
    Audit,
}

impl Record {
    /// What it is about.
    pub fn about(&self) -> About<'_> {
        match self {
            Record::StepQueued(record::StepQueued { step, spec, .. })
            | Record::StepRejected(record::StepRejected { step, spec, .. }) => {
                About::Submitted(step, spec)
            }
            Record::Requeued { step, .. }
            | Record::StepEnded(record::StepEnded { step, .. })
            | Record::Nominated { step, .. }
            | Record::Withdrawn { step }
            | Record::Held { step }
            | Record::Unheld { step }
            | Record::StepForgotten { step } => About::Step(step),
            Record::Allocated(record::Allocated { attempt, .. })
            | Record::Stopping(record::Stopping { attempt, .. })
            | Record::Checkpointed { attempt, .. }
            | Record::Suspending(record::Suspending { attempt, .. })
            | Record::Resuming { attempt, .. } => About::Attempt(attempt, None),
            Record::Starting { attempt, node, .. }
            | Record::Started(record::Started { attempt, node, .. })
            | Record::Ended(record::Ended { attempt, node, .. })
            | Record::Released { attempt, node, .. }
            | Record::Suspended(record::Suspended { attempt, node, .. })
            | Record::Resumed { attempt, node, .. }
            | Record::NotSuspended(record::NotSuspended { attempt, node, .. })
            | Record::Adopted(record::Adopted { attempt, node, .. }) => {
                About::Attempt(attempt, Some(node))
            }
            Record::NodeReported(record::NodeReported { node, .. })
            | Record::NodeReady { node }
            | Record::NodeReconciling { node }
            | Record::NodeUnsupervised { node, .. }
            | Record::NodeUnreachable { node }
            | Record::NodeLost { node }
            | Record::NodeRefused { node, .. }
            | Record::NodeCordoned { node, .. }
            | Record::NodeDraining(record::NodeDraining { node, .. })
            | Record::NodeUncordoned { node }
            | Record::NodeMoving { node, .. }
            | Record::NodeMoved { node, .. }
            | Record::NodeLabelled(record::NodeLabelled { node, .. })
            | Record::NodeLeaving { node }
            | Record::NodeDeleted { node }
            | Record::NodeDrained { node }
            | Record::GpusReported { node, .. }
            | Record::GpusCordoned(record::GpusCordoned { node, .. })
            | Record::NodeRevoked { node, .. }
            | Record::GpusUncordoned { node, .. } => About::Node(node),
            Record::PoolPut(record::PoolPut { pool, .. })
            | Record::PlatformPut(record::PlatformPut { pool, .. })
            | Record::PlatformDeleted { pool, .. }
            | Record::PoolDeleted { pool } => About::Pool(pool),
            Record::PolicyPut(record::PolicyPut { pool, subject, .. })
            | Record::PolicyDeleted { pool, subject } => About::Policy(pool, subject),
            Record::CoordinatorStarted { .. }
            | Record::ClockJumped(_)
            | Record::ClusterPut { .. }
            | Record::RecoveryBegan { .. }
            | Record::RecoveryEnded { .. } => About::Cluster,
            Record::TemplatePut { .. } | Record::TemplateDeleted { .. } => About::Templates,
            Record::ValidationPut { .. } | Record::ValidationDeleted { .. } => About::Validations,
            Record::JoinTokenMade(made) => About::Joining(made.node.as_ref()),
            Record::JoinTokenUsed(record::JoinTokenUsed { node, .. })
            | Record::JoinRefused(record::JoinRefused { node, .. }) => About::Joining(Some(node)),
            Record::JoinTokenRevoked { .. } => About::Joining(None),
            Record::AccessChanged { .. } => About::Access,
            Record::Audited { .. } => About::Audit,
        }
    }

    /// The step that it is about, if it is about one.
    pub fn step(&self) -> Option<&StepId> {
        match self.about() {
            About::Submitted(step, _) | About::Step(step) => Some(step),
            About::Attempt(attempt, _) => Some(&attempt.step),
            About::Node(_)
            | About::Pool(_)
            | About::Policy(..)
            | About::Cluster
            | About::Templates
            | About::Validations
            | About::Joining(_)
            | About::Access
            | About::Audit => None,
        }
    }

    /// A step and the variables that it was submitted with, where it was made known and has any.
    pub fn environment(&self) -> Option<(&StepId, &Environment)> {
        if let Record::Adopted(record::Adopted {
            attempt, warrant, ..
        }) = self
        {
            let env = &warrant.spec.env;
            return (!env.is_empty()).then_some((&attempt.step, env));
        }
        match self.about() {
            About::Submitted(step, spec) if !spec.env.is_empty() => Some((step, &spec.env)),
            About::Submitted(..)
            | About::Step(_)
            | About::Attempt(..)
            | About::Node(_)
            | About::Joining(_)
            | About::Pool(_)
            | About::Policy(..)
            | About::Cluster
            | About::Templates
            | About::Validations
            | About::Access
            | About::Audit => None,
        }
    }

    /// The step that gives way by it, stopped or frozen, and the one to which it does.
    pub fn gives_way(&self) -> Option<(&StepId, &StepId)> {
        let (Record::Stopping(record::Stopping { attempt, by, .. })
        | Record::Suspending(record::Suspending { attempt, by, .. })) = self
        else {
            return None;
        };
        Some((&attempt.step, by.as_ref()?))
    }

    /// Whether it names a node: as the one that it is about, or on which units are granted, promised or returned.
    pub fn names(&self, wanted: &NodeName) -> bool {
        if let Record::Allocated(record::Allocated { placements, .. }) = self {
            return placements.iter().any(|p| p.node == *wanted);
        }
        if let Record::Adopted(record::Adopted { warrant, .. }) = self {
            return warrant.placements.iter().any(|p| p.node == *wanted);
        }
        if let Record::Nominated { nomination, .. } = self {
            return nomination.hosts.contains(wanted);
        }
        match self.about() {
            About::Node(node) | About::Attempt(_, Some(node)) | About::Joining(Some(node)) => {
                node == wanted
            }
            About::Submitted(..)
            | About::Step(_)
            | About::Attempt(_, None)
            | About::Pool(_)
            | About::Policy(..)
            | About::Cluster
            | About::Templates
            | About::Validations
            | About::Joining(None)
            | About::Access
            | About::Audit => false,
        }
    }
}
