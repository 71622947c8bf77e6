//! Adopts attempts that hosts run and the store does not know: a host is asked for the warrant, and without one the
//! attempt is stopped.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use sluice_common::id::{AttemptId, NodeName, StepId};
use sluice_common::state::{NodeState, StepState};
use sluice_common::wire::{AttemptPhase, AttemptStatus, StopReason};

use crate::arrays::forget_with_parts;
use crate::attempts::leases::await_renewal;
use crate::attempts::orders::stop_attempt;
use crate::attempts::progress::{at_least_ended, unseen};
use crate::attempts::strays::on_stray;
use crate::attempts::suspension::memory_of_gpus;
use crate::context::Context;
use crate::hosts::drain::empty_drained;
use crate::hosts::link::settle_again;
use crate::hosts::statuses::take_listed;
use crate::inside::room::rooms;
use crate::model::placement::Placement;
use crate::model::recovery::{FrozenOnHost, Warrant};
use crate::model::step::Step;
use crate::record::{self, Record};
use crate::recovery::warrants::{is_past, may_be_adopted};
use crate::recovery::{has_told, know_pool, lose_track};

/// A decision about an attempt whose warrant was shown.
enum AdoptionDecision {
    Adopt,
    /// Another host of the attempt has not reported yet.
    Wait,
    Refuse,
}

/// Decides again about attempts that waited for this host. Only in a recovery do hosts show warrants.
pub(crate) fn decide_again(ctx: &mut Context) {
    if ctx.state().recovery().is_none() {
        return;
    }
    let waiting = ctx.contacts().iter().flat_map(|(node, contact)| {
        let shown = contact
            .asked
            .iter()
            .filter(|(_, asked)| asked.warrant.is_some());
        shown.map(move |(id, _)| (node.clone(), id.clone()))
    });
    for (node, id) in waiting.collect::<Vec<_>>() {
        rule(ctx, &node, &id);
        settle_again(ctx, &node);
    }
}

pub(crate) fn rule(ctx: &mut Context, node: &NodeName, id: &AttemptId) {
    let contact = ctx.contact(node);
    let Some(asked) = contact.and_then(|contact| contact.asked.get(id)).cloned() else {
        return;
    };
    let warrant = asked
        .warrant
        .map(|warrant| unheld(*warrant, node, &asked.phase));
    let ruling = match &warrant {
        Some(warrant) => judge_warrant(ctx, node, id, warrant, &asked.phase),
        None => AdoptionDecision::Refuse,
    };
    match (ruling, warrant) {
        (AdoptionDecision::Wait, _) => {}
        (AdoptionDecision::Adopt, Some(warrant)) if make_way(ctx, id, &warrant) => {
            adopt(ctx, node, id, warrant, &asked.phase);
        }
        (AdoptionDecision::Adopt | AdoptionDecision::Refuse, _) => {
            if let Some(contact) = ctx.contact_mut(node) {
                contact.asked.remove(id);
            }
            on_stray(
                ctx,
                node,
                AttemptStatus {
                    attempt: id.clone(),
                    phase: asked.phase,
                },
            );
        }
    }
}

fn judge_warrant(
    ctx: &Context,
    node: &NodeName,
    id: &AttemptId,
    warrant: &Warrant,
    phase: &AttemptPhase,
) -> AdoptionDecision {
    let hosts: BTreeSet<&NodeName> = warrant.placements.iter().map(|it| &it.node).collect();
    let known = ctx.state().recovery().map(|recovery| recovery.known);
    let is_later = known.is_some_and(|known| warrant.told_at > known);
    let is_whole = hosts.contains(node) && hosts.len() == warrant.placements.len();
    if !is_later || !is_whole || !may_be_adopted(ctx, id) {
        return AdoptionDecision::Refuse;
    }
    // Of two steps under one name the later one counts, whatever its caller has done with it.
    let is_another = |step: &Step| step.submitted_at < warrant.submitted_at;
    let fits = match array_without(ctx, id, warrant) {
        Some(array) => is_over(ctx, array) && is_another(array),
        None => (ctx.state().find(&id.step)).is_none_or(|step| match is_past(&step) {
            true => is_another(&step),
            false => step.spec == warrant.spec,
        }),
    };
    let is_frozen = matches!(phase, AttemptPhase::Suspended { .. });
    // Inside an allocation it has what that holds.
    let is_free = match &warrant.spec.inside {
        Some(allocation) => are_free_inside(ctx, allocation, &warrant.placements),
        None => is_frozen || are_free(ctx, &warrant.placements),
    };
    if !fits || !is_free {
        return AdoptionDecision::Refuse;
    }
    match hosts.iter().all(|host| ctx.state().node(host).is_some()) {
        true => AdoptionDecision::Adopt,
        false => AdoptionDecision::Wait,
    }
}

/// The array that an adopted part names, if it is known and has no such part that has not ended.
fn array_without<'a>(ctx: &'a Context, id: &AttemptId, warrant: &Warrant) -> Option<&'a Step> {
    let (step, index) = ctx.state().array_of(&id.step).filter(|_| warrant.is_part)?;
    let array = step.array.as_ref()?;
    let is_open = array.waiting.contains(index) || array.open.contains(index);
    (!is_open).then_some(step)
}

/// Whether an array has ended and none of its parts holds anything.
fn is_over(ctx: &Context, array: &Step) -> bool {
    let mut parts = ctx.state().parts_of(&array.id);
    array.state.is_terminal() && parts.all(|(_, part)| is_past(part))
}

fn are_free(ctx: &Context, placements: &[Placement]) -> bool {
    placements.iter().all(|placement| {
        let mut gpus = placement.gpus.iter();
        gpus.all(|gpu| !ctx.state().is_granted(&placement.node, gpu))
    })
}

/// Whether an allocation has what an attempt inside it holds, and no other step there does.
fn are_free_inside(ctx: &Context, allocation: &StepId, placements: &[Placement]) -> bool {
    let held = ctx.state().step(allocation);
    let Some((held, attempt)) = held.and_then(|held| Some((held, held.live()?))) else {
        return false;
    };
    let rooms = rooms(ctx.state(), held, attempt);
    placements.iter().all(|placement| {
        let room = rooms.iter().find(|room| room.node == placement.node);
        let mut gpus = placement.gpus.iter();
        room.is_some_and(|room| gpus.all(|gpu| room.gpus.contains(gpu)))
    })
}

/// Makes sure that the step is queued or absent, so that the attempt can be adopted: an earlier attempt is over,
/// because this one came after it, and an earlier step or array of that name is forgotten. Returns whether that worked.
fn make_way(ctx: &mut Context, id: &AttemptId, warrant: &Warrant) -> bool {
    if let Some(array) = array_without(ctx, id, warrant) {
        let array = array.id.clone();
        forget_with_parts(ctx, &array, false);
        return true;
    }
    let Some(step) = ctx.state().step(&id.step) else {
        return true;
    };
    if is_past(step) {
        ctx.record(Record::StepForgotten {
            step: id.step.clone(),
            deleted: false,
        });
        return true;
    }
    if let Some(live) = step.live() {
        let earlier = step.attempt_id(live.number);
        end_earlier(ctx, &earlier);
    }
    let queued = |step: &Step| step.state == StepState::Queued;
    ctx.state().step(&id.step).is_some_and(queued)
}

/// Ends an attempt after which another was made. Its remains on hosts are stopped when they are reported.
fn end_earlier(ctx: &mut Context, id: &AttemptId) {
    let attempt = |ctx: &Context| ctx.state().step(&id.step)?.attempt(id.number).cloned();
    if attempt(ctx).is_some_and(|attempt| attempt.stopping.is_none()) {
        stop_attempt(ctx, id, StopReason::Superseded);
    }
    let Some(attempt) = attempt(ctx) else { return };
    for part in attempt.unended() {
        let end = unseen(ctx, &attempt, part.started);
        at_least_ended(ctx, &part.node, id, end);
    }
}

fn adopt(
    ctx: &mut Context,
    node: &NodeName,
    id: &AttemptId,
    warrant: Warrant,
    phase: &AttemptPhase,
) {
    know_pool(ctx, &warrant.pool, node);
    let hosts: Vec<NodeName> = warrant
        .placements
        .iter()
        .map(|it| it.node.clone())
        .collect();
    let mut here = warrant.placements.iter().filter(|it| it.node == *node);
    let gpus = here.next().map_or(&[][..], |it| &it.gpus);
    let frozen = frozen_in(phase, memory_of_gpus(ctx, node, gpus));
    ctx.record(Record::Adopted(record::Adopted {
        attempt: id.clone(),
        node: node.clone(),
        warrant: Box::new(warrant),
        frozen,
    }));
    await_renewal(ctx, &id.step);
    for host in &hosts {
        take_up(ctx, host, id);
    }
    for host in &hosts {
        empty_drained(ctx, host);
    }
}

/// Applies what a host reported of an attempt before it was adopted. A host that has reported all it runs, and not
/// this attempt, has lost it.
fn take_up(ctx: &mut Context, host: &NodeName, id: &AttemptId) {
    let lost = ctx
        .state()
        .node(host)
        .is_some_and(|node| node.state == NodeState::Lost);
    let has_told = has_told(ctx, host);
    let Some(contact) = ctx.contact_mut(host) else {
        return;
    };
    let is_linked = contact.session.is_some() && has_told;
    match contact.asked.remove(id) {
        Some(asked) => take_listed(
            ctx,
            host,
            AttemptStatus {
                attempt: id.clone(),
                phase: asked.phase,
            },
        ),
        None if is_linked || lost => lose_track(ctx, host, id),
        None => {}
    }
    settle_again(ctx, host);
}

/// Removes the GPUs of a part that has released its resources: they may be granted to another by now.
fn unheld(mut warrant: Warrant, node: &NodeName, phase: &AttemptPhase) -> Warrant {
    if matches!(phase, AttemptPhase::Released(_)) {
        let mut placements = warrant.placements.iter_mut();
        if let Some(here) = placements.find(|placement| placement.node == *node) {
            here.gpus.clear();
        }
    }
    warrant
}

/// The frozen attempt in a phase, with at most `most_mb` moved from its GPUs.
fn frozen_in(phase: &AttemptPhase, most_mb: u64) -> Option<FrozenOnHost> {
    match phase {
        AttemptPhase::Suspended { started, moved_mb } => Some(FrozenOnHost {
            process: *started,
            moved_mb: (*moved_mb).min(most_mb),
        }),
        AttemptPhase::Starting
        | AttemptPhase::Running(_)
        | AttemptPhase::Stopping { .. }
        | AttemptPhase::Ended(_)
        | AttemptPhase::Released(_)
        | AttemptPhase::Suspending(_)
        | AttemptPhase::Resuming(_)
        | AttemptPhase::NotSuspended { .. } => None,
    }
}
