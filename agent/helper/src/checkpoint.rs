//! Moving what a process holds on GPUs to the host's memory and back, by NVIDIA's process checkpointing. The
//! supervisor starts it as the step's user, in the step's groups, with a time limit, so that no library of a vendor is ever
//! loaded into the supervisor itself. [`library`] and [`tool`] are the two ways of doing it; the supervisor decides when, and
//! what follows.
//!
//! ```text
//! running --lock--> locked --checkpoint--> checkpointed --restore--> locked --unlock--> running
//! ```
//! Several processes of one step are locked all before the first is checkpointed, so that none of them waits for another
//! that has stopped already; and what was done is undone in the opposite order as soon as one of them refuses. So a step
//! of several processes is moved as a whole or not at all, and processes with links to each other, which drivers before
//! 610 refuse, run on.

pub(crate) mod command;
mod library;
mod tool;

use sluice_common::helper::{CheckpointAction, CheckpointError, CheckpointResult, CheckpointState};

/// One way of checkpointing processes.
trait Checkpointing {
    /// How a process stands; `None` where this way cannot tell.
    ///
    /// # Errors
    /// Where it uses no GPU, or the driver refuses.
    fn state(&self, pid: u32) -> Result<Option<CheckpointState>, CheckpointError>;

    /// Lets a process finish what it has given its GPUs to do, and call them no more.
    ///
    /// # Errors
    /// Where it is not at rest in time, or the driver refuses.
    fn lock(&self, pid: u32) -> Result<(), CheckpointError>;

    /// Moves what a locked process holds on GPUs to its own memory.
    ///
    /// # Errors
    /// Where the driver refuses.
    fn checkpoint(&self, pid: u32) -> Result<(), CheckpointError>;

    /// Moves it back.
    ///
    /// # Errors
    /// Where the driver refuses.
    fn restore(&self, pid: u32) -> Result<(), CheckpointError>;

    /// Lets a locked process call its GPUs again.
    ///
    /// # Errors
    /// Where the driver refuses.
    fn unlock(&self, pid: u32) -> Result<(), CheckpointError>;
}

/// Does it, to all of them.
fn act(way: &dyn Checkpointing, action: CheckpointAction, pids: &[u32]) -> Vec<CheckpointResult> {
    match action {
        CheckpointAction::Probe => pids.iter().map(|pid| probed(way, *pid)).collect(),
        CheckpointAction::Suspend => suspend(way, pids),
        CheckpointAction::Resume | CheckpointAction::Undo => {
            let back = |pid: &u32| {
                line(
                    *pid,
                    CheckpointState::Running,
                    bring_back(way, *pid, action),
                )
            };
            pids.iter().map(back).collect()
        }
    }
}

fn line(pid: u32, reached: CheckpointState, done: Result<(), CheckpointError>) -> CheckpointResult {
    CheckpointResult {
        pid,
        state: done.is_ok().then_some(reached),
        failed: done.err(),
    }
}

fn probed(way: &dyn Checkpointing, pid: u32) -> CheckpointResult {
    let (state, failed) = match way.state(pid) {
        Ok(state) => (state, None),
        Err(why) => (None, Some(why)),
    };
    CheckpointResult { pid, state, failed }
}

fn suspend(way: &dyn Checkpointing, pids: &[u32]) -> Vec<CheckpointResult> {
    let mut locked = Vec::new();
    let done = lock_all(way, pids, &mut locked).and_then(|()| move_all(way, pids));
    let Err((culprit, why)) = done else {
        let done = |pid: &u32| line(*pid, CheckpointState::Checkpointed, Ok(()));
        return pids.iter().map(done).collect();
    };
    let undone: Vec<CheckpointResult> = locked
        .iter()
        .rev()
        .map(|pid| {
            line(
                *pid,
                CheckpointState::Running,
                bring_back(way, *pid, CheckpointAction::Resume),
            )
        })
        .collect();
    let refused = line(culprit, CheckpointState::Running, Err(why));
    let others = undone.into_iter().filter(|line| line.pid != culprit);
    std::iter::once(refused).chain(others).collect()
}

type Culprit = (u32, CheckpointError);

fn lock_all(way: &dyn Checkpointing, pids: &[u32], locked: &mut Vec<u32>) -> Result<(), Culprit> {
    for pid in pids {
        // Said once more after a break, to one that has come so far already.
        let state = way.state(*pid).map_err(|why| (*pid, why))?;
        if !matches!(
            state,
            Some(CheckpointState::Locked | CheckpointState::Checkpointed)
        ) {
            way.lock(*pid).map_err(|why| (*pid, why))?;
        }
        locked.push(*pid);
    }
    Ok(())
}

fn move_all(way: &dyn Checkpointing, pids: &[u32]) -> Result<(), Culprit> {
    for pid in pids {
        if way.state(*pid) != Ok(Some(CheckpointState::Checkpointed)) {
            way.checkpoint(*pid).map_err(|why| (*pid, why))?;
        }
    }
    Ok(())
}

/// As far as it has come.
fn bring_back(
    way: &dyn Checkpointing,
    pid: u32,
    action: CheckpointAction,
) -> Result<(), CheckpointError> {
    match (way.state(pid)?, action) {
        (Some(CheckpointState::Running), _) => Ok(()),
        (Some(CheckpointState::Locked), _) => way.unlock(pid),
        (Some(CheckpointState::Checkpointed), _) | (None, CheckpointAction::Resume) => {
            way.restore(pid)?;
            way.unlock(pid)
        }
        (Some(CheckpointState::Failed), _) => Err(CheckpointError::Refused(format!(
            "process {pid} has lost what it held on its GPUs"
        ))),
        (None, CheckpointAction::Probe | CheckpointAction::Suspend | CheckpointAction::Undo) => {
            Err(CheckpointError::Refused(format!(
                "nobody can tell whether process {pid} was moved"
            )))
        }
    }
}

#[cfg(test)]
mod tests;
