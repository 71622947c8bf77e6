//! Events: the log of records, as pages of the past or as a stream. An event's id is its record's number, so a follower
//! resumes where it stopped, and nothing is skipped or repeated.

mod kinds;
mod shown;
mod times;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event as SseEvent, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use futures_util::stream::unfold;
use serde::Deserialize;
use serde_json::value::RawValue;
use sluice_common::api::Page;
use sluice_common::id::{NodeName, StepId};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::Api;
use super::access::{Caller, RecordScopes};
use super::error::ApiError;
use super::followers::FollowerPermit;
use super::page::PageBuilder;
use super::params::{self, Params};
use crate::store::{Event, LogPage, ReadError, StoreReader};
use kinds::EventKinds;
use shown::shown;

/// Records read from the store in one go.
const READ: usize = 256;

/// Most records that one page reads to find matching ones; the page ends there, with a cursor.
const MAX_LOOKED_AT: usize = 20_000;

/// Silence on a stream after which the follower is sent its position. This keeps proxies from closing the stream, and a
/// filtered follower need not read skipped records again.
const SILENCE: Duration = Duration::from_secs(15);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventParams {
    since: Option<String>,
    cursor: Option<String>,
    limit: Option<String>,
    follow: Option<String>,
    step: Option<String>,
    node: Option<String>,
    r#type: Option<String>,
}

/// Handles `GET /v1/events`: those after `since`; `now` begins with the next, and without `since` it begins with the
/// oldest kept.
pub(super) async fn events(
    State(api): State<Api>,
    caller: Caller,
    headers: HeaderMap,
    Params(params): Params<EventParams>,
) -> Result<Response, ApiError> {
    let limit = params::limit(params.limit.as_deref())?;
    let filter = EventFilter {
        step: params.step.as_deref().map(params::step_id).transpose()?,
        node: params::read("node", params.node.as_deref())?,
        kinds: params
            .r#type
            .as_deref()
            .map(EventKinds::parse)
            .transpose()?,
    };
    let since = since(&api, &headers, &params).await?;
    let reader = EventReader {
        caller,
        api: api.clone(),
        log: api.0.log.clone(),
        committed: api.engine().committed(),
        since,
        filter,
    };
    if params::flag("follow", params.follow.as_deref())? {
        let following = api.0.followers.take(&reader.caller.who().to_string())?;
        return follow(api, reader, following, SILENCE).await;
    }
    Ok(Json(page(reader, limit).await?).into_response())
}

/// Returns the position to begin at: from a reconnecting browser's header, else from the parameters.
async fn since(api: &Api, headers: &HeaderMap, params: &EventParams) -> Result<u64, ApiError> {
    let last_seen = headers
        .get("last-event-id")
        .map(|id| id.to_str().unwrap_or("?"));
    let asked = [
        ("last-event-id", last_seen),
        ("cursor", params.cursor.as_deref()),
        ("since", params.since.as_deref()),
    ];
    let Some((name, text)) = asked.into_iter().find(|(_, text)| text.is_some()) else {
        return oldest(api).await;
    };
    let last = *api.engine().committed().borrow();
    if name == "since" && text == Some("now") {
        return Ok(last);
    }
    let since = params::number(name, text)?.unwrap_or(0);
    if since <= last {
        return Ok(since);
    }
    Err(params::invalid(
        name,
        format!("{since} has not happened yet: the last event is {last}"),
    ))
}

async fn oldest(api: &Api) -> Result<u64, ApiError> {
    match read(&api.0.log, (0, 1), |_| false).await {
        Ok(_) => Ok(0),
        Err(ReadError::Gone { first }) => Ok(first - 1),
        Err(error) => Err(error.into()),
    }
}

/// Selects records: those of one step, that name one node and are of some kinds; all if nothing is set.
#[derive(Clone)]
struct EventFilter {
    step: Option<StepId>,
    node: Option<NodeName>,
    kinds: Option<EventKinds>,
}

impl EventFilter {
    fn takes(&self, event: &Event) -> bool {
        let record = &event.record.record;
        let of_step = |step| record.step() == Some(step);
        let on_node = |node| record.names(node);
        self.step.as_ref().is_none_or(of_step)
            && self.node.as_ref().is_none_or(on_node)
            && self.may_take(&event.json)
    }

    /// Whether a record with this JSON can be among them: a record has each id that it names in its text.
    fn may_take(&self, json: &str) -> bool {
        let (step, node) = (&self.step, &self.node);
        step.as_ref()
            .is_none_or(|step| json.contains(step.as_str()))
            && node
                .as_ref()
                .is_none_or(|node| json.contains(node.as_str()))
            && self.kinds.as_ref().is_none_or(|kinds| kinds.have(json))
    }
}

/// Reads matching records from a position in the log.
struct EventReader {
    caller: Caller,
    api: Api,
    log: StoreReader,
    /// Number of the last record that the engine has published. The log may be ahead for a moment, and a follower must
    /// not see records that a resumed call would not find.
    committed: watch::Receiver<u64>,
    since: u64,
    filter: EventFilter,
}

impl EventReader {
    /// Returns the matching ones of the next records, and how many were read; none at the end of the log.
    async fn next(&mut self, limit: usize) -> Result<(Vec<Arc<Event>>, usize), ApiError> {
        let last = *self.committed.borrow();
        if self.since >= last {
            return Ok((Vec::new(), 0));
        }
        let published = usize::try_from(last - self.since).unwrap_or(usize::MAX);
        let LogPage {
            mut events,
            last,
            looked_at,
        } = self.read(limit.min(published)).await?;
        self.since = last;
        events.retain(|event| self.filter.takes(event));
        self.retain_visible(&mut events).await?;
        Ok((events, looked_at))
    }

    /// Returns the next records, from memory if they were committed lately.
    async fn read(&self, limit: usize) -> Result<LogPage, ReadError> {
        if let Some(events) = self.api.engine().log_tail().after(self.since, limit) {
            return Ok(LogPage {
                last: events.last().map_or(self.since, |event| event.record.seq),
                looked_at: events.len(),
                events,
            });
        }
        let filter = self.filter.clone();
        read(&self.log, (self.since, limit), move |json| {
            filter.may_take(json)
        })
        .await
    }

    /// Removes events that the caller may not see, by the rights that he has now, because a stream may last for long.
    async fn retain_visible(&mut self, events: &mut Vec<Arc<Event>>) -> Result<(), ApiError> {
        if self.caller.is_unbounded() || events.is_empty() {
            return Ok(());
        }
        self.caller = self.caller.with_present_rights(&self.api)?;
        let records = events.iter().map(|event| &event.record.record);
        let places = RecordScopes::of(&self.api, records).await?;
        events.retain(|event| self.caller.may_see(&event.record.record, &places));
        Ok(())
    }
}

/// Reads on a blocking thread, because the disk may be slow.
async fn read(
    log: &StoreReader,
    (since, limit): (u64, usize),
    wanted: impl Fn(&str) -> bool + Send + 'static,
) -> Result<LogPage, ReadError> {
    let log = log.clone();
    let reading = tokio::task::spawn_blocking(move || log.read(since, limit, wanted));
    reading.await.expect("reading the log does not panic")
}

async fn page(mut reader: EventReader, limit: usize) -> Result<Page<Box<RawValue>>, ApiError> {
    let mut filling = PageBuilder::new(limit);
    let mut looked_at = 0;
    while !filling.is_full() && looked_at < MAX_LOOKED_AT {
        let (found, looked) = reader.next(READ).await?;
        if looked == 0 {
            return Ok(filling.page(None));
        }
        looked_at += looked;
        for event in found {
            filling.offer(event.record.seq, &raw(shown(&event).to_owned())?)?;
        }
    }
    Ok(filling.page(Some(reader.since)))
}

fn raw(json: String) -> Result<Box<RawValue>, ApiError> {
    RawValue::from_string(json).map_err(|error| ApiError::Internal {
        message: format!("a stored event is not JSON: {error}"),
    })
}

async fn follow(
    api: Api,
    mut reader: EventReader,
    following: FollowerPermit,
    silence: Duration,
) -> Result<Response, ApiError> {
    // The first read decides between a stream and an error.
    let (found, _) = reader.next(READ).await?;
    let follower = Follower {
        committed: api.engine().committed(),
        reader,
        ready: found.into(),
        api,
        silence,
        // If nothing waits, the position is sent at once: a stream that begins now can be resumed from it.
        quiet_until: Instant::now(),
        ended: false,
        _following: following,
    };
    Ok(Sse::new(stream(follower)).into_response())
}

fn stream(follower: Follower) -> impl Stream<Item = Result<SseEvent, Infallible>> {
    unfold(follower, async |mut follower| {
        let event = follower.next().await?;
        follower.quiet_until = Instant::now() + follower.silence;
        Some((Ok(event), follower))
    })
}

struct Follower {
    api: Api,
    reader: EventReader,
    committed: watch::Receiver<u64>,
    ready: VecDeque<Arc<Event>>,
    silence: Duration,
    /// Time at which the position is sent, unless an event comes first.
    quiet_until: Instant,
    ended: bool,
    _following: FollowerPermit,
}

impl Follower {
    /// Returns the next event; `None` when the coordinator stops.
    async fn next(&mut self) -> Option<SseEvent> {
        loop {
            if self.ended {
                return None;
            }
            if let Some(event) = self.ready.pop_front() {
                return Some(sent(&event));
            }
            match self.reader.next(READ).await {
                Ok((found, looked_at)) => {
                    self.ready = found.into();
                    if looked_at == 0 {
                        self.wait().await;
                    }
                    let quiet = self.ready.is_empty() && !self.ended;
                    if quiet && Instant::now() >= self.quiet_until {
                        return Some(place(self.reader.since));
                    }
                }
                // A follower too slow for the retention is told so in the stream, because it has missed events.
                Err(error) => {
                    self.ended = true;
                    return Some(failure(&error));
                }
            }
        }
    }

    /// Waits for an unread record, or for a period of silence.
    async fn wait(&mut self) {
        let since = self.reader.since;
        tokio::select! {
            grown = self.committed.wait_for(|last| *last > since) => self.ended = grown.is_err(),
            () = self.api.stopped() => self.ended = true,
            () = sleep_until(self.quiet_until) => {}
        }
    }
}

/// Makes an event of an id without data: clients ignore it, and resume from there.
fn place(seq: u64) -> SseEvent {
    SseEvent::default().id(seq.to_string())
}

fn sent(event: &Event) -> SseEvent {
    SseEvent::default()
        .id(event.record.seq.to_string())
        .event(kinds::of(event))
        .data(shown(event))
}

fn failure(error: &ApiError) -> SseEvent {
    let body = error.body();
    let text = serde_json::to_string(&body).expect("an error body is plain JSON");
    SseEvent::default().event("error").data(text)
}

#[cfg(test)]
mod tests {
    use super::super::access::Identity;
    use super::*;
    use crate::clock::Clock;
    use crate::engine;
    use crate::fixture::{issuance, settings, step};
    use crate::inputs::InputStore;
    use crate::session::Nodes;
    use crate::store::{DEFAULT_RETENTION, Store};

    use axum::body::Body;
    use futures_util::StreamExt;

    /// Returns the next frame of a stream.
    async fn frame(
        body: &mut (impl Stream<Item = Result<axum::body::Bytes, axum::Error>> + Unpin),
    ) -> String {
        let frame = body.next().await.unwrap().unwrap();
        String::from_utf8(frame.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn a_follower_of_nothing_is_told_its_place_and_never_skips_what_it_wants() {
        let dir = tempfile::tempdir().unwrap();
        let (store, recovered) = Store::open(dir.path(), DEFAULT_RETENTION).unwrap();
        let log = store.reader();
        let cluster = recovered.cluster.clone();
        let clock = Clock::start(recovered.last_at);
        let (engine, _thread) = engine::start(settings(), store, recovered, clock).unwrap();
        let (_stop, stopping) = watch::channel(false);
        let api = Api::new(
            engine.clone(),
            log.clone(),
            (Nodes::default(), InputStore::open(dir.path()).unwrap()),
            issuance(dir.path(), &cluster),
            None,
            stopping,
        );
        let filter = EventFilter {
            step: Some("late".parse().unwrap()),
            node: None,
            kinds: None,
        };
        let reader = EventReader {
            caller: Caller::new(Identity::Local, String::new(), &engine.access_snapshot()),
            api: api.clone(),
            log,
            committed: engine.committed(),
            since: 0,
            filter,
        };
        let following = api.0.followers.take("local").unwrap();
        let response = follow(api, reader, following, Duration::from_millis(5))
            .await
            .unwrap();
        let mut body = Body::into_data_stream(response.into_body());
        let last = *engine.committed().borrow();
        assert_eq!(frame(&mut body).await, format!("id: {last}\n\n"));
        for id in ["early", "late"] {
            engine.submit(vec![step(id)], |_, _| ()).await.unwrap();
        }
        // The position moves past skipped records, but never past an unsent event.
        let mut place = last;
        let sent = loop {
            let sent = frame(&mut body).await;
            match sent.strip_prefix("id: ").unwrap().trim_end().parse::<u64>() {
                Ok(next) => assert!((place..last + 2).contains(&next), "{place} {sent}"),
                Err(_) => break sent,
            }
            place = place.max(last);
        };
        assert!(
            sent.contains("event: step_queued") && sent.contains("\"late\""),
            "{sent}"
        );
        assert!(sent.starts_with(&format!("id: {}\n", last + 2)), "{sent}");
    }
}
