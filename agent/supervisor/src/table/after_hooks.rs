//! Runs templates' hooks after a step's program. They start when no other process of the attempt is left, however the
//! step ended, and the attempt keeps its resources until they are done. `spawn::after_hooks` forks their child.
//!
//! ```text
//! (main process ended, rest stopped) --> hooks run --> what they left is killed --> epilog --> Gone
//! ```
//!
//! Each hook has a time limit of its own. Signals of the agent are for the step and do not reach the hooks, because the
//! agent keeps killing an ended step until no process is left; only the lease does. An attempt whose lease has expired
//! may soon start elsewhere, so its hooks are not started, and running ones are killed.

use std::collections::BTreeMap;
use std::io;

use sluice_common::id::AttemptId;
use sluice_common::keep::KeptFiles;
use sluice_common::supervision::{FreezerState, SpawnSpec, StopSignal};
use tracing::{error, info, warn};

use super::{Attempt, EndedChild, Phase, SpawnError, Table, error_chain, no_group};
use crate::attempt::AfterHooksState;
use crate::handover::HookChild;
use crate::identity::StepOwner;
use crate::output::writer::AttemptStreams;
use crate::spawn::after_hooks::has_kept;
use crate::spawn::keep::KeepBounds;
use crate::spool::after_hooks::AfterHooks as Kept;

/// Children that run hooks after attempts.
#[derive(Debug, Default)]
pub(super) struct AfterHookRuns(BTreeMap<u32, AttemptId>);

impl AfterHookRuns {
    /// The children, for the next program in this process.
    pub(super) fn hand_over(&self) -> Vec<HookChild> {
        let running = self.0.iter();
        let running = running.map(|(pid, attempt)| HookChild {
            pid: *pid,
            attempt: attempt.clone(),
        });
        running.collect()
    }

    /// Adopts the children that the previous program in this process started.
    pub(super) fn take_over(
        left: Vec<HookChild>,
        attempts: &mut BTreeMap<AttemptId, Attempt>,
    ) -> Self {
        let mut afters = Self::default();
        for HookChild { pid, attempt } in left {
            if let Some(known) = attempts.get_mut(&attempt) {
                known.after = AfterHooksState::Running;
                afters.0.insert(pid, attempt);
            }
        }
        afters
    }
}

impl Table {
    /// Stores the hooks before the program may run.
    pub(super) fn save_after_hooks(
        &self,
        spec: &SpawnSpec,
        step_owner: &StepOwner,
    ) -> Result<AfterHooksState, SpawnError> {
        let Some(after) = Kept::of(spec, step_owner) else {
            return Ok(AfterHooksState::Done);
        };
        let kept = self.spool.write_after_hooks(&spec.attempt, &after);
        kept.map(|()| AfterHooksState::Pending)
            .map_err(|e| SpawnError::Host {
                action: "keep what runs after the step".to_owned(),
                why: io::Error::other(error_chain(&e)),
            })
    }

    /// Removes the stored hooks, because no process of the attempt is left.
    pub(super) fn remove_after_hooks(&self, id: &AttemptId) {
        if let Err(e) = self.spool.delete_after_hooks(id) {
            error!(step = %id.step, attempt = id.number, "{}", error_chain(&e));
        }
    }

    /// Starts the hooks, because no process of the attempt is left.
    pub(super) fn start_after_hooks(&mut self, id: &AttemptId) {
        let started_marker = self.fork_after_hooks(id);
        let Some(attempt) = self.attempts.get_mut(id) else {
            return;
        };
        self.look_due = true;
        match started_marker {
            Ok((pid, streams)) => {
                self.writer.begin(id, streams);
                info!(step = %id.step, attempt = id.number, pid, "hooks run after it");
                attempt.after = AfterHooksState::Running;
                // The step's processes are dead; the hooks must not be killed.
                attempt.killing = false;
                self.wanted.retain(|(other, _)| other != id);
                self.afters.0.insert(pid, id.clone());
            }
            Err(why) => {
                warn!(step = %id.step, attempt = id.number, "hooks after it were not run: {why}");
                attempt.after = AfterHooksState::Done;
                let after = self.spool.read_after_hooks(id);
                let keeps = after.is_ok_and(|after| !after.keep.is_empty());
                let why = || KeptFiles::nothing(format!("no files could be kept: {why}"));
                attempt.on_kept(keeps.then(why));
            }
        }
    }

    fn fork_after_hooks(&mut self, id: &AttemptId) -> Result<(u32, AttemptStreams), String> {
        let attempt = self.attempts.get_mut(id);
        let Some((attempt, Phase::Ended(end))) = attempt.as_ref().map(|a| (a, a.phase())) else {
            return Err("it has not ended".to_owned());
        };
        if attempt.lease.is_some_and(|lease| lease.has_passed()) {
            return Err("its lease has expired, so it may run elsewhere soon".to_owned());
        }
        let after = self
            .spool
            .read_after_hooks(id)
            .map_err(|e| error_chain(&e))?;
        // The group of an attempt that was killed while frozen is still frozen.
        if attempt.freezer != FreezerState::Thawed {
            let _it_may_have_no_freezer = self.groups.thaw(id);
        }
        let group_entry = self.groups.entry(id).map_err(|e| no_group(e).to_string())?;
        let bounds = KeepBounds {
            max_bytes: self.keep_max,
            min_free: self.storage.min_free(),
        };
        let (own, exit) = (attempt.uid, &end.exit);
        let forked = self
            .spawner
            .fork_after_hooks(id, own, &after, exit, &group_entry, bounds);
        forked.map_err(|e| e.to_string())
    }

    /// Handles the end of a child that ran an epilog or hooks; returns whether it did.
    pub(super) fn on_after_step_child_ended(&mut self, child: &EndedChild) -> bool {
        self.on_after_hooks_ended(child) || self.on_epilog_ended(child.pid)
    }

    /// Handles the end of a child that ran hooks; returns whether it did. Processes that the hooks have left
    /// are killed.
    fn on_after_hooks_ended(&mut self, child: &EndedChild) -> bool {
        let Some(id) = self.afters.0.remove(&child.pid) else {
            return false;
        };
        let exit = child.exit();
        let kept = self.spawner.finish_keeping(&id, has_kept(&exit));
        let kept = kept.unwrap_or_else(|e| {
            warn!(step = %id.step, attempt = id.number, "files of it were not kept: {e}");
            Some(KeptFiles::nothing(format!("no files could be kept: {e}")))
        });
        if exit.code() != Some(0) {
            let (code, signal) = (exit.code(), exit.signal());
            warn!(step = %id.step, attempt = id.number, code, signal, "hooks after it failed, or no files of it were kept: its own output says why");
        }
        if let Some(attempt) = self.attempts.get_mut(&id) {
            attempt.after = AfterHooksState::Done;
            attempt.on_kept(kept);
            attempt.killing = true;
            self.want(id, StopSignal::Kill);
        }
        true
    }
}
