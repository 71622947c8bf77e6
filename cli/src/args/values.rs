//! Values of flags as they are typed.

use std::time::Duration;

use sluice_common::state::StepState;

use super::step;

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    step::span(text).map(|span| Duration::from_millis(span.millis()))
}

/// A step by its id; `step/ID`, as `-o name` prints it, is the same.
pub(super) fn step_id(text: &str) -> Result<String, String> {
    let id = ["step/", "steps/"]
        .iter()
        .find_map(|kind| text.strip_prefix(kind));
    Ok(id.unwrap_or(text).to_owned())
}

/// The states by the names that the API gives them, listed in help and in errors.
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
