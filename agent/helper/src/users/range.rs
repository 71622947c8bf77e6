//! Checks that a range of user ids is free on this host: in its files, its user namespace and the user
//! database.

use std::fs;
use std::io;
use std::path::Path;

use nix::unistd::{Gid, Group, Uid, User};
use sluice_common::uid_range::{UidRange, UidRangeError};

/// Number of ids of a range that are looked up in the user database. A lookup may go over a network, and
/// directory services assign ids in long runs.
const PROBES: u32 = 16;

/// Why a range of user ids cannot be given to attempts.
#[derive(Debug, thiserror::Error)]
pub(super) enum RangeUnavailable {
    /// An id is taken.
    #[error(transparent)]
    Range(#[from] UidRangeError),
    /// The supervisor's user namespace lacks some of the ids.
    #[error(
        "this user namespace does not have the ids from {} to {} (/proc/self/uid_map, gid_map): choose a range that it has",
        .0.first, .0.last
    )]
    NotMapped(UidRange),
    /// A file of the host cannot be read.
    #[error("cannot read {path}")]
    Read {
        path: &'static str,
        source: io::Error,
    },
}

/// Checks that the host's files and user database have no id of the range, and that this process could switch
/// to each.
///
/// # Errors
/// If an id is taken or not mapped.
pub(super) fn check(range: UidRange) -> Result<(), RangeUnavailable> {
    for map in ["/proc/self/uid_map", "/proc/self/gid_map"] {
        // A kernel without user namespaces has no such file, and has all ids.
        if let Some(map) = read(map)? {
            check_mapped(range, &map)?;
        }
    }
    for (file, what) in [("/etc/passwd", "user"), ("/etc/group", "group")] {
        check_names(range, &read(file)?.unwrap_or_default(), what)?;
    }
    for file in ["/etc/subuid", "/etc/subgid"] {
        check_subordinate(range, &read(file)?.unwrap_or_default())?;
    }
    check_database(range)
}

/// Each line of a map is `first outside length`.
fn check_mapped(range: UidRange, map: &str) -> Result<(), RangeUnavailable> {
    let mut next = range.first;
    let mut runs: Vec<(u32, u32)> = map.lines().filter_map(parse_map_line).collect();
    runs.sort_unstable();
    for (first, len) in runs {
        let last = first.saturating_add(len - 1);
        if (first..=last).contains(&next) {
            match last >= range.last {
                true => return Ok(()),
                false => next = last + 1,
            }
        }
    }
    Err(RangeUnavailable::NotMapped(range))
}

/// Each line is `name:x:id:...`.
fn check_names(range: UidRange, text: &str, what: &str) -> Result<(), RangeUnavailable> {
    for line in text.lines() {
        let mut fields = line.split(':');
        let name = fields.next().unwrap_or_default();
        let id = fields.nth(1).and_then(|id| id.parse().ok());
        if let Some(id) = id.filter(|id| range.contains(*id)) {
            return Err(error_taken(
                id,
                id,
                &format!("{what} `{}`", name.escape_debug()),
            ));
        }
    }
    Ok(())
}

/// Each line is `name:first:count`.
fn check_subordinate(range: UidRange, text: &str) -> Result<(), RangeUnavailable> {
    for line in text.lines() {
        let mut fields = line.split(':');
        let name = fields.next().unwrap_or_default();
        let mut number = || fields.next()?.trim().parse::<u32>().ok();
        let (Some(first), Some(count @ 1..)) = (number(), number()) else {
            continue;
        };
        let last = first.saturating_add(count - 1);
        if range.overlaps(first, last) {
            let name = name.escape_debug();
            return Err(error_taken(
                first,
                last,
                &format!("`{name}` as subordinate ids"),
            ));
        }
    }
    Ok(())
}

/// A database that does not answer counts as empty, as for every other program of this host.
fn check_database(range: UidRange) -> Result<(), RangeUnavailable> {
    let step = ((range.count() - 1) / PROBES).max(1);
    let probes = (range.first..=range.last).step_by(step as usize);
    for id in probes.chain([range.last]) {
        let user = User::from_uid(Uid::from_raw(id)).ok().flatten();
        let group = Group::from_gid(Gid::from_raw(id)).ok().flatten();
        let name = user.map(|it| format!("user `{}`", it.name.escape_debug()));
        let name = name.or_else(|| Some(format!("group `{}`", group?.name.escape_debug())));
        if let Some(name) = name {
            return Err(error_taken(id, id, &name));
        }
    }
    Ok(())
}

fn error_taken(first: u32, last: u32, to: &str) -> RangeUnavailable {
    let to = to.to_owned();
    UidRangeError::GivenOut { first, last, to }.into()
}

/// Parses a line of a map into the first id and the number of ids.
fn parse_map_line(line: &str) -> Option<(u32, u32)> {
    let mut fields = line.split_whitespace();
    let first = fields.next()?.parse().ok()?;
    let len: u32 = fields.nth(1)?.parse().ok()?;
    (len > 0).then_some((first, len))
}

fn read(path: &'static str) -> Result<Option<String>, RangeUnavailable> {
    match fs::read(Path::new(path)) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(RangeUnavailable::Read { path, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_message<T>(result: Result<T, RangeUnavailable>) -> String {
        result.err().map_or_else(String::new, |e| e.to_string())
    }

    #[test]
    fn whoever_has_an_id_of_the_range_is_named() {
        let range = UidRange {
            first: 70_000,
            last: 70_099,
        };
        let passwd = "root:x:0:0::/root:/bin/sh\nbroken\nann:x:70042:1::/:\n";
        assert!(
            error_message(check_names(range, passwd, "user"))
                .contains("70042 to 70042 are used by user `ann`")
        );
        check_names(range, "root:x:0:\nann:x:70100:\n", "group").unwrap();
        for (text, meets) in [
            ("ann:60000:10001\n", true),
            ("ann:60000:10000\n", false),
            ("ann:70099:1\n", true),
            ("ann:70100:65536\n", false),
            ("ann:70000:0\nx\nbob:no:9\n", false),
        ] {
            assert_eq!(check_subordinate(range, text).is_err(), meets, "{text}");
        }
    }

    #[test]
    fn a_namespace_must_have_all_of_them() {
        let range = UidRange {
            first: 10,
            last: 19,
        };
        for (map, has) in [
            ("         0          0 4294967295\n", true),
            ("0 1000 15\n15 5000 5\n", true),
            ("15 5000 5\n0 1000 15\n", true),
            ("0 1000 15\n16 5000 5\n", false),
            ("0 1000 10\n", false),
            ("", false),
        ] {
            assert_eq!(check_mapped(range, map).is_ok(), has, "{map:?}");
        }
    }

    #[test]
    fn the_default_is_free_here_and_the_user_database_is_asked() {
        check(UidRange::DEFAULT).unwrap();
        let taken = UidRange { first: 0, last: 0 };
        assert!(error_message(check_database(taken)).contains("user `root`"));
    }
}
