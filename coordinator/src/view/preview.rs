//! Views of dry runs of submits.

use coordinator_core::{CheckLine, CheckStatus, Core, Preview, Previewed, Stage, StageReport};
use sluice_common::api::{
    CheckView, PreviewOutcome, PreviewStage, PreviewView, StageOutcome, StageView, StepView,
};
use sluice_common::state::StepState;

/// Returns the view of a dry run.
pub fn preview(core: &Core, preview: Preview) -> PreviewView {
    let stages = preview.stages.into_iter().map(stage).collect();
    let Ok(previewed) = preview.outcome else {
        return PreviewView {
            outcome: PreviewOutcome::Refused,
            stages,
            step: None,
            preempts: Vec::new(),
        };
    };
    let preempts = previewed.preempts.iter().map(ToString::to_string);
    PreviewView {
        outcome: outcome(previewed.step.state),
        stages,
        preempts: preempts.collect(),
        step: Some(step(core, &previewed)),
    }
}

/// Returns the step as it was in the dry run; the core has forgotten it.
fn step(core: &Core, previewed: &Previewed) -> StepView {
    StepView {
        pool: previewed.pool.as_ref().map(ToString::to_string),
        reason: previewed.reason.to_reason(),
        ..super::step(core, &previewed.step)
    }
}

fn outcome(state: StepState) -> PreviewOutcome {
    match state {
        StepState::Queued => PreviewOutcome::Waits,
        ended if ended.is_terminal() => PreviewOutcome::Rejected,
        _ => PreviewOutcome::Starts,
    }
}

fn stage(report: StageReport) -> StageView {
    StageView {
        stage: match report.stage {
            Stage::Access => PreviewStage::Access,
            Stage::Merge => PreviewStage::Merge,
            Stage::Validation => PreviewStage::Validation,
            Stage::Platform => PreviewStage::Platform,
            Stage::Queue => PreviewStage::Queue,
        },
        outcome: passage(report.passage),
        checks: report.lines.into_iter().map(check).collect(),
    }
}

fn check(line: CheckLine) -> CheckView {
    CheckView {
        pool: line.pool.map(|pool| pool.to_string()),
        about: line.check.about(),
        outcome: passage(line.passage),
        message: line.check.message(),
    }
}

fn passage(passage: CheckStatus) -> StageOutcome {
    match passage {
        CheckStatus::Passed => StageOutcome::Passed,
        CheckStatus::Failed => StageOutcome::Failed,
        CheckStatus::NotReached => StageOutcome::NotReached,
    }
}
