//! Keeps services at their number of replicas, one service at a time. A service is looked at after each record of it or
//! of the step of a replica, and when the earliest time comes that matters to it; never are all steps gone through.
//!
//! `plan.rs` decides, and is a pure function of the service and its replicas, `autoscale.rs` how many there are; this
//! file turns their decisions into records.
//! Replicas are steps: how they are scheduled, preempted, started again elsewhere and stopped is decided as for any step.

pub(crate) mod autoscale;
pub(crate) mod backoff;
pub(crate) mod load;
pub(crate) mod plan;
mod share;
pub(crate) mod usage;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use sluice_common::id::{ServiceName, StepId};
use sluice_common::service::{RequestLoad, replica_id};
use sluice_common::state::StepState;
use sluice_common::step::{ReplicaOf, StepSpec};
use sluice_common::time::{Span, Time};

use self::autoscale::{LoadHistory, ScaleInput};
use self::backoff::pause;
use self::plan::{PlanStep, ReplicaStatus, ServiceAction, plan};
use self::share::{may_be_guaranteed, within_limit};
use crate::attempts::endpoint::is_reached;
use crate::context::Context;
use crate::explain::reason;
use crate::handlers::cancel::cancel_step;
use crate::handlers::submit::submit;
use crate::input::{NewStep, TimerKey};
use crate::model::service::{
    FailedVersion, Replica, ReplicaEnd, ReplicaFailure, ReplicaPhase, Service,
};
use crate::model::step::Step;
use crate::record::{self, Record};
use crate::submit::bounds::over_bounds;
use crate::submit::difference::first_difference;

/// Makes what is due for all services. Returns whether anything changed. Makes nothing during a recovery, because
/// replicas may run on hosts that have not reported them.
pub(crate) fn settle_services(ctx: &mut Context) -> bool {
    let mut any = false;
    while let Some(name) = first_due(ctx) {
        any |= settle(ctx, &name);
        ctx.set_service_settled(&name);
    }
    any
}

fn first_due(ctx: &Context) -> Option<ServiceName> {
    let recovering = ctx.state().recovery().is_some();
    ctx.due_service().filter(|_| !recovering).cloned()
}

fn settle(ctx: &mut Context, name: &ServiceName) -> bool {
    let (mut any, rescale_at) = rescale(ctx, name);
    // To compare versions for each action would be dear.
    let mut versions = BTreeMap::new();
    loop {
        let Some(service) = ctx.state().services().get(name) else {
            return any;
        };
        let current = versions.entry(service.revision);
        let current = current.or_insert_with(|| current_revisions(service));
        let status = views(ctx, service, current, ctx.now());
        match plan(service, &status, ctx.now()) {
            PlanStep::Act(action) => make(ctx, name, action),
            PlanStep::Wait(at) => {
                let silence = silence_ends(ctx, ctx.now()).filter(|_| service.serving() > 0);
                let times = [at, silence, rescale_at];
                if let Some(at) = times.into_iter().flatten().min() {
                    ctx.set_timer(TimerKey::Service(name.clone()), at);
                }
                return any;
            }
        }
        any = true;
    }
}

/// Sets the number of replicas by the load. Returns whether it did, and when it is to look again.
fn rescale(ctx: &mut Context, name: &ServiceName) -> (bool, Option<Time>) {
    let now = ctx.now();
    let Some(service) = service_of(ctx, name).filter(|it| it.deleting_since.is_none()) else {
        ctx.forget_service_loads(name);
        return (false, None);
    };
    let scale = service.scale.clone();
    let Some(metric) = scale.metric.clone() else {
        return (false, None);
    };
    let count = service.count;
    let limit = service
        .replica()
        .map_or(u32::MAX, |spec| within_limit(ctx, spec));
    let loads = ctx.service_loads(name);
    let total_milli = loads.and_then(|loads| loads.total_milli(service, now));
    let requests = loads.and_then(|loads| loads.requests(now));
    let loads = ctx.service_loads_mut(name);
    let input = ScaleInput {
        scale: &scale,
        count,
        limit,
        load_milli: total_milli,
        has_requests: requests.map(|it| it != RequestLoad::default()),
        now,
    };
    let expires_at = loads.expires_at(now);
    let history = loads
        .history
        .get_or_insert_with(|| LoadHistory::new(count, now));
    let decision = history.decide(&input);
    let is_new = decision.count != count;
    if is_new {
        ctx.record(Record::ServiceScaled(record::ServiceScale {
            service: name.clone(),
            count: decision.count,
            load: Some(record::ServiceLoad {
                metric,
                total_milli,
            }),
        }));
    }
    let again_at = decision.again_at.into_iter().chain(expires_at).min();
    (is_new, again_at)
}

/// The replicas as the plan sees them.
pub(crate) fn views(
    ctx: &Context,
    service: &Service,
    current: &BTreeSet<u32>,
    now: Time,
) -> Vec<ReplicaStatus> {
    let replicas = service.replicas.iter();
    let views = replicas.map(|(number, replica)| {
        let step = ctx.state().step(&replica.step);
        let state = step.map(|step| step.state);
        ReplicaStatus {
            number: *number,
            is_current: current.contains(&replica.revision),
            phase: replica.phase,
            is_ready: step.is_some_and(|step| is_ready(ctx, replica.phase, step, now)),
            is_over: state.is_none_or(StepState::is_terminal),
            is_stopping: state == Some(StepState::Stopping),
            is_guaranteed: step.is_some_and(|step| !step.spec.preemptible),
        }
    });
    views.collect()
}

/// The versions whose replicas are as wanted: the wanted one, and those that are the same.
pub fn current_revisions(service: &Service) -> BTreeSet<u32> {
    let wanted = service.replica();
    let same = |spec: &StepSpec| wanted.is_some_and(|it| first_difference(spec, it).is_none());
    let known = service.revisions.iter();
    let known = known.filter(|(number, it)| **number == service.revision || same(&it.spec));
    known.map(|(number, _)| *number).collect()
}

/// Whether a replica may get requests.
fn is_ready(ctx: &Context, phase: ReplicaPhase, step: &Step, now: Time) -> bool {
    // After a start of the coordinator hosts have time to come back: what served until then still does.
    let awaited = phase.is_serving() && silence_ends(ctx, now).is_some();
    let runs = step.state == StepState::Running;
    let live = step.live().filter(|_| runs);
    live.is_some_and(|live| {
        live.parts.iter().all(|part| {
            is_reached(ctx.state(), &part.node, awaited) && step.is_ready_on(live, part)
        })
    })
}

/// The time from which hosts count as silent that were not heard since the start of this coordinator, unless it has come.
fn silence_ends(ctx: &Context, now: Time) -> Option<Time> {
    let ends = ctx.listening_since() + ctx.settings().unreachable_after;
    Some(ends).filter(|ends| now < *ends)
}

fn make(ctx: &mut Context, name: &ServiceName, action: ServiceAction) {
    let service = name.clone();
    match action {
        ServiceAction::End(number) => end(ctx, name, number),
        ServiceAction::Add => add(ctx, name),
        ServiceAction::GiveUp => give_up(ctx, name),
        ServiceAction::Stop(number) => {
            if let Some(replica) = replica_of(ctx, name, number) {
                let step = replica.step.clone();
                cancel_step(ctx, &step);
            }
        }
        ServiceAction::Serve(number) => {
            let since = ctx.now();
            change(ctx, name, number, ReplicaPhase::Serving { since });
        }
        ServiceAction::Unserve(number) => change(ctx, name, number, ReplicaPhase::Starting),
        ServiceAction::Drain(number) => {
            let serves = replica_of(ctx, name, number).filter(|it| it.phase.is_serving());
            let terms = service_of(ctx, name).filter(|_| serves.is_some());
            let until = ctx.now() + terms.map_or(Span::ZERO, |it| it.rollout_spec.drain_timeout);
            change(ctx, name, number, ReplicaPhase::Draining { until });
        }
        ServiceAction::Complete => {
            if let Some(revision) = service_of(ctx, name).map(|it| it.revision) {
                ctx.record(Record::RolloutEnded {
                    service,
                    revision,
                    stalled: None,
                });
            }
        }
        ServiceAction::Recover => ctx.record(Record::ServiceRecovered { service }),
        ServiceAction::Delete => {
            if let Some(known) = service_of(ctx, name) {
                let revisions = known.revisions.keys().copied().collect();
                ctx.record(Record::ServiceDeleted(record::ServiceDeleted {
                    service,
                    revisions,
                }));
            }
        }
    }
}

/// Records another phase of a replica.
fn change(ctx: &mut Context, name: &ServiceName, number: u32, phase: ReplicaPhase) {
    if let Some(replica) = replica_of(ctx, name, number) {
        let replica = replica.step.clone();
        ctx.record(Record::ReplicaChanged(record::ReplicaChanged {
            service: name.clone(),
            number,
            replica,
            phase,
        }));
    }
}

fn replica_of<'a>(ctx: &'a Context, name: &ServiceName, number: u32) -> Option<&'a Replica> {
    service_of(ctx, name)?.replicas.get(&number)
}

fn service_of<'a>(ctx: &'a Context, name: &ServiceName) -> Option<&'a Service> {
    ctx.state().services().get(name)
}

/// Notes that the step of a replica has ended, and why that is a failure, if it is one.
fn end(ctx: &mut Context, name: &ServiceName, number: u32) {
    let Some(service) = service_of(ctx, name) else {
        return;
    };
    let Some(replica) = service.replicas.get(&number).cloned() else {
        return;
    };
    let failure = failure_of(ctx, service, &replica);
    ctx.record(Record::ReplicaEnded(record::ReplicaEnded {
        service: name.clone(),
        number,
        replica: replica.step.clone(),
    }));
    if let Some(end) = failure {
        fail(ctx, name, (&replica.step, Some(&replica)), end);
    }
}

/// Tells how a replica failed; `None` if it was to end, or ended by what others did.
fn failure_of(ctx: &Context, service: &Service, replica: &Replica) -> Option<ReplicaEnd> {
    let was_to_end = replica.phase.is_draining() || service.deleting_since.is_some();
    let step = ctx.state().step(&replica.step).filter(|_| !was_to_end)?;
    let by_others = matches!(step.state, StepState::Cancelled | StepState::Preempted);
    (!by_others).then(|| ReplicaEnd::Ended {
        state: step.state,
        reason: step.reason.clone(),
    })
}

fn fail(
    ctx: &mut Context,
    name: &ServiceName,
    (step, replica): (&StepId, Option<&Replica>),
    end: ReplicaEnd,
) {
    let Some(service) = service_of(ctx, name) else {
        return;
    };
    let (failures, restart_at) = pause(&service.backoff, replica, ctx.now());
    let failure = ReplicaFailure {
        step: step.clone(),
        at: ctx.now(),
        end,
    };
    ctx.record(Record::ReplicaFailed(record::ReplicaFailed {
        service: name.clone(),
        failure,
        failures,
        restart_at,
    }));
}

/// Submits the step of one more replica.
fn add(ctx: &mut Context, name: &ServiceName) {
    let Some(service) = service_of(ctx, name) else {
        return;
    };
    let next = next_id(ctx, name, service).zip(service.replica().cloned());
    let Some(((number, step), mut spec)) = next else {
        return;
    };
    let revision = service.revision;
    spec.service = Some(ReplicaOf {
        name: name.clone(),
        number,
        revision,
        spread: service.placement.is_spread(),
    });
    if !spec.preemptible && !may_be_guaranteed(ctx, service, &spec) {
        borrow(&mut spec);
    }
    let new = NewStep::new(step.clone(), spec);
    let full = over_bounds(ctx, core::slice::from_ref(&new));
    let submitted = match full.into_values().next() {
        Some(refusal) => Err(refusal),
        None => submit(ctx, new),
    };
    match submitted {
        Ok(_) => ctx.record(Record::ReplicaStarted(record::ReplicaStarted {
            service: name.clone(),
            number,
            replica: step,
            revision,
        })),
        Err(refusal) => {
            let why = refusal.to_string();
            fail(ctx, name, (&step, None), ReplicaEnd::Refused { why });
        }
    }
}

/// Makes a replica preemptible that is not in the reserved share.
fn borrow(spec: &mut StepSpec) {
    spec.preemptible = true;
    spec.resources.preemptible = Some(true);
    spec.priority_class = None;
}

/// The number and the id of the next replica: the first that no step has or had.
fn next_id(ctx: &Context, name: &ServiceName, service: &Service) -> Option<(u32, StepId)> {
    let mut numbers = service.next_replica..u32::MAX;
    numbers.find_map(|number| {
        let id = replica_id(name, number).ok()?;
        let is_free = ctx.state().state_of(&id).is_none() && !ctx.state().is_deleted(&id);
        is_free.then_some((number, id))
    })
}

/// Goes back to the version that was complete last, because the wanted one does not become ready; or says that it stalls.
fn give_up(ctx: &mut Context, name: &ServiceName) {
    let Some(service) = service_of(ctx, name) else {
        return;
    };
    let revision = service.revision;
    let why = format!(
        "no replica of version {revision} became ready within {}{}",
        service.rollout_spec.progress_deadline,
        obstacle(ctx, service).map_or_else(String::new, |why| format!(": {why}"))
    );
    let stable = service
        .rollout
        .stable
        .filter(|_| service.rollout.rolled_back.is_none());
    let stable = stable.filter(|stable| *stable != revision);
    let stable = stable.and_then(|stable| service.revisions.get(&stable));
    let spec = service.spec().zip(stable);
    let Some((spec, stable)) = spec else {
        return ctx.record(Record::RolloutEnded {
            service: name.clone(),
            revision,
            stalled: Some(why),
        });
    };
    let at = ctx.now();
    ctx.record(Record::ServicePut(Box::new(record::ServicePut {
        service: name.clone(),
        revision: service.next_revision(),
        spec: sluice_common::service::ServiceSpec {
            replica: stable.spec.clone(),
            ..spec
        },
        rolled_back: Some(FailedVersion { revision, at, why }),
        forgets: service.revision_to_forget(),
    })));
}

/// Tells what keeps the wanted version from being ready: its last failure, or what a replica of it waits for.
fn obstacle(ctx: &Context, service: &Service) -> Option<String> {
    let last = service.backoff.last.as_ref();
    let last = last.filter(|last| last.at >= service.rollout.began_at);
    if let Some(last) = last {
        return Some(format!("`{}` failed: {}", last.step, last.end.message()));
    }
    let current = current_revisions(service);
    let wanted =
        |replica: &&Replica| current.contains(&replica.revision) && !replica.phase.is_serving();
    let waits = service.live().find(wanted)?;
    let step = ctx.state().step(&waits.step)?;
    let why = reason(ctx, step).to_reason().message;
    Some(format!("`{}` is {}: {why}", step.id, step.state))
}
