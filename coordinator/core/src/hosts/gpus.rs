//! Decides which GPUs of a node are fit to be granted: by its agent's reports, and by what admins cordon.
//!
//! An unfit GPU still counts in the pool's capacity, and a step that runs on it stays; it is only not granted again.
//! An agent reports its GPUs as a whole, before the status that releases such a GPU, so that nothing is granted in
//! between.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use sluice_common::gpu_state::GpuStates;
use sluice_common::id::NodeName;
use sluice_common::inventory::Gpu;
use sluice_common::wire::ToNode;

use crate::context::Context;
use crate::hosts::drain::drain;
use crate::model::node::Node;
use crate::output::Refusal;
use crate::record::{self, Record};

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
    let gpus = chosen(node, name, selector)?;
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

/// Uncordons GPUs. The host checks those that it reported as unfit, and reports the result.
pub(crate) fn uncordon_gpus(
    ctx: &mut Context,
    name: &NodeName,
    selector: &str,
) -> Result<(), Refusal> {
    let node = ctx.state().node(name);
    let mut gpus = chosen(node, name, selector)?;
    gpus.retain(|gpu| node.is_some_and(|node| !node.is_fit(gpu)));
    let mut unfit = gpus.clone();
    unfit.retain(|gpu| node.is_some_and(|node| node.gpus.faults.contains_key(gpu)));
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

/// The GPUs that an admin selects: by the driver's index, by UUID, or by the UUID of the GPU that they are instances
/// of. A cordoned or unfit GPU can be named by UUID while its host does not list it.
fn chosen(node: Option<&Node>, name: &NodeName, selector: &str) -> Result<Vec<String>, Refusal> {
    let listed = node.into_iter().flat_map(|node| &node.inventory.gpus);
    let meant = |gpu: &&Gpu| {
        let parent = gpu.mig.as_ref().map(|mig| mig.parent.as_str());
        gpu.uuid == selector
            || parent == Some(selector)
            || selector.parse().is_ok_and(|index: u32| gpu.index == index)
    };
    let mut gpus: Vec<String> = listed
        .clone()
        .filter(meant)
        .map(|g| g.uuid.clone())
        .collect();
    if gpus.is_empty() {
        let unlisted = node.filter(|node| !node.is_fit(selector));
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
    /// The reason why a GPU of the node is not granted, as text; `None` if it is fit.
    pub fn unfit(&self, gpu: &str) -> Option<String> {
        let by_hand = self.gpu_cordons.get(gpu);
        let by_hand = by_hand.map(|cordon| match cordon.reason.as_str() {
            "" => "cordoned".to_string(),
            reason => format!("cordoned: {reason}"),
        });
        by_hand.or_else(|| self.gpus.faults.get(gpu).map(ToString::to_string))
    }

    /// Whether a GPU of the node may be granted.
    pub fn is_fit(&self, gpu: &str) -> bool {
        !self.gpu_cordons.contains_key(gpu) && !self.gpus.faults.contains_key(gpu)
    }

    /// The GPUs of the node that are not granted, by index, with the reason.
    pub fn unfit_gpus(&self) -> BTreeMap<(u32, &str), String> {
        let gpus = self.inventory.gpus.iter();
        gpus.filter_map(|gpu| Some(((gpu.index, gpu.uuid.as_str()), self.unfit(&gpu.uuid)?)))
            .collect()
    }
}
