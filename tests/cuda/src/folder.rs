//! The control folder of a process: its calls, its state, and the faults to inject.

use std::ffi::{OsStr, c_int};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Environment variable of a checkpointed process that names the folder.
const FOLDER_VARIABLE: &str = "CUDA_STANDIN=";

/// States with NVIDIA's numbers.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum State {
    Running = 0,
    Locked = 1,
    Checkpointed = 2,
    Failed = 3,
}

/// Faults that can be injected.
pub(crate) enum Fault {
    Refuse,
    Late,
    Hang,
    Lose,
}

pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Returns the folder that a process names.
    pub(crate) fn of(pid: c_int) -> Option<Self> {
        let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let mut variables = environment.split(|byte| *byte == 0);
        let folder = variables.find_map(|line| line.strip_prefix(FOLDER_VARIABLE.as_bytes()))?;
        Some(Self(OsStr::from_bytes(folder).into()))
    }

    /// Appends a call. A test that misses a call fails.
    pub(crate) fn note(&self, call: &str, pid: c_int) {
        let calls = OpenOptions::new()
            .append(true)
            .create(true)
            .open(self.0.join("calls"));
        let _ = calls.and_then(|mut calls| calls.write_all(format!("{call} {pid}\n").as_bytes()));
    }

    pub(crate) fn fault(&self, call: &str) -> Option<Fault> {
        let text = fs::read_to_string(self.0.join("faults")).ok()?;
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        let (kind, _) = lines.find(|(_, of)| *of == call)?;
        match kind {
            "refuse" => Some(Fault::Refuse),
            "late" => Some(Fault::Late),
            "hang" => Some(Fault::Hang),
            "lose" => Some(Fault::Lose),
            _ => None,
        }
    }

    pub(crate) fn state(&self, pid: c_int) -> State {
        let text = fs::read_to_string(self.0.join(format!("state-{pid}")));
        match text.as_deref() {
            Ok("locked") => State::Locked,
            Ok("checkpointed") => State::Checkpointed,
            Ok("failed") => State::Failed,
            Ok(_) | Err(_) => State::Running,
        }
    }

    pub(crate) fn set(&self, pid: c_int, state: State) {
        let word = match state {
            State::Running => "running",
            State::Locked => "locked",
            State::Checkpointed => "checkpointed",
            State::Failed => "failed",
        };
        let new = self.0.join(format!("new-{pid}"));
        let _ = fs::write(&new, word)
            .and_then(|()| fs::rename(&new, self.0.join(format!("state-{pid}"))));
    }
}
