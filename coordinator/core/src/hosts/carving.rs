//! Has GPUs cut into the slices that platforms ask for (`mig`): which GPUs, when, and what follows from the result.
//!
//! A GPU is cut while nothing of it is granted or promised. From the record that begins it to the one that ends it nothing
//! of it is granted, whatever restarts. The result counts only as the host's inventory shows it. A failure is tried again
//! after a pause, at once if the platform asks for other slices, or if an admin uncordons the GPU.

use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;

use sluice_common::carving::{CarveFailure, CarveOrder, CarveOutcome};
use sluice_common::id::NodeName;
use sluice_common::time::{Span, Time};
use sluice_common::wire::ToNode;

use crate::context::Context;
use crate::hosts::changes::take_in;
use crate::input::TimerKey;
use crate::model::node::Node;
use crate::record::{CarvingFailed, Record};
use crate::state::carving::{CarveState, CarveStatus};

/// Pause after the first failure of a GPU. Each further one doubles it.
const FIRST_PAUSE: Span = Span::from_secs(10 * 60);

/// Longest pause after a failure.
const LONGEST_PAUSE: Span = Span::from_secs(8 * 3600);

/// The nodes with GPUs that platforms want to be cut otherwise, in pools whose whole queue is to be checked.
pub(crate) fn nodes_to_carve(ctx: &Context) -> Vec<NodeName> {
    let nodes = ctx.state().index().nodes_to_carve();
    let is_affected = |name: &&NodeName| {
        let node = ctx.state().node(name);
        node.is_some_and(|node| ctx.is_affected(&node.pool))
    };
    nodes.filter(is_affected).cloned().collect()
}

/// Begins to cut the idle GPUs of these nodes. Returns whether it did.
pub(crate) fn carve(ctx: &mut Context, nodes: &[NodeName]) -> bool {
    if ctx.state().recovery().is_some() {
        return false;
    }
    nodes
        .iter()
        .fold(false, |any, node| carve_node(ctx, node) | any)
}

fn carve_node(ctx: &mut Context, name: &NodeName) -> bool {
    let Some(node) = ctx.state().node(name) else {
        return false;
    };
    let pool = node.pool.clone();
    let mut next_try = None;
    let mut orders = Vec::new();
    for CarveState {
        gpu,
        wish,
        standing,
    } in ctx.state().carvings(node, ctx.now())
    {
        match standing {
            CarveStatus::Idle => orders.push(CarveOrder {
                before: node.layout_of(&gpu),
                gpu,
                layout: wish.layout,
            }),
            CarveStatus::Failed(failed) => {
                let at = failed.retry_at;
                next_try = Some(next_try.map_or(at, |earlier: Time| earlier.min(at)));
            }
            CarveStatus::Carving
            | CarveStatus::InUse(_)
            | CarveStatus::Promised(_)
            | CarveStatus::Contradiction(..)
            | CarveStatus::NotAllowed
            | CarveStatus::NotOffered(_)
            | CarveStatus::CannotRestore(_)
            | CarveStatus::Unfit
            | CarveStatus::HostAway => {}
        }
    }
    if let Some(at) = next_try {
        ctx.set_timer(TimerKey::Carving(pool), at);
    }
    let begins = !orders.is_empty();
    for order in orders {
        let node = name.clone();
        let begun = order.clone();
        ctx.record(Record::GpuCarving { node, order: begun });
        ctx.send(name, ToNode::Carve(Box::new(order)));
    }
    begins
}

/// Repeats the orders that a host may have lost; called after its hello.
pub(crate) fn repeat_carvings(ctx: &mut Context, name: &NodeName) {
    let node = ctx.state().node(name).into_iter();
    let carvings = node.flat_map(|node| &node.carvings);
    let running = carvings.filter(|(_, carving)| carving.failed.is_none());
    let orders: Vec<CarveOrder> = running.map(|(gpu, it)| it.order(gpu)).collect();
    for order in orders {
        ctx.send(name, ToNode::Carve(Box::new(order)));
    }
}

/// Takes the result of a host. One that nobody waits for has no effect.
pub(crate) fn on_carved(ctx: &mut Context, name: &NodeName, gpu: &str, outcome: CarveOutcome) {
    let is_awaited = |node: &Node| node.carvings.contains_key(gpu) && node.is_carved(gpu);
    if !ctx.state().node(name).is_some_and(is_awaited) {
        return;
    }
    // The inventory that shows the result came before it.
    while let Some(change) = (ctx.contact_mut(name)).and_then(|it| it.change_rate.next_held()) {
        take_in(ctx, name, change);
    }
    let Some((node, carving)) =
        (ctx.state().node(name)).and_then(|node| Some((node, node.carvings.get(gpu)?)))
    else {
        return;
    };
    let seen = node.layout_of(gpu);
    let (why, is_restored) = match outcome {
        CarveOutcome::Done if seen == carving.layout => {
            let (node, gpu) = (name.clone(), gpu.to_string());
            return ctx.record(Record::GpuCarved { node, gpu });
        }
        CarveOutcome::Done => (CarveFailure::OthersSeen(seen), true),
        CarveOutcome::Failed { why, is_restored } => (why, is_restored),
    };
    let retry_at = ctx.now() + pause_after(carving.failures);
    ctx.record(Record::GpuNotCarved(CarvingFailed {
        node: name.clone(),
        gpu: gpu.to_string(),
        why,
        is_restored,
        retry_at,
    }));
}

/// Pause before the next try of a GPU that has failed this often before in a row.
fn pause_after(failures: u32) -> Span {
    let doubled = 1_u64.checked_shl(failures).unwrap_or(u64::MAX);
    let millis = FIRST_PAUSE.millis().saturating_mul(doubled);
    Span::from_millis(millis.min(LONGEST_PAUSE.millis()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_from_ten_minutes_to_eight_hours() {
        let minutes = |failures| pause_after(failures).millis() / 60_000;
        let pauses: Vec<u64> = (0..8).map(minutes).collect();
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 480, 480]);
        assert_eq!(minutes(u32::MAX), 480);
    }
}
