//! The output streams of an attempt: a named pipe for each, and the file that receives its content.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::stat::Mode;
use nix::unistd::{Uid, mkfifo};
use sluice_common::output::STREAMS;
use sluice_common::wire::LogStream;

use crate::atomic_file::open_in_place;
use crate::output::{cap, open_own};

/// Pipe capacity, which a step can fill before it blocks. With the kernel's default of 64 KiB, large output
/// takes half as long again.
const PIPE_BYTES: libc::c_int = 1 << 20;

/// The writer's ends of an attempt's streams.
#[derive(Debug)]
pub struct AttemptStreams {
    pub(super) ends: WriterStreams,
    pub(super) pipes: ReaderPipes,
}

/// Descriptors for the writer, with streams in the order of [`STREAMS`].
#[derive(Debug)]
pub(super) struct WriterStreams {
    streams: [WriterStream; STREAMS.len()],
    marks: File,
}

/// Duplicates of the reading ends. No byte in a pipe is lost as long as the supervisor holds them open.
#[derive(Debug)]
pub(super) struct ReaderPipes([File; STREAMS.len()]);

/// A pipe, and the file that receives its content.
#[derive(Debug)]
struct WriterStream {
    pipe: File,
    file: File,
}

impl AttemptStreams {
    /// Makes missing pipes and files in an attempt's directory. Returns the ends for its processes, which run
    /// as `owner`, and the writer's ends. The files are readable by `reader_uid`.
    ///
    /// # Errors
    /// If one cannot be made.
    pub fn make(
        dir: &Path,
        owner: Uid,
        reader_uid: Option<u32>,
    ) -> io::Result<([File; STREAMS.len()], Self)> {
        let make = |stream: LogStream| -> io::Result<(File, File)> {
            let path = pipe_path(dir, stream);
            match mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR) {
                Ok(()) | Err(Errno::EEXIST) => {}
                Err(e) => return Err(e.into()),
            }
            // Opened in both directions, so that it always has a reader and writing never fails.
            let given = open_pipe(&path, OpenOptions::new().read(true).write(true), 0)?;
            // Fails if this user may not have more pipe memory; the pipe keeps the default capacity then.
            let _ = fcntl(&given, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES));
            // The step may also open it again, as /dev/stdout.
            fchown(&given, Some(owner.as_raw()), None)?;
            let file = open_in_place(&dir.join(stream.file_name()))?;
            reader_uid.map_or(Ok(()), |uid| fchown(&file, Some(uid), None))?;
            Ok((given, open_reader(dir, stream)?))
        };
        let [(out, of_out), (err, of_err)] = [make(STREAMS[0])?, make(STREAMS[1])?];
        Ok((
            [out, err],
            Self::of_pipes(ReaderPipes([of_out, of_err]), dir)?,
        ))
    }

    /// Ends of an attempt that an earlier supervisor started; `None` if it has no pipes.
    ///
    /// # Errors
    /// If they cannot be opened.
    pub(super) fn reopen(dir: &Path) -> io::Result<Option<Self>> {
        let pipes = open_reader(dir, STREAMS[0])
            .and_then(|out| Ok(ReaderPipes([out, open_reader(dir, STREAMS[1])?])));
        match pipes {
            Ok(pipes) => Self::of_pipes(pipes, dir).map(Some),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Ends for pipes that are already open.
    ///
    /// # Errors
    /// If the files cannot be opened.
    pub(super) fn of_pipes(pipes: ReaderPipes, dir: &Path) -> io::Result<Self> {
        let end = |n: usize| -> io::Result<WriterStream> {
            let pipe = pipes.0[n].try_clone()?;
            let file = dir.join(STREAMS[n].file_name());
            let file = open_own(&file, OpenOptions::new().write(true))?;
            Ok(WriterStream { pipe, file })
        };
        let ends = WriterStreams {
            streams: [end(0)?, end(1)?],
            marks: cap::open_marks(dir)?,
        };
        Ok(Self { ends, pipes })
    }
}

impl WriterStreams {
    /// Pipe and file of each stream, and the file of marks.
    pub(super) fn fds(&self) -> Vec<RawFd> {
        let each = self.streams.iter();
        each.flat_map(|end| [&end.pipe, &end.file])
            .chain([&self.marks])
            .map(AsRawFd::as_raw_fd)
            .collect()
    }
}

fn pipe_path(dir: &Path, stream: LogStream) -> PathBuf {
    dir.join(format!("{}.pipe", stream.file_name()))
}

fn open_reader(dir: &Path, stream: LogStream) -> io::Result<File> {
    let mut options = OpenOptions::new();
    open_pipe(
        &pipe_path(dir, stream),
        options.read(true),
        libc::O_NONBLOCK,
    )
}

/// Removes the pipes of an attempt, which may have none.
pub(super) fn remove(dir: &Path) {
    for stream in STREAMS {
        let _it_may_have_none = fs::remove_file(pipe_path(dir, stream));
    }
}

/// Opens in both directions or with `O_NONBLOCK`, so that the call never waits for the other end.
fn open_pipe(path: &Path, options: &mut OpenOptions, flags: libc::c_int) -> io::Result<File> {
    let pipe = options.custom_flags(libc::O_NOFOLLOW | flags).open(path)?;
    if !pipe.metadata()?.file_type().is_fifo() {
        return Err(io::Error::other("it is not the pipe that was made there"));
    }
    Ok(pipe)
}
