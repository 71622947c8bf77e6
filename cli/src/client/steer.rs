//! Calls that change what a step does.

use sluice_common::api::StepView;

use super::{ApiError, Client, segment};

/// What is wanted of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepVerb {
    /// It is frozen, or held back.
    Suspend,
    /// It goes on.
    Resume,
    /// It starts anew.
    Requeue,
    /// It is stopped for good.
    Cancel,
}

impl Client {
    /// `POST /v1/steps/{id}:suspend`, `:resume`, `:requeue` and `:cancel`.
    pub(crate) fn steer(&self, id: &str, verb: StepVerb) -> Result<StepView, ApiError> {
        let verb = match verb {
            StepVerb::Suspend => "suspend",
            StepVerb::Resume => "resume",
            StepVerb::Requeue => "requeue",
            StepVerb::Cancel => "cancel",
        };
        self.post(
            &format!("/v1/steps/{}:{verb}", segment(id)),
            &serde_json::json!({}),
        )
    }
}
