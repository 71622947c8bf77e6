//! Passes on the input of a step, and works its terminal. The supervisor starts these modes as the step's user, in the
//! step's groups, and neither agents nor supervisors are needed from then on: an agent that comes back reads how many bytes
//! have been taken and continues there.
//!
//! | mode | |
//! |---|---|
//! | `feed-input` | copies what callers send to the program's pipe ([`feed`]) |
//! | `relay-terminal` | is the other end of the program's terminal ([`terminal`]) |
//! | `copy-output` | copies the program's output to files of the step's user ([`output`]) |

mod caller;
pub(crate) mod output;
pub(crate) mod terminal;

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::process::exit;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_name;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{
    SigHandler, SigSet, SigmaskHow, Signal, raise, signal as set_effect, sigprocmask,
};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use caller::CallerInput;

pub(crate) use output::adopt;

/// Signals that end a step, which is not the end of its input: the program decides what it still reads.
const IGNORED: [Signal; 4] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
];

/// Passes input on until its end, or until the program has closed it.
pub(crate) fn feed() -> io::Result<()> {
    let _it_is_a_name = set_name(c"sluice-input");
    let ignored: SigSet = IGNORED.into_iter().collect();
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&ignored), None)?;
    let socket = UnixListener::from(owned(&io::stdin())?);
    feed_from(socket, File::from(owned(&io::stdout())?))
}

/// Takes over a standard stream, which must be closed with the returned descriptor.
fn owned(stream: &impl AsFd) -> io::Result<OwnedFd> {
    stream.as_fd().try_clone_to_owned()
}

fn feed_from(socket: UnixListener, mut program: File) -> io::Result<()> {
    nonblocking(&program)?;
    let mut input = CallerInput::new(socket);
    while !input.has_ended() {
        let (caller, of_program) = {
            let mut fds = [
                input.poll_entry(),
                PollFd::new(program.as_fd(), input.wanted_of_program()),
            ];
            wait_for(&mut fds, PollTimeout::NONE)?;
            fds.map(|it| it.revents().unwrap_or(PollFlags::empty()))
                .into()
        };
        if of_program.intersects(PollFlags::POLLERR | PollFlags::POLLHUP) {
            break;
        }
        if of_program.contains(PollFlags::POLLOUT) && !pass_on(&mut input, &mut program)? {
            break;
        }
        let _a_pipe_has_no_size = input.on_ready(caller);
    }
    input.say_ended();
    Ok(())
}

/// Writes pending input; returns whether the program still reads.
fn pass_on(input: &mut CallerInput, program: &mut File) -> io::Result<bool> {
    match program.write(input.pending()) {
        Ok(count) => input.passed_on(count),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(false),
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
            ) => {}
        Err(e) => return Err(e),
    }
    Ok(true)
}

fn nonblocking(fd: &impl AsFd) -> nix::Result<()> {
    fcntl(fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map(drop)
}

fn wait_for(fds: &mut [PollFd<'_>], limit: PollTimeout) -> nix::Result<()> {
    match poll(fds, limit) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(e) => Err(e),
    }
}

/// Returns how a child of this process has ended, if it has.
fn ended(program: Pid) -> nix::Result<Option<WaitStatus>> {
    match waitpid(program, Some(WaitPidFlag::WNOHANG)) {
        Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => Ok(None),
        Ok(status @ (WaitStatus::Exited(..) | WaitStatus::Signaled(..))) => Ok(Some(status)),
        Ok(_) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Ends this process with the program's code, or by the signal that killed the program.
pub(crate) fn end_like(status: WaitStatus) -> ! {
    match status {
        WaitStatus::Exited(_, code) => exit(code),
        WaitStatus::Signaled(_, signal, _) => {
            let _the_program_has_left_one = setrlimit(Resource::RLIMIT_CORE, 0, 0);
            let _its_number_is_told = by_default(signal);
            let mask: SigSet = [signal].into_iter().collect();
            let _its_number_is_told = sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&mask), None);
            let _its_number_is_told = raise(signal);
            exit(128 + signal as i32)
        }
        _ => exit(1),
    }
}

/// Lets a signal have its effect: Rust programs ignore SIGPIPE.
#[expect(unsafe_code, reason = "setting a signal's effect has no safe form")]
fn by_default(signal: Signal) -> nix::Result<()> {
    // SAFETY: no handler is set, so none can run at the wrong time.
    unsafe { set_effect(signal, SigHandler::SigDfl) }.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_common::attempt_dir::INPUT_ENDED;
    use sluice_common::exec::{FrameKind, encode_frame};
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::thread;

    struct InputSession {
        dir: tempfile::TempDir,
        program: io::PipeReader,
        helper: thread::JoinHandle<io::Result<()>>,
    }

    impl InputSession {
        fn start() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let socket = UnixListener::bind(dir.path().join("s")).unwrap();
            let (program, writer) = io::pipe().unwrap();
            let helper = thread::spawn(|| feed_from(socket, File::from(OwnedFd::from(writer))));
            Self {
                dir,
                program,
                helper,
            }
        }

        /// Connects as an agent; returns the number of bytes taken before.
        fn connect(&self) -> (UnixStream, u64) {
            let mut agent = UnixStream::connect(self.dir.path().join("s")).unwrap();
            let taken = answer(&mut agent);
            (agent, taken)
        }
    }

    fn answer(agent: &mut UnixStream) -> u64 {
        let mut bytes = [0; 8];
        agent.read_exact(&mut bytes).unwrap();
        u64::from_be_bytes(bytes)
    }

    fn send(agent: &mut UnixStream, bytes: &[u8]) {
        agent
            .write_all(&encode_frame(FrameKind::Stdin, bytes))
            .unwrap();
    }

    #[test]
    fn the_next_agent_continues_where_the_last_one_was_cut() {
        let mut site = InputSession::start();
        let (mut agent, taken) = site.connect();
        assert_eq!(taken, 0);
        send(&mut agent, b"abc");
        assert_eq!(answer(&mut agent), 3);
        // Half a frame is not taken.
        let frame = encode_frame(FrameKind::Stdin, b"def");
        agent.write_all(&frame[..6]).unwrap();
        drop(agent);
        let (mut agent, taken) = site.connect();
        assert_eq!(taken, 3);
        send(&mut agent, b"def");
        send(&mut agent, b"");
        while answer(&mut agent) != INPUT_ENDED {}
        let mut read = String::new();
        site.program.read_to_string(&mut read).unwrap();
        assert_eq!(read, "abcdef");
        site.helper.join().unwrap().unwrap();
    }

    #[test]
    fn a_program_that_reads_nothing_holds_up_its_caller_and_no_later_one() {
        let site = InputSession::start();
        let (mut agent, _) = site.connect();
        let piece = [7; 60_000];
        let mut taken = 0;
        agent
            .set_read_timeout(Some(std::time::Duration::from_millis(200)))
            .unwrap();
        agent.set_nonblocking(false).unwrap();
        // Nothing is taken beyond what a pipe and the helper hold.
        for _ in 0..4 {
            send(&mut agent, &piece);
        }
        let mut bytes = [0; 8];
        while agent.read_exact(&mut bytes).is_ok() {
            taken = u64::from_be_bytes(bytes);
        }
        assert!(taken < 240_000, "{taken} bytes were taken");
        drop(agent);
        let (_agent, again) = site.connect();
        assert!(again >= taken, "{again} after {taken}");
    }

    #[test]
    fn a_caller_learns_that_the_program_reads_no_more() {
        let site = InputSession::start();
        let (mut agent, _) = site.connect();
        drop(site.program);
        assert_eq!(answer(&mut agent), INPUT_ENDED);
        site.helper.join().unwrap().unwrap();
    }

    #[test]
    fn what_is_no_frame_ends_the_connection_and_not_the_input() {
        let site = InputSession::start();
        let (mut agent, _) = site.connect();
        agent.write_all(&[99; 9]).unwrap();
        assert_eq!(agent.read(&mut [0]).unwrap(), 0);
        let (_agent, taken) = site.connect();
        assert_eq!(taken, 0);
    }
}
