//! Removes what an attempt with a user id of its own has left on the host. This process runs as that user, so
//! the kernel enforces what it may remove. The supervisor has found the leftovers, and checks again
//! afterwards.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;

use nix::errno::Errno;
use sluice_codec::{PREFIX_BYTES, decode};
use sluice_common::helper::{IpcKind, Leftovers, MAX_LEFTOVERS_BYTES};

/// Removes the leftovers listed at standard input, as far as possible.
///
/// # Errors
/// If none are listed.
pub(crate) fn remove() -> io::Result<()> {
    let mut asked = Vec::new();
    io::stdin().read_to_end(&mut asked)?;
    let (in_kernel, paths) = parse_request(&asked).ok_or(io::ErrorKind::InvalidData)?;
    for (kind, id) in in_kernel.ipc {
        let _looked_at_again = remove_ipc(kind, id);
    }
    if in_kernel.keys {
        clear_keys();
    }
    for path in paths {
        let _looked_at_again = remove_path(&path);
    }
    Ok(())
}

/// Parses a request: a frame, followed by paths.
fn parse_request(asked: &[u8]) -> Option<(Leftovers, impl Iterator<Item = PathBuf>)> {
    let (prefix, rest) = asked.split_first_chunk::<PREFIX_BYTES>()?;
    let len = usize::try_from(u32::from_le_bytes(*prefix)).ok()?;
    let (body, paths) = rest.split_at_checked(len)?;
    let in_kernel = decode(body, MAX_LEFTOVERS_BYTES).ok()?;
    let paths = paths
        .split(|byte| *byte == 0)
        .filter(|path| !path.is_empty());
    let paths = paths.map(|path| PathBuf::from(OsStr::from_bytes(path)));
    Some((in_kernel, paths))
}

fn remove_path(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path)?.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    }
}

/// Fails if the object belongs to another user or does not exist.
#[expect(unsafe_code, reason = "System V's calls have no wrapper")]
fn remove_ipc(kind: IpcKind, id: i32) -> io::Result<()> {
    // SAFETY: for a removal each call takes only integers and touches no memory of this process.
    let done = unsafe {
        match kind {
            IpcKind::Memory => libc::shmctl(id, libc::IPC_RMID, ptr::null_mut()),
            IpcKind::Semaphores => libc::semctl(id, 0, libc::IPC_RMID),
            IpcKind::Messages => libc::msgctl(id, libc::IPC_RMID, ptr::null_mut()),
        }
    };
    Ok(Errno::result(done).map(drop)?)
}

/// Clears the key rings of this process's user that outlive its processes.
#[expect(unsafe_code, reason = "keyctl has no wrapper")]
fn clear_keys() {
    const OWN: libc::c_long = -1;
    let keyctl = |operation: u32, first: libc::c_long, second: libc::c_long| {
        let operation = libc::c_long::from(operation);
        // SAFETY: these operations of keyctl take only integers and touch no memory of this process.
        unsafe { libc::syscall(libc::SYS_keyctl, operation, first, second, 0, 0) }
    };
    let ring = |ring: i32| libc::c_long::from(ring);
    let process = ring(libc::KEY_SPEC_PROCESS_KEYRING);
    // Fails on a kernel without persistent key rings, or that denies the call; then there is nothing to
    // clear.
    let persistent = keyctl(libc::KEYCTL_GET_PERSISTENT, OWN, process);
    for ring in [
        persistent,
        ring(libc::KEY_SPEC_USER_KEYRING),
        ring(libc::KEY_SPEC_USER_SESSION_KEYRING),
    ] {
        if ring != -1 {
            keyctl(libc::KEYCTL_CLEAR, ring, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_cannot_be_removed() {
        for kind in [IpcKind::Memory, IpcKind::Semaphores, IpcKind::Messages] {
            assert!(remove_ipc(kind, i32::MAX).is_err(), "{kind:?}");
        }
    }

    #[test]
    fn a_frame_and_paths_are_understood_and_nothing_else() {
        let left = Leftovers {
            ipc: vec![(IpcKind::Messages, 7)],
            keys: true,
        };
        let mut asked = sluice_codec::frame(&left, MAX_LEFTOVERS_BYTES).unwrap();
        asked.extend(b"/tmp/a\nb\0/tmp/c\0");
        let (found, paths) = parse_request(&asked).unwrap();
        let paths: Vec<PathBuf> = paths.collect();
        assert_eq!(
            (found, paths),
            (left, vec!["/tmp/a\nb".into(), "/tmp/c".into()])
        );
        for cut in [&asked[..3], &asked[..12], b"\xff\xff\xff\xff"] {
            assert!(parse_request(cut).is_none(), "{cut:?}");
        }
    }

    #[test]
    fn a_directory_goes_with_what_it_holds_and_a_link_without_what_it_leads_to() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("full/of")).unwrap();
        fs::write(at("full/of/files"), "").unwrap();
        fs::create_dir(at("kept")).unwrap();
        std::os::unix::fs::symlink(at("kept"), at("link")).unwrap();
        for name in ["full", "link"] {
            remove_path(&at(name)).unwrap();
        }
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().flatten().collect();
        assert_eq!(left.len(), 1);
        assert!(at("kept").exists());
    }
}
