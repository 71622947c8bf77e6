//! Decides which GPUs of a node are fit to be granted: by its agent's reports, and by what admins cordon.
//!
//! An unfit GPU still counts in the pool's capacity, and a step that runs on it stays; it is only not granted again.
//! An agent reports its GPUs as a whole, before the status that releases such a GPU, so that nothing is granted in
//! between.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use sluice_common::gpu_state::{GpuFault, GpuStates};
use sluice_common::id::NodeName;
use sluice_common::inventory::Gpu;
use sluice_common::wire::ToNode;

use crate::context::Context;
use crate::hosts::drain::drain;
use crate::model::node::{GpuCordon, Node};
use crate::output::Refusal;
use crate::record::{self, Record};
use crate::state::State;

/// Applies an agent's report of its GPUs. A host that reports itself as unfit is drained, once for each new cause: if
/// an admin opens it again, the same report does not drain it again.
pub(crate) fn take_gpu_states(ctx: &mut Context, name: &NodeName, states: GpuStates) {
    let Some(node) = ctx.state().node(name).filter(|node| node.gpus != states) else {
        return;
    };
    let new_cause = states.drain.clone();
    let new_cause = new_cause.filter(|why| node.gpus.drain.as_ref() != Some(why));
    let node = name.clone();
    ctx.record(Record::GpusReported { node, states });
    if let Some(why) = new_cause {
        drain(ctx, name, Some(format!("closed by itself: {why}")), None);
    }
}

/// Cordons GPUs of a node for an admin.
pub(crate) fn cordon_gpus(
    ctx: &mut Context,
    name: &NodeName,
    selector: &str,
    reason: Option<String>,
) -> Result<(), Refusal> {
    let node = ctx.state().node(name);
    let gpus = closed_as(node, selector, chosen(node, name, selector)?);
    let closed = |gpu: &String| node.and_then(|node| node.gpu_cordons.get(gpu));
    let before = gpus.iter().find_map(closed);
    let reason = reason.or_else(|| before.map(|cordon| cordon.reason.clone()));
    let reason = reason.unwrap_or_default();
    let changes = gpus
        .iter()
        .any(|gpu| closed(gpu).is_none_or(|cordon| cordon.reason != reason));
    if changes {
        ctx.record(Record::GpusCordoned(record::GpusCordoned {
            node: name.clone(),
            gpus,
            reason,
        }));
    }
    Ok(())
}

/// Uncordons GPUs, and lets those be tried again that could not be cut. The host checks those that it reported as unfit,
/// and reports the result.
pub(crate) fn uncordon_gpus(
    ctx: &mut Context,
    name: &NodeName,
    selector: &str,
) -> Result<(), Refusal> {
    let node = ctx.state().node(name);
    let chosen = chosen(node, name, selector)?;
    let node = node.expect("a GPU of it was found");
    let gpus = with_parents(node, chosen);
    let unfit = gpus
        .iter()
        .filter(|gpu| node.gpus.faults.contains_key(*gpu));
    let unfit: Vec<String> = unfit.cloned().collect();
    let contact = ctx.contact(name);
    if !unfit.is_empty() && contact.is_none_or(|contact| contact.session.is_none()) {
        return Err(Refusal::CannotLookAtGpu {
            node: name.clone(),
            gpu: selector.to_string(),
        });
    }
    if !gpus.is_empty() {
        let node = name.clone();
        ctx.record(Record::GpusUncordoned { node, gpus });
    }
    if !unfit.is_empty() {
        ctx.send(name, ToNode::RestoreGpus { gpus: unfit });
    }
    Ok(())
}

/// The instance that is named itself, else the GPUs of the units, so that a cordon of them outlives their instances.
fn closed_as(node: Option<&Node>, selector: &str, units: Vec<String>) -> Vec<String> {
    let gpu_of = |unit: &String| node.and_then(|node| node.parent_of(unit));
    let wholes = units.iter().map(|unit| match unit == selector {
        true => unit.clone(),
        false => gpu_of(unit).map_or(unit.clone(), ToString::to_string),
    });
    let wholes: BTreeSet<String> = wholes.collect();
    wholes.into_iter().collect()
}

/// The units and their GPUs, as far as one has a cordon or a fault of its own.
fn with_parents(node: &Node, units: Vec<String>) -> Vec<String> {
    let parents = units.iter().filter_map(|unit| node.parent_of(unit));
    let parents: BTreeSet<String> = parents.map(ToString::to_string).collect();
    let all = parents.into_iter().chain(units);
    let is_closed = |gpu: &String| {
        node.gpu_cordons.contains_key(gpu)
            || node.gpus.faults.contains_key(gpu)
            || node.has_failed_carving(gpu)
    };
    all.filter(is_closed).collect()
}

/// The GPUs that an admin selects: by the driver's index, by PCI address, by UUID, or by the UUID of the GPU that they
/// are instances of. A cordoned or unfit GPU can be named by UUID while its host does not list it.
fn chosen(node: Option<&Node>, name: &NodeName, selector: &str) -> Result<Vec<String>, Refusal> {
    let listed = node.into_iter().flat_map(|node| &node.inventory.gpus);
    let meant = |gpu: &&Gpu| {
        gpu.uuid == selector
            || gpu.whole() == selector
            || gpu.pci.as_deref() == Some(selector)
            || selector.parse().is_ok_and(|index: u32| gpu.index == index)
    };
    let mut gpus: Vec<String> = listed
        .clone()
        .filter(meant)
        .map(|g| g.uuid.clone())
        .collect();
    if gpus.is_empty() {
        let is_known = |node: &&Node| !node.is_fit(selector) || node.has_failed_carving(selector);
        let unlisted = node.filter(is_known);
        gpus.extend(unlisted.map(|_| selector.to_string()));
    }
    if gpus.is_empty() {
        return Err(Refusal::UnknownGpu {
            node: name.clone(),
            gpu: selector.to_string(),
            known: listed.map(|gpu| gpu.uuid.clone()).collect(),
        });
    }
    Ok(gpus)
}

impl Node {
    /// The reason that the host or an admin gives why a unit of the node is not granted, as text. What holds for a GPU
    /// holds for its MIG instances.
    pub fn unfit(&self, unit: &str) -> Option<String> {
        let by_hand = self.cordon_of(unit);
        let by_hand = by_hand.map(|cordon| match cordon.reason.as_str() {
            "" => "cordoned".to_string(),
            reason => format!("cordoned: {reason}"),
        });
        let by_hand = by_hand.or_else(|| self.fault_of(unit).map(ToString::to_string));
        let gpu = self.parent_of(unit).unwrap_or(unit);
        let carving = self.carvings.get(gpu).filter(|_| self.is_carved(unit));
        by_hand.or_else(|| Some(format!("it is being {}", carving?.layout.change())))
    }

    /// Whether neither the host nor an admin withholds a unit of the node, and it is not being cut.
    pub fn is_fit(&self, unit: &str) -> bool {
        let is_withheld = self.cordon_of(unit).is_some() || self.fault_of(unit).is_some();
        !is_withheld && !self.is_carved(unit)
    }

    /// The cordon of a unit, or of its GPU.
    pub fn cordon_of(&self, unit: &str) -> Option<&GpuCordon> {
        let of = |unit: &str| self.gpu_cordons.get(unit);
        of(unit).or_else(|| of(self.parent_of(unit)?))
    }

    /// The fault of a unit, or of its GPU.
    pub fn fault_of(&self, unit: &str) -> Option<&GpuFault> {
        let of = |unit: &str| self.gpus.faults.get(unit);
        of(unit).or_else(|| of(self.parent_of(unit)?))
    }
}

impl State {
    /// The reason why a unit of a node is not granted, as one word.
    pub fn unfit_word(&self, node: &Node, unit: &str) -> Option<&'static str> {
        let by_hand = node.cordon_of(unit).map(|_| "cordoned");
        let fault = || node.fault_of(unit).map(GpuFault::as_str);
        let carved = || node.is_carved(unit).then_some("carved");
        let blocked = || self.index().blocker(node, unit).map(|_| "blocked");
        by_hand.or_else(fault).or_else(carved).or_else(blocked)
    }
}
