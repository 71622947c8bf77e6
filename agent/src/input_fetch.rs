//! Gets the inputs of steps from the coordinator before their attempts start: one stream for each attempt, written as a
//! stream of `sluice-copy` into one file, which the supervisor has unpacked as the step's user.
//!
//! A broken link begins the attempt's files anew, for as long as the attempt is to start. Nothing here outlives the agent:
//! the next one is ordered to fetch again.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use agent_core::{Input, InputsFailure};
use ring::digest::{Context, SHA256};
use sluice_common::error_chain::error_chain;
use sluice_common::id::AttemptId;
use sluice_common::inputs::{InputFile, InputHash};
use sluice_common::wire::{InputsRequest, LogReply, StreamKind};
use sluice_copy::{CopyError, FileHeader, TreeWriter};
use sluice_transport::{Backoff, Connection, TransportError};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{AbortHandle, spawn_blocking};
use tracing::{info, warn};

use crate::event::Event;

/// Attempts whose inputs are on their way at one time: the coordinator accepts few streams of a host.
const FETCHES_AT_ONCE: usize = 3;

/// Bytes read from the link at once, and pieces that may wait for the disk.
const CHUNK_BYTES: usize = 64 * 1024;
const CHUNKS_WAITING: usize = 16;

/// Why inputs did not arrive.
#[derive(Debug, thiserror::Error)]
enum InputReceiverError {
    /// Another try may work.
    #[error(transparent)]
    Link(#[from] TransportError),
    #[error("the coordinator ended the stream early")]
    EndedEarly,
    #[error("{0}")]
    Refused(String),
    #[error(
        "input `{name}` arrived with other contents than were uploaded: submit the step again, and look at the coordinator's disk"
    )]
    OtherContents { name: String },
    #[error("the host cannot store input `{name}`: {why}")]
    Disk { name: String, why: String },
}

/// Fetches inputs, and holds the files of those attempts that have not started.
pub(crate) struct InputReceiver {
    dir: PathBuf,
    events: mpsc::WeakSender<Event>,
    link: watch::Receiver<Option<Connection>>,
    turns: Arc<Semaphore>,
    present: BTreeMap<AttemptId, AbortHandle>,
}

/// Directory of the files in a state directory.
pub(crate) fn directory(state_dir: &Path) -> PathBuf {
    state_dir.join("inputs")
}

impl InputReceiver {
    /// Fetches into `dir`, by the links in `link`. What an earlier agent left there is removed.
    pub(crate) fn new(
        dir: PathBuf,
        events: mpsc::WeakSender<Event>,
        link: watch::Receiver<Option<Connection>>,
    ) -> Self {
        if let Err(error) = fs::remove_dir_all(&dir)
            && error.kind() != io::ErrorKind::NotFound
        {
            warn!("cannot clear {}: {error}", dir.display());
        }
        Self {
            dir,
            events,
            link,
            turns: Arc::new(Semaphore::new(FETCHES_AT_ONCE)),
            present: BTreeMap::new(),
        }
    }

    /// Begins to fetch the inputs of an attempt; the engine gets [`Input::Inputs`] at the end.
    pub(crate) fn begin(&mut self, attempt: AttemptId, files: Vec<InputFile>) {
        let fetch = AttemptInputs {
            path: self.dir.join(attempt.to_string()),
            attempt: attempt.clone(),
            files,
            link: self.link.clone(),
            turns: Arc::clone(&self.turns),
        };
        let events = self.events.clone();
        let task = tokio::spawn(async move {
            let fetched = fetch.run().await;
            let attempt = fetch.attempt;
            if let Some(events) = events.upgrade() {
                let event = Event::Core(Input::Inputs { attempt, fetched });
                let _the_agent_stops = events.send(event).await;
            }
        });
        self.present.insert(attempt, task.abort_handle());
    }

    /// Ends what is not wanted any more, and removes its files.
    pub(crate) fn keep(&mut self, is_wanted: impl Fn(&AttemptId) -> bool) {
        let dir = &self.dir;
        self.present.retain(|attempt, task| {
            let stays = is_wanted(attempt);
            if !stays {
                task.abort();
                remove(&dir.join(attempt.to_string()));
            }
            stays
        });
    }
}

/// The inputs of one attempt.
struct AttemptInputs {
    /// The file that gets them.
    path: PathBuf,
    attempt: AttemptId,
    files: Vec<InputFile>,
    link: watch::Receiver<Option<Connection>>,
    turns: Arc<Semaphore>,
}

impl AttemptInputs {
    async fn run(&self) -> Result<(), InputsFailure> {
        let mut backoff = Backoff::new();
        let mut link = self.link.clone();
        loop {
            let connection = link.wait_for(Option::is_some).await;
            let connection = connection.ok().and_then(|found| found.clone());
            let Some(connection) = connection else {
                // The agent stops.
                return std::future::pending().await;
            };
            let error = match self.try_once(&connection).await {
                Ok(part) => match part.complete(&self.path) {
                    Ok(()) => return Ok(()),
                    Err(why) => disk(&self.files[0], &why),
                },
                Err(error) => error,
            };
            let why = error_chain(&error);
            match error {
                InputReceiverError::Link(_) | InputReceiverError::EndedEarly => {
                    info!(attempt = %self.attempt, "its inputs are requested again: {why}");
                    let random = getrandom::u64().unwrap_or(0);
                    tokio::time::sleep(backoff.next(random)).await;
                }
                InputReceiverError::Refused(_) | InputReceiverError::OtherContents { .. } => {
                    return Err(InputsFailure::Step(why));
                }
                InputReceiverError::Disk { .. } => return Err(InputsFailure::Host(why)),
            }
        }
    }

    async fn try_once(&self, connection: &Connection) -> Result<PartFile, InputReceiverError> {
        let Ok(_turn) = self.turns.acquire().await else {
            return Err(InputReceiverError::EndedEarly);
        };
        let (mut writer, mut reader) = connection.open().await?;
        writer.send(&StreamKind::Inputs).await?;
        let attempt = self.attempt.clone();
        writer.send(&InputsRequest { attempt }).await?;
        match reader.next().await? {
            Some(LogReply::From { .. }) => {}
            Some(LogReply::Refused { message }) => {
                return Err(InputReceiverError::Refused(message));
            }
            None => return Err(InputReceiverError::EndedEarly),
        }
        let (chunks, received) = mpsc::channel(CHUNKS_WAITING);
        let (path, files) = (
            self.path.with_file_name(format!("{}.new", self.attempt)),
            self.files.clone(),
        );
        let storing = spawn_blocking(move || {
            let received = InputReader {
                chunks: received,
                rest: Vec::new(),
                at: 0,
            };
            store(path, &files, received)
        });
        while let Some(chunk) = reader.read_bytes(CHUNK_BYTES).await? {
            // The end of the writing thread tells why.
            if chunks.send(chunk).await.is_err() {
                break;
            }
        }
        drop(chunks);
        writer.finish();
        storing.await.unwrap_or(Err(InputReceiverError::EndedEarly))
    }
}

/// A file that is removed unless it is completed.
struct PartFile(PathBuf);

impl PartFile {
    fn complete(self, path: &Path) -> io::Result<()> {
        fs::rename(&self.0, path)
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

fn remove(path: &Path) {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            warn!("cannot remove {}: {e}", path.display());
        }
        Ok(()) | Err(_) => {}
    }
}

/// Pieces from the link as a byte stream.
struct InputReader {
    chunks: mpsc::Receiver<Vec<u8>>,
    rest: Vec<u8>,
    at: usize,
}

impl Read for InputReader {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        while self.at == self.rest.len() {
            let Some(chunk) = self.chunks.blocking_recv() else {
                return Ok(0);
            };
            (self.rest, self.at) = (chunk, 0);
        }
        let count = bytes.len().min(self.rest.len() - self.at);
        bytes[..count].copy_from_slice(&self.rest[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

/// Writes the contents of the files, which come one after the other, into one file. What is not of the promised size and
/// hash is not stored.
fn store(
    path: PathBuf,
    files: &[InputFile],
    mut contents: impl Read,
) -> Result<PartFile, InputReceiverError> {
    let Some(first) = files.first() else {
        return Err(InputReceiverError::EndedEarly);
    };
    let file = create(&path).map_err(|why| disk(first, &why))?;
    let part = PartFile(path);
    let began = TreeWriter::begin(BufWriter::new(file), SystemTime::now());
    let mut tree = began.map_err(|why| disk(first, &why))?;
    for file in files {
        store_one(file, &mut contents, &mut tree)?;
    }
    let last = files.last().unwrap_or(first);
    tree.end().map_err(|why| disk(last, &why))?;
    Ok(part)
}

fn store_one<W: Write>(
    file: &InputFile,
    contents: &mut impl Read,
    tree: &mut TreeWriter<W>,
) -> Result<(), InputReceiverError> {
    let failed = |why: CopyError| disk(file, &why);
    let mode = if file.executable { 0o755 } else { 0o644 };
    let size = file.size;
    tree.begin_file(file.path(), FileHeader { size, mode })
        .map_err(failed)?;
    let mut hash = Context::new(&SHA256);
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut left = size;
    while left > 0 {
        let most = CHUNK_BYTES.min(usize::try_from(left).unwrap_or(CHUNK_BYTES));
        let read = contents.read(&mut buffer[..most]);
        let count = read.map_err(|why| disk(file, &why))?;
        if count == 0 {
            return Err(InputReceiverError::EndedEarly);
        }
        hash.update(&buffer[..count]);
        tree.contents(&buffer[..count]).map_err(failed)?;
        left -= count as u64;
    }
    let found = InputHash::of_digest(hash.finish().as_ref());
    if found != file.sha256 {
        let name = file.name.clone();
        return Err(InputReceiverError::OtherContents { name });
    }
    tree.end_file().map_err(failed)
}

fn create(path: &Path) -> io::Result<File> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path)
}

fn disk(file: &InputFile, why: &dyn std::fmt::Display) -> InputReceiverError {
    InputReceiverError::Disk {
        name: file.name.clone(),
        why: why.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, contents: &[u8]) -> InputFile {
        let digest = ring::digest::digest(&SHA256, contents);
        InputFile {
            name: name.to_owned(),
            sha256: InputHash::of_digest(digest.as_ref()),
            size: contents.len() as u64,
            executable: name.ends_with(".sh"),
        }
    }

    #[test]
    fn only_what_was_promised_is_stored() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("inputs/a.1.new");
        let large = vec![3; 200_000];
        let files = [
            file("a/large", &large),
            file("none", b""),
            file("z.sh", b"#!"),
        ];
        let stream = [&large[..], b"#!"].concat();
        let part = store(path.clone(), &files, &stream[..]).unwrap();
        let whole = dir.path().join("inputs/a.1");
        part.complete(&whole).unwrap();
        assert!(whole.metadata().unwrap().len() > stream.len() as u64);
        let cut = store(path.clone(), &files, &stream[..stream.len() - 1]);
        assert!(matches!(cut, Err(InputReceiverError::EndedEarly)));
        let mut other = stream.clone();
        other[199_999] = 4;
        let other = store(path.clone(), &files, &other[..]);
        let why = other.err().unwrap().to_string();
        assert!(
            why.starts_with("input `a/large` arrived with other"),
            "{why}"
        );
        assert!(!path.exists(), "nothing half-done stays");
        fs::create_dir(&path).unwrap();
        let why = store(path, &files, &stream[..]).err().unwrap().to_string();
        assert!(
            why.starts_with("the host cannot store input `a/large`"),
            "{why}"
        );
    }
}
