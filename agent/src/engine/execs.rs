//! Programs beside attempts, as the loop sees them: who waits for the end of which. A supervisor that goes away takes
//! all of them with it.

use std::collections::BTreeMap;

use sluice_common::exec::{ExecId, ExecOrder};
use sluice_common::id::AttemptId;
use sluice_common::supervision::{Exit, ToSupervisor};
use sluice_common::wire::AttemptPhase;
use tokio::sync::oneshot;

use super::Engine;

/// What the loop is told of them.
#[derive(Debug)]
pub(crate) enum ExecEvent {
    /// Somebody wants one beside an attempt.
    Wanted {
        attempt: AttemptId,
        order: ExecOrder,
        answer: oneshot::Sender<Result<Begun, String>>,
    },
    /// Nobody wants it any more.
    Unwanted(ExecId),
    /// The supervisor says that it has ended, or could not begin.
    Ended { exec: ExecId, exit: Exit },
}

/// One that the supervisor was told to make.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) exec: ExecId,
    /// How it ends; dropped unsaid where the supervisor is lost.
    pub(crate) end: oneshot::Receiver<Exit>,
}

/// Those whose end somebody waits for.
#[derive(Debug, Default)]
pub(super) struct Execs {
    next: u32,
    waiting: BTreeMap<ExecId, oneshot::Sender<Exit>>,
}

impl Execs {
    /// They have ended with the connection to their supervisor.
    pub(super) fn on_supervisor_down(&mut self) {
        self.waiting.clear();
    }
}

impl Engine {
    pub(super) fn on_exec(&mut self, event: ExecEvent) {
        match event {
            ExecEvent::Wanted {
                attempt,
                order,
                answer,
            } => {
                let _nobody_waits_any_more = answer.send(self.begin_exec(attempt, order));
            }
            ExecEvent::Unwanted(exec) => {
                if self.execs.waiting.remove(&exec).is_some() {
                    self.order(ToSupervisor::EndExec { exec });
                }
            }
            ExecEvent::Ended { exec, exit } => {
                if let Some(waiting) = self.execs.waiting.remove(&exec) {
                    let _nobody_waits_any_more = waiting.send(exit);
                }
            }
        }
    }

    fn begin_exec(&mut self, attempt: AttemptId, order: ExecOrder) -> Result<Begun, String> {
        if self.supervisor.is_none() {
            return Err("the host's supervisor is away: try again".to_owned());
        }
        let phase = self.core.status(&attempt);
        if !matches!(
            phase,
            Some(AttemptPhase::Running(_) | AttemptPhase::NotSuspended { .. })
        ) {
            return Err("its process does not run there now".to_owned());
        }
        let number = self.execs.next;
        self.execs.next = number.wrapping_add(1);
        let exec = ExecId { attempt, number };
        let (ended, end) = oneshot::channel();
        self.execs.waiting.insert(exec.clone(), ended);
        self.order(ToSupervisor::Exec {
            exec: exec.clone(),
            order,
        });
        Ok(Begun { exec, end })
    }
}
