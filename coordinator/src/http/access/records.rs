//! Decides which records of the log a caller may see: those of things that he could read. Records of a step name the
//! step and not its subject, so that is looked up; records of forgotten steps go only to callers who may see all.

use std::collections::{BTreeMap, BTreeSet};

use coordinator_core::{Core, Record, RecordSubject};
use sluice_common::access::{Resource, Scope, Verb};
use sluice_common::id::{NodeName, PoolName, ServiceName, StepId, Subject};

use super::super::Api;
use super::super::error::ApiError;
use super::Caller;
use crate::view::pool_of;

/// Pools and subjects of the things that some records are about.
#[derive(Debug, Default)]
pub(in super::super) struct RecordScopes {
    steps: BTreeMap<StepId, (Subject, Option<PoolName>)>,
    nodes: BTreeMap<NodeName, PoolName>,
    services: BTreeMap<ServiceName, (Subject, Option<PoolName>)>,
}

impl RecordScopes {
    /// Looks up all things that these records are about.
    pub(in super::super) async fn of(
        api: &Api,
        records: impl Iterator<Item = &Record>,
    ) -> Result<Self, ApiError> {
        let mut steps = BTreeSet::new();
        let mut nodes = BTreeSet::new();
        let mut services = BTreeSet::new();
        for record in records {
            match record.about() {
                // The record itself has the subject.
                RecordSubject::Submitted(..) => {}
                RecordSubject::Node(node) => {
                    nodes.insert(node.clone());
                }
                RecordSubject::Service(service) => {
                    services.insert(service.clone());
                }
                _ => steps.extend(record.step().cloned()),
            }
        }
        let look = move |core: &Core| {
            let services = services.into_iter().filter_map(|name| {
                let known = core.state().services().get(&name)?;
                Some((name, (known.subject()?.clone(), pool_of(known).cloned())))
            });
            Self {
                services: services.collect(),
                ..Self::found(core, steps, nodes)
            }
        };
        Ok(api.engine().read(look).await?)
    }

    fn found(core: &Core, steps: BTreeSet<StepId>, nodes: BTreeSet<NodeName>) -> Self {
        let steps = steps.into_iter().filter_map(|id| {
            let step = core.state().step(&id)?;
            let pool = core.state().pool_of(step).cloned();
            Some((id, (step.spec.subject.clone(), pool)))
        });
        let nodes = nodes.into_iter().filter_map(|name| {
            let pool = core.state().node(&name)?.pool.clone();
            Some((name, pool))
        });
        Self {
            steps: steps.collect(),
            nodes: nodes.collect(),
            services: BTreeMap::new(),
        }
    }
}

impl Caller {
    /// Whether the caller may see a record.
    pub(in super::super) fn may_see(&self, record: &Record, scopes: &RecordScopes) -> bool {
        let list = |resource, pool, subject| self.may(Verb::List, resource, pool, subject);
        let of_step = |subject: &Subject, pool: Option<&PoolName>| {
            let pool = pool.map(PoolName::as_str);
            self.may_step(Verb::List, Resource::Steps, subject.as_str(), pool)
        };
        let known = |step| match scopes.steps.get(step) {
            Some((subject, pool)) => of_step(subject, pool.as_ref()),
            None => list(Resource::Steps, Scope::Every, Scope::Every),
        };
        let whole = |resource| list(resource, Scope::Unscoped, Scope::Unscoped);
        match record.about() {
            RecordSubject::Submitted(_, spec) => of_step(&spec.subject, spec.pool.as_ref()),
            RecordSubject::Step(step) => known(step),
            RecordSubject::Attempt(attempt, _) => known(&attempt.step),
            // The record of a new version has the subject; the others are looked up, as for steps.
            RecordSubject::Service(service) => match (scopes.services.get(service), record) {
                (_, Record::ServicePut(it)) => {
                    let spec = &it.spec.replica;
                    of_step(&spec.subject, spec.pool.as_ref())
                }
                (Some((subject, pool)), _) => of_step(subject, pool.as_ref()),
                (None, _) => list(Resource::Steps, Scope::Every, Scope::Every),
            },
            RecordSubject::Node(node) => {
                let pool = scopes.nodes.get(node);
                let pool = pool.map_or(Scope::Every, |pool| Scope::One(pool.as_str()));
                list(Resource::Nodes, pool, Scope::Unscoped)
            }
            RecordSubject::Pool(pool) => self.may_list_in(Resource::Pools, pool),
            RecordSubject::Policy(pool, subject) => self.may_list_policy(pool, subject),
            RecordSubject::Cluster => whole(Resource::Cluster),
            RecordSubject::Templates => whole(Resource::Templates),
            RecordSubject::Validations => whole(Resource::Validations),
            RecordSubject::Joining(_) => list(Resource::JoinTokens, Scope::Every, Scope::Unscoped),
            RecordSubject::Access => whole(Resource::Roles),
            RecordSubject::Audit => whole(Resource::Audit),
        }
    }
}
