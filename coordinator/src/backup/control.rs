//! Asking a coordinator that runs for a backup: by a socket in its data directory, which its own user alone can open. So
//! nobody needs a token to back up the machine that he is on, and no way leads there from the network.
//!
//! ```text
//! "backup\n" or "backup without keys\n"  -->
//!                                        <--  the backup, or a line that says "refused: ..."
//! ```

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::{BackupError, Source, beside, io_error, write};
use crate::store::{Past, StoreReader};

/// The socket's name in the data directory.
const SOCKET: &str = "control.sock";

/// The longest request, in bytes.
const MAX_REQUEST_BYTES: u64 = 64;

/// How long one may take to ask, and how long what is given may wait to be taken.
const PATIENCE: Duration = Duration::from_secs(30);

const WITH_KEYS: &str = "backup";
const WITHOUT_KEYS: &str = "backup without keys";
const REFUSED: &str = "refused: ";

/// The store, as long as backups are given.
type Log = Arc<Mutex<Option<StoreReader>>>;

/// Answers at the socket until it is dropped: then the socket is there no longer, and nothing of the store is held, so
/// that it can be closed.
#[derive(Debug)]
pub(crate) struct Control {
    path: PathBuf,
    log: Log,
}

impl Control {
    /// Listens below `data_dir`, which must be ours. One backup is given at a time.
    ///
    /// # Errors
    /// Where the socket cannot be made: its path may be too long.
    pub(crate) fn listen(data_dir: &Path, log: StoreReader) -> io::Result<Self> {
        let path = data_dir.join(SOCKET);
        // What a dead coordinator has left.
        let _not_there = fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        let data_dir = data_dir.to_owned();
        let log: Log = Arc::new(Mutex::new(Some(log)));
        let shared = Arc::clone(&log);
        thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || serve(&listener, &data_dir, &shared))?;
        Ok(Self { path, log })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _gone_already = fs::remove_file(&self.path);
        self.log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
    }
}

/// To the end of the process: nobody waits for it.
fn serve(listener: &UnixListener, data_dir: &Path, log: &Log) {
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { continue };
        let Some(log) = log.lock().unwrap_or_else(PoisonError::into_inner).clone() else {
            return;
        };
        if let Err(error) = answer(&mut stream, data_dir, &log) {
            tracing::warn!(
                "a backup was not given: {}",
                sluice_common::error_chain::error_chain(&error)
            );
            let _nobody_reads_it = writeln!(stream, "{REFUSED}{error}");
        }
    }
}

fn answer(stream: &mut UnixStream, data_dir: &Path, log: &StoreReader) -> Result<(), BackupError> {
    let socket = Path::new(SOCKET);
    let patient = stream.set_read_timeout(Some(PATIENCE));
    let patient = patient.and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
    patient.map_err(io_error("read", socket))?;
    let mut request = String::new();
    let mut reader = BufReader::new((&mut *stream).take(MAX_REQUEST_BYTES));
    reader
        .read_line(&mut request)
        .map_err(io_error("read", socket))?;
    let keys = match request.trim_end() {
        WITH_KEYS => true,
        WITHOUT_KEYS => false,
        _ => {
            return Err(io_error("understand", socket)(
                io::ErrorKind::InvalidInput.into(),
            ));
        }
    };
    let mut out = io::BufWriter::new(&mut *stream);
    write(&Source::Running(log), data_dir, keys, (&mut out, socket))?;
    tracing::info!(keys, "backup given");
    Ok(())
}

/// Backs up the data directory `dir` into `file`: by the coordinator that runs there, or directly where none does.
///
/// # Errors
/// Where there is no store, or `file` cannot be written. Then there is no `file`, or the one that was there.
pub fn backup(dir: &Path, file: &Path, keys: bool) -> Result<(), BackupError> {
    let (out, draft) = beside(file)?;
    let taken = take(dir, keys, (&out, &draft)).and_then(|()| {
        out.sync_all().map_err(io_error("sync", &draft))?;
        fs::rename(&draft, file).map_err(io_error("write", file))
    });
    if taken.is_err() {
        let _gone_already = fs::remove_file(&draft);
    }
    taken
}

fn take(dir: &Path, keys: bool, (mut out, path): (&fs::File, &Path)) -> Result<(), BackupError> {
    if let Some(mut stream) = ask(dir, keys)? {
        io::copy(&mut stream, &mut out).map_err(io_error("write", path))?;
        return whole(dir, path);
    }
    let past = Past::open(dir)?;
    let mut out = io::BufWriter::new(out);
    write(&Source::Resting(&past), past.dir(), keys, (&mut out, path))
}

/// Whether all that was given has come, in order.
fn whole(dir: &Path, path: &Path) -> Result<(), BackupError> {
    let file = fs::File::open(path).map_err(io_error("read", path))?;
    let mut input = BufReader::new(file);
    let head = input.fill_buf().map_err(io_error("read", path))?;
    if head.starts_with(REFUSED.as_bytes()) {
        let why = String::from_utf8_lossy(&head[REFUSED.len()..])
            .trim()
            .to_owned();
        let dir = dir.to_owned();
        return Err(BackupError::Refused { dir, why });
    }
    super::check::read(input, path, &mut super::check::Nobody).map(drop)
}

/// Opens the stream of a coordinator that runs; `None` where none answers.
pub(crate) fn ask(dir: &Path, keys: bool) -> Result<Option<UnixStream>, BackupError> {
    let places = [dir.to_owned(), dir.join("coordinator")];
    let sockets = places.iter().map(|place| place.join(SOCKET));
    let Some((path, mut stream)) = sockets
        .filter_map(|path| UnixStream::connect(&path).ok().map(|stream| (path, stream)))
        .next()
    else {
        return Ok(None);
    };
    let request = if keys { WITH_KEYS } else { WITHOUT_KEYS };
    let asked = writeln!(stream, "{request}");
    asked.map_err(io_error("write", &path))?;
    Ok(Some(stream))
}

/// Looks at all of a backup, or of the store of a data directory. Where a coordinator runs its records are looked at as it
/// gives them; where none does, the start's own judge looks at all.
///
/// # Errors
/// The first damage, or why it cannot be read.
pub fn check(place: &Path) -> Result<super::check::Summary, BackupError> {
    if !place.is_dir() {
        let file = fs::File::open(place).map_err(io_error("read", place))?;
        return super::check::read(BufReader::new(file), place, &mut super::check::Nobody);
    }
    if let Some(stream) = ask(place, false)? {
        return super::check::read(BufReader::new(stream), place, &mut super::check::Nobody);
    }
    let judged = Past::judge(place)?;
    Ok(super::check::Summary::of_store(judged))
}
