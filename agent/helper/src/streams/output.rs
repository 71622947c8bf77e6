//! Copies a program's output: each piece goes to a file of the step's user and to where output of the step goes. This
//! process ends as the program does, when all that the program wrote is copied. Processes that the program leaves still
//! have their output copied, by a copy of this process.
//!
//! A file that cannot be written any more, such as on a full disk, is given up, and the output of the step says so: the
//! program goes on.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::process::exit;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::prctl::set_name;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::WaitStatus;
use nix::unistd::{ForkResult, Pid};
use sluice_common::output::STREAMS;

use super::{end_like, ended, nonblocking, owned, wait_for};

/// Most bytes that are moved at a time.
const PIECE_BYTES: usize = 64 * 1024;

/// Copies the output of the program whose process id is the first argument, a child of this process.
pub(crate) fn run(args: impl Iterator<Item = OsString>) -> io::Result<()> {
    let _it_is_a_name = set_name(c"sluice-output");
    // The program gets each signal too, as a member of the same process group.
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), None)?;
    let heard: SigSet = [Signal::SIGCHLD].into_iter().collect();
    let signals = SignalFd::with_flags(&heard, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    let (program, mut copier) = parse(args).ok_or(io::ErrorKind::InvalidInput)??;
    let status = copier.work(program, &signals)?;
    copier.drain();
    if copier.is_open() {
        copier.stay();
    }
    end_like(status)
}

/// Reads the arguments: a process id and, for each stream, a pipe and a file.
fn parse(args: impl Iterator<Item = OsString>) -> Option<io::Result<(Pid, OutputCopier)>> {
    let args: Vec<String> = args
        .map(|arg| arg.into_string().ok())
        .collect::<Option<_>>()?;
    let [pid, out, of_out, err, of_err] = <[String; 5]>::try_from(args).ok()?;
    let pid = Pid::from_raw(pid.parse().ok()?);
    let number = |text: &str| match text {
        "-" => Some(None),
        text => text.parse::<RawFd>().ok().map(Some),
    };
    let pipes = [number(&out)?, number(&err)?];
    let files = [number(&of_out)?, number(&of_err)?];
    Some(OutputCopier::of(pipes, files).map(|copier| (pid, copier)))
}

struct OutputCopier {
    streams: [CopierStream; STREAMS.len()],
    /// The files; `None` for one that was given up.
    files: Vec<Option<File>>,
    /// Whether the last piece for standard error ended with a line.
    is_at_line_start: bool,
}

struct CopierStream {
    /// The program's output; `None` if it is closed.
    pipe: Option<File>,
    /// Pipe or file that takes the output of the step.
    kept: File,
    /// Index of the file.
    file: usize,
}

impl OutputCopier {
    fn of(
        pipes: [Option<RawFd>; STREAMS.len()],
        files: [Option<RawFd>; STREAMS.len()],
    ) -> io::Result<Self> {
        let [out, err] = pipes.map(|pipe| pipe.map(adopt).transpose());
        let (out, err) = (out?, err?);
        let [of_out, of_err] = files;
        let is_same = of_out == of_err;
        let second = of_err.filter(|_| !is_same);
        let opened = [of_out, second].map(|file| file.map(adopt).transpose());
        let [of_out, of_err] = opened;
        Ok(Self::new(
            [
                (out, File::from(owned(&io::stdout())?)),
                (err, File::from(owned(&io::stderr())?)),
            ],
            vec![of_out?, of_err?],
            is_same,
        ))
    }

    fn new(
        [(out, kept_out), (err, kept_err)]: [(Option<File>, File); STREAMS.len()],
        files: Vec<Option<File>>,
        is_same: bool,
    ) -> Self {
        let stream = |pipe, kept, file| CopierStream { pipe, kept, file };
        Self {
            streams: [
                stream(out, kept_out, 0),
                stream(err, kept_err, usize::from(!is_same)),
            ],
            files,
            is_at_line_start: true,
        }
    }

    fn is_open(&self) -> bool {
        self.streams.iter().any(|stream| stream.pipe.is_some())
    }

    /// Copies until the program has ended; returns how.
    fn work(&mut self, program: Pid, signals: &SignalFd) -> io::Result<WaitStatus> {
        loop {
            // Also before the first wait: the program may have ended before its signal was heard.
            if let Some(status) = ended(program)? {
                return Ok(status);
            }
            self.copy_ready(Some(signals))?;
            while signals.read_signal()?.is_some() {}
        }
    }

    /// Waits for output or a signal, and copies what has come.
    fn copy_ready(&mut self, signals: Option<&SignalFd>) -> io::Result<()> {
        let ready = {
            let entry = |fd| PollFd::new(fd, PollFlags::POLLIN);
            let open = self.streams.iter().enumerate();
            let open = open.filter_map(|(n, it)| Some((n, it.pipe.as_ref()?.as_fd())));
            let (numbers, pipes): (Vec<usize>, Vec<_>) = open.unzip();
            let signals = signals.map(|it| entry(it.as_fd()));
            let mut fds: Vec<_> = pipes.into_iter().map(entry).chain(signals).collect();
            wait_for(&mut fds, PollTimeout::NONE)?;
            let is_ready = |fd: &PollFd<'_>| fd.any() == Some(true);
            let numbers = numbers.into_iter().zip(&fds);
            let ready = numbers.filter(|(_, fd)| is_ready(fd)).map(|(n, _)| n);
            ready.collect::<Vec<usize>>()
        };
        for n in ready {
            self.copy(n);
        }
        Ok(())
    }

    /// Copies a piece of a stream; returns its length, or 0 if there is nothing now.
    fn copy(&mut self, n: usize) -> usize {
        let stream = &mut self.streams[n];
        let Some(pipe) = &mut stream.pipe else {
            return 0;
        };
        let mut bytes = [0; PIECE_BYTES];
        let count = match pipe.read(&mut bytes) {
            Ok(0) => {
                stream.pipe = None;
                return 0;
            }
            Ok(count) => count,
            Err(_) => return 0,
        };
        let piece = &bytes[..count];
        let file = &mut self.files[stream.file];
        let written = file.as_mut().map_or(Ok(()), |file| file.write_all(piece));
        // The step holds its own pipe open, so this fails only together with the step.
        let _nobody_reads_it = stream.kept.write_all(piece);
        if STREAMS[n] == sluice_common::wire::LogStream::Stderr {
            self.is_at_line_start = piece.ends_with(b"\n");
        }
        if let Err(e) = written {
            let file = self.files[self.streams[n].file].take();
            self.say_given_up(file.as_ref(), &e);
        }
        count
    }

    /// Says in the step's standard error that a file gets no more.
    fn say_given_up(&mut self, file: Option<&File>, error: &io::Error) {
        let link = file.map(|file| format!("/proc/self/fd/{}", file.as_raw_fd()));
        let path = link.and_then(|link| fs::read_link(link).ok());
        let path = path.unwrap_or_default();
        let begin = if self.is_at_line_start { "" } else { "\n" };
        let note = format!(
            "{begin}sluice: `{}` cannot be written: {error}; the file gets no more output of this attempt, `sluice logs` has all\n",
            path.to_string_lossy().escape_debug()
        );
        self.is_at_line_start = true;
        let [_, err] = &mut self.streams;
        let _nobody_reads_it = err.kept.write_all(note.as_bytes());
    }

    /// Copies what is in the pipes, at most what they can hold: processes that the program has left may go on writing.
    fn drain(&mut self) {
        for n in 0..STREAMS.len() {
            let Some(pipe) = &self.streams[n].pipe else {
                continue;
            };
            let most = fcntl(pipe, FcntlArg::F_GETPIPE_SZ).unwrap_or(0);
            if nonblocking(pipe).is_err() {
                continue;
            }
            let mut left = usize::try_from(most).unwrap_or(0);
            while left > 0 {
                match self.copy(n) {
                    0 => break,
                    count => left = left.saturating_sub(count),
                }
            }
        }
    }

    /// Lets a copy of this process copy the rest, until all pipes are closed.
    #[expect(unsafe_code, reason = "fork has no safe form")]
    fn stay(&mut self) {
        // SAFETY: this process has one thread, so no other holds a lock in the copy.
        if matches!(unsafe { nix::unistd::fork() }, Ok(ForkResult::Child)) {
            while self.is_open() && self.copy_ready(None).is_ok() {}
            exit(0)
        }
    }
}

/// Takes over a descriptor that an argument names.
#[expect(unsafe_code, reason = "a number becomes an owned descriptor")]
pub(crate) fn adopt(fd: RawFd) -> io::Result<File> {
    if fd <= 2 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the call takes two integers, and fails if the descriptor is not open.
    let kept = unsafe { libc::fcntl(fd, libc::F_SETFD, FdFlag::FD_CLOEXEC.bits()) };
    Errno::result(kept)?;
    // SAFETY: the descriptor is open, and nothing else in this process owns one that an argument names.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct CopySession {
        copier: OutputCopier,
        writers: [Option<io::PipeWriter>; 2],
        kept: [tempfile::NamedTempFile; 2],
    }

    impl CopySession {
        fn new(files: Vec<Option<File>>, is_same: bool) -> Self {
            let kept = [(); 2].map(|()| tempfile::NamedTempFile::new().unwrap());
            let [(out, to_out), (err, to_err)] = [(); 2].map(|()| io::pipe().unwrap());
            let pipe = |it: io::PipeReader| Some(File::from(OwnedFd::from(it)));
            let [kept_out, kept_err] = kept.each_ref().map(|it| it.reopen().unwrap());
            let streams = [(pipe(out), kept_out), (pipe(err), kept_err)];
            Self {
                copier: OutputCopier::new(streams, files, is_same),
                writers: [Some(to_out), Some(to_err)],
                kept,
            }
        }

        fn print(&mut self, n: usize, text: &str) {
            self.writers[n]
                .as_mut()
                .unwrap()
                .write_all(text.as_bytes())
                .unwrap();
            self.copier.copy_ready(None).unwrap();
        }

        fn kept(&self) -> [String; 2] {
            self.kept
                .each_ref()
                .map(|it| fs::read_to_string(it.path()).unwrap())
        }
    }

    #[test]
    fn both_streams_arrive_in_the_order_in_which_they_were_written() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut session = CopySession::new(vec![Some(file.reopen().unwrap()), None], true);
        session.print(0, "one ");
        session.print(1, "two ");
        session.print(0, "three");
        assert_eq!(session.kept(), ["one three", "two "]);
        assert_eq!(fs::read_to_string(file.path()).unwrap(), "one two three");
        session.writers = [None, None];
        session.copier.drain();
        assert!(!session.copier.is_open());
    }

    #[test]
    fn what_a_dead_program_wrote_is_copied_while_another_process_holds_its_pipe() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let files = vec![None, Some(file.reopen().unwrap())];
        let mut session = CopySession::new(files, false);
        session.writers[1]
            .as_mut()
            .unwrap()
            .write_all(b"last")
            .unwrap();
        session.copier.drain();
        assert!(session.copier.is_open());
        assert_eq!(session.kept(), ["", "last"]);
        assert_eq!(fs::read_to_string(file.path()).unwrap(), "last");
    }

    #[test]
    fn a_file_that_is_full_is_given_up_and_the_output_says_so_once() {
        let full = File::options().append(true).open("/dev/full").unwrap();
        let mut session = CopySession::new(vec![Some(full), None], true);
        session.print(1, "half a line");
        session.print(0, "out\n");
        let [out, err] = session.kept();
        assert_eq!(out, "out\n");
        let note = "sluice: `/dev/full` cannot be written: No space left on device (os error 28); \
                    the file gets no more output of this attempt, `sluice logs` has all\n";
        assert_eq!(err, format!("half a line\n{note}"));
    }

    #[test]
    fn arguments_that_are_none_are_refused() {
        for args in [
            "",
            "1",
            "x - - - -",
            "1 0 - - -",
            "1 a - - -",
            "1 - - - - -",
        ] {
            let args = args.split_whitespace().map(OsString::from);
            assert!(!matches!(parse(args), Some(Ok(_))));
        }
    }
}
