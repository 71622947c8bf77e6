//! Fills in what a pool's rules say for fields that a step leaves out.

use sluice_common::amount::MCPU;
use sluice_common::pool::PoolSpec;
use sluice_common::pool_rules::Setting;
use sluice_common::processors::CpuMode;
use sluice_common::step::{OnPreempt, StepSpec, WorkKind};
use sluice_common::time::Span;

/// Fills in the settings that a step leaves out: by its kind of work, else by the pool, else the built-in ones; and
/// never more than the pool allows.
pub(crate) fn fill(rules: &PoolSpec, spec: &mut StepSpec) {
    let PoolSpec { defaults, max, .. } = rules;
    let is_unset = spec.unset.clone();
    let is_unset = |setting| is_unset.contains(&setting);
    if is_unset(Setting::Timeout) {
        let default = defaults.timeout.filter(|_| !is_open_ended(spec.work));
        spec.timeout = cut(default, max.timeout);
    }
    if is_unset(Setting::QueueTimeout) {
        spec.queue_timeout = cut(defaults.queue_timeout, max.queue_timeout);
    }
    if is_unset(Setting::GracePeriod) {
        let grace = defaults.grace_period.unwrap_or(spec.grace);
        spec.grace = max.grace_period.map_or(grace, |most| grace.min(most));
    }
    if is_unset(Setting::Retries) {
        let default = defaults.retries.filter(|_| spec.work.is_none());
        let retries = default.unwrap_or(spec.retries);
        spec.retries = max.retries.map_or(retries, |most| retries.min(most));
    }
    if is_unset(Setting::OnPreempt) {
        spec.on_preempt = mode(rules, spec.on_preempt);
    }
    if is_unset(Setting::CpuMode) {
        spec.cpu_mode = cpu_mode(rules, spec).unwrap_or(spec.cpu_mode);
    }
}

/// The pool's CPU mode, if it allows the number of cores that the step asks for.
pub(crate) fn cpu_mode(rules: &PoolSpec, spec: &StepSpec) -> Option<CpuMode> {
    let mcpu = spec.request.get(MCPU);
    rules.defaults.cpu_mode.filter(|mode| mode.suits(mcpu))
}

/// The shorter of two bounds.
pub(crate) fn cut(default: Option<Span>, most: Option<Span>) -> Option<Span> {
    default.into_iter().chain(most).min()
}

/// The pool's own mode, else the usual one, else the first that it allows.
pub(crate) fn mode(rules: &PoolSpec, usual: OnPreempt) -> OnPreempt {
    let liked = [rules.defaults.on_preempt.unwrap_or(usual), usual];
    let all = liked.into_iter().chain(OnPreempt::ALL);
    all.into_iter()
        .find(|mode| rules.allows(*mode))
        .unwrap_or(usual)
}

/// Whether the work goes on until a caller ends it.
pub(crate) fn is_open_ended(work: Option<WorkKind>) -> bool {
    match work {
        Some(WorkKind::Inference | WorkKind::Notebook) => true,
        Some(WorkKind::Training | WorkKind::Compute) | None => false,
    }
}
