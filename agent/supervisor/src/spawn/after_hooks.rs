//! Making the child that runs what templates have run after a step's program: in the step's groups, and so within its
//! limits and behind its fence; as its user; with its environment, in its directory, writing to its output. `table` says
//! when, and what a failure means: nothing for the outcome, so it is told where the step's own words are.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::resource::{Resource, rlim_t};
use nix::sys::signal::Signal;
use nix::unistd::{Pid, Uid, chdir, getpid, getppid};
use sluice_cgroups::group_entry::GroupEntry;
use sluice_common::id::AttemptId;
use sluice_common::supervision::Exit;
use sluice_common::supervisor_config::StepRules;
use sluice_common::template::launch::ProcessLimit;

use super::environment::environment;
use super::step_hooks::{self, StepHook};
use super::{SpawnError, Spawner, child, confine, fork_by, host, workdir};
use crate::identity::Identity;
use crate::output::writer::AttemptStreams;
use crate::spool::after_hooks::AfterHooks;
use crate::sys;

/// Under which names hooks are told how the program ended; neither is there where nobody saw.
const EXIT_CODE: &str = "SLUICE_EXIT_CODE";
const EXIT_SIGNAL: &str = "SLUICE_EXIT_SIGNAL";

impl Spawner {
    /// Makes a child that runs hooks to their ends, one after the other, whatever becomes of each. It exits with 0 where
    /// all went well. With its number what it gives.
    ///
    /// # Errors
    /// Where a command is impossible or the host has no room.
    pub fn fork_after_hooks(
        &self,
        id: &AttemptId,
        own: Option<Uid>,
        after: &AfterHooks,
        exit: &Exit,
        group_entry: &GroupEntry,
    ) -> Result<(u32, AttemptStreams), SpawnError> {
        let dir = self.attempt_dir(id);
        let identity = self.identity(&after.step_owner(), own, &dir)?;
        let mut env = after.env.clone();
        let (code, signal) = (exit.code(), exit.signal());
        env.extend(code.map(|code| (EXIT_CODE.to_owned(), code.to_string())));
        env.extend(signal.map(|signal| (EXIT_SIGNAL.to_owned(), signal.to_string())));
        let envp = environment(&env, &identity, &dir)?;
        let hooks = step_hooks::hooks(&after.hooks, &envp, env.get("PATH"))?;
        let ([stdout, stderr], given) = self.streams(&dir, &identity)?;
        let child = AfterHooksChild {
            supervisor: getpid(),
            group_entry,
            streams: [&self.null, &stdout, &stderr],
            open_files: self.open_files,
            identity: &identity,
            rules: &self.identities.rules,
            workdir: &workdir(after.workdir.as_deref(), &dir)?,
            limits: &step_hooks::rlimits(&after.limits),
            hooks: &hooks,
        };
        // Not born there: what is born in a group of version 2 that was killed once is killed by some kernels, however
        // long ago that was. It enters before it does anything else.
        let forked = fork_by(None, |inside| child.run(inside));
        host(|| "make a process".to_owned(), forked).map(|pid| (pid, given))
    }
}

/// What the child is born with.
struct AfterHooksChild<'a> {
    supervisor: Pid,
    group_entry: &'a GroupEntry,
    streams: [&'a File; 3],
    open_files: (rlim_t, rlim_t),
    identity: &'a Identity,
    rules: &'a StepRules,
    workdir: &'a Path,
    limits: &'a [(Resource, &'a ProcessLimit)],
    hooks: &'a [StepHook<'a>],
}

impl AfterHooksChild<'_> {
    /// Runs them. Comes back only where something went wrong.
    fn run(&self, was_cloned_inside: bool) {
        let prepared = self.prepare(was_cloned_inside);
        let Err(why) = prepared.and_then(|()| self.run_all()) else {
            sys::exit_now(0);
        };
        let _nobody_is_told_otherwise = writeln!(std::io::stderr(), "sluice: {why}");
    }

    fn prepare(&self, was_cloned_inside: bool) -> Result<(), String> {
        self.group_entry.enter(was_cloned_inside)?;
        let streams = self.streams.map(AsFd::as_fd);
        child::detach(streams, &[], self.open_files)?;
        confine::become_user(self.identity, self.rules)?;
        // The next supervisor runs them anew. Said after the change of the user, which takes it back.
        set_pdeathsig(Signal::SIGKILL)
            .map_err(|e| format!("hooks cannot be tied to their host: {}", e.desc()))?;
        if getppid() != self.supervisor {
            return Err("hooks after the step were not run: nobody waits for them".to_owned());
        }
        // A directory that the step itself has removed is no reason not to clean up.
        let _somewhere_else = chdir(self.workdir).or_else(|_| chdir("/"));
        confine::check_workdir(self.rules)?;
        step_hooks::lower(self.limits)
    }

    /// One that fails keeps none of the others.
    fn run_all(&self) -> Result<(), String> {
        let failed = self.hooks.iter().filter_map(|hook| hook.run_to_end().err());
        let failed: Vec<String> = failed.collect();
        match failed.is_empty() {
            true => Ok(()),
            false => Err(format!("after the step, {}", failed.join("; "))),
        }
    }
}
