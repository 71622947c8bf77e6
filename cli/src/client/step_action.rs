//! Calls that suspend, resume, requeue, move, cancel or delete a step.

use std::time::Duration;

use sluice_common::api::{
    MoveStepRequest, MovedStepView, PreviewView, StepView, StepsActionRequest, StepsActionView,
};

use super::{ApiError, Client, Query, segment};

/// An action on a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepAction {
    /// Freeze a running step, or hold a queued one.
    Suspend,
    /// Let a suspended step go on.
    Resume,
    /// Stop it and queue it again.
    Requeue,
    /// Forget it after its end.
    Delete,
    /// Stop it for good.
    Cancel {
        /// Grace period, if shorter than the step's own.
        grace: Option<Duration>,
    },
}

impl StepAction {
    /// Returns the verb of its calls.
    pub(crate) fn verb(self) -> &'static str {
        match self {
            StepAction::Suspend => "suspend",
            StepAction::Resume => "resume",
            StepAction::Requeue => "requeue",
            StepAction::Delete => "delete",
            StepAction::Cancel { .. } => "cancel",
        }
    }

    fn query(self) -> Query<'static> {
        match self {
            StepAction::Cancel { grace: Some(grace) } => {
                vec![("grace_period", format!("{}ms", grace.as_millis()))]
            }
            StepAction::Suspend
            | StepAction::Resume
            | StepAction::Requeue
            | StepAction::Delete
            | StepAction::Cancel { grace: None } => Query::new(),
        }
    }
}

impl Client {
    /// Calls `POST /v1/steps/{id}:suspend`, `:resume`, `:requeue` or `:cancel`.
    pub(crate) fn act_on_step(&self, id: &str, action: StepAction) -> Result<StepView, ApiError> {
        let path = format!("/v1/steps/{}:{}", segment(id), action.verb());
        self.post_with(&path, &action.query(), &serde_json::json!({}))
    }

    /// Calls `DELETE /v1/steps/{id}`.
    pub(crate) fn delete_step(&self, id: &str) -> Result<(), ApiError> {
        let path = format!("/v1/steps/{}", segment(id));
        self.delete(&path, &Query::new()).map(|_| ())
    }

    /// Calls `POST /v1/steps:suspend`, `:resume`, `:requeue`, `:delete` or `:cancel`.
    pub(crate) fn act_on_steps(
        &self,
        action: StepAction,
        dry_run: bool,
        request: &StepsActionRequest,
    ) -> Result<StepsActionView, ApiError> {
        let mut query = action.query();
        if dry_run {
            query.push(("dry_run", "true".to_owned()));
        }
        self.post_with(&format!("/v1/steps:{}", action.verb()), &query, request)
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
