//! Checks the rules of a pool in a document. `submit/rules.rs` applies them to steps.

use alloc::collections::BTreeSet;
use alloc::format;

use sluice_common::amount::table::key_name;
use sluice_common::error_code::ErrorCode;
use sluice_common::id::{TemplateName, ValidationName};
use sluice_common::inventory::Capability;
use sluice_common::limit::MAX_GRACE;
use sluice_common::pool::PoolSpec;
use sluice_common::pool_rules::StepDefaults;
use sluice_common::processors::CpuMode;
use sluice_common::request::FieldError;
use sluice_common::template::check::MAX_TEMPLATES;
use sluice_common::time::Span;
use sluice_common::validation::MAX_VALIDATIONS;

use super::{amount, invalid};

/// Longest message of a maintenance, in characters.
const MAX_MESSAGE_CHARS: usize = 1000;

/// Checks the rules of a pool.
///
/// # Errors
/// The first field that is invalid or contradicts another.
pub(super) fn check(spec: &PoolSpec) -> Result<(), FieldError> {
    let PoolSpec { defaults, max, .. } = spec;
    named_once(&spec.validations)?;
    without_hosts(spec)?;
    spec.maintenance.as_deref().map_or(Ok(()), message)?;
    time_to_run("defaults.timeout", defaults.timeout)?;
    grace("defaults.grace_period", defaults.grace_period)?;
    time_to_run("max.timeout", max.timeout)?;
    grace("max.grace_period", max.grace_period)?;
    templates_once(&spec.templates)?;
    default_amounts(defaults)?;
    fair_share(spec)?;
    no_default_above(spec)?;
    default_mode_allowed(spec)
}

/// Checks that a pool without hosts says what it shares, and nothing about hosts.
fn without_hosts(spec: &PoolSpec) -> Result<(), FieldError> {
    if spec.hosts.are_joined() {
        return Ok(());
    }
    if spec.capacity.is_empty() {
        let why = "a pool with `hosts: none` shares what it declares: write such as `capacity: {licences: 10}`";
        return Err(invalid("capacity", ErrorCode::Contradiction, &why));
    }
    let platforms = spec.platforms.as_ref().is_some_and(|all| !all.is_empty());
    let fields = [
        ("require", !spec.require.is_empty()),
        ("platforms", platforms),
        ("default_platform", spec.default_platform.is_some()),
        ("unmatched_platform", !spec.unmatched_platform.is_reject()),
        ("gpu_hosts", !spec.gpu_hosts.is_entitled()),
        ("placement", !spec.placement.is_pack()),
    ];
    match fields.into_iter().find(|(_, is_set)| *is_set) {
        None => Ok(()),
        Some((field, _)) => {
            let why = "it is about hosts, and the pool has `hosts: none`: leave one of the two out";
            Err(invalid(field, ErrorCode::Contradiction, &why))
        }
    }
}

/// Checks that each validation is named once, and that there are not too many for one submit.
pub(super) fn named_once(names: &[ValidationName]) -> Result<(), FieldError> {
    if names.len() > MAX_VALIDATIONS {
        let why = format!(
            "{} documents: the maximum is {MAX_VALIDATIONS}",
            names.len()
        );
        return Err(invalid("validations", ErrorCode::InvalidName, &why));
    }
    let mut seen = BTreeSet::new();
    match names.iter().find(|name| !seen.insert(*name)) {
        None => Ok(()),
        Some(twice) => {
            let why = format!("`{twice}` is listed twice: remove one");
            Err(invalid("validations", ErrorCode::NamedTwice, &why))
        }
    }
}

/// Checks that use can decay, and that users share fairly only beside their subjects.
fn fair_share(spec: &PoolSpec) -> Result<(), FieldError> {
    match &spec.fair_share {
        Some(shared) if shared.half_life == Span::ZERO => Err(invalid(
            "fair_share.half_life",
            ErrorCode::InvalidDuration,
            &"it is 0, so that use would count for no time: write a time such as `7d`",
        )),
        None if spec.fair_users => Err(invalid(
            "fair_users",
            ErrorCode::Contradiction,
            &"it needs a half-life: add `fair_share: {half_life: 7d}`, or remove `fair_users`",
        )),
        _ => Ok(()),
    }
}

/// Checks that each template is named once, and that there are not more than layers.
fn templates_once(names: &[TemplateName]) -> Result<(), FieldError> {
    let wrong = |field: &str, why: &str| invalid(field, ErrorCode::InvalidTemplate, &why);
    if names.len() > MAX_TEMPLATES {
        let why = format!("{} templates: the maximum is {MAX_TEMPLATES}", names.len());
        return Err(wrong("templates", &why));
    }
    let mut seen = BTreeSet::new();
    match names.iter().position(|name| !seen.insert(name)) {
        None => Ok(()),
        Some(at) => {
            let twice = &names[at];
            let why = format!("`{twice}` is listed twice: a layer over itself changes nothing");
            Err(wrong(&format!("templates[{at}]"), &why))
        }
    }
}

fn default_amounts(defaults: &StepDefaults) -> Result<(), FieldError> {
    let mut amounts = defaults.amounts().into_iter();
    amounts.try_for_each(|(key, n)| amount(&format!("defaults.{}", key_name(key)), n))
}

fn message(text: &str) -> Result<(), FieldError> {
    let chars = text.chars().count();
    if (1..=MAX_MESSAGE_CHARS).contains(&chars) && !text.trim().is_empty() {
        return Ok(());
    }
    let why = format!(
        "write 1 to {MAX_MESSAGE_CHARS} characters that tell users why and until when, or leave it out to end the \
         maintenance"
    );
    Err(invalid("maintenance", ErrorCode::InvalidReason, &why))
}

fn time_to_run(field: &str, span: Option<Span>) -> Result<(), FieldError> {
    if span == Some(Span::ZERO) {
        let why = "0 would leave no time to run: leave it out for no limit";
        return Err(invalid(field, ErrorCode::InvalidDuration, &why));
    }
    Ok(())
}

fn grace(field: &str, span: Option<Span>) -> Result<(), FieldError> {
    match span.filter(|span| *span > MAX_GRACE) {
        None => Ok(()),
        Some(long) => {
            let why = format!("{long} is longer than {MAX_GRACE}");
            Err(invalid(field, ErrorCode::InvalidDuration, &why))
        }
    }
}

/// Rejects a default above the pool's own maximum.
fn no_default_above(rules: &PoolSpec) -> Result<(), FieldError> {
    let PoolSpec { defaults, max, .. } = rules;
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

fn default_mode_allowed(rules: &PoolSpec) -> Result<(), FieldError> {
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

/// Checks that a pool whose steps get exclusive cores requires hosts that can pin them.
///
/// # Errors
/// The pool does not require it.
pub(super) fn able_to_pin(spec: &PoolSpec) -> Result<(), FieldError> {
    let pins = spec.defaults.cpu_mode == Some(CpuMode::Pinned);
    if !pins || spec.require.contains(&Capability::Cpuset) {
        return Ok(());
    }
    let why =
        "`pinned` is for a pool whose hosts can all give processors: write `require: [cpuset]` too";
    Err(invalid("defaults.cpu_mode", ErrorCode::Contradiction, &why))
}
