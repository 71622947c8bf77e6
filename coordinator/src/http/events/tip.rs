//! The end of the log, read once for all who follow it.

use std::sync::Arc;

use coordinator_core::record::{StepEnded, StepRejected};
use coordinator_core::{AccessChange, Record};
use sluice_common::access::TokenDigest;
use sluice_reasons::Why;
use tokio::sync::Mutex;

use crate::store::{Event, ReadError, StoreReader};

/// Records that are read from the store at once.
pub(super) const READ: usize = 256;

/// By what a token is known again is for nobody. The values of variables are not in the log at all.
fn hide_secrets(event: &mut Event) {
    let Record::AccessChanged {
        change: AccessChange::ApiTokenCreated { terms, .. },
    } = &mut event.record.record
    else {
        return;
    };
    terms.digest = TokenDigest::hidden();
    write_again(event);
}

/// The log keeps a code with its parameters; whoever reads of it is told the sentence.
fn say_why(event: &mut Event) {
    let (Record::StepRejected(StepRejected { reason, .. })
    | Record::StepEnded(StepEnded { reason, .. })
    | Record::Requeued { reason, .. }) = &mut event.record.record
    else {
        return;
    };
    if !matches!(reason, Why::Said(_)) {
        *reason = Why::Said(reason.said());
        write_again(event);
    }
}

fn write_again(event: &mut Event) {
    event.json =
        serde_json::to_string(&event.record).expect("a record that was read can be written");
}

/// What was read last of the log: all who follow its end ask for the same at every change, and one of them reads it.
#[derive(Debug, Default)]
pub(in crate::http) struct Tip(Mutex<Option<Slice>>);

/// A part of the log, without what is for nobody.
#[derive(Clone, Debug)]
struct Slice {
    since: u64,
    last: u64,
    limit: usize,
    events: Arc<[Arc<Event>]>,
}

impl Tip {
    /// At most `limit` records behind `since`, up to `last`.
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
        // Whoever comes while it is read waits for it.
        let mut tip = self.0.lock().await;
        let known = tip
            .as_ref()
            .filter(|it| (it.since, it.last, it.limit) == (since, last, limit));
        if let Some(known) = known {
            return Ok(Arc::clone(&known.events));
        }
        let events = slice(log, since, last, limit).await?;
        *tip = Some(Slice {
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
    let told = events.filter(|event| event.record.seq <= last);
    let hidden = told.map(|mut event| {
        hide_secrets(&mut event);
        say_why(&mut event);
        Arc::new(event)
    });
    Ok(hidden.collect())
}

/// Reads off the runtime's threads: the disk may be slow.
pub(super) async fn read(
    log: &StoreReader,
    since: u64,
    limit: usize,
) -> Result<Vec<Event>, ReadError> {
    let log = log.clone();
    let reading = tokio::task::spawn_blocking(move || log.read(since, limit));
    reading.await.expect("reading the log does not panic")
}
