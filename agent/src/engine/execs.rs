//! Programs beside attempts: tracks which task waits for the end of which program. A disconnect of the
//! supervisor ends all of them.

use std::collections::BTreeMap;

use sluice_common::exec::{ExecId, ExecOrder};
use sluice_common::id::AttemptId;
use sluice_common::supervision::{Exit, ToSupervisor};
use sluice_common::wire::AttemptPhase;
use tokio::sync::oneshot;

use super::Engine;
use crate::event::{ExecEvent, ExecRefusal, StartedExec};

/// Programs with a waiting caller.
#[derive(Debug, Default)]
pub(super) struct PendingExecs {
    next: u32,
    waiting: BTreeMap<ExecId, oneshot::Sender<Exit>>,
}

impl PendingExecs {
    /// Ends all programs, because the supervisor's connection is lost.
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
            ExecEvent::PortWanted {
                attempt,
                name,
                answer,
            } => {
                let _nobody_waits_any_more = answer.send(self.core.port_of(&attempt, &name));
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

    fn begin_exec(
        &mut self,
        attempt: AttemptId,
        order: ExecOrder,
    ) -> Result<StartedExec, ExecRefusal> {
        let phase = self.core.status(&attempt);
        let has_ended = matches!(
            phase,
            None | Some(AttemptPhase::Ended(_) | AttemptPhase::Released(_))
        );
        let refused = |why: &str| {
            Err(ExecRefusal {
                message: why.to_owned(),
                has_ended,
            })
        };
        if self.supervisor.is_none() {
            return refused("the host's supervisor is away: try again");
        }
        if !matches!(
            phase,
            Some(AttemptPhase::Running(_) | AttemptPhase::NotSuspended { .. })
        ) {
            return refused(match has_ended {
                true => "its program has ended there, and no files of it are kept",
                false => "its process does not run there now",
            });
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
        Ok(StartedExec { exec, end })
    }
}
