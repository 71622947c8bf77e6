//! The input of a step's program and its terminal, both halves: sockets are made by the parent; pipes, terminals
//! and the helper that passes input on are made by the child, which is the step's user by then. So root makes no
//! terminal and copies no bytes.
//!
//! The helper outlives agents and supervisors, and counts the bytes that it has taken. By this number a new agent
//! knows where to continue.
//!
//! ```text
//! input of callers:  agent --socket--> helper --pipe--> program
//! terminal:          agent --socket--> helper <--terminal--> program
//!                                        `--> where output of the step goes
//! ```
//!
//! [`super::output_files`] has the files that get output too.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::pty::{OpenptyResult, Winsize, openpty};
use nix::sys::stat::Mode;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, dup2_stderr, dup2_stdin, dup2_stdout, setsid, ttyname};
use sluice_common::helper::{FEED_INPUT, RELAY_TERMINAL};

use super::lookup;
use super::output_files::OutputFiles;
use crate::helper_program::HelperProgram;
use crate::sys;

/// Size of a terminal until a caller tells one.
pub(super) const DEFAULT_SIZE: Winsize = Winsize {
    ws_row: 24,
    ws_col: 80,
    ws_xpixel: 0,
    ws_ypixel: 0,
};

/// Most bytes of a path in a message.
pub(super) const SHOWN_PATH_BYTES: usize = 200;

/// Source of the program's standard input.
#[derive(Debug)]
pub(super) enum InputSource {
    /// The standard input that the child has already.
    Given,
    /// A file of the host.
    File(PathBuf),
    /// Callers, through this socket.
    Stream(UnixListener),
    /// Callers, through this socket and a terminal of this size.
    Terminal(UnixListener, Winsize),
}

impl InputSource {
    /// The socket, which the child must keep open.
    fn socket(&self) -> Option<RawFd> {
        match self {
            Self::Given | Self::File(_) => None,
            Self::Stream(socket) | Self::Terminal(socket, _) => Some(socket.as_raw_fd()),
        }
    }
}

/// State by which the child connects the program's streams.
#[derive(Clone, Copy)]
pub(super) struct StreamSetup<'a> {
    pub(super) source: &'a InputSource,
    pub(super) helper: &'a HelperProgram,
    pub(super) null: &'a File,
    /// Files that get the program's output too, if it may have any.
    pub(super) files: Option<&'a OutputFiles<'a>>,
}

/// The program as the input's setup sees it.
pub(super) struct ProgramStart<'a> {
    /// Lines of `NAME=value`.
    pub(super) envp: &'a [CString],
    /// Whether the working directory is removed with the attempt.
    pub(super) in_own_directory: bool,
    /// Executes the program in this process, and returns only on failure.
    pub(super) execute: &'a dyn Fn() -> Result<(), String>,
    /// Reports why a child of this process did not become the program.
    pub(super) report: &'a dyn Fn(&str),
}

impl StreamSetup<'_> {
    /// Descriptors that the child must keep open.
    pub(super) fn keeps(&self) -> impl Iterator<Item = RawFd> {
        let socket = self.source.socket();
        let runs_helper = socket.is_some() || self.files.is_some_and(OutputFiles::has_any);
        let of_helper = [self.helper.as_raw_fd(), self.null.as_raw_fd()];
        let of_helper = of_helper.into_iter().filter(move |_| runs_helper);
        socket.into_iter().chain(of_helper)
    }

    /// Connects the streams and executes the program, in a child of this process if it gets a terminal or its output
    /// goes to files. Returns only on failure.
    pub(super) fn start(&self, program: &ProgramStart<'_>) -> Result<(), String> {
        let in_own = program.in_own_directory;
        let files = self.files.map_or(Ok(None), |files| files.open(in_own))?;
        match self.source {
            InputSource::Given => {}
            InputSource::File(path) => read_from(path)?,
            InputSource::Stream(socket) => self.start_feeder(socket, program)?,
            InputSource::Terminal(socket, size) => return self.start_on(socket, size, program),
        }
        match files {
            Some(files) => files.start(self, program),
            None => (program.execute)(),
        }
    }

    /// Starts the helper as no child of the program, which may wait for every child of its own.
    fn start_feeder(
        &self,
        socket: &UnixListener,
        program: &ProgramStart<'_>,
    ) -> Result<(), String> {
        let failed = |why: String| format!("the host could not pass on standard input: {why}");
        let (input, to_program) = io::pipe().map_err(|e| failed(e.to_string()))?;
        let argv = helper_arguments([FEED_INPUT.to_owned()]).map_err(failed)?;
        let become_helper = || -> nix::Result<()> {
            setsid()?;
            dup2_stdin(socket)?;
            dup2_stdout(&to_program)?;
            dup2_stderr(self.null)?;
            let envp: Vec<_> = program.envp.iter().map(CString::as_c_str).collect();
            self.helper.execute(&argv, &envp);
            Ok(())
        };
        let between = sys::fork_into(|| {
            let made = sys::fork_into(|| {
                let _the_program_reads_nothing_then = become_helper();
            });
            sys::exit_now(i32::from(made.is_err()));
        });
        let between = between.map_err(|e| failed(e.to_string()))?;
        match waitpid(Pid::from_raw(between.cast_signed()), None) {
            Ok(WaitStatus::Exited(_, 0)) => {}
            Ok(_) | Err(_) => return Err(failed("no process could be made".to_owned())),
        }
        dup2_stdin(&input).map_err(|e| failed(e.desc().to_owned()))
    }

    /// Starts the program on a terminal. This process becomes the helper, and ends as the program does.
    fn start_on(
        &self,
        socket: &UnixListener,
        size: &Winsize,
        program: &ProgramStart<'_>,
    ) -> Result<(), String> {
        let failed = |why: &str| format!("the host could not make a terminal: {why}");
        let OpenptyResult { master, slave } = openpty(size, None).map_err(|e| failed(e.desc()))?;
        let mut master = Some(master);
        let of_child = &mut master;
        // Both processes drop the closure, and with it the program's end of the terminal.
        let pid = sys::fork_into(move || {
            drop(of_child.take());
            let entered = enter_terminal(&slave).map_err(|e| failed(e.desc()));
            drop(slave);
            let started = entered.and_then(|()| (program.execute)());
            if let Err(sentence) = started {
                (program.report)(&sentence);
            }
        });
        let pid = pid.map_err(|e| failed(&e.to_string()))?;
        let argv = [RELAY_TERMINAL.to_owned(), pid.to_string()];
        let argv = helper_arguments(argv).map_err(|e| failed(&e))?;
        let connected = dup2_stdin(socket).and_then(|()| match master.take() {
            Some(master) => dup2_stderr(&master),
            None => Err(Errno::EBADF),
        });
        connected.map_err(|e| failed(e.desc()))?;
        let envp: Vec<_> = program.envp.iter().map(CString::as_c_str).collect();
        self.helper.execute(&argv, &envp);
        Err(failed("sluice-helper could not be run"))
    }
}

/// The helper's command line, with errors as sentences.
pub(super) fn helper_arguments<const N: usize>(args: [String; N]) -> Result<Vec<CString>, String> {
    HelperProgram::arguments(args).map_err(|e| e.to_string())
}

/// Makes the terminal that of a new session, and its three streams.
fn enter_terminal(slave: &impl AsFd) -> nix::Result<()> {
    let name = ttyname(slave)?;
    setsid()?;
    // A session without a terminal gets the first that it opens.
    let terminal = open(&name, OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())?;
    dup2_stdin(&terminal)?;
    dup2_stdout(&terminal)?;
    dup2_stderr(&terminal)
}

/// Makes a file standard input. A pipe is refused: whoever opens it waits for its other end.
fn read_from(path: &Path) -> Result<(), String> {
    let shown = lookup::shown(&path.to_string_lossy(), SHOWN_PATH_BYTES);
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOCTTY | OFlag::O_NONBLOCK;
    let explain = |e: Errno| match e {
        Errno::ENOENT => format!(
            "standard input `{shown}` does not exist on this host: name a file that each host of the pool has, or send it with `sluice run`"
        ),
        Errno::EACCES => format!("standard input `{shown}` may not be read by the step's user"),
        other => format!(
            "standard input `{shown}` cannot be opened: {}",
            other.desc()
        ),
    };
    let file = File::from(open(path, flags, Mode::empty()).map_err(explain)?);
    let kind = file.metadata().map(|found| found.file_type());
    let refused = match kind {
        Ok(kind) if kind.is_fifo() => Some("a pipe"),
        Ok(kind) if kind.is_dir() => Some("a directory"),
        Ok(_) | Err(_) => None,
    };
    if let Some(kind) = refused {
        return Err(format!(
            "standard input `{shown}` is {kind}: name a file, or send the input with `sluice run`"
        ));
    }
    let blocking = fcntl(&file, FcntlArg::F_SETFL(OFlag::empty()));
    blocking.and_then(|_| dup2_stdin(&file)).map_err(explain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::mkfifo;

    #[test]
    fn input_that_is_no_file_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        mkfifo(&fifo, Mode::S_IRWXU).unwrap();
        for (path, words) in [
            (&*fifo, "is a pipe: name a file"),
            (dir.path(), "is a directory"),
            (&dir.path().join("none"), "does not exist on this host"),
        ] {
            let why = read_from(path).unwrap_err();
            assert!(why.contains(words), "{why}");
        }
    }
}
