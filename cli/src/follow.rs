//! Follows output: the bytes of one stream of one attempt, each exactly once and in order, however often the link
//! breaks. `run` and `logs` drive it.
//!
//! Bytes written to the sink are counted, a broken stream is opened again at that count, and bytes before it are
//! skipped. Only an end without an error is the end of the output.

use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::time::Duration;

use sluice_common::wire::LogStream;

use crate::client::{ApiError, Backoff, Client, LogBody};

mod stamps;
mod tail;

use stamps::{LinePart, NO_TIME, StampReader};
pub(crate) use tail::Tail;

/// Bytes of one read.
const CHUNK_BYTES: usize = 64 * 1024;

/// Selects an output.
#[derive(Clone, Debug)]
pub(crate) struct OutputSource {
    pub(crate) client: Client,
    pub(crate) step: String,
    /// Number of the attempt, starting at 1.
    pub(crate) attempt: u32,
    /// Rank of the part of a gang.
    pub(crate) rank: u32,
    /// Stdout or stderr.
    pub(crate) stream: LogStream,
    /// Whether to go on until the attempt has ended.
    pub(crate) follow: bool,
    /// Time from which on output is wanted, in a form of the API.
    pub(crate) since: Option<String>,
    /// Whether each line begins with its time.
    pub(crate) timestamps: bool,
    /// Whether the first byte continues a line that was written before.
    pub(crate) continues_line: bool,
}

/// An event while following.
#[derive(Debug)]
pub(crate) enum FollowEvent<'a> {
    /// Bytes came and are about to be written.
    Bytes,
    /// The host dropped the oldest output: so many bytes are missing here.
    Gap(u64),
    /// The link broke: the listener waits this long before the next try.
    Broken(&'a ApiError, Duration),
    /// The host kept no time of the next line.
    NoTime,
}

/// Formats the note about a gap.
pub(crate) fn gap_note(bytes: u64) -> String {
    format!(
        "{bytes} bytes were dropped: its host keeps only the newest output, up to its output_max"
    )
}

/// End of following an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FollowEnd {
    /// The output is complete up to this offset.
    Complete(u64),
    /// The listener stopped it; bytes after this offset were not written.
    Stopped(u64),
}

/// Why following failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FollowError {
    /// The cluster refused.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The bytes could not be written.
    #[error("cannot write the output: {0}")]
    Sink(#[source] std::io::Error),
}

/// Writes the output from `offset` on to `sink`. `listen` gets events, waits between tries, and may stop it.
pub(crate) fn follow(
    source: &OutputSource,
    offset: u64,
    sink: &mut dyn Write,
    listen: &mut dyn FnMut(FollowEvent<'_>) -> ControlFlow<()>,
) -> Result<FollowEnd, FollowError> {
    let mut backoff = Backoff::for_calls();
    let mut progress = FollowPosition {
        at: offset,
        is_begun: false,
        is_mid_line: source.continues_line,
    };
    loop {
        let before = progress.at;
        let error = match stretch(source, &mut progress, sink, listen)? {
            StreamEnd::Over(end) => return Ok(end),
            StreamEnd::Broken(error) => error,
        };
        if progress.at > before {
            backoff.reset();
        }
        source.client.check_alive()?;
        if listen(FollowEvent::Broken(&error, backoff.next())).is_break() {
            return Ok(FollowEnd::Stopped(progress.at));
        }
    }
}

/// Position in an output that is followed.
struct FollowPosition {
    /// Offset of the next byte.
    at: u64,
    /// Whether the first answer has come, which settles where output since a time begins.
    is_begun: bool,
    /// Whether the next byte continues a line that was written in part.
    is_mid_line: bool,
}

/// End of one opened stream.
enum StreamEnd {
    Over(FollowEnd),
    Broken(ApiError),
}

fn stretch(
    source: &OutputSource,
    progress: &mut FollowPosition,
    sink: &mut dyn Write,
    listen: &mut dyn FnMut(FollowEvent<'_>) -> ControlFlow<()>,
) -> Result<StreamEnd, FollowError> {
    let since = source.since.clone().filter(|_| !progress.is_begun);
    let is_since = since.is_some();
    let mut query = vec![("follow", source.follow.to_string())];
    query.extend(since.map(|since| ("since", since)));
    query.extend(source.timestamps.then(|| ("timestamps", true.to_string())));
    let opened = source.client.logs(
        &source.step,
        source.attempt,
        source.rank,
        source.stream,
        progress.at,
        query,
    );
    let mut body = match opened {
        Ok(body) => body,
        Err(error) if error.is_passing() => return Ok(StreamEnd::Broken(error)),
        Err(error) => return Err(error.into()),
    };
    progress.is_begun = true;
    if body.start > progress.at {
        let missing = body.start - progress.at;
        progress.at = body.start;
        if !is_since && listen(FollowEvent::Gap(missing)).is_break() {
            return Ok(StreamEnd::Over(FollowEnd::Stopped(progress.at)));
        }
    }
    pump(source, &mut body, progress, sink, listen)
}

fn pump(
    source: &OutputSource,
    body: &mut LogBody,
    progress: &mut FollowPosition,
    sink: &mut dyn Write,
    listen: &mut dyn FnMut(FollowEvent<'_>) -> ControlFlow<()>,
) -> Result<StreamEnd, FollowError> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut position = body.start;
    let mut stamps = source.timestamps.then(StampReader::default);
    loop {
        let read = match body.reader.read(&mut chunk) {
            Ok(0) => return Ok(StreamEnd::Over(FollowEnd::Complete(progress.at))),
            Ok(read) => read,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(e) => return Ok(StreamEnd::Broken(source.client.lost(&e))),
        };
        let pieces = match &mut stamps {
            None => vec![LinePart::plain(&chunk[..read])],
            Some(stamps) => stamps.split(&chunk[..read]),
        };
        for LinePart { stamp, bytes } in pieces {
            let known = progress.at.saturating_sub(position);
            let known = usize::try_from(known)
                .unwrap_or(usize::MAX)
                .min(bytes.len());
            position += bytes.len() as u64;
            let fresh = &bytes[known..];
            if fresh.is_empty() {
                continue;
            }
            let stamp = stamp.filter(|_| known == 0 && !progress.is_mid_line);
            let is_unknown = stamp.as_deref() == Some(NO_TIME);
            let is_over = is_unknown && listen(FollowEvent::NoTime).is_break();
            if is_over || listen(FollowEvent::Bytes).is_break() {
                return Ok(StreamEnd::Over(FollowEnd::Stopped(progress.at)));
            }
            let stamp = stamp.unwrap_or_default();
            let written = sink.write_all(&stamp).and_then(|()| sink.write_all(fresh));
            written.map_err(FollowError::Sink)?;
            progress.is_mid_line = !fresh.ends_with(b"\n");
            progress.at = position;
        }
    }
}

#[cfg(test)]
mod tests;
