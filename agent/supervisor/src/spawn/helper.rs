//! Starts `sluice-helper` to move a step's GPU memory, as the step's user and in the step's groups. The
//! helper gets neither the step's environment nor its directory, and dies with the supervisor.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::io::{PipeReader, PipeWriter, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, Uid, chdir, getpid, getppid};
use sluice_cgroups::group_entry::GroupEntry;
use sluice_common::helper::{
    CHECKPOINT, CheckpointAction, CheckpointResult, LIBRARY, LOCK_TIMEOUT, TOOL,
};

use super::{SpawnError, Spawner, child, confine, host, kill_child, nonblocking, pipe};
use crate::config::Cuda;
use crate::helper_program::HelperProgram;
use crate::identity::{Identity, StepOwner};

/// `PATH` of the helper, in which it finds the tool if the config does not name it.
pub(super) const PATH: &CStr = c"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Most bytes of the helper's output that are read: a line for each of its processes, with room to spare.
const MAX_WORDS_BYTES: u64 = 64 * 1024;

/// A task for the helper.
#[derive(Debug)]
pub struct HelperTask<'a> {
    pub action: CheckpointAction,
    pub pids: &'a [u32],
    /// Time limit for the GPU work of each process to finish.
    pub lock_timeout_ms: u64,
    /// Paths of NVIDIA's library and tool.
    pub cuda: &'a Cuda,
}

/// A running helper: a child of this process that is not reaped.
#[derive(Debug)]
pub struct Helper {
    pub pid: u32,
    helper_output: PipeReader,
}

impl Helper {
    /// The helper's result for each process; call after the helper has ended.
    pub fn lines(&self) -> Option<Vec<CheckpointResult>> {
        let mut text = String::new();
        let mut helper_output = (&self.helper_output).take(MAX_WORDS_BYTES);
        helper_output.read_to_string(&mut text).ok()?;
        lines_in(&text)
    }

    /// Kills the helper, and the tool that it may have started.
    pub fn kill(&self) {
        kill_child(self.pid);
    }
}

/// The result for each process; `None` if a line is invalid.
pub(crate) fn lines_in(text: &str) -> Option<Vec<CheckpointResult>> {
    let lines = text.lines().map(|line| serde_json::from_str(line).ok());
    lines.collect()
}

impl Spawner {
    /// Starts a helper as the user that the attempt runs as.
    ///
    /// # Errors
    /// If no user may run it, or the host lacks resources.
    pub fn send_helper(
        &self,
        step_owner: &StepOwner,
        own: Option<Uid>,
        group_entry: &GroupEntry,
        task: &HelperTask<'_>,
    ) -> Result<Helper, SpawnError> {
        let (helper_output, to_words) = pipe()?;
        nonblocking(&helper_output)?;
        let child = HelperChild {
            spawner: self,
            identity: &*self.identity(step_owner, own, Path::new("/"))?,
            group_entry,
            program: &self.helper_program,
            argv: &arguments(task)?,
            helper_output: &to_words,
            parent: getpid(),
        };
        let pid = host(
            || "make a process".to_owned(),
            super::fork_with(group_entry, |inside| child.run(inside)),
        )?;
        Ok(Helper { pid, helper_output })
    }
}

fn arguments(task: &HelperTask<'_>) -> Result<Vec<CString>, SpawnError> {
    let named = |name: &str, value: &OsStr| [format!("--{name}").into(), value.to_owned()];
    let cuda = task.cuda;
    let library = cuda.library.iter();
    let library = library.flat_map(|path| named(LIBRARY, path.as_os_str()));
    let tool = cuda.tool.iter();
    let tool = tool.flat_map(|path| named(TOOL, path.as_os_str()));
    let timeout = task.lock_timeout_ms.to_string();
    let timeout = named(LOCK_TIMEOUT, OsStr::new(&timeout));
    let action = [task.action.as_str().into()];
    let pids = task.pids.iter().map(|pid| pid.to_string().into());
    let all = std::iter::once(CHECKPOINT.into())
        .chain(library)
        .chain(tool);
    let all: Vec<OsString> = all.chain(timeout).chain(action).chain(pids).collect();
    HelperProgram::arguments(all).map_err(|_| SpawnError::Nul {
        field: "the config's path of what moves GPU memory".to_owned(),
    })
}

struct HelperChild<'a> {
    spawner: &'a Spawner,
    identity: &'a Identity,
    group_entry: &'a GroupEntry,
    program: &'a HelperProgram,
    argv: &'a [CString],
    helper_output: &'a PipeWriter,
    parent: Pid,
}

impl HelperChild<'_> {
    /// Becomes the program. A failure shows by the missing output.
    fn run(&self, was_cloned_inside: bool) {
        let ready = self
            .group_entry
            .enter(was_cloned_inside)
            .and_then(|()| self.prepare())
            .and_then(|()| confine::become_user(self.identity, &self.spawner.identities.rules));
        // A change of user clears this setting, so it comes last; the parent may have died before.
        if ready.is_ok() && set_pdeathsig(Signal::SIGKILL).is_ok() && getppid() == self.parent {
            self.program.execute(self.argv, &[PATH]);
        }
    }

    fn prepare(&self) -> Result<(), String> {
        let null = self.spawner.null.as_fd();
        let keep = [self.program.as_raw_fd()];
        let streams = [null, self.helper_output.as_fd(), null];
        child::detach(streams, &keep, self.spawner.open_files)?;
        chdir("/").map_err(|e| e.desc().to_owned())
    }
}
