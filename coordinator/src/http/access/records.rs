//! Which records of the log a caller may hear of: those of what he could see if he asked. Records of a step name it and
//! not its subject, so where it is must be looked up; one that is forgotten is told to those alone who may see all.

use std::collections::{BTreeMap, BTreeSet};

use coordinator_core::{Core, Record};
use sluice_common::access::{At, Resource, Verb};
use sluice_common::id::{NodeName, PoolName, StepId, Subject};

use super::super::Api;
use super::super::error::ApiError;
use super::Caller;
use crate::view;

/// What a record is about.
enum About<'a> {
    Step(&'a StepId),
    Submit(&'a Subject, Option<&'a PoolName>),
    Node(&'a NodeName),
    Pool(&'a PoolName),
    Policy(&'a PoolName, &'a Subject),
    /// Of the cluster as a whole.
    Whole(Resource),
}

fn about(record: &Record) -> About<'_> {
    match record {
        Record::StepQueued { spec, .. } | Record::StepRejected { spec, .. } => {
            About::Submit(&spec.subject, spec.pool.as_ref())
        }
        Record::Requeued { step, .. }
        | Record::StepEnded { step, .. }
        | Record::Nominated { step, .. }
        | Record::Withdrawn { step }
        | Record::Held { step }
        | Record::Unheld { step }
        | Record::StepForgotten { step } => About::Step(step),
        Record::Allocated { attempt, .. }
        | Record::Starting { attempt, .. }
        | Record::Started { attempt, .. }
        | Record::Stopping { attempt, .. }
        | Record::Checkpointed { attempt, .. }
        | Record::Ended { attempt, .. }
        | Record::Released { attempt, .. }
        | Record::Suspending { attempt, .. }
        | Record::Suspended { attempt, .. }
        | Record::Resuming { attempt, .. }
        | Record::Resumed { attempt, .. }
        | Record::NotSuspended { attempt, .. } => About::Step(&attempt.step),
        Record::NodeReported { node, .. }
        | Record::NodeReady { node }
        | Record::NodeReconciling { node }
        | Record::NodeUnreachable { node }
        | Record::NodeLost { node }
        | Record::NodeCordoned { node, .. }
        | Record::NodeDraining { node, .. }
        | Record::NodeUncordoned { node }
        | Record::NodeLabelled { node, .. }
        | Record::NodeLeaving { node }
        | Record::NodeDeleted { node }
        | Record::NodeDrained { node }
        | Record::GpusReported { node, .. }
        | Record::GpusCordoned { node, .. }
        | Record::NodeMoving { node, .. }
        | Record::NodeMoved { node, .. }
        | Record::GpusUncordoned { node, .. } => About::Node(node),
        Record::PoolPut { pool, .. }
        | Record::PlatformPut { pool, .. }
        | Record::PlatformDeleted { pool, .. }
        | Record::PoolDeleted { pool } => About::Pool(pool),
        Record::PolicyPut { pool, subject, .. } | Record::PolicyDeleted { pool, subject } => {
            About::Policy(pool, subject)
        }
        Record::CoordinatorStarted { .. } | Record::ClusterPut { .. } => {
            About::Whole(Resource::Cluster)
        }
        Record::ValidationPut { .. } | Record::ValidationDeleted { .. } => {
            About::Whole(Resource::Validations)
        }
        Record::TemplatePut { .. } | Record::TemplateDeleted { .. } => {
            About::Whole(Resource::Templates)
        }
        Record::AccessChanged { .. } => About::Whole(Resource::Roles),
        Record::Audited { .. } => About::Whole(Resource::Audit),
    }
}

/// Where the things are that some records are about.
#[derive(Debug, Default)]
pub(in super::super) struct Places {
    steps: BTreeMap<StepId, (Subject, Option<PoolName>)>,
    nodes: BTreeMap<NodeName, PoolName>,
}

impl Places {
    /// Of all things that these records are about.
    pub(in super::super) async fn of(
        api: &Api,
        records: impl Iterator<Item = &Record>,
    ) -> Result<Self, ApiError> {
        let mut steps = BTreeSet::new();
        let mut nodes = BTreeSet::new();
        for record in records {
            match about(record) {
                About::Step(step) => {
                    steps.insert(step.clone());
                }
                About::Node(node) => {
                    nodes.insert(node.clone());
                }
                About::Submit(..) | About::Pool(_) | About::Policy(..) | About::Whole(_) => {}
            }
        }
        let look = move |core: &Core| Self::found(core, steps, nodes);
        Ok(api.engine().read(look).await?)
    }

    fn found(core: &Core, steps: BTreeSet<StepId>, nodes: BTreeSet<NodeName>) -> Self {
        let steps = steps.into_iter().filter_map(|id| {
            let step = core.state().step(&id)?;
            let pool = view::pool_of(core, step).cloned();
            Some((id, (step.spec.subject.clone(), pool)))
        });
        let nodes = nodes.into_iter().filter_map(|name| {
            let pool = core.state().node(&name)?.pool.clone();
            Some((name, pool))
        });
        Self {
            steps: steps.collect(),
            nodes: nodes.collect(),
        }
    }
}

impl Caller {
    /// Whether he may hear of a record.
    pub(in super::super) fn hears(&self, record: &Record, places: &Places) -> bool {
        let list = |resource, pool, subject| self.may(Verb::List, resource, pool, subject);
        let of_step = |subject: &Subject, pool: Option<&PoolName>| {
            let pool = pool.map(PoolName::as_str);
            self.may_step(Verb::List, Resource::Steps, subject.as_str(), pool)
        };
        match about(record) {
            About::Step(step) => match places.steps.get(step) {
                Some((subject, pool)) => of_step(subject, pool.as_ref()),
                None => list(Resource::Steps, At::Everywhere, At::Everywhere),
            },
            About::Submit(subject, pool) => of_step(subject, pool),
            About::Node(node) => {
                let pool = places.nodes.get(node);
                let pool = pool.map_or(At::Everywhere, |pool| At::This(pool.as_str()));
                list(Resource::Nodes, pool, At::Nowhere)
            }
            About::Pool(pool) => self.lists_in(Resource::Pools, pool),
            About::Policy(pool, subject) => self.lists_policy(pool, subject),
            About::Whole(resource) => list(resource, At::Nowhere, At::Nowhere),
        }
    }
}
