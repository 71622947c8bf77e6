//! Parsers of values of flags.

use std::time::Duration;

use sluice_common::api::{parse_timestamp, timestamp};
use sluice_common::state::StepState;
use sluice_common::time::Span;

use super::step;

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    step::span(text).map(|span| Duration::from_millis(span.millis()))
}

/// Parses a step's id, or `step/ID` as `-o name` prints it.
pub(crate) fn step_id(text: &str) -> Result<String, String> {
    let id = ["step/", "steps/"]
        .iter()
        .find_map(|kind| text.strip_prefix(kind));
    Ok(id.unwrap_or(text).to_owned())
}

/// Parses the time from which on output is wanted: a duration before now or a time, in the form of the API.
pub(super) fn output_since(text: &str) -> Result<String, String> {
    let span = text.parse::<Span>().map(|span| span.to_string());
    let at = || parse_timestamp(text).map(|at| timestamp(at).to_string());
    span.or_else(|_| at()).map_err(|_| {
        "write a duration such as `10m`, or a time such as `2026-01-31T08:00:00Z`".to_owned()
    })
}

/// Returns a parser of states by their API names, which help and errors list.
pub(super) fn state_parser() -> impl clap::builder::TypedValueParser<Value = StepState> {
    use clap::builder::TypedValueParser;
    let names = StepState::ALL.map(StepState::as_str);
    clap::builder::PossibleValuesParser::new(names).map(|name| {
        StepState::ALL
            .into_iter()
            .find(|state| state.as_str() == name)
            .expect("only names of states are let through")
    })
}
