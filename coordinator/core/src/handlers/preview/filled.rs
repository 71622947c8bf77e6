//! Previews the defaults that are filled in, and the origin of each value.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use sluice_common::pool::PoolSpec;
use sluice_common::pool_rules::Setting;
use sluice_common::step::{StepSpec, WorkKind};
use sluice_common::template::origin::Origin;
use sluice_common::time::Span;
use sluice_reasons::Check;

use crate::submit::effective_spec::EffectiveStep;

/// The settings that pools may set: `written` is the step before, `filled` after.
pub(crate) fn settings(
    pool: &str,
    rules: &PoolSpec,
    written: &StepSpec,
    filled: &StepSpec,
) -> Vec<Check> {
    let filled = Setting::ALL.into_iter().map(|setting| Check::Filled {
        field: setting.as_str().to_string(),
        value: value(setting, filled),
        from: match written.unset.contains(&setting) {
            false => "the step".to_string(),
            true => below(pool, rules, setting, filled),
        },
    });
    filled.collect()
}

/// The values that templates, platforms and default amounts fill in.
pub(crate) fn layers(merged: &EffectiveStep) -> impl Iterator<Item = Check> {
    merged.origins.iter().filter_map(|(field, origin)| {
        let from = match origin {
            Origin::Template { .. } | Origin::Override { .. } => origin.to_string(),
            Origin::Pool { pool } => format!("`defaults` of pool `{pool}`"),
            Origin::Step | Origin::Pipeline | Origin::Work | Origin::BuiltIn => return None,
        };
        Some(Check::Filled {
            field: field.clone(),
            // Settings are no fields of a template.
            value: merged.template.field_value(field)?,
            from,
        })
    })
}

fn value(setting: Setting, spec: &StepSpec) -> String {
    let span = |span: Option<Span>| span.map_or("none".to_string(), |span| span.to_string());
    match setting {
        Setting::Timeout => span(spec.timeout),
        Setting::QueueTimeout => span(spec.queue_timeout),
        Setting::GracePeriod => span(Some(spec.grace)),
        Setting::Retries => spec.retries.to_string(),
        Setting::OnPreempt => spec.on_preempt.as_str().to_string(),
        Setting::CpuMode => spec.cpu_mode.as_str().to_string(),
    }
}

/// The origin of a value that the step does not set.
fn below(pool: &str, rules: &PoolSpec, setting: Setting, spec: &StepSpec) -> String {
    let (defaults, max) = (&rules.defaults, &rules.max);
    let (by_default, at_most) = match setting {
        Setting::Timeout => (
            same(spec.timeout, defaults.timeout),
            same(spec.timeout, max.timeout),
        ),
        Setting::QueueTimeout => (
            same(spec.queue_timeout, defaults.queue_timeout),
            same(spec.queue_timeout, max.queue_timeout),
        ),
        Setting::GracePeriod => (
            same(Some(spec.grace), defaults.grace_period),
            same(Some(spec.grace), max.grace_period),
        ),
        Setting::Retries => (
            spec.work.is_none() && same(Some(spec.retries), defaults.retries),
            same(Some(spec.retries), max.retries)
                && spec.work.is_none_or(|it| it.retries() > spec.retries),
        ),
        Setting::OnPreempt => (
            same(Some(spec.on_preempt), defaults.on_preempt),
            !rules.on_preempt_allowed.is_empty(),
        ),
        Setting::CpuMode => (same(Some(spec.cpu_mode), defaults.cpu_mode), false),
    };
    match (by_default, at_most, by_work(setting, spec.work)) {
        (true, ..) => format!("`defaults` of pool `{pool}`"),
        (false, true, _) => format!("what pool `{pool}` allows"),
        (false, false, Some(work)) => format!("`work: {work}`"),
        (false, false, None) => "what is built in".to_string(),
    }
}

fn same<T: PartialEq>(value: Option<T>, source: Option<T>) -> bool {
    source.is_some() && value == source
}

/// The kind of work, if it sets this setting.
fn by_work(setting: Setting, work: Option<WorkKind>) -> Option<WorkKind> {
    work.filter(|work| match setting {
        Setting::Retries => true,
        Setting::Timeout => matches!(work, WorkKind::Inference | WorkKind::Notebook),
        Setting::QueueTimeout | Setting::GracePeriod | Setting::OnPreempt | Setting::CpuMode => {
            false
        }
    })
}
