//! Backend that runs NVIDIA's tool `cuda-checkpoint`, for drivers from 550 on whose library cannot
//! checkpoint. The tool toggles between running and checkpointed, with the locking inside; newer versions
//! report the state as well.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use sluice_common::helper::{CheckpointError, CheckpointState};

use super::Checkpointer;

/// Name of the tool in `PATH`.
pub(super) const TOOL: &str = "cuda-checkpoint";

/// Most bytes of the tool's error output that are passed on.
const MAX_MESSAGE_BYTES: usize = 200;

pub(super) struct Tool {
    path: PathBuf,
}

impl Tool {
    /// Finds the tool. `path` replaces the search through `PATH`.
    ///
    /// # Errors
    /// If it is missing.
    pub(super) fn find(path: Option<&Path>) -> Result<Self, CheckpointError> {
        let path = path.unwrap_or(Path::new(TOOL)).to_owned();
        let tool = Self { path };
        tool.run(&["--help"]).map(|_| tool)
    }

    fn run(&self, arguments: &[&str]) -> Result<Output, CheckpointError> {
        let mut command = Command::new(&self.path);
        let ran = command.args(arguments).stdin(Stdio::null()).output();
        ran.map_err(|e| {
            let path = self.path.display();
            CheckpointError::Unsupported(format!("{path} cannot be run: {e}"))
        })
    }

    fn toggle(&self, pid: u32) -> Result<(), CheckpointError> {
        let ran = self.run(&["--toggle", "--pid", &pid.to_string()])?;
        if ran.status.success() {
            return Ok(());
        }
        let error_text = String::from_utf8_lossy(&ran.stderr);
        let error_text = &error_text[..error_text.floor_char_boundary(MAX_MESSAGE_BYTES)];
        Err(CheckpointError::Refused(format!(
            "{} does not move process {pid}: {}",
            self.path.display(),
            error_text.trim().escape_debug()
        )))
    }
}

impl Checkpointer for Tool {
    fn state(&self, pid: u32) -> Result<Option<CheckpointState>, CheckpointError> {
        let ran = self.run(&["--get-state", "--pid", &pid.to_string()])?;
        if !ran.status.success() {
            return Ok(None);
        }
        Ok(match String::from_utf8_lossy(&ran.stdout).trim() {
            "running" => Some(CheckpointState::Running),
            "locked" => Some(CheckpointState::Locked),
            "checkpointed" => Some(CheckpointState::Checkpointed),
            "failed" => Some(CheckpointState::Failed),
            _ => None,
        })
    }

    fn lock(&self, _: u32) -> Result<(), CheckpointError> {
        Ok(())
    }

    fn checkpoint(&self, pid: u32) -> Result<(), CheckpointError> {
        self.toggle(pid)
    }

    fn restore(&self, pid: u32) -> Result<(), CheckpointError> {
        self.toggle(pid)
    }

    fn unlock(&self, _: u32) -> Result<(), CheckpointError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn tool(dir: &Path, script: &str) -> Tool {
        let path = dir.join("cuda-checkpoint");
        let text = dir.join("text");
        fs::write(&text, format!("#!/bin/sh\n{script}\n")).unwrap();
        // Another process writes the program: a child that a test beside this one starts meanwhile would inherit the
        // open file, and a file that somebody may write cannot be executed.
        let mut install = Command::new("install");
        let installed = install.arg("-m755").arg(text).arg(&path).status();
        assert!(installed.unwrap().success());
        Tool::find(Some(&path)).unwrap()
    }

    #[test]
    fn it_is_told_to_toggle_and_asked_for_the_state() {
        let dir = tempfile::tempdir().unwrap();
        let calls = dir.path().join("calls");
        let script = format!("echo $* >> {}; echo locked", calls.display());
        let tool = tool(dir.path(), &script);
        assert_eq!(tool.state(7), Ok(Some(CheckpointState::Locked)));
        tool.lock(7).unwrap();
        tool.checkpoint(7).unwrap();
        tool.restore(7).unwrap();
        tool.unlock(7).unwrap();
        let calls = fs::read_to_string(calls).unwrap();
        let wanted = "--help\n--get-state --pid 7\n--toggle --pid 7\n--toggle --pid 7\n";
        assert_eq!(calls, wanted);
    }

    #[test]
    fn its_words_are_handed_on_and_its_absence_is_no_refusal() {
        let dir = tempfile::tempdir().unwrap();
        let tool = tool(dir.path(), "echo 'no CUDA process' >&2; exit 1");
        assert_eq!(tool.state(7), Ok(None), "an older one cannot tell");
        let why = tool.checkpoint(7).unwrap_err();
        assert!(matches!(why, CheckpointError::Refused(_)), "{why:?}");
        assert!(
            why.to_string().contains("process 7: no CUDA process"),
            "{why}"
        );
        let missing = Tool::find(Some(&dir.path().join("missing")));
        assert!(matches!(missing, Err(CheckpointError::Unsupported(_))));
    }
}
