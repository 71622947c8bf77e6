//! Effects of applied platforms on GPUs: how many of each host are cut into slices, now or later, or not.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use sluice_common::id::PoolName;

use crate::context::Context;
use crate::input::{Desired, TermsChange};
use crate::model::node::Node;
use crate::output::CarvePlan;
use crate::state::carving::{CarveState, CarveStatus};
use crate::terms::platforms::about_platforms;

/// Most hosts that are listed; the others are counted.
const MAX_LISTED: usize = 16;

/// Effects on the GPUs of the pools whose platforms these changes are about.
pub(crate) fn carve_plans(ctx: &Context, changes: &[TermsChange]) -> Vec<CarvePlan> {
    let wanted = changes.iter().map(|change| &change.desired);
    let pools = wanted.filter_map(|it: &Desired| Some(about_platforms(it)?.0));
    let pools: BTreeSet<&PoolName> = pools.collect();
    let nodes = ctx.state().index().nodes_to_carve();
    let nodes = nodes.filter_map(|name| ctx.state().node(name));
    let nodes: Vec<&Node> = nodes.filter(|node| pools.contains(&node.pool)).collect();
    let listed = nodes.iter().take(MAX_LISTED);
    let plans = listed.flat_map(|node| plans_of(ctx, node));
    let rest = nodes.len().saturating_sub(MAX_LISTED);
    let rest = (rest > 0).then(|| CarvePlan {
        node: None,
        message: format!("{rest} more hosts: `sluice describe node` shows each"),
    });
    plans.chain(rest).collect()
}

/// One plan for each layout that GPUs of a node are to have.
fn plans_of(ctx: &Context, node: &Node) -> Vec<CarvePlan> {
    let mut by_change: BTreeMap<String, Vec<CarveState>> = BTreeMap::new();
    for state in ctx.state().carvings(node, ctx.now()) {
        let change = state.wish.layout.change();
        by_change.entry(change).or_default().push(state);
    }
    let plans = by_change.iter().map(|(change, states)| CarvePlan {
        node: Some(node.name.clone()),
        message: message(change, states),
    });
    plans.collect()
}

fn message(change: &str, states: &[CarveState]) -> String {
    let all = states.len();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for CarveState { standing, .. } in states {
        let clause = match standing {
            CarveStatus::Idle | CarveStatus::Carving => {
                format!("idle and will be {change}")
            }
            CarveStatus::InUse(_) => {
                "in use and will be cut when their steps have ended".to_string()
            }
            CarveStatus::Promised(step) => {
                format!("promised to step `{step}` and will be cut after it")
            }
            CarveStatus::HostAway => "cut when the host is ready".to_string(),
            CarveStatus::Failed(_)
            | CarveStatus::Contradiction(..)
            | CarveStatus::NotAllowed
            | CarveStatus::NotOffered(_)
            | CarveStatus::CannotRestore(_)
            | CarveStatus::Unfit => format!("not cut: {standing}"),
        };
        *counts.entry(clause).or_default() += 1;
    }
    let clauses = counts.iter().map(|(clause, count)| {
        let verb = if *count == 1 { "is" } else { "are" };
        format!("{count} of {all} GPUs {verb} {clause}")
    });
    clauses.collect::<Vec<_>>().join("; ")
}
