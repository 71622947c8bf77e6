//! Calls that change what a step does.

use std::time::Duration;

use sluice_common::api::StepView;

use super::{ApiError, Client, segment};

/// What is wanted of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepAction {
    /// It is frozen, or held back.
    Suspend,
    /// It goes on.
    Resume,
    /// It starts anew.
    Requeue,
    /// It is stopped for good.
    Cancel {
        /// After how long what is left of it is killed, where that is sooner than its own grace.
        grace: Option<Duration>,
    },
}

impl Client {
    /// `POST /v1/steps/{id}:suspend`, `:resume`, `:requeue` and `:cancel`.
    pub(crate) fn steer(&self, id: &str, verb: StepAction) -> Result<StepView, ApiError> {
        let verb = match verb {
            StepAction::Suspend => "suspend".to_owned(),
            StepAction::Resume => "resume".to_owned(),
            StepAction::Requeue => "requeue".to_owned(),
            StepAction::Cancel { grace: None } => "cancel".to_owned(),
            StepAction::Cancel { grace: Some(grace) } => {
                format!("cancel?grace_period={}ms", grace.as_millis())
            }
        };
        self.post(
            &format!("/v1/steps/{}:{verb}", segment(id)),
            &serde_json::json!({}),
        )
    }
}
