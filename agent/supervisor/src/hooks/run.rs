//! Runs a hook as the supervisor's own user, with a time limit. A child waits for it, never the main loop.
//! The hook dies with that child, so that it cannot overlap with its own retry.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, killpg, sigprocmask};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid, getppid};
use sluice_common::id::AttemptId;
use sluice_common::time::Span;
use tracing::warn;

use crate::{background, sys};

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// Most bytes of a failed hook's output that are shown.
const MAX_WORDS_BYTES: u64 = 300;

/// One run of a hook.
#[derive(Debug)]
pub struct HookCommand<'a> {
    pub program: &'a Path,
    pub told: &'a BTreeMap<String, String>,
    pub timeout: Span,
    /// Directory for the unnamed file that receives the output.
    pub output_dir: &'a Path,
}

impl HookCommand<'_> {
    /// Runs the hook and waits for its end; only in a child.
    ///
    /// # Errors
    /// If it did not exit with 0 in time; the message includes the end of its output.
    pub fn run_to_end(&self) -> Result<(), String> {
        self.end().map_err(|(how, words)| {
            let last = words.as_ref().map(|words| last_output(words, 0));
            let last = last.unwrap_or_default();
            format!("{} {how}{last}", self.program.display())
        })
    }

    /// Like [`HookCommand::run_to_end`], but the error is the first line of the output, if there is any.
    ///
    /// # Errors
    /// If it did not exit with 0 in time.
    pub fn run_for_first_line(&self, most: usize) -> Result<(), String> {
        self.end().map_err(|(how, words)| {
            let first = words.as_ref().and_then(|words| first_line(words, most));
            first.unwrap_or_else(|| format!("{} {how}", self.program.display()))
        })
    }

    fn end(&self) -> Result<(), (String, Option<File>)> {
        let failed = |e: io::Error| (format!("could not be run: {e}"), None);
        let words = unnamed(self.output_dir).map_err(failed)?;
        let waiting = getpid();
        let pid = sys::fork_into(|| {
            let Err(e) = self.become_hook(waiting, &words);
            let _nobody_is_told_otherwise =
                io::Write::write_all(&mut &words, e.to_string().as_bytes());
        });
        let pid = Pid::from_raw(pid.map_err(failed)?.cast_signed());
        let ended = self.wait(pid).map_err(|e| failed(e.into()))?;
        let how = match ended {
            Some(WaitStatus::Exited(_, 0)) => return Ok(()),
            Some(WaitStatus::Exited(_, code)) => format!("ended with code {code}"),
            Some(WaitStatus::Signaled(_, signal, _)) => format!("was ended by {signal}"),
            Some(_) | None => format!("took longer than {}", self.timeout),
        };
        Err((how, Some(words)))
    }

    /// Runs in the copy; returns only on failure.
    fn become_hook(&self, waiting: Pid, words: &File) -> io::Result<std::convert::Infallible> {
        set_pdeathsig(Signal::SIGKILL)?;
        if getppid() != waiting {
            return Err(io::Error::other("the supervisor has ended"));
        }
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
        Err(Command::new(self.program)
            .env_clear()
            .env("PATH", PATH)
            .envs(self.told)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(words.try_clone()?)
            .stderr(words.try_clone()?)
            .process_group(0)
            .exec())
    }

    /// The exit status; `None` if the hook timed out and was killed with its children.
    fn wait(&self, pid: Pid) -> nix::Result<Option<WaitStatus>> {
        let end = Instant::now() + Duration::from_millis(self.timeout.millis());
        loop {
            match waitpid(pid, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) if Instant::now() >= end => {
                    let _what_it_started_goes_with_it = killpg(pid, Signal::SIGKILL);
                    waitpid(pid, None)?;
                    return Ok(None);
                }
                Ok(WaitStatus::StillAlive) => sleep(CHECK_INTERVAL),
                Ok(ended) => return Ok(Some(ended)),
                Err(Errno::EINTR) => {}
                Err(e) => return Err(e),
            }
        }
    }
}

/// A file without a name, which disappears with its last descriptor, and by which no writer counts as tied to
/// an attempt.
fn unnamed(dir: &Path) -> io::Result<File> {
    let path = dir.join(format!(".hook-{}", std::process::id()));
    // Left behind if a process died between the two calls.
    let _there_seldom_is_one = fs::remove_file(&path);
    let file = File::options()
        .read(true)
        .append(true)
        .create_new(true)
        .open(&path)?;
    fs::remove_file(path)?;
    Ok(file)
}

fn first_line(words: &File, most: usize) -> Option<String> {
    let mut bytes = vec![0; most];
    let len = words.read_at(&mut bytes, 0).ok()?;
    let text = String::from_utf8_lossy(&bytes[..len]);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.escape_debug().to_string())
}

/// The output from byte `from` on, truncated to its last [`MAX_WORDS_BYTES`], on one line after a colon.
/// Empty if there is none.
pub(crate) fn last_output(words: &File, from: u64) -> String {
    let len = words.metadata().map_or(0, |found| found.len());
    let from = from.max(len.saturating_sub(MAX_WORDS_BYTES)).min(len);
    let mut bytes = vec![0; usize::try_from(len - from).unwrap_or_default()];
    let read = words.read_exact_at(&mut bytes, from);
    let text = String::from_utf8_lossy(&bytes);
    match (read, text.trim()) {
        (Err(_), _) | (Ok(()), "") => String::new(),
        (Ok(()), text) => format!(": {}", text.escape_debug()),
    }
}

/// Starts a child that runs the epilog of an attempt; returns its process id.
///
/// # Errors
/// If no process can be created.
pub fn start_epilog(id: &AttemptId, epilog: &HookCommand<'_>) -> io::Result<u32> {
    background::start(&[], || {
        if let Err(why) = epilog.run_to_end() {
            warn!(step = %id.step, attempt = id.number, "the epilog failed: {why}");
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn script(dir: &Path, text: &str) -> PathBuf {
        let (path, written) = (dir.join("hook"), dir.join("text"));
        fs::write(&written, format!("#!/bin/sh\n{text}\n")).unwrap();
        // Another process writes the program: a child that a test beside this one starts meanwhile would inherit the
        // open file, and a file that somebody may write cannot be executed.
        let mut install = Command::new("install");
        let installed = install.arg("-m755").arg(&written).arg(&path).status();
        assert!(installed.unwrap().success());
        fs::remove_file(written).unwrap();
        path
    }

    #[test]
    fn how_a_hook_ended_is_told_with_its_last_words() {
        let dir = tempfile::tempdir().unwrap();
        let told = BTreeMap::from([("SLUICE_HOOK_STEP_ID".to_owned(), "a".to_owned())]);
        for (text, timeout, expected) in [
            ("exit 0", 60_000, None),
            (
                "echo no $SLUICE_HOOK_STEP_ID; exit 3",
                60_000,
                Some("ended with code 3: no a"),
            ),
            ("kill -9 $$", 60_000, Some("was ended by SIGKILL")),
            ("sleep 1000", 50, Some("took longer than 50ms")),
        ] {
            let hook = HookCommand {
                program: &script(dir.path(), text),
                told: &told,
                timeout: Span::from_millis(timeout),
                output_dir: dir.path(),
            };
            let ended = hook.run_to_end();
            let matches = match (&ended, expected) {
                (Ok(()), None) => true,
                (Err(why), Some(words)) => why.contains(words),
                (Ok(()), Some(_)) | (Err(_), None) => false,
            };
            assert!(matches, "{text}: {ended:?}");
        }
        let left = fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(left, 1, "only the hook is left");
    }
}
