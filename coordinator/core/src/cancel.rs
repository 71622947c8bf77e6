//! Callers cancel steps. A cancel is answered as soon as it is stored; what holds units is told to stop and ends when
//! its host says so, for the core never claims what it does not know.

use alloc::vec::Vec;

use sluice_common::id::{AttemptId, NodeName, StepId};
use sluice_common::state::StepState;
use sluice_common::wire::StopWhy;

use crate::core::Core;
use crate::input::ReplyId;
use crate::output::{Answer, Refusal};
use crate::record::Record;
use crate::state::{PartPhase, Step};
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
        let Some((attempt, stopping, nodes)) = self.state.step(id).and_then(to_stop) else {
            return;
        };
        match stopping {
            // It is on its way out, and how it ends is settled.
            Some(StopWhy::Cancelled | StopWhy::TimedOut) => return,
            Some(StopWhy::Drained | StopWhy::Preempted | StopWhy::Superseded) | None => {}
        }
        let why = StopWhy::Cancelled;
        self.record(Record::Stopping {
            attempt: attempt.clone(),
            why,
            by: None,
        });
        let grace = self.state.step(id).map(|step| step.spec.grace);
        for node in nodes {
            self.send_stop(&node, &attempt, why, grace.unwrap_or_default());
        }
    }
}

/// The live attempt of a step, why it is being stopped already, and the hosts on which it has not ended.
fn to_stop(step: &Step) -> Option<(AttemptId, Option<StopWhy>, Vec<NodeName>)> {
    let attempt = step.live()?;
    let parts = attempt.parts.iter();
    let live = parts.filter(|part| part.phase < PartPhase::Ended);
    let nodes = live.map(|part| part.node.clone()).collect();
    Some((step.attempt_id(attempt.number), attempt.stopping, nodes))
}
