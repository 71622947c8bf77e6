//! Ranges of user ids for attempts, checked against ids that are assigned otherwise on every Linux host. The same
//! numbers serve as group ids. Conflicts on a particular host are checked there.

use alloc::borrow::ToOwned;
use alloc::string::String;

use serde::{Deserialize, Serialize};

/// Inclusive range of user ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UidRange {
    /// The lowest id.
    pub first: u32,
    /// The highest id.
    pub last: u32,
}

/// Ids that Linux programs assign by themselves. Sources: systemd's `UIDS-GIDS`, and `login.defs` for subordinate ids.
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
        "programs that read ids as negative numbers",
    ),
];

/// Most ids of a range; each id in use has a file in one directory.
const MAX_LEN: u32 = 1 << 20;

/// Error for an unusable range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UidRangeError {
    /// The range has fewer than two ids.
    #[error(
        "[{first}, {last}] is not a range: write the lowest id, then the highest, of two at least"
    )]
    Empty {
        /// Lowest id as written.
        first: u32,
        /// Highest id as written.
        last: u32,
    },
    /// The range has too many ids.
    #[error("[{first}, {last}] has more than the maximum of {MAX_LEN} ids: write a shorter range")]
    TooLong {
        /// Lowest id as written.
        first: u32,
        /// Highest id as written.
        last: u32,
    },
    /// Other programs assign these ids.
    #[error("ids from {first} to {last} are used by {to}: choose other ids, or remove the key")]
    GivenOut {
        /// Lowest id of the other range.
        first: u32,
        /// Highest id of the other range.
        last: u32,
        /// Program or purpose that uses the other range.
        to: String,
    },
}

impl UidRange {
    /// Default range: above the ids that directory services assign (SSSD ends at 2,000,200,000) and below those that
    /// systemd reserves; large enough that ids are reused late.
    pub const DEFAULT: Self = Self {
        first: 2_100_000_000,
        last: 2_100_065_535,
    };

    /// Makes a range.
    ///
    /// # Errors
    /// If it is empty, too long, or overlaps ids that every Linux host uses.
    pub fn new(first: u32, last: u32) -> Result<Self, UidRangeError> {
        // One id is reserved for the writer of output.
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

    /// Number of ids.
    pub fn count(self) -> u32 {
        self.last - self.first + 1
    }

    /// Whether the range contains an id.
    pub fn contains(self, uid: u32) -> bool {
        (self.first..=self.last).contains(&uid)
    }

    /// Whether the range overlaps `first` to `last`.
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
            (9, 8, "is not a range"),
            (0, 1, "system users"),
            (900, 1_100, "system users"),
            (60_000, 60_600, "systemd-homed"),
            (65_534, 65_600, "`nobody`"),
            (99_999, 100_000, "subordinate ids"),
            (1_000_000_000, 1_000_000_001, "systemd-nspawn"),
            (2_147_352_575, 2_147_352_576, "foreign users"),
            (3_000_000_000, 3_000_000_001, "negative"),
            (u32::MAX - 1, u32::MAX, "negative"),
            (
                1_900_000_000,
                1_901_048_576,
                "more than the maximum of 1048576",
            ),
        ] {
            let told = UidRange::new(first, last).unwrap_err().to_string();
            assert!(told.contains(why), "{first} {last}: {told}");
        }
    }
}
