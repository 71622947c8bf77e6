//! The rules of a pool as they are written in a document, checked. What they mean for steps is in `submit/rules.rs`.

use crate::model::pool::PoolSpec;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;

use sluice_common::api::{PoolDefaults, PoolMaxima, PoolRequest};
use sluice_common::error_code::ErrorCode;
use sluice_common::id::ValidationName;
use sluice_common::inventory::Capability;
use sluice_common::limit::MAX_GRACE;
use sluice_common::processors::CpuMode;
use sluice_common::request::FieldError;
use sluice_common::rules::{PoolRules, StepDefaults, StepMaxima};
use sluice_common::time::Span;
use sluice_common::validation::MAX_VALIDATIONS;

use super::{invalid, template_names};

/// Longest message of a maintenance, in characters.
const MAX_MESSAGE_CHARS: usize = 1000;

/// The rules that somebody wrote.
///
/// # Errors
/// The first field that may not hold what it holds, or that contradicts another.
pub(super) fn checked(written: PoolRequest) -> Result<PoolRules, FieldError> {
    named_once(&written.validations)?;
    let rules = PoolRules {
        maintenance: written.maintenance.map(message).transpose()?,
        defaults: defaults(&written.defaults)?,
        max: maxima(&written.max)?,
        on_preempt_allowed: written.on_preempt_allowed,
        validations: written.validations,
        default_platform: written.default_platform,
        unmatched_platform: written.unmatched_platform,
        templates: template_names(&written.templates)?,
    };
    no_default_above(&rules)?;
    default_mode_allowed(&rules)?;
    Ok(rules)
}

/// Each document once, and no more than a submit should be judged by.
pub(super) fn named_once(names: &[ValidationName]) -> Result<(), FieldError> {
    if names.len() > MAX_VALIDATIONS {
        let why = format!("{} documents: the most is {MAX_VALIDATIONS}", names.len());
        return Err(invalid("validations", ErrorCode::InvalidName, &why));
    }
    let mut seen = BTreeSet::new();
    match names.iter().find(|name| !seen.insert(*name)) {
        None => Ok(()),
        Some(twice) => {
            let why = format!("`{twice}` is there twice: leave one of them out");
            Err(invalid("validations", ErrorCode::NamedTwice, &why))
        }
    }
}

fn message(text: String) -> Result<String, FieldError> {
    let chars = text.chars().count();
    if (1..=MAX_MESSAGE_CHARS).contains(&chars) && !text.trim().is_empty() {
        return Ok(text);
    }
    let why = format!(
        "write 1 to {MAX_MESSAGE_CHARS} characters that tell users why and until when, or leave it out to end the \
         maintenance"
    );
    Err(invalid("maintenance", ErrorCode::InvalidReason, &why))
}

fn defaults(written: &PoolDefaults) -> Result<StepDefaults, FieldError> {
    Ok(StepDefaults {
        timeout: time_to_run("defaults.timeout", written.timeout.as_deref())?,
        queue_timeout: span("defaults.queue_timeout", written.queue_timeout.as_deref())?,
        grace_period: grace("defaults.grace_period", written.grace_period.as_deref())?,
        retries: written.retries,
        on_preempt: written.on_preempt,
        cpu_mode: written.cpu_mode,
    })
}

fn maxima(written: &PoolMaxima) -> Result<StepMaxima, FieldError> {
    Ok(StepMaxima {
        timeout: time_to_run("max.timeout", written.timeout.as_deref())?,
        queue_timeout: span("max.queue_timeout", written.queue_timeout.as_deref())?,
        grace_period: grace("max.grace_period", written.grace_period.as_deref())?,
        retries: written.retries,
    })
}

fn span(field: &str, text: Option<&str>) -> Result<Option<Span>, FieldError> {
    let span = text.map(str::parse).transpose();
    span.map_err(|e| invalid(field, ErrorCode::InvalidDuration, &e))
}

fn time_to_run(field: &str, text: Option<&str>) -> Result<Option<Span>, FieldError> {
    let span = span(field, text)?;
    if span == Some(Span::ZERO) {
        let why = "zero time is no time to run: leave it out for no limit";
        return Err(invalid(field, ErrorCode::InvalidDuration, &why));
    }
    Ok(span)
}

fn grace(field: &str, text: Option<&str>) -> Result<Option<Span>, FieldError> {
    let span = span(field, text)?;
    if let Some(long) = span.filter(|span| *span > MAX_GRACE) {
        let why = format!("{long} is longer than {MAX_GRACE}");
        return Err(invalid(field, ErrorCode::InvalidDuration, &why));
    }
    Ok(span)
}

/// A pool that fills in more than it allows does not know what it wants.
fn no_default_above(rules: &PoolRules) -> Result<(), FieldError> {
    let PoolRules { defaults, max, .. } = rules;
    let spans = [
        ("timeout", defaults.timeout, max.timeout),
        ("queue_timeout", defaults.queue_timeout, max.queue_timeout),
        ("grace_period", defaults.grace_period, max.grace_period),
    ];
    for (field, value, most) in spans {
        above(field, value, most)?;
    }
    above("retries", defaults.retries, max.retries)
}

fn above<T: PartialOrd + core::fmt::Display>(
    field: &str,
    value: Option<T>,
    most: Option<T>,
) -> Result<(), FieldError> {
    match (value, most) {
        (Some(value), Some(most)) if value > most => {
            let why = format!("{value} is more than `max.{field}`, which is {most}");
            let field = format!("defaults.{field}");
            Err(invalid(&field, ErrorCode::Contradiction, &why))
        }
        _ => Ok(()),
    }
}

fn default_mode_allowed(rules: &PoolRules) -> Result<(), FieldError> {
    let refused = rules
        .defaults
        .on_preempt
        .filter(|mode| !rules.allows(*mode));
    let Some(mode) = refused else { return Ok(()) };
    let why = format!("`{}` is not among `on_preempt_allowed`", mode.as_str());
    Err(invalid(
        "defaults.on_preempt",
        ErrorCode::Contradiction,
        &why,
    ))
}

/// A pool whose steps are to have processors of their own sees to it that its hosts can give them.
///
/// # Errors
/// Where it does not.
pub(super) fn able_to_pin(spec: PoolSpec) -> Result<PoolSpec, FieldError> {
    let pins = spec.rules.defaults.cpu_mode == Some(CpuMode::Pinned);
    if !pins || spec.require.contains(&Capability::Cpuset) {
        return Ok(spec);
    }
    let why =
        "`pinned` is for a pool whose hosts can all give processors: write `require: [cpuset]` too";
    Err(invalid("defaults.cpu_mode", ErrorCode::Contradiction, &why))
}
