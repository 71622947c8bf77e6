//! Fills in what a pool's rules say for fields that a step leaves out.

use sluice_common::amount::MCPU;
use sluice_common::pool::PoolSpec;
use sluice_common::pool_rules::Setting;
use sluice_common::processors::CpuMode;
use sluice_common::step::{OnPreempt, StepSpec, WorkKind};
use sluice_common::time::Span;

/// Fills in what a step does not say: as its kind of work has it, else as the pool has it, else as it is anywhere; and
/// never more than the pool allows.
pub(crate) fn fill(rules: &PoolSpec, spec: &mut StepSpec) {
    let PoolSpec { defaults, max, .. } = rules;
    let unsaid = spec.unset.clone();
    let unsaid = |setting| unsaid.contains(&setting);
    if unsaid(Setting::Timeout) {
        let its = defaults.timeout.filter(|_| !is_open_ended(spec.work));
        spec.timeout = cut(its, max.timeout);
    }
    if unsaid(Setting::QueueTimeout) {
        spec.queue_timeout = cut(defaults.queue_timeout, max.queue_timeout);
    }
    if unsaid(Setting::GracePeriod) {
        let grace = defaults.grace_period.unwrap_or(spec.grace);
        spec.grace = max.grace_period.map_or(grace, |most| grace.min(most));
    }
    if unsaid(Setting::Retries) {
        let its = defaults.retries.filter(|_| spec.work.is_none());
        let retries = its.unwrap_or(spec.retries);
        spec.retries = max.retries.map_or(retries, |most| retries.min(most));
    }
    if unsaid(Setting::OnPreempt) {
        spec.on_preempt = mode(rules, spec.on_preempt);
    }
    if unsaid(Setting::CpuMode) {
        spec.cpu_mode = cpu_mode(rules, spec).unwrap_or(spec.cpu_mode);
    }
}

/// The pool's own, where as many processors as the step asks for can be had so.
pub(crate) fn cpu_mode(rules: &PoolSpec, spec: &StepSpec) -> Option<CpuMode> {
    let mcpu = spec.request.get(MCPU);
    rules.defaults.cpu_mode.filter(|mode| mode.suits(mcpu))
}

/// The shorter of two bounds, if there are two.
pub(crate) fn cut(its: Option<Span>, most: Option<Span>) -> Option<Span> {
    its.into_iter().chain(most).min()
}

/// The pool's own mode, else the usual one, else the first that it allows.
pub(crate) fn mode(rules: &PoolSpec, usual: OnPreempt) -> OnPreempt {
    let liked = [rules.defaults.on_preempt.unwrap_or(usual), usual];
    let all = liked.into_iter().chain(OnPreempt::ALL);
    all.into_iter()
        .find(|mode| rules.allows(*mode))
        .unwrap_or(usual)
}

/// Work that goes on for as long as a caller wants it.
pub(crate) fn is_open_ended(work: Option<WorkKind>) -> bool {
    match work {
        Some(WorkKind::Inference | WorkKind::Notebook) => true,
        Some(WorkKind::Training | WorkKind::Compute) | None => false,
    }
}
