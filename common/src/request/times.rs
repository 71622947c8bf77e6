//! Durations and times of a step.

use alloc::format;

use super::FieldError;
use crate::api::{parse_timestamp, timestamp};
use crate::error_code::ErrorCode;
use crate::limit::{DEFAULT_GRACE, MAX_GRACE};
use crate::time::{Span, Time};

pub(super) fn check_timeout(text: Option<&str>) -> Result<Option<Span>, FieldError> {
    let Some(text) = text else { return Ok(None) };
    let span: Span = text
        .parse()
        .map_err(|e| FieldError::new(ErrorCode::InvalidDuration, "timeout", e))?;
    if span == Span::ZERO {
        return Err(FieldError::new(
            ErrorCode::InvalidDuration,
            "timeout",
            "0 would leave no time to run: leave it out for no limit",
        ));
    }
    Ok(Some(span))
}

pub(super) fn check_suspend_timeout(text: Option<&str>) -> Result<Option<Span>, FieldError> {
    let span = text.map(str::parse).transpose();
    span.map_err(|e| FieldError::new(ErrorCode::InvalidDuration, "suspend_timeout", e))
}

pub(super) fn check_queue_timeout(text: Option<&str>) -> Result<Option<Span>, FieldError> {
    let span = text.map(str::parse).transpose();
    span.map_err(|e| FieldError::new(ErrorCode::InvalidDuration, "queue_timeout", e))
}

pub(super) fn check_times(
    begin: Option<&str>,
    deadline: Option<&str>,
) -> Result<(Option<Time>, Option<Time>), FieldError> {
    let time = |field: &str, text: Option<&str>| {
        let time = text.map(parse_timestamp).transpose();
        time.map_err(|e| FieldError::new(ErrorCode::InvalidTime, field, e))
    };
    let times = (time("begin", begin)?, time("deadline", deadline)?);
    if let (Some(first), Some(last)) = times
        && last <= first
    {
        let message = format!(
            "{} is not after `begin`, which is {}: it could never start",
            timestamp(last),
            timestamp(first)
        );
        return Err(FieldError::new(
            ErrorCode::Contradiction,
            "deadline",
            message,
        ));
    }
    Ok(times)
}

pub(super) fn check_grace(text: Option<&str>) -> Result<Span, FieldError> {
    check_span("grace_period", text, DEFAULT_GRACE, MAX_GRACE)
}

/// Checks a span of at most `max`.
pub(super) fn check_span(
    field: &str,
    text: Option<&str>,
    default: Span,
    max: Span,
) -> Result<Span, FieldError> {
    let wrong = |e: &dyn core::fmt::Display| FieldError::new(ErrorCode::InvalidDuration, field, e);
    let span = text.map(str::parse::<Span>).transpose();
    let span = span.map_err(|e| wrong(&e))?.unwrap_or(default);
    if span > max {
        return Err(wrong(&format!("{span} is longer than {max}")));
    }
    Ok(span)
}
