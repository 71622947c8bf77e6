//! Callers cancel steps. A cancel is answered as soon as it is stored; what holds units is told to stop and ends when
//! its host says so, for the core never claims what it does not know.

use sluice_common::id::StepId;
use sluice_common::state::StepState;
use sluice_common::wire::StopWhy;

use crate::core::Core;
use crate::input::ReplyId;
use crate::output::{Answer, Refusal};
use crate::record::Record;
use crate::words;

impl Core {
    pub(crate) fn on_cancel(&mut self, reply: ReplyId, id: StepId) {
        let answer = match self.state.step(&id) {
            None => Err(Refusal::UnknownStep { step: id }),
            Some(step) => {
                let state = step.state;
                self.cancel(&id, state);
                Ok(id)
            }
        };
        self.reply(reply, Answer::Cancelled(answer));
    }

    fn cancel(&mut self, id: &StepId, state: StepState) {
        match state {
            StepState::Queued => self.record(Record::StepEnded {
                step: id.clone(),
                state: StepState::Cancelled,
                reason: words::cancelled(),
            }),
            StepState::Allocated
            | StepState::Starting
            | StepState::Running
            | StepState::Suspending
            | StepState::Suspended
            | StepState::Resuming
            | StepState::Stopping => self.cancel_attempt(id),
            StepState::Succeeded
            | StepState::Failed
            | StepState::Cancelled
            | StepState::Rejected
            | StepState::Preempted => {}
        }
    }

    fn cancel_attempt(&mut self, id: &StepId) {
        let Some(step) = self.state.step(id) else {
            return;
        };
        let Some(attempt) = step.live() else {
            return;
        };
        match attempt.stopping {
            // It is on its way out, and how it ends is settled.
            Some(StopWhy::Cancelled | StopWhy::TimedOut) => return,
            Some(
                StopWhy::Drained
                | StopWhy::Preempted
                | StopWhy::Superseded
                | StopWhy::PeerEnded
                | StopWhy::GpuLost
                | StopWhy::Requeued
                | StopWhy::NotSuspended
                | StopWhy::SuspendedTooLong,
            )
            | None => {}
        }
        let attempt = step.attempt_id(attempt.number);
        self.stop_attempt(&attempt, StopWhy::Cancelled, None);
    }
}
