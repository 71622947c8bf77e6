//! Stores the reports of a host if they are new.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::gpu_state::GpuStates;
use sluice_common::id::{NodeName, PoolName};
use sluice_common::inventory::Inventory;
use sluice_common::wire::{AttemptStatus, Hello};

use crate::context::Context;
use crate::model::node::Node;
use crate::record::{NodeReported, Record};

/// Stores what is new in a hello about the node. Returns the parts about attempts and the fitness of GPUs.
pub(crate) fn report_node(
    ctx: &mut Context,
    hello: Hello,
    pool: PoolName,
) -> (Vec<AttemptStatus>, GpuStates) {
    let Hello {
        protocol: _,
        version,
        node,
        pool: config,
        labels,
        address,
        boot_id,
        state_dir: _,
        highest_epoch: _,
        inventory,
        attempts,
        gpu_states,
        sent_at: _,
        supervisor: _,
        challenge: _,
    } = hello;
    let inventory = with_note(ctx, &node, each_gpu_once(inventory));
    report(
        ctx,
        NodeReported {
            node,
            pool,
            pool_of_config: Some(config),
            labels,
            address,
            version,
            boot_id,
            inventory,
        },
    );
    (attempts, gpu_states)
}

fn report(ctx: &mut Context, reported: NodeReported) {
    if !is_reported(ctx, &reported) {
        ctx.record(Record::NodeReported(Box::new(reported)));
    }
}

/// Whether a report contains nothing new.
fn is_reported(ctx: &Context, it: &NodeReported) -> bool {
    ctx.state().node(&it.node).is_some_and(|node| {
        it.pool_of_config.as_ref() == Some(node.configured_pool())
            && node.labels == it.labels
            && node.address == it.address
            && node.version == it.version
            && node.boot_id == it.boot_id
            && node.inventory == it.inventory
    })
}

pub(crate) fn on_inventory(ctx: &mut Context, node: &NodeName, inventory: Inventory) {
    if let Some(known) = ctx.state().node(node) {
        let labels = known.labels.clone();
        let inventory = with_note(ctx, node, each_gpu_once(inventory));
        let reported = reported(node, known, labels, inventory);
        report(ctx, reported);
    }
}

pub(crate) fn on_labels(ctx: &mut Context, node: &NodeName, labels: BTreeMap<String, String>) {
    if let Some(known) = ctx.state().node(node) {
        let reported = reported(node, known, labels, known.inventory.clone());
        report(ctx, reported);
    }
}

/// The known report of a node, without the parts that have changed.
fn reported(
    node: &NodeName,
    known: &Node,
    labels: BTreeMap<String, String>,
    inventory: Inventory,
) -> NodeReported {
    NodeReported {
        node: node.clone(),
        pool: known.pool.clone(),
        pool_of_config: Some(known.configured_pool().clone()),
        labels,
        address: known.address.clone(),
        version: known.version.clone(),
        boot_id: known.boot_id.clone(),
        inventory,
    }
}

/// Removes repeated GPUs, because GPUs are granted by UUID, and whole GPUs beside their MIG instances, because they are
/// the same hardware. The first entry counts, and a note informs the admin.
fn each_gpu_once(mut inventory: Inventory) -> Inventory {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let mut notes = Vec::new();
    let instances = inventory.gpus.iter().filter_map(|gpu| gpu.mig.as_ref());
    let cut: BTreeSet<String> = instances.map(|mig| mig.parent.clone()).collect();
    inventory.gpus.retain(|gpu| {
        if cut.contains(&gpu.uuid) {
            notes.push(format!(
                "GPU {} is listed whole and by its MIG instances: only the instances are used",
                gpu.index
            ));
            return false;
        }
        let first = seen.get(&gpu.uuid).copied();
        if let Some(first) = first {
            let uuid = gpu.uuid.escape_default();
            notes.push(format!(
                "GPU {} has the UUID `{uuid}` of GPU {first} and is not used",
                gpu.index
            ));
        }
        seen.entry(gpu.uuid.clone()).or_insert(gpu.index);
        first.is_none()
    });
    inventory.notes.extend(notes);
    inventory
}

/// The note on a host that changes too often.
pub const HELD_BACK: &str = "it says so often that it has changed that the coordinator takes in one change every 2s, and the \
                             latest one at last: look at what changes in its events, labels, GPUs, health check or supervisor";

/// Adds the note to the inventory of a host that is held back.
pub(crate) fn with_note(ctx: &Context, name: &NodeName, mut inventory: Inventory) -> Inventory {
    inventory.notes.retain(|note| note != HELD_BACK);
    let contact = ctx.contact(name);
    if contact.is_some_and(|contact| contact.change_rate.is_noted) {
        inventory.notes.push(String::from(HELD_BACK));
    }
    inventory
}
