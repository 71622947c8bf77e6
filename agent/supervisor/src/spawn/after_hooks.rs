//! Forks the child that runs templates' hooks after a step's program, and has files kept of it ([`super::keep`]): in the
//! step's groups, so within its limits and device filter; as its user; with its environment, directory and output.
//! `table` decides when. A failure does not change the step's outcome, so the child writes it to the step's output.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, RawFd};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::resource::{Resource, rlim_t};
use nix::sys::signal::Signal;
use nix::unistd::{Pid, Uid, getpid, getppid};
use sluice_cgroups::group_entry::GroupEntry;
use sluice_common::id::AttemptId;
use sluice_common::supervision::Exit;
use sluice_common::supervisor_config::StepRules;
use sluice_common::template::launch::ProcessLimit;

use super::environment::environment;
use super::keep::{KeepBounds, KeepRun};
use super::start_directory::StartDirectory;
use super::step_hooks::{self, StepHook};
use super::{SpawnError, Spawner, absolute, child, confine, fork_by, host};
use crate::identity::Identity;
use crate::output::writer::AttemptStreams;
use crate::spool::after_hooks::AfterHooks;
use crate::sys;

/// Exit code of the child if hooks failed and the files were kept.
const HOOKS_FAILED: i32 = 3;

/// Whether a child that ended so has kept all the files that it was to keep.
pub fn has_kept(exit: &Exit) -> bool {
    matches!(exit.code(), Some(0 | HOOKS_FAILED))
}

/// Variables with how the program ended; neither is set if that is unknown.
const EXIT_CODE: &str = "SLUICE_EXIT_CODE";
const EXIT_SIGNAL: &str = "SLUICE_EXIT_SIGNAL";

impl Spawner {
    /// Forks a child that runs the hooks one after the other, even if some fail, and then keeps files. It exits with 0 if
    /// all succeeded. Returns its pid and the output streams.
    ///
    /// # Errors
    /// If a command is invalid or the host lacks resources.
    pub fn fork_after_hooks(
        &self,
        id: &AttemptId,
        own: Option<Uid>,
        after: &AfterHooks,
        exit: &Exit,
        group_entry: &GroupEntry,
        bounds: KeepBounds,
    ) -> Result<(u32, AttemptStreams), SpawnError> {
        let dir = self.attempt_dir(id);
        let identity = self.identity(&after.step_owner(), own, &dir)?;
        let mut env = after.env.clone();
        let (code, signal) = (exit.code(), exit.signal());
        env.extend(code.map(|code| (EXIT_CODE.to_owned(), code.to_string())));
        env.extend(signal.map(|signal| (EXIT_SIGNAL.to_owned(), signal.to_string())));
        let envp = environment(&env, &identity, &dir)?;
        let hooks = step_hooks::hooks(&after.hooks, &envp, env.get("PATH"))?;
        let keep = self.keep_run(&dir, &after.keep, bounds)?;
        let ([stdout, stderr], given) = self.streams(&dir, &identity)?;
        let named = after.workdir.as_deref().map(absolute).transpose()?;
        let preferred = after.prefer_workdir.as_deref().map(absolute).transpose()?;
        let child = AfterHooksChild {
            supervisor: getpid(),
            group_entry,
            streams: [&self.null, &stdout, &stderr],
            open_files: self.open_files,
            identity: &identity,
            rules: &self.identities.rules,
            start_directory: &StartDirectory::of(named, preferred, &dir),
            limits: &step_hooks::rlimits(&after.limits),
            hooks: &hooks,
            keep: keep.as_ref(),
        };
        // Not forked into the group: some kernels kill a process that is created in a group of version 2 that
        // was ever killed. The child enters it first thing.
        let forked = fork_by(None, |inside| child.run(inside));
        host(|| "make a process".to_owned(), forked).map(|pid| (pid, given))
    }
}

/// Writes to the step's own output.
fn say(why: &str) {
    let _nobody_is_told_otherwise = writeln!(std::io::stderr(), "sluice: {why}");
}

/// State of the child at the fork.
struct AfterHooksChild<'a> {
    supervisor: Pid,
    group_entry: &'a GroupEntry,
    streams: [&'a File; 3],
    open_files: (rlim_t, rlim_t),
    identity: &'a Identity,
    rules: &'a StepRules,
    start_directory: &'a StartDirectory,
    limits: &'a [(Resource, &'a ProcessLimit)],
    hooks: &'a [StepHook<'a>],
    keep: Option<&'a KeepRun<'a>>,
}

impl AfterHooksChild<'_> {
    /// Runs the hooks, and keeps files whether they succeed or not. Returns only if no files were kept.
    fn run(&self, was_cloned_inside: bool) {
        if let Err(why) = self.prepare(was_cloned_inside) {
            return say(&why);
        }
        let hooks = self.run_all();
        if let Err(why) = &hooks {
            say(why);
        }
        match self.keep.map_or(Ok(()), KeepRun::run_to_end) {
            Ok(()) => sys::exit_now(hooks.map_or(HOOKS_FAILED, |()| 0)),
            Err(why) => say(&why),
        }
    }

    fn prepare(&self, was_cloned_inside: bool) -> Result<(), String> {
        self.group_entry.enter(was_cloned_inside)?;
        let streams = self.streams.map(AsFd::as_fd);
        let keep = self.keep.map(KeepRun::keeps);
        let keep: Vec<RawFd> = keep.into_iter().flatten().collect();
        child::detach(streams, &keep, self.open_files)?;
        confine::become_user(self.identity, self.rules)?;
        // The next supervisor runs the hooks again. Set after the change of user, which clears it.
        set_pdeathsig(Signal::SIGKILL)
            .map_err(|e| format!("hooks cannot be tied to their host: {}", e.desc()))?;
        if getppid() != self.supervisor {
            return Err("hooks after the step were not run: the supervisor has ended".to_owned());
        }
        self.start_directory.enter_again(self.rules)?;
        step_hooks::lower(self.limits)
    }

    /// A hook that fails does not prevent the others.
    fn run_all(&self) -> Result<(), String> {
        let failed = self.hooks.iter().filter_map(|hook| hook.run_to_end().err());
        let failed: Vec<String> = failed.collect();
        match failed.is_empty() {
            true => Ok(()),
            false => Err(format!("after the step, {}", failed.join("; "))),
        }
    }
}
