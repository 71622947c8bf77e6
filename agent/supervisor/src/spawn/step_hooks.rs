//! Runs what templates put around a step, within the limits of this host's config: resource limits of each
//! process, and hooks before and after the step's program. All of it runs as the step's user in the step's
//! groups, in a child that has switched to that user already. `hooks` runs the host's own hooks.

use std::ffi::CString;
use std::io::Write;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, setpgid};
use sluice_common::template::check::PROCESSES;
use sluice_common::template::launch::{HookRun, ProcessLimit};

use super::child::StepProgram;
use super::{SpawnError, arguments};
use crate::config::rlimit;
use crate::sys;

/// First word of every message about a failed hook.
pub const HOOK: &str = "hook `";

/// Time between two checks whether a hook has ended.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// Most processes of a step, if its templates set that.
pub fn processes(limits: &[ProcessLimit]) -> Option<u32> {
    let said = limits.iter().filter(|limit| limit.name == PROCESSES);
    let least = said.map(|limit| limit.max).min()?;
    Some(u32::try_from(least).unwrap_or(u32::MAX))
}

/// The resource limits of each process. Names that this host does not know are ignored.
pub(super) fn rlimits(limits: &[ProcessLimit]) -> Vec<(Resource, &ProcessLimit)> {
    let known = limits
        .iter()
        .filter_map(|limit| Some((rlimit(&limit.name)?, limit)));
    known.collect()
}

/// Lowers this process's limits, never above what the host has set.
pub(super) fn lower(limits: &[(Resource, &ProcessLimit)]) -> Result<(), String> {
    for (resource, limit) in limits {
        let failed =
            |e: Errno| format!("the host could not set limit {}: {}", limit.name, e.desc());
        let (_, hard) = getrlimit(*resource).map_err(failed)?;
        let most = limit.max.min(hard);
        setrlimit(*resource, most, most).map_err(failed)?;
    }
    Ok(())
}

/// A hook, prepared for the child.
pub(super) struct StepHook<'a> {
    run: &'a HookRun,
    program: StepProgram,
}

/// Prepares hooks for the child.
pub(super) fn hooks<'a>(
    runs: &'a [HookRun],
    envp: &[CString],
    path: Option<&String>,
) -> Result<Vec<StepHook<'a>>, SpawnError> {
    let hooks = runs.iter().map(|run| {
        let program = StepProgram {
            reports: false,
            argv: arguments(&run.command)?,
            envp: envp.to_vec(),
            path: path.cloned(),
        };
        Ok(StepHook { run, program })
    });
    hooks.collect()
}

/// Runs hooks one after the other, each to its end; only in a child.
///
/// # Errors
/// The first hook that did not exit with 0 in time.
pub(super) fn run(hooks: &[StepHook<'_>]) -> Result<(), String> {
    hooks.iter().try_for_each(StepHook::run_to_end)
}

impl StepHook<'_> {
    /// Runs the hook and waits for its end.
    pub(super) fn run_to_end(&self) -> Result<(), String> {
        let name = self.run.name.escape_debug();
        let failed = |e: Errno| format!("{HOOK}{name}` could not be run: {}", e.desc());
        let pid = sys::fork_into(|| {
            // A process group of its own, so that a kill reaches its children.
            let _alone_at_worst = setpgid(Pid::from_raw(0), Pid::from_raw(0));
            if let Err(why) = self.program.start() {
                // The step's own output explains its exit code.
                let _nobody_is_told_otherwise = writeln!(std::io::stderr(), "{why}");
            }
        });
        let pid = pid.map_err(|e| format!("{HOOK}{name}` could not be run: {e}"))?;
        let how = match self
            .wait(Pid::from_raw(pid.cast_signed()))
            .map_err(failed)?
        {
            Some(WaitStatus::Exited(_, 0)) => return Ok(()),
            Some(WaitStatus::Exited(_, code)) => format!("ended with code {code}"),
            Some(WaitStatus::Signaled(_, signal, _)) => format!("was ended by {signal}"),
            Some(_) | None => format!("took longer than {}", self.run.timeout),
        };
        Err(format!("{HOOK}{name}` {how}"))
    }

    /// The exit status; `None` if the hook timed out and was killed.
    fn wait(&self, pid: Pid) -> nix::Result<Option<WaitStatus>> {
        let end = Instant::now() + Duration::from_millis(self.run.timeout.millis());
        loop {
            match waitpid(pid, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) if Instant::now() >= end => {
                    let _it_had_no_group_yet =
                        killpg(pid, Signal::SIGKILL).or_else(|_| kill(pid, Signal::SIGKILL));
                    waitpid(pid, None)?;
                    return Ok(None);
                }
                Ok(WaitStatus::StillAlive) => sleep(CHECK_INTERVAL),
                Ok(ended) => return Ok(Some(ended)),
                Err(Errno::EINTR) => {}
                Err(e) => return Err(e),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_common::time::Span;

    fn bound(name: &str, most: u64) -> ProcessLimit {
        let name = name.to_owned();
        ProcessLimit { name, max: most }
    }

    #[test]
    fn limits_are_known_by_the_names_of_the_config() {
        let limits = [
            bound("nofile", 9),
            bound(PROCESSES, 7),
            bound("unheard_of", 1),
        ];
        let known: Vec<_> = rlimits(&limits)
            .into_iter()
            .map(|(of, it)| (of, it.max))
            .collect();
        assert_eq!(known, [(Resource::RLIMIT_NOFILE, 9)]);
        assert_eq!(processes(&limits), Some(7));
        assert_eq!(processes(&limits[..1]), None);
        assert_eq!(processes(&[bound(PROCESSES, u64::MAX)]), Some(u32::MAX));
        let named = sluice_common::template::check::limits();
        let unknown: Vec<&str> = named.filter(|name| rlimit(name).is_none()).collect();
        assert_eq!(
            unknown,
            [PROCESSES],
            "what a template may say, a host can set"
        );
    }

    #[test]
    fn how_a_hook_ended_is_told_by_its_name() {
        let envp = [CString::new("PATH=/usr/bin:/bin").unwrap()];
        let path = "/usr/bin:/bin".to_owned();
        for (script, timeout, expected) in [
            ("exit 0", 60_000, Ok(())),
            ("exit 3", 60_000, Err("hook `stage` ended with code 3")),
            (
                "kill -9 $$",
                60_000,
                Err("hook `stage` was ended by SIGKILL"),
            ),
            ("sleep 1000", 50, Err("hook `stage` took longer than 50ms")),
        ] {
            let runs = [HookRun {
                name: "stage".to_owned(),
                command: ["sh", "-c", script].map(str::to_owned).into(),
                timeout: Span::from_millis(timeout),
            }];
            let hooks = hooks(&runs, &envp, Some(&path)).unwrap();
            assert_eq!(run(&hooks), expected.map_err(str::to_owned), "{script}");
        }
    }
}
