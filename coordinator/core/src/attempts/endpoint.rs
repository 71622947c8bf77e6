//! Records the ports and the readiness that hosts report of attempts. Hosts repeat their reports, so one that comes too
//! early or too often may be ignored.

use alloc::collections::{BTreeMap, BTreeSet};

use sluice_common::id::{AttemptId, NodeName};
use sluice_common::port::PortName;
use sluice_common::probe::{
    EndpointReport, FAILURE_AGAIN, ProbeFailure, ProbeKind, ready_again_after,
};
use sluice_common::state::{NodeState, StepState};
use sluice_reasons::Cause;

use crate::attempts::live::live_on;
use crate::context::Context;
use crate::model::step::{Attempt, Endpoint, Part, PartPhase, Step};
use crate::record::{self, Record};
use crate::state::State;

/// Applies a report.
pub(crate) fn on_endpoint(ctx: &mut Context, node: &NodeName, report: EndpointReport) {
    let EndpointReport {
        attempt: id,
        ports,
        ready,
        failure,
    } = report;
    if let Some(ports) = new_ports(ctx, node, &id, &ports) {
        ctx.record(Record::PortsAllocated(record::PortsAllocated {
            attempt: id.clone(),
            node: node.clone(),
            ports,
        }));
    }
    let failure = failure.filter(|_| !ready);
    if is_news(ctx, node, &id, ready, failure.as_ref()) {
        ctx.record(Record::ReadinessChanged(record::ReadinessChanged {
            attempt: id,
            node: node.clone(),
            ready,
            failure,
        }));
    }
}

/// The ports of an attempt by name, if they are not known yet and no other attempt has one of them there.
fn new_ports(
    ctx: &Context,
    node: &NodeName,
    id: &AttemptId,
    ports: &[u16],
) -> Option<BTreeMap<PortName, u16>> {
    let (step, _, part) = live_on(ctx, node, id)?;
    let has_begun = matches!(part.phase, PartPhase::Starting | PartPhase::Running);
    let is_known = ports_of(part).next().is_some();
    let names = &step.spec.ports;
    let distinct: BTreeSet<u16> = ports.iter().copied().collect();
    let is_whole = names.len() == ports.len() && distinct.len() == ports.len();
    if !has_begun || is_known || ports.is_empty() || !is_whole {
        return None;
    }
    let mut others = ports_on(ctx.state(), node);
    let is_taken = others.any(|(other, port)| other != id && distinct.contains(&port));
    let named = names.iter().cloned().zip(ports.iter().copied());
    (!is_taken).then(|| named.collect())
}

fn ports_of(part: &Part) -> impl Iterator<Item = u16> {
    let endpoint = part.endpoint.iter();
    endpoint.flat_map(|endpoint| endpoint.ports.values().copied())
}

/// The ports of all attempts that hold resources on a node.
pub(crate) fn ports_on<'a>(
    state: &'a State,
    node: &'a NodeName,
) -> impl Iterator<Item = (&'a AttemptId, u16)> {
    let attempts = state.attempts_on(node);
    let parts = attempts.filter_map(move |id| {
        let attempt = state.step(&id.step)?.attempt(id.number)?;
        Some((id, attempt.on(node)?))
    });
    parts.flat_map(|(id, part)| ports_of(part).map(move |port| (id, port)))
}

/// Whether a report of readiness is recorded. That an attempt is no longer ready always is, because it must get no more
/// traffic; that it is ready again, or fails in another way, only after a while, because a host that flaps or lies would
/// fill the log.
fn is_news(
    ctx: &Context,
    node: &NodeName,
    id: &AttemptId,
    ready: bool,
    failure: Option<&ProbeFailure>,
) -> bool {
    let Some((step, attempt, part)) = live_on(ctx, node, id) else {
        return false;
    };
    let is_dead = |failure: Option<&ProbeFailure>| {
        failure.is_some_and(|failure| failure.probe == ProbeKind::Liveness)
    };
    let nothing = Endpoint::default();
    let known = part.endpoint.as_deref().unwrap_or(&nothing);
    if part.phase != PartPhase::Running {
        return false;
    }
    if is_dead(failure) {
        // Its host may have told before that it stops it.
        return !is_dead(known.failure.as_ref());
    }
    let goes_on = attempt.stopping.is_none() && attempt.suspension.is_none();
    // Without a readiness probe, what runs is ready.
    if !goes_on || step.spec.probes.readiness.is_none() {
        return false;
    }
    let now = ctx.now();
    match (known.succeeds, ready) {
        (true, true) => false,
        (false, true) => now >= known.succeeded_at + ready_again_after(known.times),
        (true, false) => true,
        (false, false) => {
            let is_first = known.failure.is_none();
            failure.is_some()
                && failure != known.failure.as_ref()
                && (is_first || now >= known.changed_at + FAILURE_AGAIN)
        }
    }
}

/// Whether a part runs, is ready, and its host can be reached.
pub(crate) fn is_ready(state: &State, (step, attempt, part): (&Step, &Attempt, &Part)) -> bool {
    is_reached(state, &part.node, false) && step.is_ready_on(attempt, part)
}

/// Whether a node can be reached: what runs on a silent one may be over. `while_silent` counts silent ones too.
pub(crate) fn is_reached(state: &State, node: &NodeName, while_silent: bool) -> bool {
    let node = state.node(node);
    node.is_some_and(|node| match node.state {
        NodeState::Ready | NodeState::Reconciling | NodeState::Unsupervised => true,
        NodeState::Unreachable => while_silent,
        NodeState::Lost => false,
    })
}

/// The first part of a running step whose readiness probe does not succeed, as the reason of the step.
pub(crate) fn not_ready(step: &Step) -> Option<Cause> {
    step.spec.probes.readiness.as_ref()?;
    let runs = step.state == StepState::Running;
    let attempt = step.live().filter(|_| runs)?;
    let mut parts = attempt.parts.iter();
    let part =
        parts.find(|part| part.phase == PartPhase::Running && !step.is_ready_on(attempt, part))?;
    let failure = part.endpoint.as_ref().and_then(|it| it.failure.as_ref());
    Some(Cause::NotReady {
        node: part.node.clone(),
        saw: failure.map(|failure| failure.saw.clone()),
    })
}

/// The reason of an attempt that a host has stopped because its liveness probe failed; `part` is the part whose end decides.
pub(crate) fn liveness_failed(attempt: &Attempt, part: &Part) -> Cause {
    let failed = attempt.parts.iter().find_map(|part| {
        let failure = part.endpoint.as_ref()?.failure.as_ref()?;
        (failure.probe == ProbeKind::Liveness).then(|| (part, Some(failure.saw.clone())))
    });
    let (part, saw) = failed.unwrap_or((part, None));
    Cause::LivenessFailed {
        node: part.node.clone(),
        saw,
    }
}
