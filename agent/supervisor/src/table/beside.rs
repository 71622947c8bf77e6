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

use super::{EndedChild, Phase, Report, Reported, Table, info, no_group};
use crate::identity::Behalf;
use crate::spawn::beside::Beside;
use crate::spawn::kill_child;

/// Those that run, by process, and what the agent is to be told.
#[derive(Debug, Default)]
pub(super) struct Execs {
    running: BTreeMap<u32, Running>,
    ended: Vec<FromSupervisor>,
}

#[derive(Debug)]
struct Running {
    exec: ExecId,
    report: Report,
}

impl Table {
    /// The agent wants a program beside an attempt. What comes back is why there is none.
    pub(super) fn on_exec(&mut self, exec: ExecId, order: &ExecOrder) -> Option<FromSupervisor> {
        let begun = self.begin_exec(&exec, order);
        let why = begun.err()?;
        info!(step = %exec.attempt.step, attempt = exec.attempt.number, "no program beside it: {why}");
        let exit = Exit::StartFailed(why);
        Some(FromSupervisor::ExecEnded { exec, exit })
    }

    fn begin_exec(&mut self, exec: &ExecId, order: &ExecOrder) -> Result<(), String> {
        let (main, behalf) = self.may_exec(exec, order.by.as_ref())?;
        let own = self.attempts.get(&exec.attempt).and_then(|a| a.uid);
        let wanted = Beside {
            own,
            exec,
            command: &order.command,
            main,
            behalf: &behalf,
        };
        let entrance = self.groups.entrance(&exec.attempt).map_err(no_group);
        let forked = entrance.and_then(|entrance| self.spawner.fork_beside(&wanted, &entrance));
        let (pid, report) = forked.map_err(|e| e.to_string())?;
        info!(step = %exec.attempt.step, attempt = exec.attempt.number, pid, "a program runs beside it");
        let exec = exec.clone();
        self.execs.running.insert(pid, Running { exec, report });
        Ok(())
    }

    /// Beside which process, and for whom that runs.
    fn may_exec(&self, exec: &ExecId, by: Option<&UserName>) -> Result<(Process, Behalf), String> {
        let attempt = self.attempts.get(&exec.attempt);
        let Some((attempt, Phase::Running(main, _))) = attempt.map(|a| (a, a.phase())) else {
            return Err("the step does not run now".to_owned());
        };
        may_run_beside(&attempt.freezer)?;
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
        let behalf = attempt
            .behalf()
            .ok_or("nobody knows any more whose step it is")?;
        if attempt.uid.is_none() {
            self.spawner.may_become(&behalf, by)?;
        }
        Ok((*main, behalf))
    }

    /// A child has ended: whether it ran beside an attempt.
    pub(super) fn on_exec_ended(&mut self, child: &EndedChild) -> bool {
        let Some(Running { exec, mut report }) = self.execs.running.remove(&child.pid) else {
            return false;
        };
        let exit = match report.read() {
            Reported::Failed(exit) => exit,
            Reported::Pending | Reported::Started => child.exit(),
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
        for (pid, Running { exec, .. }) in std::mem::take(&mut self.execs.running) {
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
fn may_run_beside(freezer: &FreezerState) -> Result<(), String> {
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
            assert_eq!(may_run_beside(&freezer).is_ok(), may, "{freezer:?}");
        }
    }
}
