//! Progress of a wait for many steps, or for the parts of an array, as one line on stderr that is rewritten.

use sluice_common::api::StepView;
use sluice_common::array::PartCounts;
use sluice_common::state::StepState;

use crate::out::Out;

/// Counts the steps that are done.
pub(super) struct WaitStatus {
    all: usize,
    wanted: Option<StepState>,
    done: usize,
    failed: usize,
    /// Progress of its parts, if one step is waited for and it is an array.
    pub(super) parts: Option<PartCounts>,
    out: Out,
}

impl WaitStatus {
    pub(super) fn of(all: usize, wanted: Option<StepState>, out: Out) -> Self {
        Self {
            all,
            wanted,
            done: 0,
            failed: 0,
            parts: None,
            out,
        }
    }

    pub(super) fn count(&mut self, step: &StepView) {
        self.done += 1;
        let failed = matches!(
            step.state,
            StepState::Failed | StepState::Rejected | StepState::Preempted
        );
        self.failed += usize::from(failed);
    }

    pub(super) fn show(&self) {
        if self.has_line() {
            self.out.progress_line(&self.text());
        }
    }

    pub(super) fn hide(&self) {
        if self.has_line() {
            self.out.progress_line("");
        }
    }

    fn has_line(&self) -> bool {
        self.all > 1 || self.parts.is_some()
    }

    fn text(&self) -> String {
        if let Some(parts) = &self.parts {
            return parts.to_string();
        }
        let Self {
            all, done, failed, ..
        } = self;
        let what = self.wanted.map_or("ended", StepState::as_str);
        let failed = match failed {
            0 => String::new(),
            failed => format!(", {failed} failed"),
        };
        format!("{done} of {all} {what}{failed}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::step::tests::running;

    #[test]
    fn progress_counts_the_ends_and_the_failures() {
        let mut progress = WaitStatus::of(1000, None, Out::plain());
        assert_eq!(progress.text(), "0 of 1000 ended");
        for state in [
            StepState::Succeeded,
            StepState::Failed,
            StepState::Cancelled,
            StepState::Preempted,
        ] {
            progress.count(&StepView { state, ..running() });
        }
        assert_eq!(progress.text(), "4 of 1000 ended, 2 failed");
        let mut progress = WaitStatus::of(1, None, Out::plain());
        assert!(!progress.has_line());
        progress.parts = Some(PartCounts {
            total: 1000,
            succeeded: 731,
            failed: 3,
            ..PartCounts::default()
        });
        assert!(progress.has_line());
        assert_eq!(progress.text(), "734 of 1000 ended, 3 failed");
        let progress = WaitStatus::of(3, Some(StepState::Running), Out::plain());
        assert_eq!(progress.text(), "0 of 3 running");
    }
}
