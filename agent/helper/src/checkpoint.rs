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

use sluice_common::helper::{Action, CallError, Line, State};

/// One way of checkpointing processes.
trait Checkpointing {
    /// How a process stands; `None` where this way cannot tell.
    ///
    /// # Errors
    /// Where it uses no GPU, or the driver refuses.
    fn state(&self, pid: u32) -> Result<Option<State>, CallError>;

    /// Lets a process finish what it has given its GPUs to do, and call them no more.
    ///
    /// # Errors
    /// Where it is not at rest in time, or the driver refuses.
    fn lock(&self, pid: u32) -> Result<(), CallError>;

    /// Moves what a locked process holds on GPUs to its own memory.
    ///
    /// # Errors
    /// Where the driver refuses.
    fn checkpoint(&self, pid: u32) -> Result<(), CallError>;

    /// Moves it back.
    ///
    /// # Errors
    /// Where the driver refuses.
    fn restore(&self, pid: u32) -> Result<(), CallError>;

    /// Lets a locked process call its GPUs again.
    ///
    /// # Errors
    /// Where the driver refuses.
    fn unlock(&self, pid: u32) -> Result<(), CallError>;
}

/// Does it, to all of them.
fn act(way: &dyn Checkpointing, action: Action, pids: &[u32]) -> Vec<Line> {
    match action {
        Action::Probe => pids.iter().map(|pid| probed(way, *pid)).collect(),
        Action::Suspend => suspend(way, pids),
        Action::Resume | Action::Undo => {
            let back = |pid: &u32| line(*pid, State::Running, bring_back(way, *pid, action));
            pids.iter().map(back).collect()
        }
    }
}

fn line(pid: u32, reached: State, done: Result<(), CallError>) -> Line {
    Line {
        pid,
        state: done.is_ok().then_some(reached),
        failed: done.err(),
    }
}

fn probed(way: &dyn Checkpointing, pid: u32) -> Line {
    let (state, failed) = match way.state(pid) {
        Ok(state) => (state, None),
        Err(why) => (None, Some(why)),
    };
    Line { pid, state, failed }
}

fn suspend(way: &dyn Checkpointing, pids: &[u32]) -> Vec<Line> {
    let mut locked = Vec::new();
    let done = lock_all(way, pids, &mut locked).and_then(|()| move_all(way, pids));
    let Err((culprit, why)) = done else {
        let done = |pid: &u32| line(*pid, State::Checkpointed, Ok(()));
        return pids.iter().map(done).collect();
    };
    let undone: Vec<Line> = locked
        .iter()
        .rev()
        .map(|pid| line(*pid, State::Running, bring_back(way, *pid, Action::Resume)))
        .collect();
    let refused = line(culprit, State::Running, Err(why));
    let others = undone.into_iter().filter(|line| line.pid != culprit);
    std::iter::once(refused).chain(others).collect()
}

type Culprit = (u32, CallError);

fn lock_all(way: &dyn Checkpointing, pids: &[u32], locked: &mut Vec<u32>) -> Result<(), Culprit> {
    for pid in pids {
        // Said once more after a break, to one that has come so far already.
        let state = way.state(*pid).map_err(|why| (*pid, why))?;
        if !matches!(state, Some(State::Locked | State::Checkpointed)) {
            way.lock(*pid).map_err(|why| (*pid, why))?;
        }
        locked.push(*pid);
    }
    Ok(())
}

fn move_all(way: &dyn Checkpointing, pids: &[u32]) -> Result<(), Culprit> {
    for pid in pids {
        if way.state(*pid) != Ok(Some(State::Checkpointed)) {
            way.checkpoint(*pid).map_err(|why| (*pid, why))?;
        }
    }
    Ok(())
}

/// As far as it has come.
fn bring_back(way: &dyn Checkpointing, pid: u32, action: Action) -> Result<(), CallError> {
    match (way.state(pid)?, action) {
        (Some(State::Running), _) => Ok(()),
        (Some(State::Locked), _) => way.unlock(pid),
        (Some(State::Checkpointed), _) | (None, Action::Resume) => {
            way.restore(pid)?;
            way.unlock(pid)
        }
        (Some(State::Failed), _) => Err(CallError::Refused(format!(
            "process {pid} has lost what it held on its GPUs"
        ))),
        (None, Action::Probe | Action::Suspend | Action::Undo) => Err(CallError::Refused(format!(
            "nobody can tell whether process {pid} was moved"
        ))),
    }
}

#[cfg(test)]
mod tests;
