//! One daemon of `sluice dev` as a child process: its stdin is a pipe that ends when this process does; its log goes to
//! a file; its process group is its own, so that Ctrl-C does not reach it. Only own children are ever signalled.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{self, ChildStdin, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Environment variables that would override the settings of `dev`.
const DECIDED_HERE: [&str; 7] = [
    "SLUICE_CONFIG",
    "SLUICE_AGENT_CONFIG",
    "SLUICE_AGENT_COORDINATORS",
    "SLUICE_AGENT_NODE",
    "SLUICE_AGENT_POOL",
    "SLUICE_AGENT_STATE_DIR",
    "SLUICE_AGENT_SUPERVISOR_SOCKET",
];
/// Bytes at the end of a log that are searched for the last error.
const LAST_WORDS_BYTES: u64 = 16 * 1024;

/// Command line of a daemon.
#[derive(Clone, Debug)]
pub(super) struct DaemonCommand {
    /// Name for messages.
    pub(super) name: &'static str,
    pub(super) path: PathBuf,
    pub(super) args: Vec<OsString>,
    /// Log file; `None` is stderr.
    pub(super) log: Option<PathBuf>,
}

/// Why a daemon could not be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot start {name}: {source}")]
pub(super) struct SpawnError {
    name: &'static str,
    source: io::Error,
}

/// A running daemon.
#[derive(Debug)]
pub(super) struct DaemonProcess {
    process: process::Child,
    stdin: Option<ChildStdin>,
    log: Option<PathBuf>,
    log_from: u64,
    started: Instant,
}

impl DaemonCommand {
    /// Runs a command of this program to its end; returns its message if it fails.
    pub(super) fn run_once(&self, args: &[OsString]) -> Result<(), String> {
        let mut command = Command::new(&self.path);
        command.args(args).stdin(Stdio::null());
        for name in DECIDED_HERE {
            command.env_remove(name);
        }
        let output = command
            .output()
            .map_err(|e| format!("cannot start {}: {e}", self.name))?;
        if output.status.success() {
            return Ok(());
        }
        let words = last_words(&String::from_utf8_lossy(&output.stderr));
        Err(format!(
            "{}: {}",
            self.name,
            words.unwrap_or_else(|| ended(output.status))
        ))
    }

    /// Starts it. Each line of its stdout goes to `on_line`, on a thread that ends with it.
    pub(super) fn spawn(
        &self,
        on_line: impl FnMut(String) + Send + 'static,
    ) -> Result<DaemonProcess, SpawnError> {
        self.try_spawn(on_line).map_err(|source| SpawnError {
            name: self.name,
            source,
        })
    }

    fn try_spawn(&self, on_line: impl FnMut(String) + Send + 'static) -> io::Result<DaemonProcess> {
        let mut command = Command::new(&self.path);
        command
            .args(&self.args)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        for name in DECIDED_HERE {
            command.env_remove(name);
        }
        let mut log_from = 0;
        if let Some(path) = &self.log {
            let log = OpenOptions::new().append(true).create(true).open(path)?;
            log_from = log.metadata()?.len();
            command.stderr(Stdio::from(log));
        }
        let mut process = command.spawn()?;
        let stdin = process.stdin.take();
        if let Some(stdout) = process.stdout.take() {
            thread::spawn(move || {
                BufReader::new(stdout)
                    .lines()
                    .map_while(Result::ok)
                    .for_each(on_line)
            });
        }
        Ok(DaemonProcess {
            process,
            stdin,
            log: self.log.clone(),
            log_from,
            started: Instant::now(),
        })
    }
}

impl DaemonProcess {
    /// Reaps it and returns its exit status, if it has ended.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().ok().flatten()
    }

    /// Returns how long it has run.
    pub(super) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Asks it to stop by closing its stdin.
    pub(super) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Asks it to hurry with SIGTERM.
    pub(super) fn terminate(&mut self) {
        self.signal(Signal::SIGTERM);
    }

    pub(super) fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
    }

    /// Signals it. Only this process reaps it, so its id is still its own.
    fn signal(&mut self, signal: Signal) {
        if self.ended().is_none()
            && let Ok(pid) = i32::try_from(self.process.id())
        {
            // A zombie ignores the signal.
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    /// Returns its last error before it ended with `status`.
    pub(super) fn last_words(&self, status: ExitStatus) -> String {
        let said = self
            .log
            .as_ref()
            .and_then(|path| read_end(path, self.log_from).ok());
        said.and_then(|text| last_words(&text))
            .unwrap_or_else(|| ended(status))
    }
}

fn read_end(path: &PathBuf, from: u64) -> io::Result<String> {
    let mut file = File::open(path)?;
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(
        from.max(len.saturating_sub(LAST_WORDS_BYTES)),
    ))?;
    let mut bytes = Vec::new();
    file.take(LAST_WORDS_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the message of the last error in a log, else its last line.
fn last_words(log: &str) -> Option<String> {
    let lines = || log.lines().rev().filter(|line| !line.trim().is_empty());
    let message = |line: &str| {
        let after = |mark: &str| {
            line.split_once(mark)
                .map(|(_, message)| message.trim().to_owned())
        };
        line.strip_prefix("error: ")
            .map(str::to_owned)
            .or_else(|| json_error(line))
            .or_else(|| after(" ERROR "))
    };
    let words = lines()
        .find_map(message)
        .or_else(|| lines().next().map(|line| line.trim().to_owned()))?;
    Some(crate::render::safe(&words))
}

/// Returns the message of a JSON line of this level.
fn json_error(line: &str) -> Option<String> {
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    let message = line["message"].as_str()?;
    (line["level"] == "ERROR").then(|| message.to_owned())
}

/// Describes an exit status.
pub(super) fn ended(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("it ended with exit code {code}"),
        (None, Some(signal)) => format!(
            "signal {} ended it",
            crate::render::step::signal_name(signal)
        ),
        (None, None) => "it ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn shell(script: &str, log: Option<PathBuf>) -> DaemonCommand {
        DaemonCommand {
            name: "sh",
            path: "/bin/sh".into(),
            args: vec!["-c".into(), script.into()],
            log,
        }
    }

    fn wait(child: &mut DaemonProcess) -> ExitStatus {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(status) = child.ended() {
                return status;
            }
            assert!(Instant::now() < deadline, "the child did not end");
            thread::yield_now();
        }
    }

    #[test]
    fn a_child_speaks_by_lines_and_ends_when_its_stdin_closes() {
        let (send, lines) = mpsc::channel();
        let program = shell("echo ready; cat; echo over", None);
        let mut child = program.spawn(move |line| send.send(line).unwrap()).unwrap();
        assert_eq!(
            lines.recv_timeout(Duration::from_secs(20)).unwrap(),
            "ready"
        );
        assert!(child.ended().is_none());
        child.close_stdin();
        assert!(wait(&mut child).success());
        assert_eq!(lines.recv_timeout(Duration::from_secs(20)).unwrap(), "over");
        child.kill();
    }

    #[test]
    fn last_words_are_of_this_run_and_in_the_child_s_own_terms() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("a.log");
        std::fs::write(&log, "error: an old one\n").unwrap();
        let mut child = shell(
            "echo 'error: port 7070 is in use' >&2; exit 1",
            Some(log.clone()),
        )
        .spawn(drop)
        .unwrap();
        let status = wait(&mut child);
        assert_eq!(child.last_words(status), "port 7070 is in use");
        let mut silent = shell("exit 3", Some(log)).spawn(drop).unwrap();
        let status = wait(&mut silent);
        assert_eq!(silent.last_words(status), "it ended with exit code 3");
    }

    #[test]
    fn the_message_is_found_in_logs_of_either_kind() {
        let log = "2026 INFO up\n2026-11-20T10:00:00Z ERROR cannot bind: in use\n2026 INFO bye\n";
        assert_eq!(last_words(log).unwrap(), "cannot bind: in use");
        let log = r#"{"level":"ERROR","message":"in use"}"#.to_owned() + "\n{\"level\":\"INFO\"}\n";
        assert_eq!(last_words(&log).unwrap(), "in use");
        assert_eq!(last_words("a\nb\n\n").unwrap(), "b");
        assert_eq!(last_words("\n"), None);
    }

    #[test]
    fn a_command_that_fails_gives_its_message() {
        let program = shell("", None);
        assert!(program.run_once(&["-c".into(), "exit 0".into()]).is_ok());
        let message = program.run_once(&["-c".into(), "echo error: no >&2; exit 1".into()]);
        assert_eq!(message.unwrap_err(), "sh: no");
    }

    #[test]
    fn a_killed_child_is_told_so() {
        let mut child = shell("exec sleep 1000", None).spawn(drop).unwrap();
        child.kill();
        let status = wait(&mut child);
        assert_eq!(ended(status), "signal 9 (SIGKILL) ended it");
    }
}
