//! Counts failed prologs, and runs the epilog of an attempt when no process is left. `hooks` runs the
//! programs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use sluice_common::id::{AttemptId, StepId};
use sluice_common::supervision::Exit;
use sluice_common::supervisor_config::HostHooks;
use tracing::error;

use crate::attempt::{Attempt, EpilogState};
use crate::handover;
use crate::hooks::run::{HookCommand, start_epilog};

/// Most steps whose failed prologs are counted. A step that succeeds on another host stays in the count.
const MAX_FAILED_STEPS: usize = 1024;

/// Config of hooks, and running hooks.
#[derive(Debug)]
pub(super) struct HookRunner {
    hooks: HostHooks,
    output_dir: PathBuf,
    /// Consecutive failed prologs.
    failed_prologs: u32,
    /// Consecutive failed prologs of each step, because successes of other steps must not reset the count of
    /// one that fails repeatedly.
    failed_of: BTreeMap<StepId, u32>,
    /// Running epilogs by pid.
    epilogs: BTreeMap<u32, AttemptId>,
}

impl HookRunner {
    /// Output of hooks goes to unnamed files in `output_dir`.
    pub(super) fn new(hooks: HostHooks, output_dir: PathBuf) -> Self {
        Self {
            hooks,
            output_dir,
            failed_prologs: 0,
            failed_of: BTreeMap::new(),
            epilogs: BTreeMap::new(),
        }
    }

    /// Handles a failed start. After several failed prologs in a row, of all steps or of one, the host is at
    /// fault.
    pub(super) fn on_start_failed(&mut self, step: &StepId, exit: Exit) -> Exit {
        let Exit::PrologFailed(why) = exit else {
            return exit;
        };
        self.failed_prologs = self.failed_prologs.saturating_add(1);
        if self.failed_of.len() >= MAX_FAILED_STEPS {
            self.failed_of.clear();
        }
        let of_step = self.failed_of.entry(step.clone()).or_default();
        *of_step = of_step.saturating_add(1);
        let times = self.failed_prologs.max(*of_step);
        if times < self.hooks.failures_max {
            return Exit::PrologFailed(why);
        }
        Exit::HostFailed(format!("its prolog failed, {times} in a row: {why}"))
    }

    /// Resets the counts, because the prolog succeeded.
    pub(super) fn on_started(&mut self, step: &StepId) {
        self.failed_prologs = 0;
        self.failed_of.remove(step);
    }

    /// Starts the epilog of an attempt of which no process is left, unless it runs already. Returns whether
    /// the attempt must wait for it.
    pub(super) fn keeps(&mut self, id: &AttemptId, attempt: &mut Attempt) -> bool {
        let Some(program) = &self.hooks.epilog else {
            return false;
        };
        if attempt.epilog == EpilogState::Pending {
            let epilog = HookCommand {
                program: program.as_ref(),
                told: &attempt.hook_variables,
                timeout: self.hooks.timeout,
                output_dir: &self.output_dir,
            };
            attempt.epilog = match start_epilog(id, &epilog) {
                Ok(pid) => {
                    self.epilogs.insert(pid, id.clone());
                    EpilogState::Running
                }
                Err(e) => {
                    error!(step = %id.step, attempt = id.number, "its epilog cannot be started: {e}");
                    EpilogState::Done
                }
            };
        }
        attempt.epilog == EpilogState::Running
    }

    /// Handles the end of a child; returns the attempt whose epilog it ran, if any.
    pub(super) fn on_child_ended(&mut self, pid: u32) -> Option<AttemptId> {
        self.epilogs.remove(&pid)
    }

    /// Running epilogs, for the next program in this process.
    pub(super) fn hand_over(&self) -> Vec<handover::HookChild> {
        let running = self.epilogs.iter();
        let running = running.map(|(pid, attempt)| handover::HookChild {
            pid: *pid,
            attempt: attempt.clone(),
        });
        running.collect()
    }

    /// Adopts the epilogs that the previous program in this process started.
    pub(super) fn take_over(
        &mut self,
        left: Vec<handover::HookChild>,
        attempts: &mut BTreeMap<AttemptId, Attempt>,
    ) {
        for epilog in left {
            if let Some(attempt) = attempts.get_mut(&epilog.attempt) {
                attempt.epilog = EpilogState::Running;
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
        let hooks = HostHooks {
            failures_max: 2,
            ..HostHooks::default()
        };
        let mut hooking = HookRunner::new(hooks, PathBuf::new());
        let failed = || Exit::PrologFailed("no disk".to_owned());
        let [a, b, c] = ["a", "b", "c"].map(|id| StepId::new(id).unwrap());
        assert_eq!(hooking.on_start_failed(&a, failed()), failed());
        hooking.on_started(&b);
        assert_eq!(hooking.on_start_failed(&c, failed()), failed());
        let step_s = Exit::StartFailed("no such program".to_owned());
        assert_eq!(hooking.on_start_failed(&b, step_s.clone()), step_s);
        let of_host =
            |exit| matches!(exit, Exit::HostFailed(why) if why.contains("2 in a row: no disk"));
        assert!(of_host(hooking.on_start_failed(&b, failed())));
        hooking.on_started(&b);
        assert!(
            of_host(hooking.on_start_failed(&a, failed())),
            "its own second"
        );
    }

    #[test]
    fn no_more_steps_are_counted_than_may_be() {
        let hooks = HostHooks {
            failures_max: u32::MAX,
            ..HostHooks::default()
        };
        let mut hooking = HookRunner::new(hooks, PathBuf::new());
        for n in 0..=MAX_FAILED_STEPS {
            let step = StepId::new(format!("s{n}")).unwrap();
            hooking.on_start_failed(&step, Exit::PrologFailed(String::new()));
        }
        assert_eq!(hooking.failed_of.len(), 1);
    }
}
