//! Whose the common root of a supervisor's groups is, and the removal of those that nobody will come back for: their
//! supervisor was killed, and its state directory is gone, as that of a cluster for trials is. [`crate::table`] asks for it
//! at the start.
//!
//! An attribute of the root names its owner. A root without one is none of ours or of an older supervisor, and stays; so does
//! one in which something runs, and one whose state directory is still there: the next supervisor of that finds it.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tracing::{debug, info, warn};

use super::name::{self, PREFIX};
use super::{Groups, attempt_in, file};
use crate::process;
use crate::sys::xattr;

/// The attribute, where this process is root: nobody else can write one like it.
const OF_ROOT: &CStr = c"trusted.sluice.owner";
/// The same of others.
const OF_OTHERS: &CStr = c"user.sluice.owner";

/// A supervisor, told apart from every other of this boot.
#[derive(Debug, PartialEq, Eq)]
struct Owner {
    pid: u32,
    start_ticks: u64,
    /// Process ids count in their namespace alone.
    namespace: u64,
    state_dir: PathBuf,
}

impl Groups {
    /// Says of the roots that they are this process's, and removes those beside them that nobody will come back for.
    pub fn claim(&self, state_dir: &Path) {
        let me = match Owner::this_process(state_dir) {
            Ok(me) => me,
            Err(e) => return debug!("groups are not marked as ours: {e}"),
        };
        let unified = self.unified.iter().map(|unified| unified.root());
        let legacy = self.legacy.roots().chain(self.cpusets.legacy_root());
        for root in unified.chain(legacy) {
            if let Err(e) = xattr::set(root, attribute(), &me.written()) {
                debug!(root = %root.display(), "it is not marked as ours: {e}");
            }
            if let Some(base) = root.parent() {
                sweep(base, &me);
            }
        }
    }
}

fn attribute() -> &'static CStr {
    match nix::unistd::geteuid().is_root() {
        true => OF_ROOT,
        false => OF_OTHERS,
    }
}

fn sweep(base: &Path, me: &Owner) {
    let names = file::children(base).filter(|name| name.starts_with(PREFIX));
    for name in names {
        let root = base.join(&name);
        let owner = xattr::get(&root, attribute()).ok();
        let owner = owner.and_then(|written| Owner::read(&written));
        if owner.is_some_and(|owner| owner.is_gone_for_good(&name, me)) {
            remove(&root);
        }
    }
}

/// The kernel removes no group in which something runs.
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

impl Owner {
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

    /// Whether neither this owner of the root `name` nor a later one of the same directory can come back to it.
    fn is_gone_for_good(&self, name: &str, me: &Owner) -> bool {
        let lives = || process::stat(self.pid).is_some_and(|p| p.start_ticks == self.start_ticks);
        // This very process may have had another name before it became this program.
        let is_over = self == me || !lives();
        self.namespace == me.namespace && is_over && is_gone(&self.state_dir, name)
    }
}

/// Whether the state directory that kept the name of a root is there no more, or has another. Another of the same path has
/// another.
fn is_gone(state_dir: &Path, name: &str) -> bool {
    match name::of(state_dir) {
        Ok(now) => now != name,
        Err(e) => e.is_absent(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_read_as_it_was_written_and_nothing_else_is_one() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("a path with spaces");
        let me = Owner::this_process(&dir).unwrap();
        assert_eq!(Owner::read(&me.written()), Some(me));
        for other in ["", "1", "1 2 3", "x 2 3 /a", "99999999999 2 3 /a"] {
            assert_eq!(Owner::read(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn only_who_is_dead_without_a_directory_is_gone_for_good() {
        let dir = tempfile::tempdir().unwrap();
        let name = name::settle(dir.path(), false).unwrap();
        let me = || Owner::this_process(dir.path()).unwrap();
        let dead = || Owner {
            start_ticks: 0,
            ..me()
        };
        let away = || dir.path().join("away");
        let lives = || Owner {
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
        let elsewhere = Owner {
            namespace: 0,
            state_dir: away(),
            ..dead()
        };
        assert!(!elsewhere.is_gone_for_good(&name, &me()), "nobody can tell");
        assert!(dead().is_gone_for_good("sluice-x", &me()), "made anew");
        let gone = Owner {
            state_dir: away(),
            ..dead()
        };
        assert!(gone.is_gone_for_good(&name, &me()));
    }
}
