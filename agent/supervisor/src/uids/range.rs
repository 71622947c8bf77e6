//! A range of user ids that attempts are given, and whether it is free on this host. The same numbers are group ids.
//!
//! What is known of Linux hosts is checked when the config is read ([`Uids::new`]); what this host has, its user database
//! among it, when the supervisor starts ([`Uids::check_host`]).

use std::fs;
use std::io;
use std::path::Path;

use nix::unistd::{Gid, Group, Uid, User};

/// User ids from the first to the last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uids {
    /// The lowest.
    pub first: u32,
    /// The highest.
    pub last: u32,
}

/// Numbers that programs of a Linux host give out by themselves. The table of systemd's `UIDS-GIDS` is the source of all
/// but the subordinate ids, which are the default of `login.defs`.
const TAKEN: [(u32, u32, &str); 7] = [
    (0, 999, "system users"),
    (60_001, 60_577, "systemd-homed"),
    (61_184, 65_535, "systemd's DynamicUser= and `nobody`"),
    (100_000, 600_100_000, "subordinate ids (`SUB_UID_MIN`)"),
    (524_288, 1_879_048_191, "containers of systemd-nspawn"),
    (2_147_352_576, 2_147_483_647, "foreign users of systemd"),
    (
        2_147_483_648,
        u32::MAX,
        "nobody: programs read them as negative",
    ),
];

/// Most ids of a range: the file of each that is in use lies in one directory.
const MAX_LEN: u32 = 1 << 20;

/// How many ids of a range the user database is asked for. It may be asked over a network, and directory services give
/// out ids in long runs.
const PROBES: u32 = 16;

/// Why a range cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RangeError {
    /// The bounds say nothing.
    #[error(
        "[{first}, {last}] is no range: write the lowest id, then the highest, of two at least"
    )]
    Empty {
        /// As written.
        first: u32,
        /// As written.
        last: u32,
    },
    /// It is too long.
    #[error(
        "[{first}, {last}] has more than {MAX_LEN} ids, which is the most: write a shorter one"
    )]
    TooLong {
        /// As written.
        first: u32,
        /// As written.
        last: u32,
    },
    /// Somebody else gives these ids out.
    #[error(
        "ids from {first} to {last} are given out to {to}: choose a range beside them, or take the key out"
    )]
    GivenOut {
        /// The lowest of theirs.
        first: u32,
        /// The highest of theirs.
        last: u32,
        /// To whom.
        to: String,
    },
    /// This process cannot become them.
    #[error(
        "this user namespace does not have the ids from {first} to {last} (/proc/self/uid_map, gid_map): choose a range that it has"
    )]
    NotMapped {
        /// The lowest.
        first: u32,
        /// The highest.
        last: u32,
    },
    /// A file of the host cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// Which.
        path: &'static str,
        /// Why.
        source: io::Error,
    },
}

impl Uids {
    /// Where the config names no range: above what directory services give out by themselves (SSSD ends at
    /// 2,000,200,000), below what systemd keeps for others; so many that an id comes again late.
    pub const DEFAULT: Self = Self {
        first: 2_100_000_000,
        last: 2_100_065_535,
    };

    /// A range.
    ///
    /// # Errors
    /// Where it is none, is too long, or belongs to somebody on every Linux host.
    pub fn new(first: u32, last: u32) -> Result<Self, RangeError> {
        // One is the writer's of their output.
        if first >= last {
            return Err(RangeError::Empty { first, last });
        }
        if last - first >= MAX_LEN {
            return Err(RangeError::TooLong { first, last });
        }
        let range = Self { first, last };
        let taken = TAKEN.iter().find(|(from, to, _)| range.meets(*from, *to));
        match taken {
            None => Ok(range),
            Some((first, last, to)) => Err(given_out(*first, *last, to)),
        }
    }

    /// How many there are.
    pub fn count(self) -> u32 {
        self.last - self.first + 1
    }

    /// Whether an id is among them.
    pub fn contains(self, uid: u32) -> bool {
        (self.first..=self.last).contains(&uid)
    }

    fn meets(self, first: u32, last: u32) -> bool {
        self.first <= last && first <= self.last
    }

    /// Whether this host, its files and its user database, has given none of them to anybody, and this process may become
    /// them.
    ///
    /// # Errors
    /// Where somebody has one, or they cannot be become.
    pub fn check_host(self) -> Result<(), RangeError> {
        for map in ["/proc/self/uid_map", "/proc/self/gid_map"] {
            // Without user namespaces in the kernel there is no such file, and every id.
            if let Some(map) = read(map)? {
                self.check_mapped(&map)?;
            }
        }
        for (file, what) in [("/etc/passwd", "user"), ("/etc/group", "group")] {
            self.check_names(&read(file)?.unwrap_or_default(), what)?;
        }
        for file in ["/etc/subuid", "/etc/subgid"] {
            self.check_subordinate(&read(file)?.unwrap_or_default())?;
        }
        self.check_database()
    }

    /// `first outside length` in each line.
    fn check_mapped(self, map: &str) -> Result<(), RangeError> {
        let mut next = self.first;
        let mut runs: Vec<(u32, u32)> = map.lines().filter_map(numbers).collect();
        runs.sort_unstable();
        for (first, len) in runs {
            let last = first.saturating_add(len - 1);
            if (first..=last).contains(&next) {
                match last >= self.last {
                    true => return Ok(()),
                    false => next = last + 1,
                }
            }
        }
        let Self { first, last } = self;
        Err(RangeError::NotMapped { first, last })
    }

    /// `name:x:id:...` in each line.
    fn check_names(self, text: &str, what: &str) -> Result<(), RangeError> {
        for line in text.lines() {
            let mut fields = line.split(':');
            let name = fields.next().unwrap_or_default();
            let id = fields.nth(1).and_then(|id| id.parse().ok());
            if let Some(id) = id.filter(|id| self.contains(*id)) {
                return Err(given_out(
                    id,
                    id,
                    &format!("{what} `{}`", name.escape_debug()),
                ));
            }
        }
        Ok(())
    }

    /// `name:first:count` in each line.
    fn check_subordinate(self, text: &str) -> Result<(), RangeError> {
        for line in text.lines() {
            let mut fields = line.split(':');
            let name = fields.next().unwrap_or_default();
            let mut number = || fields.next()?.trim().parse::<u32>().ok();
            let (Some(first), Some(count @ 1..)) = (number(), number()) else {
                continue;
            };
            let last = first.saturating_add(count - 1);
            if self.meets(first, last) {
                let name = name.escape_debug();
                return Err(given_out(
                    first,
                    last,
                    &format!("`{name}` as subordinate ids"),
                ));
            }
        }
        Ok(())
    }

    /// A database that does not answer knows nobody, as for every other program of this host.
    fn check_database(self) -> Result<(), RangeError> {
        let step = ((self.count() - 1) / PROBES).max(1);
        let probes = (self.first..=self.last).step_by(step as usize);
        for id in probes.chain([self.last]) {
            let user = User::from_uid(Uid::from_raw(id)).ok().flatten();
            let group = Group::from_gid(Gid::from_raw(id)).ok().flatten();
            let name = user.map(|it| format!("user `{}`", it.name.escape_debug()));
            let name = name.or_else(|| Some(format!("group `{}`", group?.name.escape_debug())));
            if let Some(name) = name {
                return Err(given_out(id, id, &name));
            }
        }
        Ok(())
    }
}

fn given_out(first: u32, last: u32, to: &str) -> RangeError {
    RangeError::GivenOut {
        first,
        last,
        to: to.to_owned(),
    }
}

/// A line of a map: the first id inside, and how many.
fn numbers(line: &str) -> Option<(u32, u32)> {
    let mut words = line.split_whitespace();
    let first = words.next()?.parse().ok()?;
    let len: u32 = words.nth(1)?.parse().ok()?;
    (len > 0).then_some((first, len))
}

fn read(path: &'static str) -> Result<Option<String>, RangeError> {
    match fs::read(Path::new(path)) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(RangeError::Read { path, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told<T>(result: Result<T, RangeError>) -> String {
        result.err().map_or_else(String::new, |e| e.to_string())
    }

    #[test]
    fn a_range_lies_beside_what_is_given_out_on_every_host() {
        let Uids { first, last } = Uids::DEFAULT;
        Uids::new(first, last).unwrap();
        for (first, last) in [
            (1_000, 60_000),
            (65_536, 99_999),
            (2_000_000_000, 2_000_065_535),
        ] {
            assert_eq!(Uids::new(first, last).unwrap().count(), last - first + 1);
        }
        for (first, last, why) in [
            (9, 8, "is no range"),
            (0, 1, "system users"),
            (900, 1_100, "system users"),
            (60_000, 60_600, "systemd-homed"),
            (65_534, 65_600, "`nobody`"),
            (99_999, 100_000, "subordinate ids"),
            (1_000_000_000, 1_000_000_001, "systemd-nspawn"),
            (2_147_352_575, 2_147_352_576, "foreign users"),
            (3_000_000_000, 3_000_000_001, "negative"),
            (u32::MAX - 1, u32::MAX, "negative"),
            (1_900_000_000, 1_901_048_576, "more than 1048576"),
        ] {
            let told = told(Uids::new(first, last));
            assert!(told.contains(why), "{first} {last}: {told}");
        }
    }

    #[test]
    fn whoever_has_an_id_of_the_range_is_named() {
        let range = Uids {
            first: 70_000,
            last: 70_099,
        };
        let passwd = "root:x:0:0::/root:/bin/sh\nbroken\nann:x:70042:1::/:\n";
        assert!(
            told(range.check_names(passwd, "user"))
                .contains("70042 to 70042 are given out to user `ann`")
        );
        range
            .check_names("root:x:0:\nann:x:70100:\n", "group")
            .unwrap();
        for (text, meets) in [
            ("ann:60000:10001\n", true),
            ("ann:60000:10000\n", false),
            ("ann:70099:1\n", true),
            ("ann:70100:65536\n", false),
            ("ann:70000:0\nx\nbob:no:9\n", false),
        ] {
            assert_eq!(range.check_subordinate(text).is_err(), meets, "{text}");
        }
    }

    #[test]
    fn a_namespace_must_have_all_of_them() {
        let range = Uids {
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
            assert_eq!(range.check_mapped(map).is_ok(), has, "{map:?}");
        }
    }

    #[test]
    fn the_default_is_free_here_and_the_user_database_is_asked() {
        Uids::DEFAULT.check_host().unwrap();
        let taken = Uids { first: 0, last: 0 };
        assert!(told(taken.check_database()).contains("user `root`"));
    }
}
