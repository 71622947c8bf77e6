//! Parsers of values of flags.

use std::time::Duration;

use sluice_common::state::StepState;

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
