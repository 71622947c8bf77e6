//! Calls that suspend, resume, requeue, move or cancel a step.

use std::time::Duration;

use sluice_common::api::{MoveStepRequest, MovedStepView, PreviewView, StepView};

use super::{ApiError, Client, segment};

/// An action on a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepAction {
    /// Freeze a running step, or hold a queued one.
    Suspend,
    /// Let a suspended step go on.
    Resume,
    /// Stop it and queue it again.
    Requeue,
    /// Stop it for good.
    Cancel {
        /// Grace period, if shorter than the step's own.
        grace: Option<Duration>,
    },
}

impl Client {
    /// Calls `POST /v1/steps/{id}:suspend`, `:resume`, `:requeue` or `:cancel`.
    pub(crate) fn act_on_step(&self, id: &str, verb: StepAction) -> Result<StepView, ApiError> {
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

    /// Calls `POST /v1/steps/{id}:move`.
    pub(crate) fn move_step(&self, id: &str, pool: &str) -> Result<MovedStepView, ApiError> {
        let path = format!("/v1/steps/{}:move", segment(id));
        let pool = pool.to_owned();
        self.post(&path, &MoveStepRequest { pool })
    }

    /// Calls `POST /v1/steps/{id}:move` as a dry run.
    pub(crate) fn preview_move(&self, id: &str, pool: &str) -> Result<PreviewView, ApiError> {
        let path = format!("/v1/steps/{}:move?dry_run=true", segment(id));
        let pool = pool.to_owned();
        self.post(&path, &MoveStepRequest { pool })
    }
}
