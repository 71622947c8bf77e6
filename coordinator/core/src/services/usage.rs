//! Usage of replicas as their hosts report it. Only a replica's own host is believed, and no more than the host has.

use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::amount::{MCPU, MEMORY_MB};
use sluice_common::id::NodeName;
use sluice_common::metric::MetricReading;
use sluice_common::service::{MAX_LOAD_MILLI, ScaleMetric};
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
        take(ctx, node, report);
    }
}

fn take(ctx: &mut Context, node: &NodeName, report: UsageReport) -> Option<()> {
    let now = ctx.now();
    let state = ctx.state();
    let step = state.step(&report.attempt.step)?;
    let replica = step.spec.service.as_ref()?.name.clone();
    let metric = state.services().get(&replica)?.scale.metric.as_ref()?;
    let attempt = step
        .live()
        .filter(|live| live.number == report.attempt.number)?;
    // A gang is measured where its rank 0 runs.
    let part = attempt.parts.first().filter(|part| part.node == *node)?;
    let of_asked = |key, used: u64| {
        let asked = step.spec.request.get(key);
        let capacity = state.node(&part.node)?.inventory.capacity().get(key);
        let used = used.min(capacity).saturating_mul(WHOLE);
        used.checked_div(asked)
    };
    let value = match metric {
        ScaleMetric::Cpu => Ok(of_asked(MCPU, report.mcpu?)?),
        ScaleMetric::Memory => Ok(of_asked(MEMORY_MB, report.memory_bytes? / 1_000_000)?),
        ScaleMetric::Gpu => Ok(report.gpu_milli?.min(WHOLE)),
        ScaleMetric::Named(name) => bounded(report.metric.filter(|it| it.name == *name)?),
        ScaleMetric::Concurrency | ScaleMetric::Rps => return None,
    };
    let step = step.id.clone();
    let loads = ctx.service_loads_mut(&replica);
    match value {
        Ok(milli) => loads.use_by(step, milli, now),
        Err(why) => loads.unread_by(step, why, now),
    }
    ctx.set_service_due(replica);
    Some(())
}

/// A value that cannot be is unknown.
fn bounded(reading: MetricReading) -> Result<u64, String> {
    match reading.value? {
        milli if milli <= MAX_LOAD_MILLI => Ok(milli),
        _ => Err(String::from("its host told a value that cannot be")),
    }
}
