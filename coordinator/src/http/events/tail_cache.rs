//! Caches the end of the log, so that it is read once for all followers.

use std::sync::Arc;

use coordinator_core::record::{StepEnded, StepRejected};
use coordinator_core::{AccessChange, Record};
use sluice_common::access::TokenDigest;
use sluice_reasons::Cause;
use tokio::sync::Mutex;

use super::times::with_times;
use crate::store::{Event, ReadError, StoreReader};

/// Records read from the store in one go.
pub(super) const READ: usize = 256;

/// Removes the hashes of tokens, if the record has any. The log contains no values of variables.
fn hide_secrets(event: &mut Event) -> bool {
    let Record::AccessChanged {
        change: AccessChange::ApiTokenCreated { terms, .. },
    } = &mut event.record.record
    else {
        return false;
    };
    terms.digest = TokenDigest::hidden();
    true
}

/// Adds the message to a reason, if the record has one without: the log has only the code and its parameters.
fn say_why(event: &mut Event) -> bool {
    let (Record::StepRejected(StepRejected { reason, .. })
    | Record::StepEnded(StepEnded { reason, .. })
    | Record::Requeued { reason, .. }) = &mut event.record.record
    else {
        return false;
    };
    if matches!(reason, Cause::Said(_)) {
        return false;
    }
    *reason = Cause::Said(reason.to_reason());
    true
}

/// The JSON that callers get of an event.
fn shown(mut event: Event) -> Event {
    let is_changed = hide_secrets(&mut event) | say_why(&mut event);
    let json = match is_changed {
        true => serde_json::to_value(&event.record),
        false => serde_json::from_str(&event.json),
    };
    event.json = with_times(json.expect("a record that was read is JSON"));
    event
}

/// The part of the log that was read last: all followers of the end ask for the same after every change, and one of
/// them reads it.
#[derive(Debug, Default)]
pub(in crate::http) struct TailCache(Mutex<Option<CachedTail>>);

/// A part of the log, without secrets.
#[derive(Clone, Debug)]
struct CachedTail {
    since: u64,
    last: u64,
    limit: usize,
    events: Arc<[Arc<Event>]>,
}

impl TailCache {
    /// Returns at most `limit` records after `since`, up to `last`.
    pub(super) async fn read(
        &self,
        log: &StoreReader,
        since: u64,
        last: u64,
        limit: usize,
    ) -> Result<Arc<[Arc<Event>]>, ReadError> {
        let is_end = last - since <= READ as u64;
        if !is_end {
            return slice(log, since, last, limit).await;
        }
        // Other followers wait here while one reads.
        let mut tail_cache = self.0.lock().await;
        let known = tail_cache
            .as_ref()
            .filter(|it| (it.since, it.last, it.limit) == (since, last, limit));
        if let Some(known) = known {
            return Ok(Arc::clone(&known.events));
        }
        let events = slice(log, since, last, limit).await?;
        *tail_cache = Some(CachedTail {
            since,
            last,
            limit,
            events: Arc::clone(&events),
        });
        Ok(events)
    }
}

async fn slice(
    log: &StoreReader,
    since: u64,
    last: u64,
    limit: usize,
) -> Result<Arc<[Arc<Event>]>, ReadError> {
    let events = read(log, since, limit).await?.into_iter();
    let committed = events.filter(|event| event.record.seq <= last);
    Ok(committed.map(|event| Arc::new(shown(event))).collect())
}

/// Reads on a blocking thread, because the disk may be slow.
pub(super) async fn read(
    log: &StoreReader,
    since: u64,
    limit: usize,
) -> Result<Vec<Event>, ReadError> {
    let log = log.clone();
    let reading = tokio::task::spawn_blocking(move || log.read(since, limit));
    reading.await.expect("reading the log does not panic")
}
