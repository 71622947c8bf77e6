//! The controlling end of a program's terminal: what callers type goes in, what the program shows goes to the step's output,
//! and this process ends as the program does.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;

use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::prctl::set_name;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, killpg, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::WaitStatus;
use nix::unistd::Pid;
use rustix::termios::{Winsize, tcsetwinsize};
use sluice_common::exec::WindowSize;

use super::caller::CallerInput;
use super::{end_like, ended, nonblocking, owned, wait_for};

/// Bytes of output that are moved at a time: a pipe with room takes as many without blocking.
const PIECE_BYTES: usize = 4096;
/// Most bytes of output that are moved after the program's end.
const LAST_BYTES: usize = 1024 * 1024;
/// Time that the reader of output has to take the last of it.
const LAST_MILLIS: u16 = 5_000;

/// Signals that are passed on to the program.
const FORWARDED: [Signal; 6] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// Works the terminal of the program whose process id is the argument, a child of this process.
pub(crate) fn run(mut args: impl Iterator<Item = OsString>) -> io::Result<()> {
    let _it_is_a_name = set_name(c"sluice-terminal");
    let pid = args.next().and_then(|it| it.to_str()?.parse().ok());
    let program = Pid::from_raw(pid.ok_or(io::ErrorKind::InvalidInput)?);
    let heard: SigSet = FORWARDED.into_iter().chain([Signal::SIGCHLD]).collect();
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&heard), None)?;
    let mut relay = TerminalSession {
        program,
        signals: SignalFd::with_flags(&heard, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?,
        input: CallerInput::new(UnixListener::from(owned(&io::stdin())?)),
        output: File::from(owned(&io::stdout())?),
        terminal: File::from(owned(&io::stderr())?),
        shown: Vec::new(),
        is_closed: false,
    };
    nonblocking(&relay.terminal)?;
    let status = relay.work()?;
    relay.drain();
    end_like(status)
}

struct TerminalSession {
    program: Pid,
    signals: SignalFd,
    input: CallerInput,
    output: File,
    terminal: File,
    /// Output on its way.
    shown: Vec<u8>,
    /// Whether no process has the terminal open any more.
    is_closed: bool,
}

impl TerminalSession {
    /// Moves bytes until the program has ended; returns how.
    fn work(&mut self) -> io::Result<WaitStatus> {
        loop {
            // Also before the first wait: the program may have ended before its signal was heard.
            if let Some(status) = ended(self.program)? {
                return Ok(status);
            }
            let [caller, terminal, output] = self.wait()?;
            self.forward_signals()?;
            if let Some(size) = self.input.on_ready(caller) {
                self.resize(size);
            }
            if terminal.contains(PollFlags::POLLOUT) {
                self.type_in()?;
            }
            if terminal.intersects(PollFlags::POLLIN | PollFlags::POLLHUP) {
                self.read_shown();
            }
            if output.intersects(PollFlags::POLLOUT | PollFlags::POLLERR) {
                self.write_shown();
            }
        }
    }

    fn wait(&self) -> io::Result<[PollFlags; 3]> {
        let mut of_terminal = self.input.wanted_of_program();
        of_terminal.set(PollFlags::POLLIN, self.shown.is_empty());
        let of_output = match self.shown.is_empty() {
            true => PollFlags::empty(),
            false => PollFlags::POLLOUT,
        };
        let mut fds = vec![
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            self.input.poll_entry(),
            PollFd::new(self.output.as_fd(), of_output),
        ];
        // A closed terminal, and one whose output waits, would wake this process again and again.
        let is_asked = !self.is_closed && !of_terminal.is_empty();
        if is_asked {
            fds.push(PollFd::new(self.terminal.as_fd(), of_terminal));
        }
        wait_for(&mut fds, PollTimeout::NONE)?;
        let ready = |at: usize| fds.get(at).and_then(PollFd::revents);
        Ok([1, 3, 2].map(|at| ready(at).unwrap_or(PollFlags::empty())))
    }

    /// A program on a terminal may ignore SIGTERM, as shells do, but not that its terminal goes.
    fn forward_signals(&self) -> nix::Result<()> {
        while let Some(heard) = self.signals.read_signal()? {
            let number = i32::try_from(heard.ssi_signo).unwrap_or_default();
            let Ok(signal) = Signal::try_from(number) else {
                continue;
            };
            let more = [Signal::SIGHUP, Signal::SIGCONT];
            let more = more.into_iter().filter(|_| signal == Signal::SIGTERM);
            let own = Some(signal).filter(|signal| *signal != Signal::SIGCHLD);
            for signal in own.into_iter().chain(more) {
                let _it_may_have_ended = killpg(self.program, signal);
            }
        }
        Ok(())
    }

    fn resize(&self, size: WindowSize) {
        let size = Winsize {
            ws_row: size.rows,
            ws_col: size.columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let _it_keeps_its_size = tcsetwinsize(&self.terminal, size);
    }

    fn type_in(&mut self) -> io::Result<()> {
        match self.terminal.write(self.input.pending()) {
            Ok(count) => self.input.passed_on(count),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
        Ok(())
    }

    /// Reads a piece; returns its length.
    fn read_shown(&mut self) -> usize {
        if !self.shown.is_empty() {
            return 0;
        }
        let mut bytes = [0; PIECE_BYTES];
        match self.terminal.read(&mut bytes) {
            Ok(count) => {
                self.is_closed = count == 0;
                self.shown.extend(&bytes[..count]);
                count
            }
            Err(e) => {
                let is_open = matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                );
                self.is_closed = !is_open;
                0
            }
        }
    }

    /// Output that nobody reads is dropped, so that the program does not wait for ever.
    fn write_shown(&mut self) {
        match self.output.write(&self.shown) {
            Ok(count) => drop(self.shown.drain(..count)),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => self.shown.clear(),
        }
    }

    /// Moves the last output of the program.
    fn drain(&mut self) {
        let mut left = LAST_BYTES;
        loop {
            while !self.shown.is_empty() {
                let mut fds = [PollFd::new(self.output.as_fd(), PollFlags::POLLOUT)];
                let waited = wait_for(&mut fds, PollTimeout::from(LAST_MILLIS));
                if waited.is_err() || fds[0].revents().is_none_or(|it| it.is_empty()) {
                    return;
                }
                self.write_shown();
            }
            let count = self.read_shown();
            if count == 0 || left == 0 {
                return;
            }
            left = left.saturating_sub(count);
        }
    }
}
