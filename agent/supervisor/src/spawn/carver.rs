//! Starts `sluice-helper` to cut a GPU into slices, as this process's own user, because the driver lets nobody else. It gets
//! no variables but `PATH` and no descriptors but its own, and dies with the supervisor.

use std::ffi::{CStr, CString, OsString};
use std::io::{PipeReader, PipeWriter, Read};
use std::os::fd::{AsFd, AsRawFd};

use nix::sys::prctl::{set_no_new_privs, set_pdeathsig};
use nix::sys::signal::Signal;
use nix::unistd::{Pid, chdir, getpid, getppid};
use sluice_common::carving::{CarveFailure, GpuLayout};
use sluice_common::helper::{CARVE, HELD, LIBRARY};

use super::helper::PATH;
use super::{SpawnError, Spawner, child, host, kill_child, nonblocking, pipe};
use crate::helper_program::HelperProgram;
use crate::sys;

/// Most bytes of the helper's output that are read: one sentence, with room to spare.
const MAX_OUTPUT_BYTES: u64 = 16 * 1024;

/// A GPU to cut.
#[derive(Debug)]
pub struct CarveTask<'a> {
    /// Path of NVIDIA's library, instead of the loader's choice.
    pub library: Option<&'a str>,
    pub gpu: &'a str,
    pub layout: &'a GpuLayout,
    /// UUIDs of the GPUs and MIG instances that attempts have.
    pub held: &'a [String],
}

/// A running helper: a child of this process that is not reaped.
#[derive(Debug)]
pub struct CarveHelper {
    pub pid: u32,
    output: PipeReader,
}

impl CarveHelper {
    /// The failure, or `None` if the GPU has the layout; call after the helper has ended. An unreadable answer is a
    /// failure.
    pub fn failure(&self) -> Option<CarveFailure> {
        let mut text = String::new();
        let mut output = (&self.output).take(MAX_OUTPUT_BYTES);
        let read = output.read_to_string(&mut text).ok();
        let answer = read.and_then(|_| serde_json::from_str(&text).ok());
        answer.unwrap_or_else(|| {
            let why = "the program that cuts it ended without an answer";
            Some(CarveFailure::Refused(why.to_owned()))
        })
    }

    /// Kills the helper.
    pub fn kill(&self) {
        kill_child(self.pid);
    }
}

impl Spawner {
    /// Starts a helper that cuts a GPU.
    ///
    /// # Errors
    /// If the host lacks resources.
    pub fn send_carver(&self, task: &CarveTask<'_>) -> Result<CarveHelper, SpawnError> {
        let (output, to_us) = pipe()?;
        nonblocking(&output)?;
        let child = CarveChild {
            spawner: self,
            argv: &arguments(task)?,
            output: &to_us,
            parent: getpid(),
        };
        let pid = host(
            || "make a process".to_owned(),
            sys::fork_into(|| child.run()),
        )?;
        Ok(CarveHelper { pid, output })
    }
}

fn arguments(task: &CarveTask<'_>) -> Result<Vec<CString>, SpawnError> {
    let library = task.library.into_iter();
    let library = library.flat_map(|path| [format!("--{LIBRARY}").into(), path.into()]);
    let held = (!task.held.is_empty()).then(|| task.held.join(","));
    let held = held
        .into_iter()
        .flat_map(|held| [format!("--{HELD}").into(), held.into()]);
    let gpu = [task.gpu.into(), task.layout.to_argument().into()];
    let all = std::iter::once(CARVE.into()).chain(library).chain(held);
    let all: Vec<OsString> = all.chain(gpu).collect();
    HelperProgram::arguments(all).map_err(|_| SpawnError::Nul {
        field: "the UUID of a GPU".to_owned(),
    })
}

struct CarveChild<'a> {
    spawner: &'a Spawner,
    argv: &'a [CString],
    output: &'a PipeWriter,
    parent: Pid,
}

impl CarveChild<'_> {
    /// Becomes the program. A failure shows by the missing output.
    fn run(&self) {
        let program = &self.spawner.helper_program;
        let null = self.spawner.null.as_fd();
        let keep = [program.as_raw_fd()];
        let streams = [null, self.output.as_fd(), null];
        let ready = child::detach(streams, &keep, self.spawner.open_files).is_ok()
            && chdir("/").is_ok()
            && set_no_new_privs().is_ok()
            && set_pdeathsig(Signal::SIGKILL).is_ok();
        // The parent may have died before.
        if ready && getppid() == self.parent {
            let envp: [&CStr; 1] = [PATH];
            program.execute(self.argv, &envp);
        }
    }
}
