//! Reads the marks of processes in children. Marks are in the memory of another user's process. A process can
//! map a file of its own FUSE file system over that memory and so block the reader for any time: then only a
//! child blocks, and the loop continues. [`super::ProcessScanner`] asks.
//!
//! A child answers one question at a time and lives for one scan. If its answer is late, it is kept for
//! [`PATIENCE`] and then killed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};
use nix::unistd::Pid;
use sluice_common::id::AttemptId;
use tracing::warn;

use crate::background;
use crate::process::Mark;

/// Longest time that one scan waits for answers: enough for some hundred processes, each of which is asked
/// once.
const LOOK_BUDGET: Duration = Duration::from_millis(100);

/// Longest wait for one answer. Reading takes less than a millisecond, but on a busy host the child may wait
/// for a processor.
const ANSWER_WAIT: Duration = Duration::from_millis(20);

/// When a late answer is given up. Shorter than [`super::UNDECIDED_LIMIT`], so that this is known before the
/// process stops counting as possibly an attempt's.
const PATIENCE: Duration = Duration::from_millis(500);

/// Most late answers at one time. Further questions wait until one is given up.
const MAX_LATE: usize = 16;

/// Longest answer: a letter and an attempt's id.
const MAX_ANSWER_BYTES: usize = 256;

/// Result of a question.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MarkAnswer {
    /// The marks, as [`crate::process::mark`] returns them.
    Read(Mark),
    /// No answer yet.
    Late,
    /// The answer was given up.
    GivenUp,
}

/// The children that read marks.
#[derive(Debug)]
pub(super) struct MarkReaders {
    read: fn(u32) -> Mark,
    idle: Option<MarkReader>,
    /// Late readers, by the process that they read.
    late: BTreeMap<u32, (MarkReader, Instant)>,
    /// Killed readers that are not reaped yet, so their pids are still theirs.
    leaving: BTreeSet<u32>,
    budget: Duration,
}

#[derive(Debug)]
struct MarkReader {
    pid: u32,
    questions: OwnedFd,
}

impl MarkReaders {
    pub(super) fn new(read: fn(u32) -> Mark) -> Self {
        Self {
            read,
            idle: None,
            late: BTreeMap::new(),
            leaving: BTreeSet::new(),
            budget: LOOK_BUDGET,
        }
    }

    /// Begins a scan.
    pub(super) fn begin(&mut self) {
        self.budget = LOOK_BUDGET;
    }

    /// Ends a scan: a child is kept only for a late answer, and only briefly if the answer is not needed.
    pub(super) fn end(&mut self) {
        let idle = self.idle.take();
        let forgotten = self
            .late
            .extract_if(.., |_, (_, since)| since.elapsed() >= 2 * PATIENCE);
        let forgotten: Vec<MarkReader> = forgotten.map(|(_, (reader, _))| reader).collect();
        for reader in idle.into_iter().chain(forgotten) {
            self.dismiss(&reader);
        }
    }

    fn dismiss(&mut self, reader: &MarkReader) {
        // The child is not reaped yet, so the pid is its own.
        let _ended_already = kill(Pid::from_raw(reader.pid.cast_signed()), Signal::SIGKILL);
        self.leaving.insert(reader.pid);
    }

    /// Handles the end of a child; returns whether it was a mark reader.
    pub(super) fn on_child_ended(&mut self, pid: u32) -> bool {
        self.idle.take_if(|reader| reader.pid == pid).is_some()
            || self.leaving.remove(&pid)
            || self
                .late
                .extract_if(.., |_, (reader, _)| reader.pid == pid)
                .count()
                > 0
    }

    /// Whether an answer is late.
    pub(super) fn is_waiting(&self) -> bool {
        !self.late.is_empty()
    }

    /// Whether a process is a mark reader.
    pub(super) fn has(&self, pid: u32) -> bool {
        let late = self.late.values().map(|(reader, _)| reader.pid);
        let idle = self.idle.iter().map(|reader| reader.pid);
        self.leaving.contains(&pid) || late.chain(idle).any(|own| own == pid)
    }

    /// Asks for the marks of a process, or checks for a late answer.
    pub(super) fn ask(&mut self, pid: u32) -> MarkAnswer {
        let asked = self.late.remove(&pid);
        let wait = match asked {
            Some(_) => Duration::ZERO,
            None => ANSWER_WAIT.min(self.budget),
        };
        let Some((reader, since)) = asked.or_else(|| Some((self.asked(pid)?, Instant::now())))
        else {
            return MarkAnswer::Late;
        };
        if let Some(mark) = self.await_answer(&reader, wait) {
            if let Some(another) = self.idle.replace(reader) {
                self.dismiss(&another);
            }
            return MarkAnswer::Read(mark);
        }
        if since.elapsed() < PATIENCE {
            self.late.insert(pid, (reader, since));
            return MarkAnswer::Late;
        }
        self.dismiss(&reader);
        warn!(
            pid,
            "its memory could not be read in time, so it is not known whose it is"
        );
        MarkAnswer::GivenUp
    }

    fn asked(&mut self, pid: u32) -> Option<MarkReader> {
        if self.late.len() >= MAX_LATE || self.budget.is_zero() {
            return None;
        }
        let reader = match self.idle.take() {
            Some(reader) => reader,
            None => MarkReader::start(self.read)
                .inspect_err(|e| warn!("marks cannot be read now: {e}"))
                .ok()?,
        };
        let how = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        let sent = send(reader.questions.as_raw_fd(), &pid.to_le_bytes(), how);
        if sent.is_err() {
            self.dismiss(&reader);
            return None;
        }
        Some(reader)
    }

    fn await_answer(&mut self, reader: &MarkReader, wait: Duration) -> Option<Mark> {
        let began = Instant::now();
        let mut fds = [PollFd::new(reader.questions.as_fd(), PollFlags::POLLIN)];
        let wait = PollTimeout::try_from(wait).unwrap_or(PollTimeout::ZERO);
        let ready = poll(&mut fds, wait);
        self.budget = self.budget.saturating_sub(began.elapsed());
        if !matches!(ready, Ok(1)) {
            return None;
        }
        let mut answer = [0; MAX_ANSWER_BYTES];
        let fd = reader.questions.as_raw_fd();
        let read = recv(fd, &mut answer, MsgFlags::MSG_DONTWAIT).ok()?;
        understood(answer.get(..read)?)
    }
}

impl MarkReader {
    fn start(read: fn(u32) -> Mark) -> io::Result<Self> {
        let (ours, theirs) = socketpair(
            AddressFamily::Unix,
            SockType::SeqPacket,
            None,
            SockFlag::SOCK_CLOEXEC,
        )?;
        let pid = background::start(&[theirs.as_raw_fd()], || {
            answer_questions(theirs.as_raw_fd(), read);
        })?;
        Ok(Self {
            pid,
            questions: ours,
        })
    }
}

/// The child's main loop.
fn answer_questions(fd: i32, read: fn(u32) -> Mark) {
    let mut pid = [0; 4];
    while let Ok(4) = recv(fd, &mut pid, MsgFlags::empty()) {
        let answer = written(&read(u32::from_le_bytes(pid)));
        if send(fd, answer.as_bytes(), MsgFlags::MSG_NOSIGNAL).is_err() {
            return;
        }
    }
}

fn written(mark: &Mark) -> String {
    match mark {
        Mark::Of(attempt) => format!("of {attempt}"),
        Mark::None => "none".to_owned(),
        Mark::Unreadable => "unreadable".to_owned(),
    }
}

fn understood(answer: &[u8]) -> Option<Mark> {
    match std::str::from_utf8(answer).ok()? {
        "none" => Some(Mark::None),
        "unreadable" => Some(Mark::Unreadable),
        text => {
            let attempt: AttemptId = text.strip_prefix("of ")?.parse().ok()?;
            Some(Mark::Of(attempt))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reading the marks of a process with this pid or a higher one never returns.
    const HELD: u32 = 1_000_000_000;

    fn read(pid: u32) -> Mark {
        match pid {
            HELD.. => loop {
                std::thread::park();
            },
            1 => Mark::None,
            2 => Mark::Unreadable,
            _ => Mark::Of(format!("{}.{pid}", "x".repeat(63)).parse().unwrap()),
        }
    }

    fn until(what: &str, mut holds: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(30);
        while !holds() {
            assert!(Instant::now() < end, "waited in vain until {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Asks in successive scans, as ticks do, until the marks are read: on a busy machine an answer may be
    /// late and given up.
    fn answer(readers: &mut MarkReaders, pid: u32) -> MarkAnswer {
        let mut answer = MarkAnswer::Late;
        until("it is answered", || {
            readers.begin();
            answer = readers.ask(pid);
            readers.end();
            matches!(answer, MarkAnswer::Read(_))
        });
        answer
    }

    /// Other tests do not reap these children, so their pids are not reused.
    fn reap(readers: &mut MarkReaders) {
        for pid in readers.leaving.clone() {
            nix::sys::wait::waitpid(Pid::from_raw(pid.cast_signed()), None).unwrap();
            assert!(readers.has(pid) && readers.on_child_ended(pid));
            assert!(!readers.has(pid) && !readers.on_child_ended(pid));
        }
    }

    #[test]
    fn what_is_read_comes_back_as_it_was_and_no_child_stays() {
        let mut readers = MarkReaders::new(read);
        for pid in [1, 2, 3, HELD - 1] {
            assert_eq!(answer(&mut readers, pid), MarkAnswer::Read(read(pid)));
        }
        assert!(!readers.is_waiting());
        reap(&mut readers);
        assert!(readers.idle.is_none() && readers.leaving.is_empty());
    }

    #[test]
    fn whoever_cannot_be_read_holds_no_look_up_and_nobody_else() {
        let mut readers = MarkReaders::new(read);
        let (began, mut looks) = (Instant::now(), 0);
        let mut known = MarkAnswer::Late;
        until("both are decided", || {
            readers.begin();
            let asked = readers.ask(HELD);
            if known == MarkAnswer::Late {
                known = readers.ask(3);
            }
            readers.end();
            looks += 1;
            assert!(asked != MarkAnswer::Read(Mark::None));
            asked == MarkAnswer::GivenUp && known != MarkAnswer::Late
        });
        assert_eq!(known, MarkAnswer::Read(read(3)));
        assert!(began.elapsed() >= PATIENCE && looks > 1);
        assert!(!readers.is_waiting());
        reap(&mut readers);
    }

    #[test]
    fn no_more_are_late_than_may_be_and_those_that_nobody_asks_for_are_given_up() {
        let mut readers = MarkReaders::new(read);
        for pid in HELD..HELD + 2 * MAX_LATE as u32 {
            readers.begin();
            readers.budget = Duration::from_millis(1);
            assert_eq!(readers.ask(pid), MarkAnswer::Late);
        }
        assert_eq!(readers.late.len(), MAX_LATE);
        until("they are given up", || {
            readers.end();
            !readers.is_waiting()
        });
        assert_eq!(readers.leaving.len(), MAX_LATE);
        reap(&mut readers);
    }

    #[test]
    fn what_is_no_answer_says_nothing() {
        for text in ["", "of", "of ../x.1", "of a", "nothing"] {
            assert_eq!(understood(text.as_bytes()), None, "{text}");
        }
    }
}
