//! What a host says of itself between two hellos, taken in no faster than [`Pace`](crate::contact::pace::Pace) lets it.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;

use sluice_common::gpu_state::GpuStates;
use sluice_common::host_health::HostHealth;
use sluice_common::id::NodeName;
use sluice_common::inventory::Inventory;
use sluice_common::state::NodeState;

use crate::contact::pace::HostChange;
use crate::context::Context;
use crate::gpus::take_gpu_states;
use crate::health::on_health;
use crate::input::TimerKey;
use crate::link::on_supervisor;
use crate::link::report::{on_inventory, on_labels};
use crate::model::node::Node;

/// The note on a host that changes more often than is taken in.
pub const HELD_BACK: &str = "it says so often that it has changed that the coordinator takes in one change every 2s, and the \
                             latest one at last: look at what changes in its events, labels, GPUs, health check or supervisor";

/// Takes in what a host says of itself, now or later.
pub(crate) fn on_change(ctx: &mut Context, name: &NodeName, change: HostChange) {
    let Some(contact) = ctx.contact_mut(name) else {
        return;
    };
    contact.pace.drop_like(&change);
    let waits = contact.pace.is_holding() || contact.pace.next_at() > ctx.now();
    if !waits {
        return take_in(ctx, name, change);
    }
    let (urgent, rest) = match ctx.state().node(name) {
        Some(node) => apart(node, change),
        None => return,
    };
    if let Some(urgent) = urgent {
        take_in(ctx, name, urgent);
    }
    if let Some(rest) = rest {
        hold(ctx, name, rest);
    }
}

fn take_in(ctx: &mut Context, name: &NodeName, change: HostChange) {
    let before = ctx.state().seq();
    match change {
        HostChange::Supervisor(supervisor) => on_supervisor(ctx, name, supervisor),
        HostChange::Health(health) => on_health(ctx, name, health),
        HostChange::GpuStates(states) => take_gpu_states(ctx, name, *states),
        HostChange::Inventory(inventory) => on_inventory(ctx, name, *inventory),
        HostChange::Labels(labels) => on_labels(ctx, name, labels),
    }
    if ctx.state().seq() > before {
        charge(ctx, name);
    }
}

/// Counts a change of a host.
pub(crate) fn charge(ctx: &mut Context, name: &NodeName) {
    let now = ctx.now();
    if let Some(contact) = ctx.contact_mut(name) {
        contact.pace.take(now);
    }
}

/// Whether a host may change once more now.
pub(crate) fn may_change(ctx: &Context, name: &NodeName) -> bool {
    let contact = ctx.contact(name);
    contact.is_some_and(|contact| contact.pace.next_at() <= ctx.now())
}

fn hold(ctx: &mut Context, name: &NodeName, change: HostChange) {
    let Some(contact) = ctx.contact_mut(name) else {
        return;
    };
    contact.pace.hold(change);
    let at = contact.pace.next_at();
    if !core::mem::replace(&mut contact.pace.told, true) {
        tell_held_back(ctx, name);
    }
    ctx.set_timer(TimerKey::Changes(name.clone()), at);
}

/// Tells with the host whether it is held back.
fn tell_held_back(ctx: &mut Context, name: &NodeName) {
    if let Some(node) = ctx.state().node(name) {
        on_inventory(ctx, name, node.inventory.clone());
    }
}

/// There may be one to be taken again.
pub(crate) fn on_changes_timer(ctx: &mut Context, name: &NodeName) {
    while may_change(ctx, name) {
        let contact = ctx.contact_mut(name);
        let Some(change) = contact.and_then(|contact| contact.pace.next_held()) else {
            break;
        };
        take_in(ctx, name, change);
    }
    let now = ctx.now();
    let Some(contact) = ctx.contact_mut(name) else {
        return;
    };
    let pace = &mut contact.pace;
    if pace.is_holding() {
        let at = pace.next_at();
        return ctx.set_timer(TimerKey::Changes(name.clone()), at);
    }
    let at = pace.quiet_at();
    if at > now {
        return ctx.set_timer(TimerKey::Changes(name.clone()), at);
    }
    if core::mem::replace(&mut pace.told, false) {
        tell_held_back(ctx, name);
    }
}

/// What stands in the inventory of a host that is held back, beside what it says itself.
pub(crate) fn with_note(ctx: &Context, name: &NodeName, mut inventory: Inventory) -> Inventory {
    inventory.notes.retain(|note| note != HELD_BACK);
    let contact = ctx.contact(name);
    if contact.is_some_and(|contact| contact.pace.told) {
        inventory.notes.push(String::from(HELD_BACK));
    }
    inventory
}

/// What of a change takes something away, which is told at once, and what can wait.
fn apart(node: &Node, change: HostChange) -> (Option<HostChange>, Option<HostChange>) {
    let is_urgent = match &change {
        HostChange::Supervisor(supervisor) => {
            supervisor.why_away().is_some() && node.state != NodeState::Unsupervised
        }
        HostChange::Health(HostHealth::Unfit(_)) => node.cordon.is_none(),
        HostChange::Health(HostHealth::Fit) | HostChange::Labels(_) => false,
        HostChange::GpuStates(states) => {
            let worse = worse(node, states).map(|states| HostChange::GpuStates(Box::new(states)));
            return (worse, Some(change));
        }
        HostChange::Inventory(inventory) => {
            let less = less(node, inventory).map(|less| HostChange::Inventory(Box::new(less)));
            return (less, Some(change));
        }
    };
    match is_urgent {
        true => (Some(change), None),
        false => (None, Some(change)),
    }
}

/// What was known of its GPUs, with those that are unfit now too, and with the whole host closed if it is to be.
fn worse(node: &Node, said: &GpuStates) -> Option<GpuStates> {
    let there: BTreeSet<&String> = node.inventory.gpus.iter().map(|gpu| &gpu.uuid).collect();
    let mut states = node.gpus.clone();
    let new = said.faults.iter();
    let new = new.filter(|(gpu, _)| there.contains(gpu) && !node.gpus.faults.contains_key(*gpu));
    states
        .faults
        .extend(new.map(|(gpu, fault)| (gpu.clone(), fault.clone())));
    if states.drain.is_none() && node.cordon.is_none() {
        states.drain.clone_from(&said.drain);
    }
    (states != node.gpus).then_some(states)
}

/// What it was known to have, without the GPUs that it no longer lists.
fn less(node: &Node, said: &Inventory) -> Option<Inventory> {
    let listed: BTreeSet<&String> = said.gpus.iter().map(|gpu| &gpu.uuid).collect();
    let mut inventory = node.inventory.clone();
    inventory.gpus.retain(|gpu| listed.contains(&gpu.uuid));
    (inventory.gpus.len() < node.inventory.gpus.len()).then_some(inventory)
}
