//! One-line summaries of entities, which `replay` compares before and after a record. Pure functions of the state.

use std::fmt::{self, Display};

use coordinator_core::{
    Attempt, Node, Part, PartPhase, Pool, Record, RecordSubject, Service, State, Step, Validation,
};
use sluice_common::api::timestamp;
use sluice_common::cluster::SubjectSpec;
use sluice_common::id::{
    NodeName, PoolName, ServiceName, StepId, Subject, TemplateName, ValidationName,
};
use sluice_common::state::StepState;
use sluice_common::supervision::Exit;
use sluice_common::time::Span;

/// Something that records change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entity {
    Coordinator,
    Cluster,
    Topology,
    Validation(ValidationName),
    Access,
    Pool(PoolName),
    Policy(PoolName, Subject),
    Template(TemplateName),
    Node(NodeName),
    /// A node's hardware and labels, apart from its state: they are long and seldom change.
    Host(NodeName),
    Step(StepId),
    Service(ServiceName),
}

impl Display for Entity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Entity::Coordinator => f.write_str("coordinator"),
            Entity::Cluster => f.write_str("cluster"),
            Entity::Topology => f.write_str("topology"),
            Entity::Validation(validation) => write!(f, "validation/{validation}"),
            Entity::Access => f.write_str("access"),
            Entity::Pool(pool) => write!(f, "pool/{pool}"),
            Entity::Policy(pool, subject) => write!(f, "policy/{pool}/{subject}"),
            Entity::Template(template) => write!(f, "template/{template}"),
            Entity::Node(node) => write!(f, "node/{node}"),
            Entity::Host(node) => write!(f, "host/{node}"),
            Entity::Step(step) => write!(f, "step/{step}"),
            Entity::Service(service) => write!(f, "service/{service}"),
        }
    }
}

impl Entity {
    /// Whether this is the given step.
    pub(super) fn is_step(&self, wanted: &StepId) -> bool {
        matches!(self, Entity::Step(step) if step == wanted)
    }

    /// Returns the summary; `None` if the entity does not exist.
    pub(super) fn summary(&self, state: &State) -> Option<String> {
        match self {
            Entity::Coordinator => coordinator(state),
            Entity::Cluster => Some(cluster(state)),
            Entity::Topology => Some(topology(state)),
            Entity::Validation(name) => state.validations().get(name).map(validation),
            Entity::Access => Some(access(state)),
            Entity::Pool(name) => state.pool(name).map(pool),
            Entity::Policy(pool, subject) => {
                let policy = &state.pool(pool)?.policies.get(subject)?.policy;
                let priority = format!("priority {}", policy.priority);
                let reserved = listed("reserved", policy.reserved.iter());
                let limit = listed("limit", policy.limit.iter());
                Some(joined([Some(priority), reserved, limit]))
            }
            Entity::Template(name) => {
                let stored = state.templates().get(name)?;
                Some(format!("says {}", stored.template.set_fields().join(", ")))
            }
            Entity::Node(name) => state.node(name).map(node),
            Entity::Host(name) => state.node(name).map(host),
            Entity::Step(id) => state.step(id).map(|found| step(state, found)),
            Entity::Service(name) => state.services().get(name).map(service),
        }
    }
}

/// Lists the entities that a record can change, given the state before it.
pub(super) fn touched(state: &State, record: &Record) -> Vec<Entity> {
    match (record.about(), record) {
        (_, Record::ClusterPut { .. }) => vec![Entity::Cluster],
        (_, Record::TopologyPut { .. }) => vec![Entity::Topology],
        (
            _,
            Record::ValidationPut { validation, .. } | Record::ValidationDeleted { validation },
        ) => {
            vec![Entity::Validation(validation.clone())]
        }
        (_, Record::TemplatePut { template, .. } | Record::TemplateDeleted { template }) => {
            vec![Entity::Template(template.clone())]
        }
        (_, Record::PoolDeleted { pool }) => touched_with(state, pool),
        // These records change no step, node or pool.
        (_, Record::NodeRefused { .. } | Record::NodeRevoked { .. })
        | (
            RecordSubject::Joining(_)
            | RecordSubject::Audit
            | RecordSubject::Validations
            | RecordSubject::Templates,
            _,
        ) => Vec::new(),
        (RecordSubject::Cluster, _) => vec![Entity::Coordinator],
        (RecordSubject::Access, _) => vec![Entity::Access],
        (RecordSubject::Service(service), _) => vec![Entity::Service(service.clone())],
        (RecordSubject::Pool(pool), _) => vec![Entity::Pool(pool.clone())],
        (RecordSubject::Policy(pool, subject), _) => {
            vec![Entity::Policy(pool.clone(), subject.clone())]
        }
        (
            RecordSubject::Node(node),
            Record::NodeReported(_) | Record::NodeLabelled(_) | Record::NodeDeleted { .. },
        ) => vec![Entity::Node(node.clone()), Entity::Host(node.clone())],
        (RecordSubject::Node(node), _) => vec![Entity::Node(node.clone())],
        (RecordSubject::Submitted(..) | RecordSubject::Step(_) | RecordSubject::Attempt(..), _) => {
            touched_steps(state, record)
        }
    }
}

/// The step of a record, and the others whose place in the queue it changes.
fn touched_steps(state: &State, record: &Record) -> Vec<Entity> {
    let itself = record.step();
    // A pool keeps one nomination, which may pass to another step and waits for those that hold its resources.
    let moves_promises = matches!(
        record,
        Record::Nominated { .. } | Record::Released(_) | Record::Suspended(_)
    );
    let others = state
        .promised()
        .filter(|id| moves_promises && Some(*id) != itself);
    let steps = itself.into_iter().chain(others);
    steps.cloned().map(Entity::Step).collect()
}

/// A deleted pool takes its policies along, and its nomination may pass on.
fn touched_with(state: &State, pool: &PoolName) -> Vec<Entity> {
    let known = state.pool(pool).into_iter();
    let subjects = known.flat_map(|it| it.policies.keys());
    let policies = subjects.map(|subject| Entity::Policy(pool.clone(), subject.clone()));
    let promised = state.promised().cloned().map(Entity::Step);
    let itself = std::iter::once(Entity::Pool(pool.clone()));
    itself.chain(policies).chain(promised).collect()
}

fn coordinator(state: &State) -> Option<String> {
    let epoch = state.epoch()?.counter;
    let recovers = state.recovery().is_some();
    Some(format!(
        "epoch {epoch}{}",
        if recovers { ", recovering" } else { "" }
    ))
}

/// Summarises a validation document.
fn validation(validation: &Validation) -> String {
    let asserted = validation.terms.assertions.iter();
    let asserted: Vec<&str> = asserted.map(|it| it.assert.as_str()).collect();
    asserted.join("; ")
}

/// Summarises a service: its number of replicas, and those that are ready.
fn service(service: &Service) -> String {
    format!(
        "{}, version {}, {} of {} replicas ready",
        service.state(),
        service.revision,
        service.serving(),
        service.count
    )
}

/// Summarises the access rules by their names.
fn access(state: &State) -> String {
    let access = state.access();
    let names = |what: &str, names: Vec<String>| {
        (!names.is_empty()).then(|| format!("{what} {}", names.join(", ")))
    };
    joined([
        names(
            "roles",
            access.roles.keys().map(ToString::to_string).collect(),
        ),
        names(
            "bindings",
            access.bindings.keys().map(ToString::to_string).collect(),
        ),
        names(
            "API tokens",
            access.tokens.keys().map(ToString::to_string).collect(),
        ),
    ])
}

/// Summarises the cluster's routing of steps that name no pool.
fn cluster(state: &State) -> String {
    let terms = &state.cluster().terms;
    let default = &terms.default_pool;
    let of = |kind: &str, pool: &PoolName| format!("steps with {kind} go to {pool}");
    let subjects = terms.subjects.iter();
    let subjects =
        subjects.map(|(subject, its)| Some(format!("those of {subject} to {}", pools_of(its))));
    let sent = [
        default.cpu.as_ref().map(|pool| of("no GPU", pool)),
        default.gpu.as_ref().map(|pool| of("GPUs", pool)),
    ];
    joined(sent.into_iter().chain(subjects))
}

/// Summarises the levels of the topology.
fn topology(state: &State) -> String {
    let levels = state.topology().terms.levels.iter();
    let levels = levels.map(|level| Some(format!("{} by label {}", level.name, level.label)));
    joined(levels)
}

fn pools_of(its: &SubjectSpec) -> String {
    let of = |kind: &str, pool: &Option<PoolName>| Some(format!("{} with {kind}", pool.as_ref()?));
    let all = its.pool.as_ref().map(ToString::to_string);
    let parts = [of("no GPU", &its.cpu), of("GPUs", &its.gpu), all];
    parts
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(", else ")
}

fn pool(pool: &Pool) -> String {
    let spec = &pool.spec;
    let capacity = listed("capacity", spec.capacity.iter());
    let capacity = capacity.unwrap_or_else(|| "capacity as its nodes report".to_owned());
    let spared = spec.min_runtime > Span::ZERO;
    let spared = spared.then(|| format!("runs are not preempted for {}", spec.min_runtime));
    let described = (!spec.description.is_empty()).then(|| format!("\"{}\"", spec.description));
    let required: Vec<&str> = spec.require.iter().map(|it| it.as_str()).collect();
    let required =
        (!required.is_empty()).then(|| format!("its nodes must have {}", required.join(", ")));
    let closed = spec.maintenance.as_ref();
    let closed = closed.map(|message| format!("in maintenance: {message}"));
    let default = spec.default_platform.as_ref();
    let default = default.map(|name| format!("steps that name no platform take {name}"));
    let platforms: Vec<&str> = pool.platforms.keys().map(|name| name.as_str()).collect();
    let platforms =
        (!platforms.is_empty()).then(|| format!("declares platforms {}", platforms.join(", ")));
    joined([
        Some(capacity),
        spared,
        required,
        default,
        platforms,
        described,
        closed,
    ])
}

fn node(node: &Node) -> String {
    joined([
        Some(node.state.to_string()),
        closed(node),
        node.leaving.then(|| "to be forgotten".to_owned()),
        Some(format!("in pool {}", node.pool)),
    ])
}

fn host(node: &Node) -> String {
    joined([
        listed("has", node.capacity().iter()),
        listed("labels", node.labels_in_force().iter()),
        Some(format!("agent {}", node.version)),
        Some(format!("boot {}", node.boot_id)),
    ])
}

/// Summarises how an admin closed a node to new work.
fn closed(node: &Node) -> Option<String> {
    let cordon = node.cordon.as_ref()?;
    let word = match cordon.drain {
        None => "cordoned",
        Some(drain) if drain.empty_since.is_some() => "drained",
        Some(_) => "draining",
    };
    let deadline = cordon.drain.and_then(|drain| drain.deadline);
    let until = deadline.map_or_else(String::new, |at| format!(" until {}", timestamp(at)));
    let why = match cordon.reason.as_str() {
        "" => String::new(),
        why => format!(" ({why})"),
    };
    Some(format!("{word}{until}{why}"))
}

fn step(state: &State, step: &Step) -> String {
    let stands = match why(step) {
        Some(why) => format!("{} ({why})", step.state),
        None => step.state.to_string(),
    };
    let places = step.attempts.iter().filter_map(|held| held_by(step, held));
    let words: Vec<String> = std::iter::once(stands).chain(places).collect();
    let held = step.held.then(|| "held".to_owned());
    let moved = step.moved_to().map(|pool| format!("moved to {pool}"));
    joined([Some(words.join(" ")), held, moved, promise(state, step)])
}

/// Returns why a step does not proceed, if its state alone does not tell: the step that caused it, or the reason's
/// code.
fn why(step: &Step) -> Option<String> {
    match step.state {
        StepState::Stopping | StepState::Preempted | StepState::Failed | StepState::Rejected => {
            let latest = step.latest();
            let by = latest.and_then(|attempt| attempt.preempted_by.as_ref());
            Some(by.map_or_else(|| step.reason.code().to_string(), |by| format!("for {by}")))
        }
        StepState::Suspending | StepState::Suspended => {
            let latest = step.latest();
            let by = latest.and_then(|attempt| attempt.preempted_by.as_ref());
            by.map(|by| format!("for {by}"))
        }
        StepState::Queued
        | StepState::Allocated
        | StepState::Starting
        | StepState::Running
        | StepState::Resuming
        | StepState::Succeeded
        | StepState::Cancelled => None,
    }
}

/// Summarises the resources that an attempt holds, and its phase. An attempt that is no longer current is numbered.
fn held_by(step: &Step, attempt: &Attempt) -> Option<String> {
    let parts: Vec<String> = attempt.parts.iter().filter_map(held).collect();
    if parts.is_empty() {
        return None;
    }
    let latest = step
        .latest()
        .is_some_and(|last| last.number == attempt.number);
    let goes_on = latest && step.state != StepState::Queued && !step.state.is_terminal();
    let owners = match goes_on {
        true => String::new(),
        false => format!("with attempt {} still ", attempt.number),
    };
    Some(format!("{owners}on {}", parts.join(", ")))
}

fn held(part: &Part) -> Option<String> {
    let node = &part.node;
    match (part.phase, &part.end) {
        (PartPhase::Allocated | PartPhase::Starting | PartPhase::Running, _) => {
            Some(node.to_string())
        }
        (PartPhase::Ended, Some(end)) => Some(format!("{node} (ended: {})", exit(&end.exit))),
        (PartPhase::Ended, None) => Some(format!("{node} (ended)")),
        (PartPhase::Released, _) => None,
    }
}

fn exit(exit: &Exit) -> String {
    match exit {
        Exit::Code(code) => format!("exit code {code}"),
        Exit::Signal(signal) => format!("signal {signal}"),
        Exit::StartFailed(_) | Exit::HostFailed(_) | Exit::PrologFailed(_) | Exit::NotBegun(_) => {
            "not started".to_owned()
        }
        Exit::LeaseExpired => "lease expired".to_owned(),
        Exit::HostRebooted => "host rebooted".to_owned(),
        Exit::OutOfMemory(_) => "out of memory".to_owned(),
        Exit::StorageExceeded(_) => "too much storage".to_owned(),
        Exit::Unknown => "exit unknown".to_owned(),
    }
}

/// Summarises a waiting step's nomination, and what it waits for.
fn promise(state: &State, step: &Step) -> Option<String> {
    let promise = state.scheduler().nomination(&step.id)?;
    let hosts: Vec<String> = promise.hosts.iter().map(NodeName::to_string).collect();
    let awaited: Vec<String> = promise
        .awaits
        .iter()
        .map(|id| id.step.to_string())
        .collect();
    let after = match awaited.is_empty() {
        true => String::new(),
        false => format!(" after {}", awaited.join(", ")),
    };
    Some(format!("promised {}{after}", hosts.join(", ")))
}

/// Formats `what key=value ...`; `None` if there is nothing.
fn listed<K: Display, V: Display>(
    what: &str,
    pairs: impl Iterator<Item = (K, V)>,
) -> Option<String> {
    let pairs: Vec<String> = pairs.map(|(key, value)| format!("{key}={value}")).collect();
    (!pairs.is_empty()).then(|| format!("{what} {}", pairs.join(" ")))
}

fn joined(parts: impl IntoIterator<Item = Option<String>>) -> String {
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    parts.join(", ")
}
