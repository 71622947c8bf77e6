//! The process that writes the output of steps: moves what comes out of pipes into files, keeps those within their bound by
//! dropping the oldest part ([`bound`]), and knows nothing else. Its
//! descriptors were opened by the supervisor, which has also taken every right from it; standard input is the socket on which
//! the supervisor speaks, standard output the file whose lock names this process and which is never written.

mod bound;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, IoSliceMut, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::prctl::set_name;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, send};
use sluice_common::helper::kind::{
    BEGIN, DROPPED, END, FLUSH, FLUSHED, LOST, NOT_DROPPED, STALLED, WRITTEN,
};
use sluice_common::helper::{JOB_FDS, MESSAGE_BYTES, WriterMessage};
use sluice_common::output::STREAMS;

use bound::{Bound, When};

/// Moved of one stream before the next has its turn.
const TURN_BYTES: usize = 1 << 20;

/// Between two tries to write to a disk that takes nothing.
const TRY_AGAIN_MS: u16 = 1_000;

/// Under which the link is waited for; no stream's.
const LINK: u64 = u64::MAX;

/// Most events that are taken at once.
const MAX_EVENTS: usize = 64;

/// Works until its supervisor is gone and no pipe has anybody who could write to it. Comes back only to exit.
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
    jobs: BTreeMap<u64, Job>,
    /// Streams whose files take nothing now.
    stalled: BTreeSet<u64>,
}

/// The streams of an attempt that are not closed.
struct Job {
    streams: [Option<Stream>; STREAMS.len()],
    /// Where the oldest part of its streams is dropped.
    bound: Bound,
    /// Whether the supervisor has been told that a file takes nothing.
    is_told: bool,
}

struct Stream {
    pipe: File,
    file: File,
    /// Where the next byte goes. Nobody else writes there.
    at: libc::loff_t,
    /// What was read and could not be written yet, where nothing can be spliced.
    unwritten: Vec<u8>,
    /// Where what is kept begins.
    first_kept: u64,
}

/// What came of moving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moved {
    /// So many bytes, and there may be more.
    Some(usize),
    /// Nothing is there now.
    Nothing,
    /// Nothing is there, and nobody can write any more.
    Closed,
    /// The file takes nothing.
    Stalled,
}

impl Copier<'_> {
    fn work(&mut self) -> nix::Result<()> {
        let mut events = [EpollEvent::empty(); MAX_EVENTS];
        while self.link.is_some() || !self.jobs.is_empty() {
            let timeout = match self.stalled.is_empty() {
                true => EpollTimeout::NONE,
                false => TRY_AGAIN_MS.into(),
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
                self.try_again();
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
            // The supervisor is gone, or becomes a newer one. What steps still give is written.
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
        // Without all of them, which a process with too many open files is not given, it could not do its work: the
        // supervisor starts another.
        let Ok([out, of_out, err, of_err, marks]) = <[OwnedFd; JOB_FDS]>::try_from(fds) else {
            return Err(Errno::EMFILE);
        };
        let bound = Bound::new(marks.into(), max_bytes);
        let mut streams = [None, None];
        for (n, (pipe, file)) in [(out, of_out), (err, of_err)].into_iter().enumerate() {
            let (pipe, file) = (File::from(pipe), File::from(file));
            let at = file.metadata().map_or(0, |found| found.len()).cast_signed();
            let key = key(number, n);
            self.epoll
                .add(&pipe, EpollEvent::new(EpollFlags::EPOLLIN, key))?;
            streams[n] = Some(Stream {
                pipe,
                file,
                at,
                unwritten: Vec::new(),
                first_kept: bound.dropped(n),
            });
        }
        let job = Job {
            streams,
            bound,
            is_told: false,
        };
        self.jobs.insert(number, job);
        Ok(())
    }

    /// Moves what the pipes of a job hold now; says whether all of it could be written. Somebody to whom a step has passed
    /// its end may go on giving: what one pipe can hold is enough.
    fn flush(&mut self, number: u64) -> bool {
        let Some(job) = self.jobs.get_mut(&number) else {
            return true;
        };
        let mut is_written = true;
        for n in 0..STREAMS.len() {
            let stream = job.streams[n].as_mut();
            is_written &= stream.is_none_or(Stream::drain);
            job.drop_oldest(n, When::Now, self.link, number);
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
        let Some(stream) = &mut job.streams[n] else {
            return;
        };
        let mut left = TURN_BYTES;
        let moved = loop {
            match stream.take(left) {
                Moved::Some(count) if count < left => left -= count,
                moved => break moved,
            }
        };
        let when = match moved {
            Moved::Closed | Moved::Stalled => When::Now,
            Moved::Some(_) | Moved::Nothing => When::Due,
        };
        job.drop_oldest(n, when, self.link, number);
        let Some(stream) = &mut job.streams[n] else {
            return;
        };
        match moved {
            Moved::Some(_) | Moved::Nothing => {}
            Moved::Closed => {
                // The supervisor holds the pipe too, and as long as anybody does, that it is closed is an event.
                let _it_is_waited_for = self.epoll.delete(&stream.pipe);
                job.streams[n] = None;
                // Its end is asked for by the supervisor, if there is one.
                if self.link.is_none() && job.streams.iter().all(Option::is_none) {
                    self.jobs.remove(&number);
                }
            }
            Moved::Stalled => {
                // Its end would be an event whatever is asked for.
                let _it_is_waited_for = self.epoll.delete(&stream.pipe);
                self.stalled.insert(key);
                if let Some(link) = self
                    .link
                    .filter(|_| !std::mem::replace(&mut job.is_told, true))
                {
                    answer(link, WriterMessage::new(STALLED, number));
                }
            }
        }
    }

    fn try_again(&mut self) {
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

impl Job {
    /// Drops what is over the bound of a stream. The first time that it does, or cannot, the supervisor is told.
    fn drop_oldest(&mut self, n: usize, when: When, link: Option<BorrowedFd<'_>>, job: u64) {
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
        if let Some(link) = link.filter(|_| self.bound.is_news()) {
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

impl Stream {
    /// Moves what is there now, at most what the pipe holds; says whether all of it could be written.
    fn drain(&mut self) -> bool {
        let most = fcntl(&self.pipe, FcntlArg::F_GETPIPE_SZ).unwrap_or(0);
        let mut left = usize::try_from(most).unwrap_or(0).max(1);
        loop {
            match self.take(left) {
                Moved::Some(count) if count < left => left -= count,
                Moved::Some(_) | Moved::Nothing | Moved::Closed => return true,
                Moved::Stalled => return false,
            }
        }
    }

    fn take(&mut self, most: usize) -> Moved {
        if !self.unwritten.is_empty() {
            return self.write();
        }
        match splice(self.pipe.as_fd(), self.file.as_fd(), &mut self.at, most) {
            Ok(0) => Moved::Closed,
            Ok(count) => Moved::Some(count),
            Err(Errno::EAGAIN) => Moved::Nothing,
            Err(Errno::EINTR) => Moved::Some(0),
            Err(Errno::EINVAL) => self.copy(most),
            Err(_) => Moved::Stalled,
        }
    }

    /// For a file system that nothing can be spliced into. What was read is in this process alone until it is written: who
    /// kills it in between loses so much.
    fn copy(&mut self, most: usize) -> Moved {
        let mut bytes = [0; 64 * 1024];
        let most = most.min(bytes.len());
        match self.pipe.read(&mut bytes[..most]) {
            Ok(0) => Moved::Closed,
            Ok(count) => {
                self.unwritten.extend(&bytes[..count]);
                self.write()
            }
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => Moved::Some(0),
            Err(_) => Moved::Nothing,
        }
    }

    fn write(&mut self) -> Moved {
        match self.file.write_at(&self.unwritten, self.at.cast_unsigned()) {
            Ok(count @ 1..) => {
                self.unwritten.drain(..count);
                self.at += libc::loff_t::try_from(count).unwrap_or(0);
                Moved::Some(count)
            }
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => Moved::Some(0),
            Ok(0) | Err(_) => Moved::Stalled,
        }
    }
}

/// The supervisor may be gone; then nobody asks.
fn answer(link: BorrowedFd<'_>, message: WriterMessage) {
    let _nobody_asks = send(
        link.as_raw_fd(),
        &message.to_bytes(),
        MsgFlags::MSG_NOSIGNAL,
    );
}

/// Moves what a pipe holds now, at most so many bytes, to a place in a file, which it moves on by as many: their number, or
/// none where nobody can write to the pipe any more. Whoever is killed meanwhile has moved a byte or has not.
///
/// # Errors
/// `EAGAIN` where the pipe is empty, `EINVAL` where the file system cannot do it.
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
    // SAFETY: both descriptors are open for the call, a pipe has no place of its own, and `at` is valid to read and write.
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

/// The descriptors that have come with a message.
#[expect(unsafe_code, reason = "numbers become descriptors")]
fn received(messages: impl Iterator<Item = ControlMessageOwned>) -> Vec<OwnedFd> {
    let mut fds = Vec::new();
    for message in messages {
        if let ControlMessageOwned::ScmRights(numbers) = message {
            // SAFETY: the kernel has just opened them for this process, and nobody else has their numbers.
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

    fn stream(file: File) -> (std::io::PipeWriter, Stream) {
        let (reader, writer) = std::io::pipe().unwrap();
        let pipe = File::from(OwnedFd::from(reader));
        fcntl(&pipe, FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK)).unwrap();
        let at = file.metadata().unwrap().len().cast_signed();
        let stream = Stream {
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
        let (mut given, mut stream) = stream(File::options().write(true).open(&path).unwrap());
        assert_eq!(stream.take(TURN_BYTES), Moved::Nothing);
        given.write_all(b"first ").unwrap();
        assert_eq!(stream.take(TURN_BYTES), Moved::Some(6));
        given.write_all(b"last").unwrap();
        assert!(stream.drain());
        assert_eq!(fs::read(&path).unwrap(), b"before first last");
        drop(given);
        assert_eq!(stream.take(TURN_BYTES), Moved::Closed);
    }

    #[test]
    fn a_pipe_that_somebody_else_still_fills_is_drained_of_what_it_holds() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stdout");
        let (given, mut stream) = stream(File::create(&path).unwrap());
        let other = std::thread::spawn(move || {
            let mut given = given;
            while given.write_all(&[b'x'; 4096]).is_ok() {}
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
        let (mut given, mut stream) = stream(full);
        given.write_all(b"kept").unwrap();
        for _ in 0..3 {
            assert_eq!(stream.take(TURN_BYTES), Moved::Stalled);
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
