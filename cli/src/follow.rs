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

mod tail;

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
    let mut at = offset;
    loop {
        let before = at;
        let error = match stretch(source, &mut at, sink, listen)? {
            StreamEnd::Over(end) => return Ok(end),
            StreamEnd::Broken(error) => error,
        };
        if at > before {
            backoff.reset();
        }
        source.client.check_alive()?;
        if listen(FollowEvent::Broken(&error, backoff.next())).is_break() {
            return Ok(FollowEnd::Stopped(at));
        }
    }
}

/// End of one opened stream.
enum StreamEnd {
    Over(FollowEnd),
    Broken(ApiError),
}

fn stretch(
    source: &OutputSource,
    at: &mut u64,
    sink: &mut dyn Write,
    listen: &mut dyn FnMut(FollowEvent<'_>) -> ControlFlow<()>,
) -> Result<StreamEnd, FollowError> {
    let opened = source.client.logs(
        &source.step,
        source.attempt,
        source.rank,
        source.stream,
        *at,
        source.follow,
    );
    let mut body = match opened {
        Ok(body) => body,
        Err(error) if error.is_passing() => return Ok(StreamEnd::Broken(error)),
        Err(error) => return Err(error.into()),
    };
    if body.start > *at {
        let missing = body.start - *at;
        *at = body.start;
        if listen(FollowEvent::Gap(missing)).is_break() {
            return Ok(StreamEnd::Over(FollowEnd::Stopped(*at)));
        }
    }
    pump(source, &mut body, at, sink, listen)
}

fn pump(
    source: &OutputSource,
    body: &mut LogBody,
    at: &mut u64,
    sink: &mut dyn Write,
    listen: &mut dyn FnMut(FollowEvent<'_>) -> ControlFlow<()>,
) -> Result<StreamEnd, FollowError> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut position = body.start;
    loop {
        let read = match body.reader.read(&mut chunk) {
            Ok(0) => return Ok(StreamEnd::Over(FollowEnd::Complete(*at))),
            Ok(read) => read,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(e) => return Ok(StreamEnd::Broken(source.client.lost(&e))),
        };
        let known = usize::try_from(at.saturating_sub(position))
            .unwrap_or(usize::MAX)
            .min(read);
        position += read as u64;
        if known == read {
            continue;
        }
        if listen(FollowEvent::Bytes).is_break() {
            return Ok(StreamEnd::Over(FollowEnd::Stopped(*at)));
        }
        sink.write_all(&chunk[known..read])
            .map_err(FollowError::Sink)?;
        *at = position;
    }
}

#[cfg(test)]
mod tests;
