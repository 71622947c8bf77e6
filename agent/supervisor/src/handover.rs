//! What a supervisor leaves to the program that takes its place in the same process: see [`crate::upgrade`]. The spool
//! tells of every attempt; here is what only the process has, with the descriptors that stay open across `exec`.
//!
//! It is written into memory that has a descriptor, whose number the next program finds on its command line.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use serde::{Deserialize, Serialize};
use sluice_common::id::AttemptId;
use sluice_common::supervision::Exit;

use crate::sys;

/// The form of a handover. A program that knows another is not put in this one's place.
pub const FORMAT: u32 = 1;

/// What is left to the next program.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handover {
    /// [`FORMAT`].
    pub format: u32,
    /// The lock of the state directory.
    pub lock: RawFd,
    /// The socket that agents connect to.
    pub listener: RawFd,
    /// The attempts whose processes are children of this process.
    pub children: Vec<ChildAttempt>,
    /// Those that are killed again and again.
    pub killing: BTreeSet<AttemptId>,
    /// Processes that were seen to carry an attempt's marks, which they may have laid down since.
    pub seen: Vec<KnownProcess>,
    /// Epilogs that run.
    #[serde(default)]
    pub epilogs: Vec<HookChild>,
    /// What templates have run after attempts, where it runs.
    #[serde(default)]
    pub afters: Vec<HookChild>,
}

/// An attempt that is a child's.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildAttempt {
    /// Which.
    pub attempt: AttemptId,
    /// What it reports by, where it has not become the step's program yet.
    pub report: Option<HandedReport>,
    /// Whether it is to be frozen as soon as it has.
    #[serde(default)]
    pub freezes: bool,
}

/// A report that is not done with.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedReport {
    /// Its pipe.
    pub pipe: RawFd,
    /// What was read of it.
    pub failure: Option<Exit>,
}

/// A process that belongs to an attempt.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownProcess {
    /// Which process.
    pub pid: u32,
    /// Its start, which tells it from others of that number.
    pub start_ticks: u64,
    /// Whose it is.
    pub attempt: AttemptId,
    /// Whether it was seen to work in that attempt's directory.
    #[serde(rename = "tied")]
    pub is_tied: bool,
}

/// A child that runs the epilog of an attempt, or what templates have run after it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookChild {
    /// Which child.
    pub pid: u32,
    /// After which.
    pub attempt: AttemptId,
}

/// Why there is nothing to take over.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    /// The descriptor holds none.
    #[error(
        "descriptor {fd} holds no handover: --handover is for a supervisor that upgrades itself"
    )]
    Read {
        /// Which.
        fd: RawFd,
        /// Why.
        source: io::Error,
    },
    /// It is of another form.
    #[error("the handover is of form {theirs} and this supervisor knows {FORMAT}")]
    Format {
        /// Which.
        theirs: u32,
    },
}

impl Handover {
    /// Puts it where the next program finds it. The descriptor stays open across `exec`.
    ///
    /// # Errors
    /// Where there is no memory for it.
    pub fn write(&self) -> io::Result<OwnedFd> {
        let memory = memfd_create(c"sluice-handover", MFdFlags::empty())?;
        let mut file = File::from(memory);
        serde_json::to_writer(&mut file, self)?;
        file.flush()?;
        file.rewind()?;
        Ok(file.into())
    }

    /// Reads what was left at a descriptor, and closes it.
    ///
    /// # Errors
    /// Where there is none, or it is of another form.
    pub fn read(fd: RawFd) -> Result<Self, HandoverError> {
        let unread = |source| HandoverError::Read { fd, source };
        let mut text = String::new();
        File::from(sys::adopt(fd).map_err(unread)?)
            .read_to_string(&mut text)
            .map_err(unread)?;
        // The form first: the rest of another one may look like anything.
        #[derive(Deserialize)]
        struct FormatOnly {
            format: u32,
        }
        let FormatOnly { format } = serde_json::from_str(&text).map_err(|e| unread(e.into()))?;
        if format != FORMAT {
            return Err(HandoverError::Format { theirs: format });
        }
        serde_json::from_str(&text).map_err(|e| unread(e.into()))
    }
}

/// Has a descriptor outlive an `exec`, or not.
///
/// # Errors
/// Where it is not open.
pub fn keep_open(fd: BorrowedFd<'_>, keep: bool) -> io::Result<()> {
    let flags = if keep {
        FdFlag::empty()
    } else {
        FdFlag::FD_CLOEXEC
    };
    fcntl(fd, FcntlArg::F_SETFD(flags))?;
    Ok(())
}

/// The number of a descriptor, as a handover names it.
pub fn number(fd: &impl AsFd) -> RawFd {
    fd.as_fd().as_raw_fd()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::IntoRawFd;

    fn handover() -> Handover {
        let attempt: AttemptId = "a.1".parse().unwrap();
        Handover {
            format: FORMAT,
            lock: 3,
            listener: 4,
            children: vec![ChildAttempt {
                attempt: attempt.clone(),
                report: Some(HandedReport {
                    pipe: 5,
                    failure: Some(Exit::StartFailed("no".to_owned())),
                }),
                freezes: true,
            }],
            killing: [attempt.clone()].into(),
            seen: vec![KnownProcess {
                pid: 6,
                start_ticks: u64::MAX,
                attempt: attempt.clone(),
                is_tied: true,
            }],
            epilogs: vec![HookChild {
                pid: 7,
                attempt: attempt.clone(),
            }],
            afters: vec![HookChild { pid: 8, attempt }],
        }
    }

    #[test]
    fn what_is_left_is_found() {
        let written = handover().write().unwrap();
        // So high that no other test is given this number when it is free again.
        let fd = fcntl(&written, FcntlArg::F_DUPFD_CLOEXEC(700)).unwrap();
        assert_eq!(Handover::read(fd).unwrap(), handover());
        assert!(
            Handover::read(fd).is_err(),
            "it was closed, and a closed descriptor holds nothing"
        );
    }

    #[test]
    fn another_form_is_told_from_noise() {
        let newer = Handover {
            format: FORMAT + 1,
            ..handover()
        };
        let told = Handover::read(newer.write().unwrap().into_raw_fd()).unwrap_err();
        assert!(
            matches!(told, HandoverError::Format { theirs: 2 }),
            "{told}"
        );
        let noise = File::open("/dev/null").unwrap();
        let told = Handover::read(noise.into_raw_fd()).unwrap_err();
        assert!(matches!(told, HandoverError::Read { .. }), "{told}");
    }
}
