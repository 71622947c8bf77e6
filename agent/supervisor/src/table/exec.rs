//! Programs beside a step (`sluice exec`): which may start, which have ended, and which are killed because
//! their agent is gone. `spawn` forks them. They are processes of the attempt, so none outlives it. Who may run one may
//! connect to a port of the step too, for which nothing is started.
//!
//! They are not in the spool: an upgrade kills them, and those of a supervisor that died end with their
//! attempt.

use std::collections::BTreeMap;
use std::fs;

use sluice_common::exec::{ExecId, ExecOrder, ExecProgram, MAX_EXECS_PER_ATTEMPT};
use sluice_common::supervision::{Exit, FreezerState, FromSupervisor, Process};

use super::{EndedChild, Phase, StartReport, StartStatus, Table, info, no_group};
use crate::identity::StepOwner;
use crate::spawn::exec::ExecSpec;
use crate::spawn::kill_child;

/// Running programs by pid, and messages for the agent.
#[derive(Debug, Default)]
pub(super) struct Execs {
    running: BTreeMap<u32, RunningExec>,
    ended: Vec<FromSupervisor>,
}

#[derive(Debug)]
struct RunningExec {
    exec: ExecId,
    report: StartReport,
    /// Whether it is a probe of the step itself.
    is_probe: bool,
}

/// Most probes per attempt at a time: of readiness and liveness, and one of each that is being killed.
const MAX_PROBES_PER_ATTEMPT: usize = 4;

fn is_probe(order: &ExecOrder) -> bool {
    match order.program {
        ExecProgram::Probe { .. } => true,
        ExecProgram::Command { .. } | ExecProgram::CopyFiles | ExecProgram::Connect { .. } => false,
    }
}

impl Table {
    /// Starts a program beside an attempt. Returns the reason if that fails, and whether a caller may connect.
    pub(super) fn on_exec(&mut self, exec: ExecId, order: &ExecOrder) -> Option<FromSupervisor> {
        let decided = match order.program {
            ExecProgram::Connect { .. } => {
                self.may_connect(&exec, order).map(|()| Some(Exit::Code(0)))
            }
            ExecProgram::Command { .. } | ExecProgram::CopyFiles | ExecProgram::Probe { .. } => {
                self.begin_exec(&exec, order).map(|()| None)
            }
        };
        let exit = decided.unwrap_or_else(|why| {
            info!(step = %exec.attempt.step, attempt = exec.attempt.number, "exec rejected: {why}");
            Some(Exit::StartFailed(why))
        });
        exit.map(|exit| FromSupervisor::ExecEnded { exec, exit })
    }

    fn begin_exec(&mut self, exec: &ExecId, order: &ExecOrder) -> Result<(), String> {
        let (main, step_owner) = self.step_beside(exec, order)?;
        self.check_places(exec, order)?;
        let own = self.attempts.get(&exec.attempt).and_then(|a| a.uid);
        let wanted = ExecSpec {
            own,
            exec,
            program: &order.program,
            terminal: order.terminal(),
            main,
            step_owner: &step_owner,
        };
        let group_entry = self.groups.entry(&exec.attempt).map_err(no_group);
        let forked =
            group_entry.and_then(|group_entry| self.spawner.fork_exec(&wanted, &group_entry));
        let (pid, report) = forked.map_err(|e| e.to_string())?;
        let is_probe = is_probe(order);
        if !is_probe {
            info!(step = %exec.attempt.step, attempt = exec.attempt.number, pid, "exec started a program in it");
        }
        let running = RunningExec {
            exec: exec.clone(),
            report,
            is_probe,
        };
        self.execs.running.insert(pid, running);
        Ok(())
    }

    /// The main process to run beside, and the attempt's subject and submitter.
    fn step_beside(
        &self,
        exec: &ExecId,
        order: &ExecOrder,
    ) -> Result<(Process, StepOwner), String> {
        let attempt = self.attempts.get(&exec.attempt);
        let Some((attempt, Phase::Running(main, _))) = attempt.map(|a| (a, a.phase())) else {
            return Err("the step does not run now".to_owned());
        };
        check_exec_allowed(&attempt.freezer)?;
        let step_owner = attempt
            .step_owner()
            .ok_or("the user of the step is no longer known")?;
        // A probe belongs to the step, and has no caller who could be somebody else.
        if attempt.uid.is_none() && !is_probe(order) {
            self.spawner.may_become(&step_owner, order.by.as_ref())?;
        }
        Ok((*main, step_owner))
    }

    /// Checks that a caller may connect to the ports of an attempt: as far as he may run programs beside it.
    fn may_connect(&self, exec: &ExecId, order: &ExecOrder) -> Result<(), String> {
        let (_, step_owner) = self.step_beside(exec, order)?;
        let own = self.attempts.get(&exec.attempt).and_then(|a| a.uid);
        let checked = self.spawner.check_identity(&exec.attempt, &step_owner, own);
        checked.map_err(|e| e.to_string())
    }

    /// Checks that one more program may run beside an attempt.
    fn check_places(&self, exec: &ExecId, order: &ExecOrder) -> Result<(), String> {
        let beside = self.execs.running.values();
        let is_probe = is_probe(order);
        let is_beside =
            |it: &&RunningExec| it.exec.attempt == exec.attempt && it.is_probe == is_probe;
        let beside = beside.filter(is_beside).count();
        if self.execs.running.values().any(|other| other.exec == *exec) {
            return Err("a program of this number already runs in it".to_owned());
        }
        if is_probe && beside >= MAX_PROBES_PER_ATTEMPT {
            return Err(format!(
                "{MAX_PROBES_PER_ATTEMPT} probes still run in the step"
            ));
        }
        if beside >= MAX_EXECS_PER_ATTEMPT {
            return Err(format!(
                "{MAX_EXECS_PER_ATTEMPT} programs of `exec` already run in the step, which is the maximum: wait until one ends"
            ));
        }
        Ok(())
    }

    /// Handles the end of a child; returns whether it was such a program.
    pub(super) fn on_exec_ended(&mut self, child: &EndedChild) -> bool {
        let Some(RunningExec {
            exec, mut report, ..
        }) = self.execs.running.remove(&child.pid)
        else {
            return false;
        };
        let exit = match report.read() {
            StartStatus::Failed(exit) => exit,
            StartStatus::Pending | StartStatus::Started => child.exit(),
        };
        self.remove_exec_dir(&exec);
        let ended = FromSupervisor::ExecEnded { exec, exit };
        self.execs.ended.push(ended);
        true
    }

    /// Kills the program's process group. The end is reported when it is reaped.
    pub(super) fn on_end_exec(&self, exec: &ExecId) {
        let found = self.execs.running.iter().find(|(_, r)| r.exec == *exec);
        if let Some((pid, _)) = found {
            kill_child(*pid);
        }
    }

    /// Kills all programs without reporting their ends, because their agent is gone.
    pub fn end_execs(&mut self) {
        self.execs.ended.clear();
        for (pid, RunningExec { exec, .. }) in std::mem::take(&mut self.execs.running) {
            kill_child(pid);
            self.remove_exec_dir(&exec);
        }
    }

    /// Messages about ended programs.
    pub fn ended_execs(&mut self) -> Vec<FromSupervisor> {
        std::mem::take(&mut self.execs.ended)
    }

    /// If that fails, the directory is removed with the attempt's own.
    fn remove_exec_dir(&self, exec: &ExecId) {
        let _ = fs::remove_dir_all(self.spawner.exec_dir(exec));
    }
}

/// Why no program can start: in a frozen group it would not run before the thaw, and while GPU memory is
/// moved no process may start to use it.
fn check_exec_allowed(freezer: &FreezerState) -> Result<(), String> {
    let why = match freezer {
        FreezerState::Thawed | FreezerState::Refused(_) => return Ok(()),
        FreezerState::Freezing | FreezerState::Frozen | FreezerState::Moved(_) => {
            "the step is frozen: `sluice resume` lets it run again"
        }
        FreezerState::Moving => "the step is being frozen: `sluice resume` lets it run again",
        FreezerState::Restoring => {
            "the step's GPU memory is being restored: retry when the step runs"
        }
    };
    Err(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_common::supervision::{FreezeRefusal, MovedMemory};

    #[test]
    fn nothing_begins_beside_a_step_that_does_not_run_or_whose_gpus_are_in_between() {
        let refusal = FreezeRefusal::TimedOut;
        for (freezer, may) in [
            (FreezerState::Thawed, true),
            (FreezerState::Refused(refusal), true),
            (FreezerState::Freezing, false),
            (FreezerState::Frozen, false),
            (FreezerState::Moving, false),
            (FreezerState::Moved(MovedMemory::default()), false),
            (FreezerState::Restoring, false),
        ] {
            assert_eq!(check_exec_allowed(&freezer).is_ok(), may, "{freezer:?}");
        }
    }
}
