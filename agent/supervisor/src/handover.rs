//! State that a supervisor passes to the program that replaces it in the same process: see
//! [`crate::upgrade`]. The spool has every attempt; a handover has what only the process has, and the
//! descriptors that stay open across `exec`.
//!
//! The handover is written to a memory file, whose descriptor number is on the next program's command line.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use serde::{Deserialize, Serialize};
use sluice_common::directory_refusal::DirectoryRefusal;
use sluice_common::id::AttemptId;
use sluice_common::supervision::Exit;

use crate::sys;

/// Version of the handover. A program with another version is not started as a replacement.
pub const FORMAT: u32 = 1;

/// State for the next program.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handover {
    /// Equal to [`FORMAT`].
    pub format: u32,
    /// Lock of the state directory.
    pub lock: RawFd,
    /// Socket that agents connect to.
    pub listener: RawFd,
    /// Attempts whose processes are children of this process.
    pub children: Vec<ChildAttempt>,
    /// Attempts that are killed repeatedly.
    pub killing: BTreeSet<AttemptId>,
    /// Processes that carried an attempt's marks when they were read; they may have changed since.
    pub seen: Vec<KnownProcess>,
    #[serde(default)]
    pub epilogs: Vec<HookChild>,
    /// Running hooks after attempts.
    #[serde(default)]
    pub afters: Vec<HookChild>,
}

/// An attempt whose main process is a child.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildAttempt {
    pub attempt: AttemptId,
    /// Start report, if the child has not become the step's program yet.
    pub report: Option<HandedReport>,
    /// Whether to freeze the attempt as soon as its program has started.
    #[serde(default)]
    pub freezes: bool,
}

/// A start report that is still open.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedReport {
    pub pipe: RawFd,
    /// Failure that was read from the pipe.
    pub failure: Option<Exit>,
    /// Why the child is not in the preferred directory, if that was read from the pipe.
    #[serde(default)]
    pub workdir_refused: Option<DirectoryRefusal>,
}

/// A process that belongs to an attempt.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownProcess {
    pub pid: u32,
    /// Start time, which distinguishes the process from a later one with the same pid.
    pub start_ticks: u64,
    pub attempt: AttemptId,
    /// Whether the process works in the attempt's directory.
    #[serde(rename = "tied")]
    pub is_tied: bool,
}

/// A child that runs the epilog of an attempt, or the hooks after it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookChild {
    pub pid: u32,
    pub attempt: AttemptId,
}

/// Why no handover can be read.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    /// The descriptor has no handover.
    #[error(
        "descriptor {fd} holds no handover: --handover is for a supervisor that upgrades itself"
    )]
    Read { fd: RawFd, source: io::Error },
    /// The handover has another version.
    #[error("the handover has format {theirs}, and this supervisor reads format {FORMAT}")]
    Format { theirs: u32 },
}

impl Handover {
    /// Writes the handover to a memory file whose descriptor stays open across `exec`.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn write(&self) -> io::Result<OwnedFd> {
        let memory = memfd_create(c"sluice-handover", MFdFlags::empty())?;
        let mut file = File::from(memory);
        serde_json::to_writer(&mut file, self)?;
        file.flush()?;
        file.rewind()?;
        Ok(file.into())
    }

    /// Reads the handover from a descriptor and closes it.
    ///
    /// # Errors
    /// If there is none, or it has another version.
    pub fn read(fd: RawFd) -> Result<Self, HandoverError> {
        let unread = |source| HandoverError::Read { fd, source };
        let mut text = String::new();
        File::from(sys::adopt(fd).map_err(unread)?)
            .read_to_string(&mut text)
            .map_err(unread)?;
        // The version comes first, because other versions may have any content.
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

/// Sets whether a descriptor stays open across `exec`.
///
/// # Errors
/// If it is not open.
pub fn keep_open(fd: BorrowedFd<'_>, keep: bool) -> io::Result<()> {
    let flags = if keep {
        FdFlag::empty()
    } else {
        FdFlag::FD_CLOEXEC
    };
    fcntl(fd, FcntlArg::F_SETFD(flags))?;
    Ok(())
}

/// The number of a file descriptor.
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
                    workdir_refused: Some(DirectoryRefusal::Missing),
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
        // A number so high that no other test gets it when it is free again.
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
