//! Ranges of user ids that attempts are given, and the ids that belong to others on every Linux host. The same numbers are
//! group ids. Whether a range is free on one host is looked at there.

use alloc::borrow::ToOwned;
use alloc::string::String;

use serde::{Deserialize, Serialize};

/// User ids from the first to the last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UidRange {
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

/// Why a range cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UidRangeError {
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
}

impl UidRange {
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
    pub fn new(first: u32, last: u32) -> Result<Self, UidRangeError> {
        // One is the writer's of their output.
        if first >= last {
            return Err(UidRangeError::Empty { first, last });
        }
        if last - first >= MAX_LEN {
            return Err(UidRangeError::TooLong { first, last });
        }
        let range = Self { first, last };
        let taken = TAKEN
            .iter()
            .find(|(from, to, _)| range.overlaps(*from, *to));
        match taken {
            None => Ok(range),
            Some((first, last, to)) => Err(UidRangeError::GivenOut {
                first: *first,
                last: *last,
                to: (*to).to_owned(),
            }),
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

    /// Whether one of them lies from `first` to `last`.
    pub fn overlaps(self, first: u32, last: u32) -> bool {
        self.first <= last && first <= self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_range_lies_beside_what_is_given_out_on_every_host() {
        let UidRange { first, last } = UidRange::DEFAULT;
        UidRange::new(first, last).unwrap();
        for (first, last) in [
            (1_000, 60_000),
            (65_536, 99_999),
            (2_000_000_000, 2_000_065_535),
        ] {
            assert_eq!(
                UidRange::new(first, last).unwrap().count(),
                last - first + 1
            );
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
            let told = UidRange::new(first, last).unwrap_err().to_string();
            assert!(told.contains(why), "{first} {last}: {told}");
        }
    }
}
