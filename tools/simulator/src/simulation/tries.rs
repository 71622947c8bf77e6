//! Counts the tries of a job, and decides whether it may run again.

use sluice_common::step::OnPreempt;

/// Number of tries of a job, and of allowed ones.
#[derive(Clone, Debug)]
pub(super) struct JobTries {
    pub(super) attempts: u32,
    pub(super) retries_left: u32,
    pub(super) free_preemptions: bool,
    pub(super) on_preempt: OnPreempt,
    /// Whether it holds resources.
    pub(super) runs: bool,
}

impl JobTries {
    pub(super) fn may_run_again_after_loss(&mut self) -> bool {
        if self.free_preemptions {
            return true;
        }
        let may = self.retries_left > 0;
        self.retries_left = self.retries_left.saturating_sub(1);
        may
    }

    pub(super) fn may_run_again_after_giving_way(&mut self) -> bool {
        self.on_preempt != OnPreempt::Fail && self.may_run_again_after_loss()
    }
}
