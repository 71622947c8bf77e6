//! Puts a step's inputs into its own directory: the child's half. The agent has fetched them into a file of its own, which the
//! child opens while it still may; `sluice-helper` unpacks it as the step's user, in the step's groups.
//!
//! A compromised agent gains nothing: only a file that belongs to the agent's own user is opened for reading, so no step
//! gets what the agent could not read itself.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, dup2_stderr, dup2_stdin, dup2_stdout, geteuid};
use sluice_common::helper::UNPACK_INPUTS;
use sluice_common::limit::MAX_SENTENCE_BYTES;

use super::start_report::{HOST_FAILED, INPUTS_GONE, StartFault};
use super::streams::helper_arguments;
use crate::helper_program::HelperProgram;
use crate::sys;

/// Why a step whose inputs are gone did not begin.
const INPUTS_REMOVED: &str =
    "the host's agent had removed its inputs before it began, as an agent that starts again does";

/// Inputs of a step, and who unpacks them.
pub(super) struct StepInputs<'a> {
    /// Path of the agent's file.
    pub(super) file: PathBuf,
    /// The agent's user; this process's own if there is no other.
    pub(super) agent_uid: Option<u32>,
    pub(super) helper: &'a HelperProgram,
    pub(super) null: &'a File,
}

impl StepInputs<'_> {
    /// Opens the agent's file. A resource of the host is missing if that fails, unless the file is gone: an agent that
    /// starts again removes it, and the step may come back.
    pub(super) fn open(&self) -> Result<File, StartFault> {
        let owner = self.agent_uid.unwrap_or(geteuid().as_raw());
        open_of(&self.file, owner).map_err(|why| match why.kind() {
            io::ErrorKind::NotFound => (INPUTS_GONE, INPUTS_REMOVED.to_owned()),
            _ => {
                let why = format!("the host could not open the inputs of the step: {why}");
                (HOST_FAILED, why)
            }
        })
    }

    /// Makes the files in the current directory, as the present user.
    pub(super) fn unpack(&self, packed: &File) -> Result<(), String> {
        let failed = |why: String| format!("inputs: {why}");
        let argv = helper_arguments([UNPACK_INPUTS.to_owned()]).map_err(failed)?;
        let (mut told, to_us) = io::pipe().map_err(|e| failed(e.to_string()))?;
        let pid = sys::fork_into(|| {
            let connected = dup2_stdin(packed)
                .and_then(|()| dup2_stdout(&to_us))
                .and_then(|()| dup2_stderr(self.null));
            if connected.is_ok() {
                self.helper.execute(&argv, &[]);
            }
        });
        let pid = pid.map_err(|e| failed(e.to_string()))?;
        drop(to_us);
        let mut sentence = String::new();
        let read = (&mut told)
            .take(MAX_SENTENCE_BYTES as u64)
            .read_to_string(&mut sentence);
        drop(told);
        let ended = waitpid(Pid::from_raw(pid.cast_signed()), None);
        match ended {
            Ok(WaitStatus::Exited(_, 0)) => Ok(()),
            Ok(_) if read.is_ok() && !sentence.is_empty() => Err(failed(sentence)),
            Ok(_) | Err(_) => Err(failed(
                "the program that puts them into the directory was ended".to_owned(),
            )),
        }
    }
}

/// Opens a regular file of this owner. Looks at it before it is opened, because opening a device may do something.
fn open_of(path: &Path, owner: u32) -> io::Result<File> {
    let found = File::options()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_NOFOLLOW)
        .open(path)?;
    let metadata = found.metadata()?;
    if !metadata.is_file() || metadata.uid() != owner {
        return Err(io::Error::other("it is no file of the agent's user"));
    }
    // The very file that was looked at.
    File::open(Path::new("/proc/self/fd").join(found.as_raw_fd().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_a_regular_file_of_the_agent_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("own");
        fs::write(&own, "x").unwrap();
        let uid = geteuid().as_raw();
        assert!(open_of(&own, uid).is_ok());
        assert!(open_of(&own, uid + 1).is_err());
        let (link, fifo) = (dir.path().join("link"), dir.path().join("fifo"));
        symlink(&own, &link).unwrap();
        mkfifo(&fifo, Mode::S_IRWXU).unwrap();
        for other in [&link, &fifo, &dir.path().join("none"), dir.path()] {
            assert!(open_of(other, uid).is_err(), "{}", other.display());
        }
    }
}
