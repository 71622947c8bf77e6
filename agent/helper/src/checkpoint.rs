//! Moves the GPU memory of processes to host memory and back, by NVIDIA's process checkpointing. The
//! supervisor starts this program as the step's user, in the step's groups, with a time limit, so that no
//! vendor library is loaded into the supervisor itself. [`library`] and [`tool`] are the two backends; the
//! supervisor decides when to run, and what follows.
//!
//! ```text
//! running --lock--> locked --checkpoint--> checkpointed --restore--> locked --unlock--> running
//! ```
//! All processes of a step are locked before the first is checkpointed, so that none waits for another that has
//! stopped already. If one refuses, the others are rolled back in the opposite order. So a step is moved as a
//! whole or not at all; a step whose processes are linked to each other, which drivers before 610 cannot checkpoint,
//! keeps running.

pub(crate) mod command;
mod library;
mod tool;

use sluice_common::helper::{CheckpointAction, CheckpointError, CheckpointResult, CheckpointState};

/// A backend that checkpoints processes.
trait Checkpointer {
    /// State of a process; `None` if the backend cannot tell.
    ///
    /// # Errors
    /// If the process uses no GPU, or the driver refuses.
    fn state(&self, pid: u32) -> Result<Option<CheckpointState>, CheckpointError>;

    /// Lets a process finish its submitted GPU work and blocks further calls.
    ///
    /// # Errors
    /// If the work does not finish in time, or the driver refuses.
    fn lock(&self, pid: u32) -> Result<(), CheckpointError>;

    /// Moves the GPU memory of a locked process to host memory.
    ///
    /// # Errors
    /// If the driver refuses.
    fn checkpoint(&self, pid: u32) -> Result<(), CheckpointError>;

    /// Moves the memory of a checkpointed process back to its GPUs.
    ///
    /// # Errors
    /// If the driver refuses.
    fn restore(&self, pid: u32) -> Result<(), CheckpointError>;

    /// Lets a locked process call its GPUs again.
    ///
    /// # Errors
    /// If the driver refuses.
    fn unlock(&self, pid: u32) -> Result<(), CheckpointError>;
}

/// Runs an action on all of these processes.
fn act(
    backend: &dyn Checkpointer,
    action: CheckpointAction,
    pids: &[u32],
) -> Vec<CheckpointResult> {
    match action {
        CheckpointAction::Probe => pids.iter().map(|pid| probe(backend, *pid)).collect(),
        CheckpointAction::Suspend => suspend(backend, pids),
        CheckpointAction::Resume | CheckpointAction::Undo => {
            let back = |pid: &u32| {
                line(
                    *pid,
                    CheckpointState::Running,
                    resume(backend, *pid, action),
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

fn probe(backend: &dyn Checkpointer, pid: u32) -> CheckpointResult {
    let (state, failed) = match backend.state(pid) {
        Ok(state) => (state, None),
        Err(why) => (None, Some(why)),
    };
    CheckpointResult { pid, state, failed }
}

fn suspend(backend: &dyn Checkpointer, pids: &[u32]) -> Vec<CheckpointResult> {
    let mut locked = Vec::new();
    let done = lock_all(backend, pids, &mut locked).and_then(|()| move_all(backend, pids));
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
                resume(backend, *pid, CheckpointAction::Resume),
            )
        })
        .collect();
    let refused = line(culprit, CheckpointState::Running, Err(why));
    let others = undone.into_iter().filter(|line| line.pid != culprit);
    std::iter::once(refused).chain(others).collect()
}

type FailedProcess = (u32, CheckpointError);

fn lock_all(
    backend: &dyn Checkpointer,
    pids: &[u32],
    locked: &mut Vec<u32>,
) -> Result<(), FailedProcess> {
    for pid in pids {
        // The command may be repeated after an interruption; some processes are locked already then.
        let state = backend.state(*pid).map_err(|why| (*pid, why))?;
        if !matches!(
            state,
            Some(CheckpointState::Locked | CheckpointState::Checkpointed)
        ) {
            backend.lock(*pid).map_err(|why| (*pid, why))?;
        }
        locked.push(*pid);
    }
    Ok(())
}

fn move_all(backend: &dyn Checkpointer, pids: &[u32]) -> Result<(), FailedProcess> {
    for pid in pids {
        if backend.state(*pid) != Ok(Some(CheckpointState::Checkpointed)) {
            backend.checkpoint(*pid).map_err(|why| (*pid, why))?;
        }
    }
    Ok(())
}

/// Brings a process back to running, from whatever state it has reached.
fn resume(
    backend: &dyn Checkpointer,
    pid: u32,
    action: CheckpointAction,
) -> Result<(), CheckpointError> {
    match (backend.state(pid)?, action) {
        (Some(CheckpointState::Running), _) => Ok(()),
        (Some(CheckpointState::Locked), _) => backend.unlock(pid),
        (Some(CheckpointState::Checkpointed), _) | (None, CheckpointAction::Resume) => {
            backend.restore(pid)?;
            backend.unlock(pid)
        }
        (Some(CheckpointState::Failed), _) => Err(CheckpointError::Refused(format!(
            "process {pid} has lost what it held on its GPUs"
        ))),
        (None, CheckpointAction::Probe | CheckpointAction::Suspend | CheckpointAction::Undo) => {
            Err(CheckpointError::Refused(format!(
                "it is unknown whether process {pid} was moved"
            )))
        }
    }
}

#[cfg(test)]
mod tests;
