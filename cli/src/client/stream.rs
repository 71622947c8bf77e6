//! Events: pages of them, and the stream over every lost connection: each event once and in order, as long as the coordinator keeps them.

use std::io::Read;
use std::thread;

use serde::de::DeserializeOwned;
use serde_json::Value;
use sluice_common::api::{ErrorBody, Page};
use ureq::http::StatusCode;

use super::{
    ANSWER_LIMIT, ApiError, Backoff, Client, Events, PAGE_ITEMS, Patience, Query, SILENCE_LIMIT,
};

/// Whose events are wanted; all where it names none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EventFilter<'a> {
    /// Those of this step.
    pub(crate) step: Option<&'a str>,
    /// Those that name this node.
    pub(crate) node: Option<&'a str>,
}

/// Events that are followed.
pub(crate) struct Stream<'a> {
    client: &'a Client,
    filter: EventFilter<'a>,
    last: Option<u64>,
    open: Option<Events<Box<dyn Read + Send>>>,
    backoff: Backoff,
}

impl<'a> Stream<'a> {
    /// What happens after the event of this number; from the oldest that is kept where `None`.
    pub(crate) fn after(client: &'a Client, last: Option<u64>, filter: EventFilter<'a>) -> Self {
        Self {
            client,
            filter,
            last,
            open: None,
            backoff: Backoff::for_calls(),
        }
    }

    /// The next event; waits for it, however long. `on_outage` hears of each failure.
    ///
    /// # Errors
    /// Where the coordinator refuses, or ends the stream with an error of its own.
    pub(crate) fn next(&mut self, mut on_outage: impl FnMut(&ApiError)) -> Result<Value, ApiError> {
        loop {
            let mut events = match self.open.take() {
                Some(events) => events,
                None => {
                    let call = || self.client.follow_events(self.last, self.filter);
                    self.client
                        .keep_trying(Patience::Endless, &mut on_outage, call)?
                }
            };
            // A broken stream is opened again after the last event that came whole.
            while let Some(Ok(event)) = events.next() {
                let value: Value = self.client.understand(&event.data)?;
                if event.kind == "error" {
                    return Err(self.client.refused_in_stream(value));
                }
                let seq = value.get("seq").and_then(Value::as_u64);
                if seq > self.last {
                    self.last = seq;
                    self.backoff.reset();
                    self.open = Some(events);
                    return Ok(value);
                }
            }
            self.last = self.last.max(events.place());
            self.client.check_alive()?;
            thread::sleep(self.backoff.next());
        }
    }
}

impl Client {
    /// `GET /v1/events`: one page of what happened after `since`, from the oldest that is kept where `None`.
    pub(crate) fn events_page<T: DeserializeOwned>(
        &self,
        since: Option<u64>,
        filter: EventFilter<'_>,
    ) -> Result<Page<T>, ApiError> {
        let mut query = events_query(since, filter);
        query.push(("limit", PAGE_ITEMS.to_owned()));
        self.get("/v1/events", &query)
    }

    /// `GET /v1/events?follow=true`: what happens after `since`, as it happens.
    pub(crate) fn follow_events(
        &self,
        since: Option<u64>,
        filter: EventFilter<'_>,
    ) -> Result<Events<Box<dyn Read + Send>>, ApiError> {
        self.open_events(events_query(since, filter))
    }

    /// `GET /v1/events?since=now&follow=true`: what happens from now on.
    pub(crate) fn follow_new_events(&self) -> Result<Events<Box<dyn Read + Send>>, ApiError> {
        self.open_events(vec![("since", "now".to_owned())])
    }

    fn open_events(&self, mut query: Query<'_>) -> Result<Events<Box<dyn Read + Send>>, ApiError> {
        query.push(("follow", "true".to_owned()));
        let path = "/v1/events";
        let response = self.call(path, &query, Some(ANSWER_LIMIT), Some(SILENCE_LIMIT))?;
        let reader: Box<dyn Read + Send> = Box::new(response.into_body().into_reader());
        Ok(Events::new(reader))
    }

    /// What came in a stream.
    fn understand<T: DeserializeOwned>(&self, text: &str) -> Result<T, ApiError> {
        serde_json::from_str(text).map_err(|e| self.garbled(&e))
    }

    /// The error by which the coordinator ended a stream that it could not go on with.
    fn refused_in_stream(&self, value: Value) -> ApiError {
        match serde_json::from_value::<ErrorBody>(value) {
            // It came after the status line, so the status is that of what happens to be gone.
            Ok(body) => ApiError::Refused {
                status: StatusCode::GONE.as_u16(),
                error: body.error,
            },
            Err(error) => self.garbled(&error),
        }
    }
}

fn events_query(since: Option<u64>, filter: EventFilter<'_>) -> Query<'static> {
    let since = since.map(|since| ("since", since.to_string()));
    let step = filter.step.map(|step| ("step", step.to_owned()));
    let node = filter.node.map(|node| ("node", node.to_owned()));
    since.into_iter().chain(step).chain(node).collect()
}
