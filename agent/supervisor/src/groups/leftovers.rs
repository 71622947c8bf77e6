//! Finds the owner of each supervisor's root of groups, and removes abandoned roots, whose supervisor was
//! killed and whose state directory is gone. [`crate::table`] runs it at the start.
//!
//! An extended attribute of the root names its owner. A root without one was not made by this release and
//! stays. So does a root whose supervisor lives, or whose state directory still exists, because the next
//! supervisor of that directory will find it.
//!
//! A supervisor whose state directory was emptied, replaced or restored from an older copy has lost its
//! records, so the leases of those attempts would not be enforced. The next supervisor at the same path
//! therefore kills unknown attempts, and waits until they are dead, before it reports to an agent. Attempts
//! in a root of another path keep running.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_cgroups::file;
use sluice_common::id::AttemptId;
use tracing::{debug, info, warn};

use super::name::{self, PREFIX};
use super::{Groups, attempt_in};
use crate::process;
use crate::sys::xattr;

/// The attribute if this process is root: only root can write it.
const ROOT_ATTRIBUTE: &CStr = c"trusted.sluice.owner";
/// The attribute if this process is not root.
const USER_ATTRIBUTE: &CStr = c"user.sluice.owner";

/// Identifies a supervisor uniquely within this boot.
#[derive(Debug, PartialEq, Eq)]
struct RootOwner {
    pid: u32,
    start_ticks: u64,
    /// Process ids are unique only within a namespace.
    namespace: u64,
    state_dir: PathBuf,
}

/// Time limit for killed processes to die. They die at once, unless a device or disk blocks them.
const DEATH_LIMIT: Duration = Duration::from_secs(10);
const CHECK_INTERVAL: Duration = Duration::from_millis(2);

/// Processes of an earlier supervisor at this path do not die.
#[derive(Debug, thiserror::Error)]
#[error(
    "attempts of an earlier supervisor of this directory still run in {} after they were killed (processes {}): no step starts before they are gone: find out what keeps them, or reboot the host",
    root.display(),
    pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
)]
pub struct StillRunningError {
    root: PathBuf,
    pids: Vec<u32>,
}

impl Groups {
    /// Marks the roots as this process's own, and removes abandoned roots beside them. Attempts that an
    /// earlier supervisor of the same path has left there, and that are not `known`, are killed first.
    ///
    /// # Errors
    /// If some processes do not die.
    pub fn claim(
        &self,
        state_dir: &Path,
        known: impl Fn(&AttemptId) -> bool,
    ) -> Result<(), StillRunningError> {
        let me = match RootOwner::this_process(state_dir) {
            Ok(me) => me,
            Err(e) => {
                debug!("groups are not marked as ours: {e}");
                return Ok(());
            }
        };
        let unified = self.unified.iter().map(|unified| unified.root());
        let legacy = self.legacy.roots().chain(self.cpusets.legacy_root());
        let mut abandoned = Vec::new();
        for root in unified.chain(legacy) {
            if let Err(e) = xattr::set(root, attribute(), &me.written()) {
                debug!(root = %root.display(), "it is not marked as ours: {e}");
            }
            abandoned.extend(root.parent().into_iter().flat_map(|it| look(it, &me)));
        }
        let of_this_path = abandoned.iter().filter(|it| it.is_of_this_path);
        let groups = of_this_path.flat_map(|it| unknown(&it.root, &known));
        end(&groups.collect::<Vec<_>>())?;
        abandoned.iter().for_each(|it| remove(&it.root));
        Ok(())
    }
}

/// A root without a future owner.
struct AbandonedRoot {
    root: PathBuf,
    /// Whether the owner used the same state directory path.
    is_of_this_path: bool,
}

/// The groups of unknown attempts below a root.
fn unknown(root: &Path, known: impl Fn(&AttemptId) -> bool) -> Vec<PathBuf> {
    file::children(root)
        .filter(|name| attempt_in(name).is_some_and(|id| !known(&id)))
        .map(|name| root.join(name))
        .collect()
}

/// Kills all processes in these groups, repeatedly until none is left: in version 1 one kill is not enough.
fn end(groups: &[PathBuf]) -> Result<(), StillRunningError> {
    for group in groups.iter().filter(|it| !file::members(it).is_empty()) {
        warn!(
            group = %group.display(),
            "an unknown attempt that an earlier supervisor of this directory has left: killed"
        );
    }
    let deadline = Instant::now() + DEATH_LIMIT;
    loop {
        let left: Vec<(&PathBuf, Vec<u32>)> = groups
            .iter()
            .map(|group| (group, file::members(group)))
            .filter(|(_, pids)| !pids.is_empty())
            .collect();
        let Some((root, pids)) = left.first() else {
            return Ok(());
        };
        if Instant::now() >= deadline {
            return Err(StillRunningError {
                root: root.to_path_buf(),
                pids: pids.clone(),
            });
        }
        left.iter().for_each(|(group, pids)| kill_all(group, pids));
        std::thread::sleep(CHECK_INTERVAL);
    }
}

/// Kills by whichever file the hierarchy has; hierarchies without one contain the same processes.
fn kill_all(group: &Path, pids: &[u32]) {
    let by_kernel = file::write(&group.join("cgroup.kill"), "1").is_ok();
    // Frozen processes die only when they are thawed.
    let freezer = group.join("freezer.state");
    if freezer.exists() {
        let _it_is_looked_at_again = file::write(&freezer, "THAWED");
    }
    if !by_kernel {
        // The kernel shows 0 for a process outside of this pid namespace.
        for pid in pids.iter().filter(|pid| **pid > 0) {
            let _it_may_have_ended = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
        }
    }
}

fn attribute() -> &'static CStr {
    match nix::unistd::geteuid().is_root() {
        true => ROOT_ATTRIBUTE,
        false => USER_ATTRIBUTE,
    }
}

/// The abandoned roots directly below `base`.
fn look(base: &Path, me: &RootOwner) -> Vec<AbandonedRoot> {
    let names = file::children(base).filter(|name| name.starts_with(PREFIX));
    let abandoned = names.filter_map(|name| {
        let root = base.join(&name);
        let owner = RootOwner::read(&xattr::get(&root, attribute()).ok()?)?;
        let is_gone = owner.is_gone_for_good(&name, me);
        is_gone.then(|| AbandonedRoot {
            is_of_this_path: owner.state_dir == me.state_dir,
            root,
        })
    });
    abandoned.collect()
}

/// Fails if the root still contains processes.
fn remove(root: &Path) {
    let attempts = file::children(root).filter(|name| attempt_in(name).is_some());
    let emptied = attempts
        .map(|name| file::remove_tree(&root.join(name)))
        .find(Result::is_err);
    match (emptied, fs::remove_dir(root)) {
        (_, Ok(())) => {
            info!(root = %root.display(), "removed: its supervisor and its state directory are gone");
        }
        (_, Err(e)) if e.kind() == io::ErrorKind::NotFound => {}
        (_, Err(e)) => warn!(
            root = %root.display(),
            "its supervisor and its state directory are gone, and it cannot be removed while something runs in it: {e}"
        ),
    }
}

impl RootOwner {
    fn this_process(state_dir: &Path) -> io::Result<Self> {
        let pid = std::process::id();
        let me = process::stat(pid).ok_or(io::ErrorKind::NotFound)?;
        Ok(Self {
            pid,
            start_ticks: me.start_ticks,
            namespace: fs::metadata("/proc/self/ns/pid")?.ino(),
            state_dir: state_dir.to_owned(),
        })
    }

    fn written(&self) -> Vec<u8> {
        let numbers = format!("{} {} {} ", self.pid, self.start_ticks, self.namespace);
        [numbers.as_bytes(), self.state_dir.as_os_str().as_bytes()].concat()
    }

    fn read(written: &[u8]) -> Option<Self> {
        let mut parts = written.splitn(4, |byte| *byte == b' ');
        let mut number = || std::str::from_utf8(parts.next()?).ok()?.parse::<u64>().ok();
        let (pid, start_ticks, namespace) = (number()?, number()?, number()?);
        let state_dir = parts.next()?.to_vec();
        Some(Self {
            pid: u32::try_from(pid).ok()?,
            start_ticks,
            namespace,
            state_dir: std::ffi::OsString::from_vec(state_dir).into(),
        })
    }

    /// Whether neither this owner of the root `name` nor a later one of the same directory can return to it.
    fn is_gone_for_good(&self, name: &str, me: &RootOwner) -> bool {
        let lives = || process::stat(self.pid).is_some_and(|p| p.start_ticks == self.start_ticks);
        // This process may have used another name before an upgrade.
        let is_over = self == me || !lives();
        self.namespace == me.namespace && is_over && is_gone(&self.state_dir, name)
    }
}

/// Whether the state directory that stored the name of a root is gone or stores another name.
fn is_gone(state_dir: &Path, name: &str) -> bool {
    match name::of(state_dir) {
        Ok(now) => now != name,
        Err(e) => e.is_not_found(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_read_as_it_was_written_and_nothing_else_is_one() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("a path with spaces");
        let me = RootOwner::this_process(&dir).unwrap();
        assert_eq!(RootOwner::read(&me.written()), Some(me));
        for other in ["", "1", "1 2 3", "x 2 3 /a", "99999999999 2 3 /a"] {
            assert_eq!(RootOwner::read(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn only_who_is_dead_without_a_directory_is_gone_for_good() {
        let dir = tempfile::tempdir().unwrap();
        let name = name::settle(dir.path(), false).unwrap();
        let me = || RootOwner::this_process(dir.path()).unwrap();
        let dead = || RootOwner {
            start_ticks: 0,
            ..me()
        };
        let away = || dir.path().join("away");
        let lives = || RootOwner {
            pid: std::os::unix::process::parent_id(),
            start_ticks: process::stat(std::os::unix::process::parent_id())
                .unwrap()
                .start_ticks,
            ..me()
        };
        assert!(!lives().is_gone_for_good("sluice-x", &me()), "it lives");
        assert!(!me().is_gone_for_good(&name, &me()), "it is ours");
        assert!(me().is_gone_for_good("sluice-x", &me()), "it was ours");
        assert!(
            !dead().is_gone_for_good(&name, &me()),
            "a next one may come"
        );
        let elsewhere = RootOwner {
            namespace: 0,
            state_dir: away(),
            ..dead()
        };
        assert!(!elsewhere.is_gone_for_good(&name, &me()), "nobody can tell");
        assert!(dead().is_gone_for_good("sluice-x", &me()), "made anew");
        let gone = RootOwner {
            state_dir: away(),
            ..dead()
        };
        assert!(gone.is_gone_for_good(&name, &me()));
    }
}
