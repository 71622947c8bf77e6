//! Programs that run beside attempts on the agent's word: which may begin, which have ended, and which are killed
//! because nobody listens to them any more. How one is made is `spawn`'s; that none outlives its attempt is the groups',
//! for it is a process of the attempt like any other.
//!
//! They are not in the spool: a supervisor that is replaced kills them, and what one that died left behind ends with its
//! attempt.

use std::collections::BTreeMap;
use std::fs;

use sluice_common::exec::{ExecId, ExecOrder, MAX_EXECS_PER_ATTEMPT};
use sluice_common::id::UserName;
use sluice_common::supervision::{Exit, FreezerState, FromSupervisor, Process};

use super::{EndedChild, Phase, StartReport, StartStatus, Table, info, no_group};
use crate::identity::StepOwner;
use crate::spawn::exec::ExecSpec;
use crate::spawn::kill_child;

/// Those that run, by process, and what the agent is to be told.
#[derive(Debug, Default)]
pub(super) struct Execs {
    running: BTreeMap<u32, RunningExec>,
    ended: Vec<FromSupervisor>,
}

#[derive(Debug)]
struct RunningExec {
    exec: ExecId,
    report: StartReport,
}

impl Table {
    /// The agent wants a program beside an attempt. What comes back is why there is none.
    pub(super) fn on_exec(&mut self, exec: ExecId, order: &ExecOrder) -> Option<FromSupervisor> {
        let started_marker = self.begin_exec(&exec, order);
        let why = started_marker.err()?;
        info!(step = %exec.attempt.step, attempt = exec.attempt.number, "no program beside it: {why}");
        let exit = Exit::StartFailed(why);
        Some(FromSupervisor::ExecEnded { exec, exit })
    }

    fn begin_exec(&mut self, exec: &ExecId, order: &ExecOrder) -> Result<(), String> {
        let (main, step_owner) = self.may_exec(exec, order.by.as_ref())?;
        let own = self.attempts.get(&exec.attempt).and_then(|a| a.uid);
        let wanted = ExecSpec {
            own,
            exec,
            command: &order.command,
            main,
            step_owner: &step_owner,
        };
        let group_entry = self.groups.entry(&exec.attempt).map_err(no_group);
        let forked =
            group_entry.and_then(|group_entry| self.spawner.fork_exec(&wanted, &group_entry));
        let (pid, report) = forked.map_err(|e| e.to_string())?;
        info!(step = %exec.attempt.step, attempt = exec.attempt.number, pid, "a program runs beside it");
        let exec = exec.clone();
        self.execs.running.insert(pid, RunningExec { exec, report });
        Ok(())
    }

    /// Beside which process, and for whom that runs.
    fn may_exec(
        &self,
        exec: &ExecId,
        by: Option<&UserName>,
    ) -> Result<(Process, StepOwner), String> {
        let attempt = self.attempts.get(&exec.attempt);
        let Some((attempt, Phase::Running(main, _))) = attempt.map(|a| (a, a.phase())) else {
            return Err("the step does not run now".to_owned());
        };
        check_exec_allowed(&attempt.freezer)?;
        let beside = self.execs.running.values();
        let beside = beside.filter(|other| other.exec.attempt == exec.attempt);
        if self.execs.running.values().any(|other| other.exec == *exec) {
            return Err("a program of this number runs beside it already".to_owned());
        }
        if beside.count() >= MAX_EXECS_PER_ATTEMPT {
            return Err(format!(
                "{MAX_EXECS_PER_ATTEMPT} programs run beside the step already, which is the most: let one end"
            ));
        }
        let step_owner = attempt
            .step_owner()
            .ok_or("nobody knows any more whose step it is")?;
        if attempt.uid.is_none() {
            self.spawner.may_become(&step_owner, by)?;
        }
        Ok((*main, step_owner))
    }

    /// A child has ended: whether it ran beside an attempt.
    pub(super) fn on_exec_ended(&mut self, child: &EndedChild) -> bool {
        let Some(RunningExec { exec, mut report }) = self.execs.running.remove(&child.pid) else {
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

    /// Nobody wants it any more: its process group is killed. Its end is told when it is reaped.
    pub(super) fn on_end_exec(&self, exec: &ExecId) {
        let found = self.execs.running.iter().find(|(_, r)| r.exec == *exec);
        if let Some((pid, _)) = found {
            kill_child(*pid);
        }
    }

    /// Kills all of them, and tells of none: whoever asked for them is gone.
    pub fn end_execs(&mut self) {
        self.execs.ended.clear();
        for (pid, RunningExec { exec, .. }) in std::mem::take(&mut self.execs.running) {
            kill_child(pid);
            self.remove_exec_dir(&exec);
        }
    }

    /// What the agent is to be told of those that have ended.
    pub fn ended_execs(&mut self) -> Vec<FromSupervisor> {
        std::mem::take(&mut self.execs.ended)
    }

    /// Where it cannot be removed it goes with the attempt's own directory.
    fn remove_exec_dir(&self, exec: &ExecId) {
        let _ = fs::remove_dir_all(self.spawner.exec_dir(exec));
    }
}

/// What is born in a group that is frozen stands still before it is the program that was wanted, and whoever asked for it
/// would wait for as long as that lasts; and while memory of GPUs is moved, nobody may begin to use them.
fn check_exec_allowed(freezer: &FreezerState) -> Result<(), String> {
    let why = match freezer {
        FreezerState::Thawed | FreezerState::Refused(_) => return Ok(()),
        FreezerState::Freezing | FreezerState::Frozen | FreezerState::Moved(_) => {
            "the step is frozen: `sluice resume` lets it run again"
        }
        FreezerState::Moving => "the step is being frozen: `sluice resume` lets it run again",
        FreezerState::Restoring => {
            "what the step holds on GPUs is being brought back: ask again when it runs"
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
