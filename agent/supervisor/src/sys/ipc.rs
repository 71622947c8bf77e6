//! What processes leave in the kernel under their user: shared memory, semaphores and message queues as System V has them,
//! and keys. Who may remove it decides the kernel, by the user that asks.

use std::collections::BTreeSet;
use std::{fs, io, ptr};

use nix::errno::Errno;

/// What of System V's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Shared memory.
    Memory,
    /// Semaphores.
    Semaphores,
    /// A queue of messages.
    Messages,
}

const TABLES: [(Kind, &str); 3] = [
    (Kind::Memory, "/proc/sysvipc/shm"),
    (Kind::Semaphores, "/proc/sysvipc/sem"),
    (Kind::Messages, "/proc/sysvipc/msg"),
];

/// All that there is, each with a user that owns or has made it. A kernel without such tables has none.
pub fn all() -> Vec<(u32, Kind, i32)> {
    let tables = TABLES
        .iter()
        .map(|(kind, path)| (*kind, fs::read_to_string(path)));
    let tables = tables.filter_map(|(kind, text)| Some((kind, text.ok()?)));
    tables
        .flat_map(|(kind, text)| owners(kind, &text))
        .collect()
}

fn owners(kind: Kind, table: &str) -> Vec<(u32, Kind, i32)> {
    let mut lines = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let head = lines.next().unwrap_or_default();
    let column = |name: &str| head.iter().position(|it| *it == name);
    let (uid, maker) = (column("uid"), column("cuid"));
    let mut found = Vec::new();
    for line in lines {
        let number = |column: Option<usize>| line.get(column?)?.parse::<u32>().ok();
        let id = line.get(1).and_then(|id| id.parse().ok());
        let users: BTreeSet<u32> = [number(uid), number(maker)].into_iter().flatten().collect();
        found.extend(
            id.into_iter()
                .flat_map(|id| users.iter().map(move |uid| (*uid, kind, id))),
        );
    }
    found
}

/// Removes one.
///
/// # Errors
/// Where it is another user's, or not there.
#[expect(unsafe_code, reason = "System V's calls have no wrapper")]
pub fn remove(kind: Kind, id: i32) -> io::Result<()> {
    // SAFETY: to remove, each call takes integers alone and touches no memory of this process.
    let done = unsafe {
        match kind {
            Kind::Memory => libc::shmctl(id, libc::IPC_RMID, ptr::null_mut()),
            Kind::Semaphores => libc::semctl(id, 0, libc::IPC_RMID),
            Kind::Messages => libc::msgctl(id, libc::IPC_RMID, ptr::null_mut()),
        }
    };
    Ok(Errno::result(done).map(drop)?)
}

/// The users of whom the kernel holds keys.
pub fn users_with_keys() -> BTreeSet<u32> {
    let text = fs::read_to_string("/proc/key-users").unwrap_or_default();
    let users = text
        .lines()
        .filter_map(|line| line.split(':').next()?.trim().parse().ok());
    users.collect()
}

/// Clears the key rings of this process's user that outlive its processes.
#[expect(unsafe_code, reason = "keyctl has no wrapper")]
pub fn clear_keys() {
    const OWN: libc::c_long = -1;
    let keyctl = |operation: u32, first: libc::c_long, second: libc::c_long| {
        let operation = libc::c_long::from(operation);
        // SAFETY: these operations of keyctl take integers alone and touch no memory of this process.
        unsafe { libc::syscall(libc::SYS_keyctl, operation, first, second, 0, 0) }
    };
    let ring = |ring: i32| libc::c_long::from(ring);
    let process = ring(libc::KEY_SPEC_PROCESS_KEYRING);
    // A host without them, or that forbids the call, has none.
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
    fn owner_and_maker_are_read_by_the_names_of_columns() {
        let table = "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime\n\
                     \x20        0      65538   600                  4096 10 10 0  1000 0 1001 0 0\n\
                     \x20        0      7   600                  4096 10 10 0  5 0 5 0 0\nbroken\n";
        let wanted = [
            (1000, Kind::Memory, 65538),
            (1001, Kind::Memory, 65538),
            (5, Kind::Memory, 7),
        ];
        assert_eq!(owners(Kind::Memory, table), wanted);
        assert!(owners(Kind::Memory, "").is_empty());
    }

    #[test]
    fn what_is_not_there_cannot_be_removed() {
        for kind in [Kind::Memory, Kind::Semaphores, Kind::Messages] {
            assert!(remove(kind, i32::MAX).is_err(), "{kind:?}");
        }
    }
}
