//! Who writes the output of steps: one process for all of them, which is no step's. A step has a pipe for each stream and
//! can give bytes to it; what has come out of it the step can neither change nor take back.
//!
//! ```text
//! step --(pipe with a name in the attempt's directory)--> writer --(splice)--> file
//! ```
//!
//! The pipe has a name, and its step holds it open in both directions. So no step dies because nobody reads, and whoever
//! writes next opens the pipe anew. The writer is a child of the supervisor that outlives it: as long as a step runs it
//! goes on, and leaves when the last pipe is closed. The next supervisor opens the pipes of all attempts that are not gone,
//! kills that writer, which a lock on a file names, and starts its own. The kernel moves bytes from a pipe to a file whole
//! or not at all, so whoever is killed in between loses none. While a writer is replaced, the supervisor holds the pipes
//! open, so that a step that ends just then loses nothing either. The process itself is `sluice-helper`; [`streams`] are the
//! pipes and files.
//!
//! The end of an attempt is told only when the writer has said that all that it gave is written. A writer that does not
//! answer is replaced. `table` drives it.

mod streams;

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, fcntl};
use nix::poll::PollFlags;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, recv, sendmsg, socketpair,
};
use nix::unistd::{Pid, Uid, chdir, dup2_stderr, dup2_stdin, dup2_stdout, setsid};
use sluice_common::helper::kind::{
    BEGIN, DROPPED, END, FLUSH, FLUSHED, LOST, NOT_DROPPED, STALLED, WRITTEN,
};
use sluice_common::helper::{JOB_FDS, MESSAGE_BYTES, WRITE_OUTPUT, WriterMessage};
use sluice_common::id::AttemptId;
use sluice_common::output::STREAMS;
use sluice_common::supervision::BootMillis;
use sluice_common::time::Span;
use tracing::{error, info, warn};

use crate::atomic_file::open_in_place;
use crate::helper_program::{HelperProgram, give_up_rights};
use crate::{clock, lock, sys};
pub use streams::AttemptStreams;
use streams::{ReaderPipes, WriterStreams};

/// The file whose lock names the writer.
const LOCK: &str = "writer.lock";

/// Between two starts of a writer at the least.
const RESTART_INTERVAL: Span = Span::from_secs(1);

/// How long a writer may take to answer, on a disk that is slow and with many steps that give much.
const ANSWER_LIMIT: Span = Span::from_secs(10);

/// Descriptors of a writer beside those of its jobs.
const OWN_FDS: u64 = 64;

/// The writer, as the supervisor has it.
#[derive(Debug)]
pub struct Writer {
    lock: PathBuf,
    attempts_dir: PathBuf,
    program: HelperProgram,
    /// How many bytes of each stream it keeps.
    max_bytes: u64,
    /// Who it runs as, where that is not the supervisor's own user.
    uid: Option<Uid>,
    child: Option<WriterProcess>,
    start_at: BootMillis,
    /// When it must have answered something, if it was asked.
    answer_by: Option<BootMillis>,
    /// Counted up, so that what is said of an earlier one of an attempt is not taken for a later one's.
    last_job: u64,
    jobs: BTreeMap<AttemptId, WriterJob>,
    unsent: VecDeque<WriterRequest>,
}

#[derive(Debug)]
struct WriterProcess {
    pid: u32,
    link: OwnedFd,
}

#[derive(Debug)]
struct WriterJob {
    number: u64,
    pipes: ReaderPipes,
    asked: PendingRequest,
}

/// What the writer has been asked about a job and has not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PendingRequest {
    Nothing,
    Flush,
    WriterStream,
}

#[derive(Debug)]
enum WriterRequest {
    Begin(u64, WriterStreams),
    Flush(u64),
    WriterStream(u64),
}

impl Writer {
    /// For the attempts below `attempts_dir` of a state directory. Nothing is started before there is something to write.
    pub fn new(
        state_dir: &Path,
        attempts_dir: &Path,
        program: HelperProgram,
        max_bytes: u64,
        uid: Option<Uid>,
    ) -> Self {
        Self {
            program,
            max_bytes,
            lock: state_dir.join(LOCK),
            attempts_dir: attempts_dir.to_owned(),
            uid,
            child: None,
            start_at: BootMillis(0),
            answer_by: None,
            last_job: 0,
            jobs: BTreeMap::new(),
            unsent: VecDeque::new(),
        }
    }

    /// Whether the writer may have as many open files as one attempt more needs.
    ///
    /// # Errors
    /// How many attempts it can serve.
    pub fn has_room(&self) -> Result<(), u64> {
        let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((u64::MAX, 0));
        let most = soft.saturating_sub(OWN_FDS) / JOB_FDS as u64;
        match (self.jobs.len() as u64) < most {
            true => Ok(()),
            false => Err(most),
        }
    }

    /// What an attempt gives from now on is to be written.
    pub fn begin(&mut self, attempt: &AttemptId, streams: AttemptStreams) {
        self.last_job += 1;
        let job = WriterJob {
            number: self.last_job,
            pipes: streams.pipes,
            asked: PendingRequest::Nothing,
        };
        self.unsent
            .push_back(WriterRequest::Begin(job.number, streams.ends));
        self.jobs.insert(attempt.clone(), job);
    }

    /// What an attempt that an earlier supervisor has begun gives is to be written.
    pub fn take_over(&mut self, attempt: &AttemptId) {
        match AttemptStreams::reopen(&self.dir(attempt)) {
            Ok(Some(streams)) => self.begin(attempt, streams),
            // An earlier supervisor gave it the files themselves.
            Ok(None) => {}
            Err(e) => log_unwritten(attempt, &e),
        }
    }

    /// The program of an attempt has ended: what it has given is to be written before that is told.
    pub fn flush(&mut self, attempt: &AttemptId) {
        self.ask(attempt, PendingRequest::Flush);
    }

    /// Nothing of an attempt runs any more, so all that it will ever give is in its pipes.
    pub fn end(&mut self, attempt: &AttemptId) {
        self.ask(attempt, PendingRequest::WriterStream);
    }

    fn ask(&mut self, attempt: &AttemptId, asked: PendingRequest) {
        let Some(job) = self.jobs.get_mut(attempt).filter(|job| job.asked < asked) else {
            return;
        };
        job.asked = asked;
        self.unsent.push_back(match asked {
            PendingRequest::WriterStream => WriterRequest::WriterStream(job.number),
            PendingRequest::Flush | PendingRequest::Nothing => WriterRequest::Flush(job.number),
        });
        self.answer_by
            .get_or_insert(clock::after(clock::boot_now(), ANSWER_LIMIT));
    }

    /// Whether all that an attempt had given when its program ended is written, or it never had anybody who would.
    pub fn is_flushed(&self, attempt: &AttemptId) -> bool {
        let job = self.jobs.get(attempt);
        job.is_none_or(|job| job.asked == PendingRequest::Nothing)
    }

    /// Whether all that an attempt has given is written, or it never had anybody who would.
    pub fn is_done(&self, attempt: &AttemptId) -> bool {
        !self.jobs.contains_key(attempt)
    }

    /// Its pipes are of no more use.
    pub fn remove(&self, attempt: &AttemptId) {
        streams::remove(&self.dir(attempt));
    }

    fn dir(&self, attempt: &AttemptId) -> PathBuf {
        self.attempts_dir.join(attempt.to_string())
    }

    /// The process that writes.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(|child| child.pid)
    }

    /// What is to be waited for: [`Writer::on_ready`] when it is there.
    pub fn watched(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let child = self.child.as_ref()?;
        let mut wanted = PollFlags::POLLIN;
        wanted.set(PollFlags::POLLOUT, !self.unsent.is_empty());
        Some((child.link.as_fd(), wanted))
    }

    /// When to call [`Writer::go_on`] at the latest.
    pub fn wake_at(&self) -> Option<BootMillis> {
        match self.child {
            Some(_) => self.answer_by,
            None => (!self.unsent.is_empty()).then_some(self.start_at),
        }
    }

    /// The writer has said something, or takes something. What comes back are the attempts that it is done with.
    pub fn on_ready(&mut self) -> Vec<AttemptId> {
        let mut done = Vec::new();
        let mut bytes = [0; MESSAGE_BYTES];
        while let Some(child) = &self.child {
            match recv(child.link.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT) {
                Ok(len @ 1..) => done.extend(self.on_answer(&bytes[..len])),
                // Its end is told when it is reaped.
                Ok(0) | Err(_) => break,
            }
        }
        done
    }

    fn on_answer(&mut self, bytes: &[u8]) -> Option<AttemptId> {
        let said = WriterMessage::from_bytes(bytes)?;
        let mut jobs = self.jobs.iter_mut();
        let (attempt, job) = jobs.find(|(_, job)| job.number == said.job)?;
        let attempt = attempt.clone();
        log_trouble(&attempt, said);
        let is_done = matches!(said.kind, WRITTEN | LOST);
        if said.kind == FLUSHED && job.asked == PendingRequest::Flush {
            job.asked = PendingRequest::Nothing;
        }
        if is_done {
            self.jobs.remove(&attempt);
        }
        if is_done || said.kind == FLUSHED {
            let waits = self
                .jobs
                .values()
                .any(|job| job.asked > PendingRequest::Nothing);
            self.answer_by = waits.then(|| clock::after(clock::boot_now(), ANSWER_LIMIT));
        }
        is_done.then_some(attempt)
    }

    /// Sends what is to be sent, starts the process that takes it if there is none, and ends one that does not answer.
    pub fn go_on(&mut self, now: BootMillis) {
        if self.wake_at().is_some_and(|at| now >= at) {
            match &self.child {
                Some(child) => {
                    warn!(
                        child.pid,
                        "the process that writes the output of steps does not answer: killed, another takes its place"
                    );
                    // Its end is told when it is reaped.
                    let _it_has_ended =
                        kill(Pid::from_raw(child.pid.cast_signed()), Signal::SIGKILL);
                    self.answer_by = Some(clock::after(now, ANSWER_LIMIT));
                }
                None => self.try_to_start(now),
            }
        }
        while let (Some(child), Some(next)) = (&self.child, self.unsent.front()) {
            match next.send(&child.link, self.max_bytes) {
                Ok(()) => drop(self.unsent.pop_front()),
                // It is busy, or has died: then that is heard of by itself.
                Err(_) => return,
            }
        }
    }

    fn try_to_start(&mut self, now: BootMillis) {
        self.start_at = clock::after(now, RESTART_INTERVAL);
        match self.start() {
            Ok(child) => self.child = Some(child),
            Err(e) => error!("the output of steps is not written now, trying again: {e}"),
        }
    }

    fn start(&self) -> io::Result<WriterProcess> {
        let lock = open_in_place(&self.lock)?;
        end_holder(&lock)?;
        let (link, theirs) = socketpair(
            AddressFamily::Unix,
            SockType::SeqPacket,
            None,
            SockFlag::SOCK_CLOEXEC,
        )?;
        let argv = HelperProgram::arguments([WRITE_OUTPUT])?;
        let pid = sys::fork_into(|| {
            if self.prepare(&theirs, &lock).is_ok() {
                self.program.execute(&argv, &[]);
            }
        })?;
        info!(pid, "a process writes the output of steps");
        Ok(WriterProcess { pid, link })
    }

    /// In the child: lets go of what is the supervisor's, gives up every right that writing does not need, and takes the
    /// lock, which the program keeps.
    fn prepare(&self, link: &OwnedFd, lock: &File) -> io::Result<()> {
        // Whoever reads the supervisor's log waits for its end, and this process outlives it.
        let null = File::options().write(true).open("/dev/null")?;
        dup2_stdin(link)?;
        dup2_stdout(lock)?;
        dup2_stderr(null)?;
        sys::close_all_but(&[self.program.as_raw_fd()])?;
        // Whoever stops the supervisor does not mean the last words of steps.
        sys::default_signals();
        let spared = [
            Signal::SIGTERM,
            Signal::SIGINT,
            Signal::SIGHUP,
            Signal::SIGPIPE,
        ];
        let spared = SigSet::from_iter(spared);
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&spared), None)?;
        setsid()?;
        chdir("/")?;
        // Root may use the part of a file system that is kept for it; output shall not.
        give_up_rights(self.uid)?;
        // The one before this was killed, and may need a moment.
        Ok(fcntl(io::stdout(), FcntlArg::F_SETLKW(&lock::whole())).map(drop)?)
    }

    /// A child has ended: whether it was the writer. What attempts give is kept in their pipes until the next one reads.
    pub fn on_child_ended(&mut self, pid: u32) -> bool {
        if self.pid() != Some(pid) {
            return false;
        }
        // What it has said last is asked once more.
        self.child = None;
        self.unsent.clear();
        if self.jobs.is_empty() {
            return true;
        }
        warn!(
            pid,
            "the process that writes the output of steps has died: another takes its place"
        );
        for (attempt, job) in std::mem::take(&mut self.jobs) {
            match AttemptStreams::of_pipes(job.pipes, &self.dir(&attempt)) {
                Ok(streams) => {
                    self.begin(&attempt, streams);
                    self.ask(&attempt, job.asked);
                }
                Err(e) => log_unwritten(&attempt, &e),
            }
        }
        true
    }
}

/// What the writer says of a job beside what it was asked.
fn log_trouble(attempt: &AttemptId, said: WriterMessage) {
    let (step, attempt) = (&attempt.step, attempt.number);
    let stream = STREAMS.get(usize::from(said.stream));
    let name = stream.map_or("output", |stream| stream.file_name());
    match said.kind {
        STALLED => warn!(
            %step, attempt,
            "its output cannot be written now, so it waits once its pipe is full: the disk may be full"
        ),
        LOST => {
            warn!(%step, attempt, "the end of its output is lost: the host could not write it");
        }
        DROPPED => info!(
            %step, attempt, first_kept = said.value,
            "its {name} has passed output_max: the oldest part is dropped, now and from now on"
        ),
        NOT_DROPPED => {
            let e = io::Error::from_raw_os_error(i32::try_from(said.value).unwrap_or(0));
            warn!(%step, attempt, "its {name} cannot be kept within output_max: {e}");
        }
        _ => {}
    }
}

fn log_unwritten(attempt: &AttemptId, e: &io::Error) {
    error!(step = %attempt.step, attempt = attempt.number, "its output is not written any more: {e}");
}

impl WriterRequest {
    fn send(&self, link: &OwnedFd, max_bytes: u64) -> nix::Result<()> {
        let (message, fds) = match self {
            WriterRequest::Begin(job, ends) => {
                let value = max_bytes;
                let begin = WriterMessage {
                    value,
                    ..WriterMessage::new(BEGIN, *job)
                };
                (begin, ends.fds())
            }
            WriterRequest::Flush(job) => (WriterMessage::new(FLUSH, *job), Vec::new()),
            WriterRequest::WriterStream(job) => (WriterMessage::new(END, *job), Vec::new()),
        };
        let bytes = message.to_bytes();
        let passed = [ControlMessage::ScmRights(&fds)];
        let passed = if fds.is_empty() { &[] } else { &passed[..] };
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        sendmsg::<()>(
            link.as_raw_fd(),
            &[IoSlice::new(&bytes)],
            passed,
            flags,
            None,
        )
        .map(drop)
    }
}

/// Kills the writer of an earlier supervisor. The lock is its own for as long as it lives, so the number is as well.
fn end_holder(lock: &File) -> nix::Result<()> {
    let found = lock::found(lock)?;
    if found.l_type == libc::F_WRLCK as libc::c_short && found.l_pid > 1 {
        info!(
            pid = found.l_pid,
            "the earlier process that wrote the output of steps is ended"
        );
        let _it_may_have_ended = kill(Pid::from_raw(found.l_pid), Signal::SIGKILL);
    }
    Ok(())
}
