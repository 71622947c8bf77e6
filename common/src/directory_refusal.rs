//! The working directory that a step prefers: where its submitter stood. The host uses it if it can, and else the
//! attempt's own directory, with one of the reasons here.

use core::fmt;

use serde::{Deserialize, Serialize};

/// Why a part of a step runs in the attempt's own directory and not in the one that the step prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DirectoryRefusal {
    /// The host has no such directory.
    Missing,
    /// The path is that of a file.
    NotADirectory,
    /// The step's user may not enter it.
    Denied,
    /// The config of the host allows steps to work in other directories alone.
    NotAllowed,
    /// The host could not enter it for another reason.
    Unreachable,
    /// A template there uses the working directory, so only one that the step names counts.
    Template,
}

impl DirectoryRefusal {
    /// All reasons, in the order of their codes.
    const ALL: [Self; 6] = [
        Self::Missing,
        Self::NotADirectory,
        Self::Denied,
        Self::NotAllowed,
        Self::Unreachable,
        Self::Template,
    ];

    /// Encodes the reason as one byte, for the report of a process that starts.
    pub const fn code(self) -> u8 {
        match self {
            Self::Missing => 0,
            Self::NotADirectory => 1,
            Self::Denied => 2,
            Self::NotAllowed => 3,
            Self::Unreachable => 4,
            Self::Template => 5,
        }
    }

    /// Decodes a reason; `None` if no reason has this code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

/// Writes what is wrong with the directory, to follow its name.
impl fmt::Display for DirectoryRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Missing => "does not exist there",
            Self::NotADirectory => "is not a directory there",
            Self::Denied => "may not be entered by the step's user there",
            Self::NotAllowed => "is in no directory that steps may work in there",
            Self::Unreachable => "cannot be entered there",
            Self::Template => {
                "is not used there, because the pool's template shows steps their directory"
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_code_of_its_own() {
        for reason in DirectoryRefusal::ALL {
            assert_eq!(DirectoryRefusal::from_code(reason.code()), Some(reason));
        }
        assert_eq!(DirectoryRefusal::from_code(6), None);
    }
}
