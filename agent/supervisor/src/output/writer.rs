//! Runs the process that writes the output of all steps. A step has a pipe for each stream; bytes that it has written
//! cannot be changed or taken back by the step.
//!
//! ```text
//! step --(pipe with a name in the attempt's directory)--> writer --(splice)--> file
//! ```
//!
//! The pipe has a name, and its step holds it open in both directions. So a step does not die if there is no reader, and
//! a new writer can open the pipe again. The writer outlives the supervisor: it runs as long as a step does, and exits
//! when the last pipe is closed. The next supervisor opens the pipes of all attempts that are not gone, kills the old
//! writer, which it finds by a lock on a file, and starts its own. The kernel moves bytes from a pipe to a file
//! atomically, so a killed writer loses none. While a writer is replaced, the supervisor holds the pipes open, so that
//! a step that ends meanwhile loses nothing. The process itself is `sluice-helper`; [`streams`] has the pipes and files.
//!
//! The end of an attempt is reported only after the writer has confirmed that all of its output is written. A writer
//! that does not answer is replaced. `table` drives it.

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

/// The file whose lock identifies the writer.
const LOCK: &str = "writer.lock";

/// Shortest time between two starts of a writer.
const RESTART_INTERVAL: Span = Span::from_secs(1);

/// Time limit of a writer's answer, on a slow disk and with much output.
const ANSWER_LIMIT: Span = Span::from_secs(10);

/// Descriptors of a writer in addition to those of its jobs.
const OWN_FDS: u64 = 64;

/// The supervisor's handle of the writer.
#[derive(Debug)]
pub struct Writer {
    lock: PathBuf,
    attempts_dir: PathBuf,
    program: HelperProgram,
    /// Bound of each stream, in bytes.
    max_bytes: u64,
    /// The writer's user, if it is not the supervisor's own.
    uid: Option<Uid>,
    child: Option<WriterProcess>,
    start_at: BootMillis,
    /// Deadline of the writer's answer, if one is expected.
    answer_by: Option<BootMillis>,
    /// Increases, so that an answer about an earlier attempt with the same id is not mistaken for a later
    /// one.
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

/// The unanswered request about a job.
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
    /// Starts no process before there is something to write.
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

    /// Whether the writer may open enough files for one more attempt.
    ///
    /// # Errors
    /// The number of attempts that it can serve.
    pub fn has_room(&self) -> Result<(), u64> {
        let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((u64::MAX, 0));
        let most = soft.saturating_sub(OWN_FDS) / JOB_FDS as u64;
        match (self.jobs.len() as u64) < most {
            true => Ok(()),
            false => Err(most),
        }
    }

    /// Starts to write the output of an attempt.
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

    /// Starts to write the output of an attempt that an earlier supervisor started.
    pub fn take_over(&mut self, attempt: &AttemptId) {
        match AttemptStreams::reopen(&self.dir(attempt)) {
            Ok(Some(streams)) => self.begin(attempt, streams),
            // An earlier release gave the attempt the files themselves.
            Ok(None) => {}
            Err(e) => log_unwritten(attempt, &e),
        }
    }

    /// Requests that the output so far is written, because the attempt's program has ended.
    pub fn flush(&mut self, attempt: &AttemptId) {
        self.ask(attempt, PendingRequest::Flush);
    }

    /// Requests the rest of the output, because no process of the attempt is left.
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

    /// Whether the output until the program's end is written, or the attempt has no writer.
    pub fn is_flushed(&self, attempt: &AttemptId) -> bool {
        let job = self.jobs.get(attempt);
        job.is_none_or(|job| job.asked == PendingRequest::Nothing)
    }

    /// Whether all output is written, or the attempt has no writer.
    pub fn is_done(&self, attempt: &AttemptId) -> bool {
        !self.jobs.contains_key(attempt)
    }

    /// Removes the attempt's pipes.
    pub fn remove(&self, attempt: &AttemptId) {
        streams::remove(&self.dir(attempt));
    }

    fn dir(&self, attempt: &AttemptId) -> PathBuf {
        self.attempts_dir.join(attempt.to_string())
    }

    /// Process id of the writer.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(|child| child.pid)
    }

    /// The descriptor to poll; call [`Writer::on_ready`] when it is ready.
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

    /// Reads the writer's answers. Returns the attempts whose requests are complete.
    pub fn on_ready(&mut self) -> Vec<AttemptId> {
        let mut done = Vec::new();
        let mut bytes = [0; MESSAGE_BYTES];
        while let Some(child) = &self.child {
            match recv(child.link.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT) {
                Ok(len @ 1..) => done.extend(self.on_answer(&bytes[..len])),
                // The writer's end is handled when it is reaped.
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

    /// Sends pending requests, starts a writer if there is none, and kills one that does not answer.
    pub fn go_on(&mut self, now: BootMillis) {
        if self.wake_at().is_some_and(|at| now >= at) {
            match &self.child {
                Some(child) => {
                    warn!(
                        child.pid,
                        "the process that writes the output of steps does not answer: killed, another takes its place"
                    );
                    // The writer's end is handled when it is reaped.
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
                // The writer is busy, or has died, which is noticed elsewhere.
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

    /// Runs in the child: drops the supervisor's descriptors and all unneeded privileges, and takes the lock,
    /// which the program keeps.
    fn prepare(&self, link: &OwnedFd, lock: &File) -> io::Result<()> {
        // A reader of the supervisor's log waits for its end, and this process outlives the supervisor.
        let null = File::options().write(true).open("/dev/null")?;
        dup2_stdin(link)?;
        dup2_stdout(lock)?;
        dup2_stderr(null)?;
        sys::close_all_but(&[self.program.as_raw_fd()])?;
        // A signal to stop the supervisor must not stop the writing of output.
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
        // Root may use the reserved blocks of a file system; output must not.
        give_up_rights(self.uid)?;
        // The old writer was killed, and may need a moment to die.
        Ok(fcntl(io::stdout(), FcntlArg::F_SETLKW(&lock::whole())).map(drop)?)
    }

    /// Handles the end of a child; returns whether it was the writer. Output stays in the pipes until the
    /// next writer reads it.
    pub fn on_child_ended(&mut self, pid: u32) -> bool {
        if self.pid() != Some(pid) {
            return false;
        }
        // Unanswered requests are sent again.
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

/// Logs what the writer reports about a job unasked.
fn log_trouble(attempt: &AttemptId, said: WriterMessage) {
    let (step, attempt) = (&attempt.step, attempt.number);
    let stream = STREAMS.get(usize::from(said.stream));
    let name = stream.map_or("output", |stream| stream.file_name());
    match said.kind {
        STALLED => warn!(
            %step, attempt,
            "its output cannot be written now, and it blocks when its pipe is full: the disk may be full"
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

/// Kills the writer of an earlier supervisor. It holds the lock as long as it lives, so the pid is its own.
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
