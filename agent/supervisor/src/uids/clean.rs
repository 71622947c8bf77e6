//! Finds what an attempt with a user id of its own has left on the host outside of its directory, and removes
//! it *as that user* by `sluice-helper`, which cannot harm other users then. Runs in a child of the
//! supervisor, because a step decides how much there is.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::AtFlags;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{
    Gid, Pid, Uid, alarm, dup2_stderr, dup2_stdin, dup2_stdout, fchownat, geteuid, getpid, getppid,
};
use sluice_codec::frame;
use sluice_common::helper::{IpcKind, Leftovers, MAX_LEFTOVERS_BYTES, REMOVE_LEFTOVERS};

use super::ipc;
use crate::helper_program::{HelperProgram, give_up_rights, in_memory};
use crate::sys;

/// Directories in which every user may create files. Directories that are writable by all below these are not
/// searched.
pub(super) const SHARED_DIRS: [&str; 5] =
    ["/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock"];

/// Most entries of one such directory that are checked, so that a full one does not block the search. The
/// others are not seen.
const MAX_ENTRIES: usize = 200_000;

/// Time limit for removing the files of one user. Root takes over the rest.
const REMOVAL_LIMIT_SECS: u32 = 30;

/// Leftovers of a user.
#[derive(Debug, Default, PartialEq, Eq)]
struct UserLeftovers {
    processes: bool,
    paths: Vec<PathBuf>,
    ipc: Vec<(IpcKind, i32)>,
    keys: bool,
}

/// Removes the leftovers of these users; returns the users without any.
pub(super) fn clean(helper: &HelperProgram, uids: &BTreeSet<u32>, dirs: &[&Path]) -> Vec<u32> {
    let Ok(found) = find_leftovers(uids, dirs) else {
        return Vec::new();
    };
    for (uid, left) in &found {
        let _looked_at_again = remove_as(helper, *uid, left);
    }
    let rest = match found.is_empty() {
        true => found,
        false => find_leftovers(uids, dirs).unwrap_or(found),
    };
    let is_clean = |uid: &&u32| {
        let Some(left) = rest.get(uid) else {
            return true;
        };
        // Keys are cleared and not counted: the kernel may list a user without keys for a while.
        let given = left.paths.iter().all(|path| give_away(path, **uid).is_ok());
        !left.processes && left.ipc.is_empty() && given
    };
    uids.iter().filter(is_clean).copied().collect()
}

fn find_leftovers(
    uids: &BTreeSet<u32>,
    dirs: &[&Path],
) -> io::Result<BTreeMap<u32, UserLeftovers>> {
    let mut found: BTreeMap<u32, UserLeftovers> = BTreeMap::new();
    for uid in running()?.intersection(uids) {
        found.entry(*uid).or_default().processes = true;
    }
    for dir in dirs {
        let Ok(entries) = fs::read_dir(dir) else {
            continue;
        };
        for path in entries
            .take(MAX_ENTRIES)
            .flatten()
            .map(|entry| entry.path())
        {
            let owner = fs::symlink_metadata(&path).map(|found| found.uid());
            if let Some(uid) = owner.ok().filter(|uid| uids.contains(uid)) {
                found.entry(uid).or_default().paths.push(path);
            }
        }
    }
    for (uid, kind, id) in ipc::all() {
        if uids.contains(&uid) {
            found.entry(uid).or_default().ipc.push((kind, id));
        }
    }
    for uid in ipc::users_with_keys().intersection(uids) {
        found.entry(*uid).or_default().keys = true;
    }
    Ok(found)
}

/// The users of all processes.
fn running() -> io::Result<BTreeSet<u32>> {
    let mut uids = BTreeSet::new();
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| name.bytes().all(|b| b.is_ascii_digit())) {
            // From the status file and not from the directory's owner, which is root for a process that
            // denies inspection.
            let status = fs::read_to_string(path.join("status")).unwrap_or_default();
            uids.extend(users_in(&status));
        }
    }
    Ok(uids)
}

/// The users of a process, by its status; empty if it does not run.
fn users_in(status: &str) -> Vec<u32> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let is_dead = field("State:").is_some_and(|state| state.trim_start().starts_with('Z'));
    let threads = field("Threads:").and_then(|threads| threads.trim().parse::<u32>().ok());
    // The first thread may have ended before the others.
    if is_dead && threads.is_none_or(|threads| threads <= 1) {
        return Vec::new();
    }
    let users = field("Uid:").unwrap_or_default().split_whitespace();
    users.filter_map(|uid| uid.parse().ok()).collect()
}

/// Removes the leftovers by the helper as that user, when the user has no process.
fn remove_as(helper: &HelperProgram, uid: u32, left: &UserLeftovers) -> io::Result<()> {
    let in_kernel = Leftovers {
        ipc: left.ipc.clone(),
        keys: left.keys,
    };
    let mut leftovers = frame(&in_kernel, MAX_LEFTOVERS_BYTES).map_err(io::Error::other)?;
    for path in &left.paths {
        leftovers.extend(path.as_os_str().as_bytes());
        leftovers.push(0);
    }
    let leftovers = in_memory(&leftovers)?;
    let argv = HelperProgram::arguments([REMOVE_LEFTOVERS])?;
    let parent = getpid();
    let pid = sys::fork_into(|| {
        if become_it(uid, &leftovers, parent).is_err() {
            return;
        }
        alarm::set(REMOVAL_LIMIT_SECS);
        if left.processes {
            // Signals all processes that this user may signal, which are its own, except this one.
            let _nobody_may_be_left = kill(Pid::from_raw(-1), Signal::SIGKILL);
        }
        helper.execute(&argv, &[]);
    })?;
    let _ended_is_ended = waitpid(Pid::from_raw(pid.cast_signed()), None);
    Ok(())
}

/// Runs in the child, whose open files must be useless for another process of the same user.
fn become_it(uid: u32, leftovers: &File, parent: Pid) -> io::Result<()> {
    let null = OpenOptions::new().write(true).open("/dev/null")?;
    dup2_stdin(leftovers)?;
    dup2_stdout(&null)?;
    dup2_stderr(&null)?;
    give_up_rights(Some(Uid::from_raw(uid)))?;
    set_pdeathsig(Signal::SIGKILL)?;
    match getppid() == parent && geteuid().as_raw() == uid {
        true => Ok(()),
        false => Err(io::Error::other(
            "it does not run as the attempt's user below the supervisor",
        )),
    }
}

/// Gives to root what cannot be removed, such as a directory with files of another user.
fn give_away(path: &Path, uid: u32) -> io::Result<()> {
    let flags = libc::O_PATH | libc::O_NOFOLLOW;
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = match opened {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let found = file.metadata()?;
    if found.uid() != uid {
        return Ok(());
    }
    const ITSELF: &CStr = c"";
    let (root, group) = (Some(Uid::from_raw(0)), Some(Gid::from_raw(0)));
    fchownat(&file, ITSELF, root, group, AtFlags::AT_EMPTY_PATH)?;
    if found.is_dir() {
        let dir = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
            .open(path)?;
        dir.set_permissions(Permissions::from_mode(0o700))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_of_a_process_are_those_of_whatever_runs_of_it() {
        let status = |state: &str, threads: u32| {
            format!("Name:\tx\nState:\t{state}\nUid:\t7\t8\t9\t10\nThreads:\t{threads}\n")
        };
        assert_eq!(users_in(&status("S (sleeping)", 1)), [7, 8, 9, 10]);
        assert!(users_in(&status("Z (zombie)", 1)).is_empty());
        assert_eq!(users_in(&status("Z (zombie)", 2)), [7, 8, 9, 10]);
        assert!(users_in("").is_empty());
    }
}
