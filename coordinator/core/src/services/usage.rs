//! Usage of replicas as their hosts report it. Only a replica's own host is believed, and no more than the host has.

use alloc::vec::Vec;

use sluice_common::amount::{MCPU, MEMORY_MB};
use sluice_common::id::NodeName;
use sluice_common::service::ScaleMetric;
use sluice_common::usage::UsageReport;

use crate::context::Context;

/// Thousandths of a percent of the whole.
const WHOLE: u64 = 100_000;

/// Takes what a host says about the replicas of services that follow it.
pub(crate) fn on_usages(ctx: &mut Context, node: &NodeName, usages: Vec<UsageReport>) {
    if ctx.state().services().is_empty() {
        return;
    }
    for report in usages {
        take(ctx, node, &report);
    }
}

fn take(ctx: &mut Context, node: &NodeName, report: &UsageReport) -> Option<()> {
    let now = ctx.now();
    let state = ctx.state();
    let step = state.step(&report.attempt.step)?;
    let replica = step.spec.service.as_ref()?.name.clone();
    let metric = state.services().get(&replica)?.scale.metric?;
    let attempt = step
        .live()
        .filter(|live| live.number == report.attempt.number)?;
    // A gang is measured where its rank 0 runs.
    let part = attempt.parts.first().filter(|part| part.node == *node)?;
    let (key, used) = match metric {
        ScaleMetric::Cpu => (MCPU, report.mcpu?),
        ScaleMetric::Memory => (MEMORY_MB, report.memory_bytes? / 1_000_000),
        ScaleMetric::Concurrency | ScaleMetric::Rps => return None,
    };
    let asked = step.spec.request.get(key);
    let capacity = state.node(&part.node)?.inventory.capacity().get(key);
    let milli = used
        .min(capacity)
        .saturating_mul(WHOLE)
        .checked_div(asked)?;
    let step = step.id.clone();
    ctx.service_loads_mut(&replica).use_by(step, milli, now);
    ctx.set_service_due(replica);
    Some(())
}
