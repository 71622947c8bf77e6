//! What a table does with hooks: counts the prologs that failed, and runs the epilog of an attempt of which nothing is
//! left. `hooks` knows how one runs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use sluice_common::id::AttemptId;
use sluice_common::supervision::Exit;
use tracing::error;

use crate::attempt::{Attempt, Epilog};
use crate::handover;
use crate::hooks::Hooks;
use crate::hooks::run::{Run, start_epilog};

/// Hooks, and those that run.
#[derive(Debug)]
pub(super) struct Hooking {
    hooks: Hooks,
    words_in: PathBuf,
    /// Prologs that failed since one went well.
    failed_prologs: u32,
    /// Epilogs that run, by process.
    epilogs: BTreeMap<u32, AttemptId>,
}

impl Hooking {
    /// What hooks write goes into files without a name in `words_in`.
    pub(super) fn new(hooks: Hooks, words_in: PathBuf) -> Self {
        Self {
            hooks,
            words_in,
            failed_prologs: 0,
            epilogs: BTreeMap::new(),
        }
    }

    /// A start has failed. Where prologs fail one after the other, it is the host that fails.
    pub(super) fn on_start_failed(&mut self, exit: Exit) -> Exit {
        let Exit::PrologFailed(why) = exit else {
            return exit;
        };
        self.failed_prologs = self.failed_prologs.saturating_add(1);
        if self.failed_prologs < self.hooks.failures_max {
            return Exit::PrologFailed(why);
        }
        let times = self.failed_prologs;
        Exit::HostFailed(format!("its prolog failed, {times} in a row: {why}"))
    }

    /// A program runs, so its prolog went well.
    pub(super) fn on_started(&mut self) {
        self.failed_prologs = 0;
    }

    /// Nothing is left of an attempt: whether its epilog keeps it all the same. It begins now, unless it does already.
    pub(super) fn keeps(&mut self, id: &AttemptId, attempt: &mut Attempt) -> bool {
        let Some(program) = &self.hooks.epilog else {
            return false;
        };
        if attempt.epilog == Epilog::Ahead {
            let epilog = Run {
                program,
                told: &attempt.hook_words,
                timeout: self.hooks.timeout,
                words_in: &self.words_in,
            };
            attempt.epilog = match start_epilog(id, &epilog) {
                Ok(pid) => {
                    self.epilogs.insert(pid, id.clone());
                    Epilog::Runs
                }
                Err(e) => {
                    error!(step = %id.step, attempt = id.number, "its epilog cannot be started: {e}");
                    Epilog::Over
                }
            };
        }
        attempt.epilog == Epilog::Runs
    }

    /// A child has ended: whose epilog it ran, if it did.
    pub(super) fn on_child_ended(&mut self, pid: u32) -> Option<AttemptId> {
        self.epilogs.remove(&pid)
    }

    /// The epilogs that the next program in this process waits for.
    pub(super) fn hand_over(&self) -> Vec<handover::Epilog> {
        let running = self.epilogs.iter();
        let running = running.map(|(pid, attempt)| handover::Epilog {
            pid: *pid,
            attempt: attempt.clone(),
        });
        running.collect()
    }

    /// Those that the program before this one in this process has begun.
    pub(super) fn take_over(
        &mut self,
        left: Vec<handover::Epilog>,
        attempts: &mut BTreeMap<AttemptId, Attempt>,
    ) {
        for epilog in left {
            if let Some(attempt) = attempts.get_mut(&epilog.attempt) {
                attempt.epilog = Epilog::Runs;
                self.epilogs.insert(epilog.pid, epilog.attempt);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prologs_that_fail_one_after_the_other_are_the_host_s() {
        let hooks = Hooks {
            failures_max: 2,
            ..Hooks::default()
        };
        let mut hooking = Hooking::new(hooks, PathBuf::new());
        let failed = || Exit::PrologFailed("no disk".to_owned());
        assert_eq!(hooking.on_start_failed(failed()), failed());
        hooking.on_started();
        assert_eq!(hooking.on_start_failed(failed()), failed());
        let step_s = Exit::StartFailed("no such program".to_owned());
        assert_eq!(hooking.on_start_failed(step_s.clone()), step_s);
        let host_s = hooking.on_start_failed(failed());
        assert!(matches!(&host_s, Exit::HostFailed(why) if why.contains("2 in a row: no disk")));
    }
}
