//! The process that writes the output of steps: it moves data from pipes into files, keeps each file within its bound by
//! dropping the oldest part ([`bound`]), and notes when output came ([`times`]). The supervisor has opened its descriptors
//! and dropped its privileges. Standard input is the socket to the supervisor; standard output is a file that is never
//! written, whose lock identifies this process.

mod bound;
mod times;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, IoSliceMut, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::prctl::set_name;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, send};
use sluice_common::helper::kind::{
    BEGIN, DROPPED, END, FLUSH, FLUSHED, LOST, NOT_DROPPED, STALLED, WRITTEN,
};
use sluice_common::helper::{JOB_FDS, MESSAGE_BYTES, WriterMessage};
use sluice_common::output::STREAMS;
use sluice_common::time::Time;

use bound::{DropTiming, OutputBound};
use times::OutputClock;

/// Bytes moved from one stream before the next has its turn.
const TURN_BYTES: usize = 1 << 20;

/// Milliseconds between two attempts to write to a file that accepts nothing, such as on a full disk.
const RETRY_MS: u16 = 1_000;

/// The epoll key of the socket; no stream has it.
const LINK: u64 = u64::MAX;

/// Most events handled at once.
const MAX_EVENTS: usize = 64;

/// Runs until the supervisor is gone and every pipe is closed at its other end. Returns only to exit.
pub(crate) fn run() {
    let _it_is_a_name = set_name(c"sluice-writer");
    let stdin = io::stdin();
    let link = stdin.as_fd();
    let Ok(epoll) = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC) else {
        return;
    };
    let mut copier = Copier {
        epoll,
        link: Some(link),
        jobs: BTreeMap::new(),
        stalled: BTreeSet::new(),
    };
    let waits = EpollEvent::new(EpollFlags::EPOLLIN, LINK);
    if copier.epoll.add(link, waits).is_ok() {
        let _it_ends_either_way = copier.work();
    }
}

struct Copier<'a> {
    epoll: Epoll,
    link: Option<BorrowedFd<'a>>,
    jobs: BTreeMap<u64, AttemptOutput>,
    /// Streams whose files accept nothing now.
    stalled: BTreeSet<u64>,
}

/// The open streams of an attempt.
struct AttemptOutput {
    streams: [Option<OutputStream>; STREAMS.len()],
    /// Drops the oldest part of the streams.
    bound: OutputBound,
    /// Notes when output came.
    clock: OutputClock,
    /// Whether the supervisor knows that a file accepts nothing.
    is_reported: bool,
}

struct OutputStream {
    pipe: File,
    file: File,
    /// Offset of the next byte. No other process writes there.
    at: libc::loff_t,
    /// Bytes that were read and not written yet, if the file system does not support splice.
    unwritten: Vec<u8>,
    /// Offset of the oldest byte that is kept.
    first_kept: u64,
}

/// Result of a move from a pipe to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopyOutcome {
    /// Moved this many bytes; there may be more.
    Some(usize),
    /// The pipe is empty.
    Nothing,
    /// The pipe is empty and closed at its other end.
    Closed,
    /// The file accepts nothing.
    Stalled,
}

impl Copier<'_> {
    fn work(&mut self) -> nix::Result<()> {
        let mut events = [EpollEvent::empty(); MAX_EVENTS];
        while self.link.is_some() || !self.jobs.is_empty() {
            let timeout = match self.stalled.is_empty() {
                true => EpollTimeout::NONE,
                false => RETRY_MS.into(),
            };
            let count = match self.epoll.wait(&mut events, timeout) {
                Ok(count) => count,
                Err(Errno::EINTR) => continue,
                Err(e) => return Err(e),
            };
            for event in &events[..count] {
                match event.data() {
                    LINK => self.on_link()?,
                    key => self.on_stream(key),
                }
            }
            if count == 0 {
                self.retry_stalled();
            }
        }
        Ok(())
    }

    fn on_link(&mut self) -> nix::Result<()> {
        let Some(link) = self.link else {
            return Ok(());
        };
        let mut bytes = [0; MESSAGE_BYTES];
        let mut space = nix::cmsg_space!([RawFd; JOB_FDS]);
        let (len, fds) = {
            let mut parts = [IoSliceMut::new(&mut bytes)];
            let flags = MsgFlags::MSG_CMSG_CLOEXEC;
            let got = recvmsg::<()>(link.as_raw_fd(), &mut parts, Some(&mut space), flags);
            match got {
                Ok(got) => (got.bytes, received(got.cmsgs()?)),
                Err(Errno::EINTR) => return Ok(()),
                Err(_) => (0, Vec::new()),
            }
        };
        match WriterMessage::from_bytes(&bytes[..len]) {
            Some(WriterMessage {
                kind: BEGIN,
                job,
                value,
                ..
            }) => self.begin(job, value, fds),
            Some(WriterMessage {
                kind: FLUSH, job, ..
            }) => {
                self.flush(job);
                answer(link, WriterMessage::new(FLUSHED, job));
                Ok(())
            }
            Some(WriterMessage { kind: END, job, .. }) => {
                let is_written = self.flush(job);
                self.end(job);
                let kind = if is_written { WRITTEN } else { LOST };
                answer(link, WriterMessage::new(kind, job));
                Ok(())
            }
            Some(_) => Ok(()),
            // The supervisor is gone or is being upgraded. Output of steps is still written.
            None => {
                self.link = None;
                self.epoll.delete(link)?;
                self.jobs
                    .retain(|_, job| job.streams.iter().any(Option::is_some));
                Ok(())
            }
        }
    }

    fn begin(&mut self, number: u64, max_bytes: u64, fds: Vec<OwnedFd>) -> nix::Result<()> {
        // Descriptors are missing if this process has too many open files. It cannot do its work then, and
        // the supervisor starts another.
        let Ok([out, of_out, err, of_err, marks]) = <[OwnedFd; JOB_FDS]>::try_from(fds) else {
            return Err(Errno::EMFILE);
        };
        let bound = OutputBound::new(marks.into(), max_bytes);
        let mut streams = [None, None];
        for (n, (pipe, file)) in [(out, of_out), (err, of_err)].into_iter().enumerate() {
            let (pipe, file) = (File::from(pipe), File::from(file));
            let at = file.metadata().map_or(0, |found| found.len()).cast_signed();
            let key = key(number, n);
            self.epoll
                .add(&pipe, EpollEvent::new(EpollFlags::EPOLLIN, key))?;
            streams[n] = Some(OutputStream {
                pipe,
                file,
                at,
                unwritten: Vec::new(),
                first_kept: bound.dropped(n),
            });
        }
        let job = AttemptOutput {
            streams,
            clock: OutputClock::new(bound.marks()),
            bound,
            is_reported: false,
        };
        self.jobs.insert(number, job);
        Ok(())
    }

    /// Moves what the pipes of a job contain now; returns whether all of it was written. Another process may
    /// hold a step's pipe and go on writing: the contents of one full pipe are enough.
    fn flush(&mut self, number: u64) -> bool {
        let Some(job) = self.jobs.get_mut(&number) else {
            return true;
        };
        let mut is_written = true;
        for n in 0..STREAMS.len() {
            if job.streams[n].as_ref().is_some_and(OutputStream::has_more) {
                job.note_time(n);
            }
            let stream = job.streams[n].as_mut();
            is_written &= stream.is_none_or(OutputStream::drain);
            job.drop_oldest(n, DropTiming::Now, self.link, number);
        }
        is_written
    }

    fn end(&mut self, number: u64) {
        let job = self.jobs.remove(&number).into_iter();
        for stream in job.flat_map(|job| job.streams).flatten() {
            let _it_may_be_stalled = self.epoll.delete(&stream.pipe);
        }
        self.stalled.retain(|key| parts(*key).0 != number);
    }

    fn on_stream(&mut self, key: u64) {
        let (number, n) = parts(key);
        let Some(job) = self.jobs.get_mut(&number) else {
            return;
        };
        job.note_time(n);
        let Some(stream) = &mut job.streams[n] else {
            return;
        };
        let mut left = TURN_BYTES;
        let moved = loop {
            match stream.take(left) {
                CopyOutcome::Some(count) if count < left => left -= count,
                moved => break moved,
            }
        };
        let when = match moved {
            CopyOutcome::Closed | CopyOutcome::Stalled => DropTiming::Now,
            CopyOutcome::Some(_) | CopyOutcome::Nothing => DropTiming::Due,
        };
        job.drop_oldest(n, when, self.link, number);
        let Some(stream) = &mut job.streams[n] else {
            return;
        };
        match moved {
            CopyOutcome::Some(_) | CopyOutcome::Nothing => {}
            CopyOutcome::Closed => {
                // The supervisor holds the pipe open too, so a closed pipe is an event until then.
                let _it_is_waited_for = self.epoll.delete(&stream.pipe);
                job.streams[n] = None;
                // The supervisor asks for the end, if there is one.
                if self.link.is_none() && job.streams.iter().all(Option::is_none) {
                    self.jobs.remove(&number);
                }
            }
            CopyOutcome::Stalled => {
                // A closed pipe would remain an event otherwise.
                let _it_is_waited_for = self.epoll.delete(&stream.pipe);
                self.stalled.insert(key);
                if let Some(link) = self
                    .link
                    .filter(|_| !std::mem::replace(&mut job.is_reported, true))
                {
                    answer(link, WriterMessage::new(STALLED, number));
                }
            }
        }
    }

    fn retry_stalled(&mut self) {
        for key in std::mem::take(&mut self.stalled) {
            let (number, n) = parts(key);
            let stream = self
                .jobs
                .get(&number)
                .and_then(|job| job.streams[n].as_ref());
            if let Some(stream) = stream {
                let again = EpollEvent::new(EpollFlags::EPOLLIN, key);
                let _it_stays_still = self.epoll.add(&stream.pipe, again);
            }
        }
    }
}

impl AttemptOutput {
    /// Notes the time of what a stream has not written yet. Before it is written, so that a killed writer leaves nothing
    /// that seems to be older than it is.
    fn note_time(&mut self, n: usize) {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        let millis = since_epoch.map_or(0, |it| u64::try_from(it.as_millis()).unwrap_or(0));
        if let Some(stream) = &self.streams[n] {
            let (offset, now) = (stream.at.cast_unsigned(), Time::from_unix_millis(millis));
            self.clock.note(self.bound.marks(), n, offset, now);
        }
    }

    /// Drops the part of a stream that is over the bound. Reports the first drop, and the first failure, to
    /// the supervisor.
    fn drop_oldest(&mut self, n: usize, when: DropTiming, link: Option<BorrowedFd<'_>>, job: u64) {
        let Some(stream) = &mut self.streams[n] else {
            return;
        };
        let dropped = self.bound.keep(
            n,
            &stream.file,
            stream.at.cast_unsigned(),
            stream.first_kept,
            when,
        );
        let (kind, value) = match dropped {
            Ok(None) => return,
            Ok(Some(first_kept)) => {
                stream.first_kept = first_kept;
                (DROPPED, first_kept)
            }
            Err(e) => {
                let number = e.raw_os_error().unwrap_or(0);
                (NOT_DROPPED, u64::from(number.unsigned_abs()))
            }
        };
        if let Some(link) = link.filter(|_| self.bound.is_first_report()) {
            let stream = u8::try_from(n).unwrap_or(u8::MAX);
            answer(
                link,
                WriterMessage {
                    kind,
                    job,
                    stream,
                    value,
                },
            );
        }
    }
}

impl OutputStream {
    /// Whether there is something to write now.
    fn has_more(&self) -> bool {
        let mut polled = [PollFd::new(self.pipe.as_fd(), PollFlags::POLLIN)];
        let is_ready = poll(&mut polled, PollTimeout::ZERO).is_ok_and(|ready| ready > 0);
        let has_input = |events: PollFlags| events.contains(PollFlags::POLLIN);
        !self.unwritten.is_empty() || is_ready && polled[0].revents().is_some_and(has_input)
    }

    /// Moves what is in the pipe now, at most its capacity; returns whether all of it was written.
    fn drain(&mut self) -> bool {
        let most = fcntl(&self.pipe, FcntlArg::F_GETPIPE_SZ).unwrap_or(0);
        let mut left = usize::try_from(most).unwrap_or(0).max(1);
        loop {
            match self.take(left) {
                CopyOutcome::Some(count) if count < left => left -= count,
                CopyOutcome::Some(_) | CopyOutcome::Nothing | CopyOutcome::Closed => return true,
                CopyOutcome::Stalled => return false,
            }
        }
    }

    fn take(&mut self, most: usize) -> CopyOutcome {
        if !self.unwritten.is_empty() {
            return self.write();
        }
        match splice(self.pipe.as_fd(), self.file.as_fd(), &mut self.at, most) {
            Ok(0) => CopyOutcome::Closed,
            Ok(count) => CopyOutcome::Some(count),
            Err(Errno::EAGAIN) => CopyOutcome::Nothing,
            Err(Errno::EINTR) => CopyOutcome::Some(0),
            Err(Errno::EINVAL) => self.copy(most),
            Err(_) => CopyOutcome::Stalled,
        }
    }

    /// Copies through memory, for file systems without splice. If this process is killed between the read and
    /// the write, those bytes are lost.
    fn copy(&mut self, most: usize) -> CopyOutcome {
        let mut bytes = [0; 64 * 1024];
        let most = most.min(bytes.len());
        match self.pipe.read(&mut bytes[..most]) {
            Ok(0) => CopyOutcome::Closed,
            Ok(count) => {
                self.unwritten.extend(&bytes[..count]);
                self.write()
            }
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => CopyOutcome::Some(0),
            Err(_) => CopyOutcome::Nothing,
        }
    }

    fn write(&mut self) -> CopyOutcome {
        match self.file.write_at(&self.unwritten, self.at.cast_unsigned()) {
            Ok(count @ 1..) => {
                self.unwritten.drain(..count);
                self.at += libc::loff_t::try_from(count).unwrap_or(0);
                CopyOutcome::Some(count)
            }
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => CopyOutcome::Some(0),
            Ok(0) | Err(_) => CopyOutcome::Stalled,
        }
    }
}

/// Sends an answer; an error means that the supervisor is gone.
fn answer(link: BorrowedFd<'_>, message: WriterMessage) {
    let _nobody_asks = send(
        link.as_raw_fd(),
        &message.to_bytes(),
        MsgFlags::MSG_NOSIGNAL,
    );
}

/// Moves at most `most` bytes from a pipe to offset `at` of a file, and advances `at`. Returns the number of
/// bytes; 0 means that the pipe is closed at its other end. A kill in between loses and duplicates nothing.
///
/// # Errors
/// `EAGAIN` if the pipe is empty, `EINVAL` if the file system does not support splice.
#[expect(
    unsafe_code,
    reason = "splice has no wrapper without another feature of nix"
)]
fn splice(
    pipe: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    at: &mut libc::loff_t,
    most: usize,
) -> nix::Result<usize> {
    let flags = libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK;
    // SAFETY: both descriptors are open during the call, a pipe has no offset, and `at` is valid to read and
    // write.
    let moved = unsafe {
        libc::splice(
            pipe.as_raw_fd(),
            std::ptr::null_mut(),
            file.as_raw_fd(),
            at,
            most,
            flags,
        )
    };
    Errno::result(moved).map(isize::cast_unsigned)
}

/// The descriptors received with a message.
#[expect(unsafe_code, reason = "numbers become descriptors")]
fn received(messages: impl Iterator<Item = ControlMessageOwned>) -> Vec<OwnedFd> {
    let mut fds = Vec::new();
    for message in messages {
        if let ControlMessageOwned::ScmRights(numbers) = message {
            // SAFETY: the kernel has just opened them for this process, and no other code knows their
            // numbers.
            let owned = numbers
                .into_iter()
                .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
            fds.extend(owned);
        }
    }
    fds
}

fn key(job: u64, stream: usize) -> u64 {
    job * STREAMS.len() as u64 + stream as u64
}

fn parts(key: u64) -> (u64, usize) {
    let streams = STREAMS.len() as u64;
    (key / streams, usize::from(!key.is_multiple_of(streams)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;

    fn stream(file: File) -> (std::io::PipeWriter, OutputStream) {
        let (reader, writer) = std::io::pipe().unwrap();
        let pipe = File::from(OwnedFd::from(reader));
        fcntl(&pipe, FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK)).unwrap();
        let at = file.metadata().unwrap().len().cast_signed();
        let stream = OutputStream {
            pipe,
            file,
            at,
            unwritten: Vec::new(),
            first_kept: 0,
        };
        (writer, stream)
    }

    #[test]
    fn what_comes_out_of_a_pipe_goes_behind_what_the_file_holds() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stdout");
        fs::write(&path, "before ").unwrap();
        let (mut writer, mut stream) = stream(File::options().write(true).open(&path).unwrap());
        assert_eq!(stream.take(TURN_BYTES), CopyOutcome::Nothing);
        writer.write_all(b"first ").unwrap();
        assert_eq!(stream.take(TURN_BYTES), CopyOutcome::Some(6));
        writer.write_all(b"last").unwrap();
        assert!(stream.drain());
        assert_eq!(fs::read(&path).unwrap(), b"before first last");
        drop(writer);
        assert_eq!(stream.take(TURN_BYTES), CopyOutcome::Closed);
    }

    #[test]
    fn a_pipe_that_somebody_else_still_fills_is_drained_of_what_it_holds() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stdout");
        let (writer, mut stream) = stream(File::create(&path).unwrap());
        let other = std::thread::spawn(move || {
            let mut writer = writer;
            while writer.write_all(&[b'x'; 4096]).is_ok() {}
        });
        let holds = fcntl(&stream.pipe, FcntlArg::F_GETPIPE_SZ).unwrap();
        assert!(stream.drain());
        assert!(fs::metadata(&path).unwrap().len() <= holds.cast_unsigned().into());
        drop(stream);
        other.join().unwrap();
    }

    #[test]
    fn what_a_full_disk_does_not_take_is_kept() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let (mut writer, mut stream) = stream(full);
        writer.write_all(b"kept").unwrap();
        for _ in 0..3 {
            assert_eq!(stream.take(TURN_BYTES), CopyOutcome::Stalled);
        }
        let file = tempfile::tempfile().unwrap();
        stream.file = file.try_clone().unwrap();
        assert!(stream.drain());
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"kept");
    }

    #[test]
    fn each_stream_of_each_job_has_a_key_of_its_own() {
        for (job, stream) in [(0, 0), (0, 1), (7, 0), (7, 1)] {
            assert_eq!(parts(key(job, stream)), (job, stream));
        }
    }
}
