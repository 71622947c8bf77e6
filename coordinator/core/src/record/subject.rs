//! The subject of a record (a step, nodes, a pool), and the pools in which it could let a step start. Log readers
//! filter by the subject, and access to events depends on it.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use sluice_common::environment::Environment;
use sluice_common::id::{AttemptId, NodeName, PoolName, ServiceName, StepId, Subject};
use sluice_common::step::StepSpec;

use crate::model::service::environment_key;

use super::{
    Adopted, Allocated, CarvingFailed, GpusCordoned, JoinRefused, JoinTokenUsed, NodeDraining,
    NodeLabelled, NotSuspended, PartQueued, PartsEnded, PlatformPut, PolicyPut, PoolPut,
    PortsAllocated, ReadinessChanged, Record, Renewal, ReplicaChanged, ReplicaEnded, ReplicaFailed,
    ReplicaStarted, ServiceDeleted, ServiceScale, Started, StepEnded, StepMoved, Stopping,
    Suspending,
};

/// The subject of a record.
pub enum RecordSubject<'a> {
    /// A submitted step with its spec.
    Submitted(&'a StepId, &'a StepSpec),
    /// A step as a whole.
    Step(&'a StepId),
    /// One attempt of a step, with the host if the record is about one.
    Attempt(&'a AttemptId, Option<&'a NodeName>),
    Node(&'a NodeName),
    /// A pool, or a platform of it.
    Pool(&'a PoolName),
    /// The policy of a subject in a pool.
    Policy(&'a PoolName, &'a Subject),
    /// The cluster as a whole.
    Cluster,
    Templates,
    Validations,
    /// A service, or a replica of it.
    Service(&'a ServiceName),
    /// Join tokens for any pool, with the host if one is named.
    Joining(Option<&'a NodeName>),
    /// Roles, bindings and API tokens.
    Access,
    Audit,
}

/// The pools in which a record could let a step start.
pub(crate) enum Effect<'a> {
    Nothing,
    Pool(&'a PoolName),
    /// The pool of a node.
    Node(&'a NodeName),
    /// The pools in which a step is queued.
    Waiting(&'a StepId),
    /// The pool whose resources an attempt holds: those that come free by themselves may complete what a queued step needs.
    Run(&'a AttemptId),
    /// The pool whose resources an attempt held on a node, and the pool that the node is in now.
    Freed(&'a AttemptId, &'a NodeName),
    /// Every pool, such as after a recovery, during which nothing was checked.
    AllPools,
}

impl Record {
    /// The subject of the record.
    pub fn about(&self) -> RecordSubject<'_> {
        self.subject_and_effect().0
    }

    /// The pools in which the record could let a step start.
    pub(crate) fn effect(&self) -> Effect<'_> {
        self.subject_and_effect().1
    }

    /// The one list of all records with subject and effect.
    fn subject_and_effect(&self) -> (RecordSubject<'_>, Effect<'_>) {
        use {Effect as E, Record as R, RecordSubject as A};
        let freed = |attempt, node| (A::Attempt(attempt, Some(node)), E::Freed(attempt, node));
        match self {
            R::StepQueued(it) => (A::Submitted(&it.step, &it.spec), E::Waiting(&it.step)),
            R::StepRejected(it) => (A::Submitted(&it.step, &it.spec), E::Nothing),
            R::StepMoved(StepMoved { step, .. })
            | R::PartQueued(PartQueued { step, .. })
            | R::DependencyMet { step, .. }
            | R::BeginReached { step }
            | R::Requeued { step, .. }
            | R::StepEnded(StepEnded { step, .. })
            | R::Held { step }
            | R::Unheld { step } => (A::Step(step), E::Waiting(step)),
            R::Renewed(Renewal { step, .. })
            | R::Nominated { step, .. }
            | R::Withdrawn { step }
            | R::PartsEnded(PartsEnded { step, .. })
            | R::StepForgotten { step, .. } => (A::Step(step), E::Nothing),
            R::Allocated(Allocated { attempt, .. }) | R::Resuming { attempt, .. } => {
                (A::Attempt(attempt, None), E::Waiting(&attempt.step))
            }
            R::Stopping(it) => (A::Attempt(&it.attempt, None), E::Run(&it.attempt)),
            R::Suspending(it) => (A::Attempt(&it.attempt, None), E::Run(&it.attempt)),
            R::Ended(it) => (A::Attempt(&it.attempt, Some(&it.node)), E::Run(&it.attempt)),
            R::Released(it) => freed(&it.attempt, &it.node),
            R::Suspended(it) => freed(&it.attempt, &it.node),
            R::Checkpointed { attempt, .. } => (A::Attempt(attempt, None), E::Nothing),
            R::Starting { attempt, node }
            | R::Started(Started { attempt, node, .. })
            | R::PortsAllocated(PortsAllocated { attempt, node, .. })
            | R::ReadinessChanged(ReadinessChanged { attempt, node, .. })
            | R::Resumed { attempt, node }
            | R::NotSuspended(NotSuspended { attempt, node, .. })
            | R::Adopted(Adopted { attempt, node, .. }) => {
                (A::Attempt(attempt, Some(node)), E::Nothing)
            }
            R::NodeReported(it) => (A::Node(&it.node), E::Node(&it.node)),
            R::NodeReady { node }
            | R::NodeReconciling { node }
            | R::NodeUnsupervised { node, .. }
            | R::NodeUnreachable { node }
            | R::NodeLost { node }
            | R::NodeCordoned { node, .. }
            | R::NodeDraining(NodeDraining { node, .. })
            | R::NodeUncordoned { node }
            | R::NodeMoving { node, .. }
            | R::NodeMoved { node, .. }
            | R::NodeLabelled(NodeLabelled { node, .. })
            | R::NodeLeaving { node }
            | R::NodeDeleted { node }
            | R::GpusReported { node, .. }
            | R::GpusCordoned(GpusCordoned { node, .. })
            | R::GpusUncordoned { node, .. }
            | R::GpuCarving { node, .. }
            | R::GpuCarved { node, .. }
            | R::GpuNotCarved(CarvingFailed { node, .. }) => (A::Node(node), E::Node(node)),
            R::NodeDrained { node } | R::NodeRefused { node, .. } | R::NodeRevoked { node, .. } => {
                (A::Node(node), E::Nothing)
            }
            R::PoolPut(PoolPut { pool, .. })
            | R::PlatformPut(PlatformPut { pool, .. })
            | R::PlatformDeleted { pool, .. }
            | R::PoolDeleted { pool } => (A::Pool(pool), E::Pool(pool)),
            R::PolicyPut(PolicyPut { pool, subject, .. }) | R::PolicyDeleted { pool, subject } => {
                (A::Policy(pool, subject), E::Pool(pool))
            }
            R::RecoveryEnded { .. } | R::TopologyPut { .. } => (A::Cluster, E::AllPools),
            R::CoordinatorStarted { .. }
            | R::ClockJumped(_)
            | R::ClusterPut { .. }
            | R::RecoveryBegan { .. } => (A::Cluster, E::Nothing),
            R::TemplatePut { .. } | R::TemplateDeleted { .. } => (A::Templates, E::Nothing),
            R::ValidationPut { .. } | R::ValidationDeleted { .. } => (A::Validations, E::Nothing),
            R::ServicePut(it) => (A::Service(&it.service), E::Nothing),
            R::ServiceScaled(ServiceScale { service, .. })
            | R::ServiceDeleting { service }
            | R::ServiceDeleted(ServiceDeleted { service, .. })
            | R::ReplicaStarted(ReplicaStarted { service, .. })
            | R::ReplicaChanged(ReplicaChanged { service, .. })
            | R::ReplicaEnded(ReplicaEnded { service, .. })
            | R::ReplicaFailed(ReplicaFailed { service, .. })
            | R::ServiceRecovered { service }
            | R::RolloutEnded { service, .. } => (A::Service(service), E::Nothing),
            R::JoinTokenMade(made) => (A::Joining(made.node.as_ref()), E::Nothing),
            R::JoinTokenUsed(JoinTokenUsed { node, .. })
            | R::JoinRefused(JoinRefused { node, .. }) => (A::Joining(Some(node)), E::Nothing),
            R::JoinTokenRevoked { .. } => (A::Joining(None), E::Nothing),
            R::AccessChanged { .. } => (A::Access, E::Nothing),
            R::Audited { .. } => (A::Audit, E::Nothing),
        }
    }

    /// The step that the record is about, if any.
    pub fn step(&self) -> Option<&StepId> {
        match self.about() {
            RecordSubject::Submitted(step, _) | RecordSubject::Step(step) => Some(step),
            RecordSubject::Attempt(attempt, _) => Some(&attempt.step),
            RecordSubject::Node(_)
            | RecordSubject::Pool(_)
            | RecordSubject::Policy(..)
            | RecordSubject::Cluster
            | RecordSubject::Templates
            | RecordSubject::Validations
            | RecordSubject::Service(_)
            | RecordSubject::Joining(_)
            | RecordSubject::Access
            | RecordSubject::Audit => None,
        }
    }

    /// The variables of a submitted step or of a version of a service, if the record submits one that has any, with the
    /// key under which they are stored.
    pub fn environment(&self) -> Option<(String, &Environment)> {
        let (key, env) = if let Record::Adopted(Adopted {
            attempt, warrant, ..
        }) = self
        {
            (attempt.step.to_string(), &warrant.spec.env)
        } else if let Record::ServicePut(it) = self {
            let key = environment_key(&it.service, it.revision);
            (key, &it.spec.replica.env)
        } else if let RecordSubject::Submitted(step, spec) = self.about() {
            (step.to_string(), &spec.env)
        } else {
            return None;
        };
        (!env.is_empty()).then_some((key, env))
    }

    /// The keys of the variables that are no longer needed after the record.
    pub fn forgotten_environments(&self) -> Vec<String> {
        if let Record::StepForgotten { step, .. } = self {
            return Vec::from([step.to_string()]);
        }
        let keys = |service: &ServiceName, revisions: &[u32]| {
            let keys = revisions.iter();
            keys.map(|revision| environment_key(service, *revision))
                .collect()
        };
        if let Record::ServiceDeleted(it) = self {
            return keys(&it.service, &it.revisions);
        }
        if let Record::ServicePut(it) = self {
            return keys(&it.service, it.forgets.as_slice());
        }
        Vec::new()
    }

    /// The step that the record preempts, and the step that preempts it.
    pub fn gives_way(&self) -> Option<(&StepId, &StepId)> {
        let (Record::Stopping(Stopping { attempt, by, .. })
        | Record::Suspending(Suspending { attempt, by, .. })) = self
        else {
            return None;
        };
        Some((&attempt.step, by.as_ref()?))
    }

    /// Whether the record names a node: as its subject, or as a host on which resources are granted, nominated or
    /// freed.
    pub fn names(&self, wanted: &NodeName) -> bool {
        if let Record::Allocated(Allocated { placements, .. }) = self {
            return placements.iter().any(|p| p.node == *wanted);
        }
        if let Record::Adopted(Adopted { warrant, .. }) = self {
            return warrant.placements.iter().any(|p| p.node == *wanted);
        }
        if let Record::Nominated { nomination, .. } = self {
            return nomination.hosts.contains(wanted);
        }
        match self.about() {
            RecordSubject::Node(node)
            | RecordSubject::Attempt(_, Some(node))
            | RecordSubject::Joining(Some(node)) => node == wanted,
            RecordSubject::Submitted(..)
            | RecordSubject::Step(_)
            | RecordSubject::Attempt(_, None)
            | RecordSubject::Pool(_)
            | RecordSubject::Policy(..)
            | RecordSubject::Cluster
            | RecordSubject::Templates
            | RecordSubject::Validations
            | RecordSubject::Service(_)
            | RecordSubject::Joining(None)
            | RecordSubject::Access
            | RecordSubject::Audit => false,
        }
    }
}
