//! Backs up a running coordinator over a socket in its data directory that only its own user can open. An admin of the
//! machine needs no token, and the network cannot reach it.
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

use super::{BackupError, BackupSource, draft_beside, io_error, write};
use crate::store::{StoreHistory, StoreReader};

/// Name of the socket in the data directory.
const SOCKET: &str = "control.sock";

/// Longest request in bytes.
const MAX_REQUEST_BYTES: u64 = 64;

/// Time that a client may take to send its request, and to read a part of the answer.
const PATIENCE: Duration = Duration::from_secs(30);

const WITH_KEYS: &str = "backup";
const WITHOUT_KEYS: &str = "backup without keys";
const REFUSED: &str = "refused: ";

/// The store, as long as backups are given.
type SharedLog = Arc<Mutex<Option<StoreReader>>>;

/// Answers at the socket until it is dropped; then the socket is removed and the store is released, so that it can be
/// closed.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    path: PathBuf,
    log: SharedLog,
}

impl ControlSocket {
    /// Listens in `data_dir`, which the process must own. One backup is made at a time.
    ///
    /// # Errors
    /// If the socket cannot be made, for instance because its path is too long.
    pub(crate) fn listen(data_dir: &Path, log: StoreReader) -> io::Result<Self> {
        let path = data_dir.join(SOCKET);
        // Left by a coordinator that died.
        let _not_there = fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        let data_dir = data_dir.to_owned();
        let log: SharedLog = Arc::new(Mutex::new(Some(log)));
        let shared = Arc::clone(&log);
        thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || serve(&listener, &data_dir, &shared))?;
        Ok(Self { path, log })
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let _gone_already = fs::remove_file(&self.path);
        self.log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
    }
}

/// Serves to the end of the process; the thread is never joined.
fn serve(listener: &UnixListener, data_dir: &Path, log: &SharedLog) {
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { continue };
        let Some(log) = log.lock().unwrap_or_else(PoisonError::into_inner).clone() else {
            return;
        };
        if let Err(error) = answer(&mut stream, data_dir, &log) {
            tracing::warn!(
                "backup failed: {}",
                sluice_common::error_chain::error_chain(&error)
            );
            let _nobody_reads_it = writeln!(stream, "{REFUSED}{error}");
        }
    }
}

fn answer(stream: &mut UnixStream, data_dir: &Path, log: &StoreReader) -> Result<(), BackupError> {
    let socket = Path::new(SOCKET);
    let limited = stream.set_read_timeout(Some(PATIENCE));
    let limited = limited.and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
    limited.map_err(io_error("read", socket))?;
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
    write(
        &BackupSource::Running(log),
        data_dir,
        keys,
        (&mut out, socket),
    )?;
    tracing::info!(keys, "backup written");
    Ok(())
}

/// Backs up the data directory `dir` into `file`, through the coordinator that runs there, or directly if none does.
///
/// # Errors
/// If there is no store, or `file` cannot be written. `file` is then as it was before.
pub fn backup(dir: &Path, file: &Path, keys: bool) -> Result<(), BackupError> {
    let (out, draft) = draft_beside(file)?;
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
    let past = StoreHistory::open(dir)?;
    let mut out = io::BufWriter::new(out);
    write(
        &BackupSource::Resting(&past),
        past.dir(),
        keys,
        (&mut out, path),
    )
}

/// Checks that the backup arrived complete and in order.
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
    super::check::read(input, path, &mut super::check::NoVisitor).map(drop)
}

/// Opens the stream of a running coordinator; `None` if none answers.
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

/// Checks a backup, or the store of a data directory. A running coordinator gives its records to be checked; the store
/// of a stopped one is checked as at a start.
///
/// # Errors
/// The first damage, or why it cannot be read.
pub fn check(place: &Path) -> Result<super::check::Summary, BackupError> {
    if !place.is_dir() {
        let file = fs::File::open(place).map_err(io_error("read", place))?;
        return super::check::read(BufReader::new(file), place, &mut super::check::NoVisitor);
    }
    if let Some(stream) = ask(place, false)? {
        return super::check::read(BufReader::new(stream), place, &mut super::check::NoVisitor);
    }
    let judged = StoreHistory::judge(place)?;
    Ok(super::check::Summary::of_store(judged))
}
