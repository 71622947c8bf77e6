//! Lists kernel objects of users that outlive processes: System V shared memory, semaphores and message
//! queues, and keys.

use std::collections::BTreeSet;
use std::fs;

use sluice_common::helper::IpcKind;

const TABLES: [(IpcKind, &str); 3] = [
    (IpcKind::Memory, "/proc/sysvipc/shm"),
    (IpcKind::Semaphores, "/proc/sysvipc/sem"),
    (IpcKind::Messages, "/proc/sysvipc/msg"),
];

/// All objects, each with a user that owns or created it. Empty on a kernel without these tables.
pub(super) fn all() -> Vec<(u32, IpcKind, i32)> {
    let tables = TABLES
        .iter()
        .map(|(kind, path)| (*kind, fs::read_to_string(path)));
    let tables = tables.filter_map(|(kind, text)| Some((kind, text.ok()?)));
    tables
        .flat_map(|(kind, text)| owners(kind, &text))
        .collect()
}

fn owners(kind: IpcKind, table: &str) -> Vec<(u32, IpcKind, i32)> {
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

/// The users with keys in the kernel.
pub(super) fn users_with_keys() -> BTreeSet<u32> {
    let text = fs::read_to_string("/proc/key-users").unwrap_or_default();
    let users = text
        .lines()
        .filter_map(|line| line.split(':').next()?.trim().parse().ok());
    users.collect()
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
            (1000, IpcKind::Memory, 65538),
            (1001, IpcKind::Memory, 65538),
            (5, IpcKind::Memory, 7),
        ];
        assert_eq!(owners(IpcKind::Memory, table), wanted);
        assert!(owners(IpcKind::Memory, "").is_empty());
    }
}
