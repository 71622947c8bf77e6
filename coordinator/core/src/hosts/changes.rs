//! Applies what a host reports between two hellos, no faster than
//! [`ChangeRate`](crate::contact::change_rate::ChangeRate) allows.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;

use sluice_common::gpu_state::GpuStates;
use sluice_common::host_health::HostHealth;
use sluice_common::id::NodeName;
use sluice_common::inventory::Inventory;
use sluice_common::state::NodeState;

use crate::contact::change_rate::HostChange;
use crate::context::Context;
use crate::hosts::gpus::take_gpu_states;
use crate::hosts::health::on_health;
use crate::hosts::link::{charge, on_supervisor};
use crate::hosts::report::{on_inventory, on_labels};
use crate::input::TimerKey;
use crate::model::node::Node;

/// Applies a report of a host, now or later.
pub(crate) fn on_change(ctx: &mut Context, name: &NodeName, change: HostChange) {
    let Some(contact) = ctx.contact_mut(name) else {
        return;
    };
    contact.change_rate.drop_like(&change);
    let waits = contact.change_rate.is_holding() || contact.change_rate.next_at() > ctx.now();
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

pub(crate) fn take_in(ctx: &mut Context, name: &NodeName, change: HostChange) {
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

fn hold(ctx: &mut Context, name: &NodeName, change: HostChange) {
    let Some(contact) = ctx.contact_mut(name) else {
        return;
    };
    contact.change_rate.hold(change);
    let at = contact.change_rate.next_at();
    if !core::mem::replace(&mut contact.change_rate.is_noted, true) {
        tell_held_back(ctx, name);
    }
    ctx.set_timer(TimerKey::Changes(name.clone()), at);
}

/// Sets or removes the note that a host is held back.
pub(crate) fn tell_held_back(ctx: &mut Context, name: &NodeName) {
    if let Some(node) = ctx.state().node(name) {
        on_inventory(ctx, name, node.inventory.clone());
    }
}

/// Splits a change into what takes something away, which is applied at once, and what can wait.
fn apart(node: &Node, change: HostChange) -> (Option<HostChange>, Option<HostChange>) {
    let is_urgent = match &change {
        HostChange::Supervisor(supervisor) => {
            supervisor.unresponsive_reason().is_some() && node.state != NodeState::Unsupervised
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

/// The known state of the GPUs, with the newly unfit ones added, and a drain of the host if it is asked for.
fn worse(node: &Node, reported: &GpuStates) -> Option<GpuStates> {
    let listed: BTreeSet<&String> = node.inventory.gpus.iter().map(|gpu| &gpu.uuid).collect();
    let mut states = node.gpus.clone();
    let new = reported.faults.iter();
    let new = new.filter(|(gpu, _)| listed.contains(gpu) && !node.gpus.faults.contains_key(*gpu));
    states
        .faults
        .extend(new.map(|(gpu, fault)| (gpu.clone(), fault.clone())));
    if states.drain.is_none() && node.cordon.is_none() {
        states.drain.clone_from(&reported.drain);
    }
    (states != node.gpus).then_some(states)
}

/// The known inventory, without the GPUs that are no longer listed.
fn less(node: &Node, reported: &Inventory) -> Option<Inventory> {
    let listed: BTreeSet<&String> = reported.gpus.iter().map(|gpu| &gpu.uuid).collect();
    let mut inventory = node.inventory.clone();
    inventory.gpus.retain(|gpu| listed.contains(&gpu.uuid));
    (inventory.gpus.len() < node.inventory.gpus.len()).then_some(inventory)
}
