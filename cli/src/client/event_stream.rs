//! Events: pages, and a stream that survives lost connections: each event once and in order, as long as the coordinator
//! keeps them.

use std::io::Read;
use std::str::FromStr;
use std::thread;

use serde::de::DeserializeOwned;
use serde_json::Value;
use sluice_common::api::{ErrorBody, Page};
use ureq::http::StatusCode;

use super::{
    ANSWER_LIMIT, ApiError, Backoff, Client, PAGE_ITEMS, Query, RetryLimit, SILENCE_LIMIT,
    SseReader,
};

/// Selects events; all if no field is set.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EventFilter<'a> {
    /// Events of this step.
    pub(crate) step: Option<&'a str>,
    /// Events that name this node.
    pub(crate) node: Option<&'a str>,
    /// Events of these types, separated by commas; `*` at an end stands for any rest.
    pub(crate) types: Option<&'a str>,
}

/// Position at which events begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Since {
    /// The oldest kept event.
    #[default]
    Oldest,
    /// The next event that happens.
    Now,
    /// After the event of this number.
    After(u64),
}

impl Since {
    fn number(self) -> Option<u64> {
        match self {
            Since::After(number) => Some(number),
            Since::Oldest | Since::Now => None,
        }
    }

    /// Moves the position behind this number.
    pub(crate) fn pass(&mut self, number: Option<u64>) {
        if let Some(number) = number.max(self.number()) {
            *self = Since::After(number);
        }
    }
}

impl FromStr for Since {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "now" => Ok(Since::Now),
            _ => text.parse().map(Since::After).map_err(|_not_a_number| {
                "an event is known by its number: write one, such as 1200, or `now`".to_owned()
            }),
        }
    }
}

/// A stream of events.
pub(crate) struct EventStream<'a> {
    client: &'a Client,
    filter: EventFilter<'a>,
    last: Since,
    open: Option<SseReader<Box<dyn Read + Send>>>,
    backoff: Backoff,
}

impl<'a> EventStream<'a> {
    /// Starts a stream at a position.
    pub(crate) fn new(client: &'a Client, since: Since, filter: EventFilter<'a>) -> Self {
        Self {
            client,
            filter,
            last: since,
            open: None,
            backoff: Backoff::for_calls(),
        }
    }

    /// Waits for the next event, however long. `on_outage` is called at each failure.
    ///
    /// # Errors
    /// If the coordinator refuses, or ends the stream with an error.
    pub(crate) fn next(&mut self, mut on_outage: impl FnMut(&ApiError)) -> Result<Value, ApiError> {
        loop {
            let mut events = match self.open.take() {
                Some(events) => events,
                None => {
                    let call = || self.client.follow_events(self.last, self.filter);
                    self.client
                        .keep_trying(RetryLimit::Endless, &mut on_outage, call)?
                }
            };
            // A broken stream is opened again after the last complete event.
            while let Some(Ok(event)) = events.next() {
                let value: Value = self.client.understand(&event.data)?;
                if event.kind == "error" {
                    return Err(self.client.refused_in_stream(value));
                }
                let seq = value.get("seq").and_then(Value::as_u64);
                if seq > self.last.number() {
                    self.last.pass(seq);
                    self.backoff.reset();
                    self.open = Some(events);
                    return Ok(value);
                }
            }
            self.last.pass(events.place());
            self.client.check_alive()?;
            thread::sleep(self.backoff.next());
        }
    }
}

impl Client {
    /// Calls `GET /v1/events` for one page.
    pub(crate) fn events_page<T: DeserializeOwned>(
        &self,
        since: Since,
        filter: EventFilter<'_>,
    ) -> Result<Page<T>, ApiError> {
        let mut query = events_query(since, filter);
        query.push(("limit", PAGE_ITEMS.to_string()));
        self.get("/v1/events", &query)
    }

    /// Calls `GET /v1/events?follow=true`.
    pub(crate) fn follow_events(
        &self,
        since: Since,
        filter: EventFilter<'_>,
    ) -> Result<SseReader<Box<dyn Read + Send>>, ApiError> {
        self.open_events(events_query(since, filter))
    }

    fn open_events(
        &self,
        mut query: Query<'_>,
    ) -> Result<SseReader<Box<dyn Read + Send>>, ApiError> {
        query.push(("follow", "true".to_owned()));
        let path = "/v1/events";
        let response = self.call(path, &query, Some(ANSWER_LIMIT), Some(SILENCE_LIMIT))?;
        let reader: Box<dyn Read + Send> = Box::new(response.into_body().into_reader());
        Ok(SseReader::new(reader))
    }

    /// Parses data of a stream.
    fn understand<T: DeserializeOwned>(&self, text: &str) -> Result<T, ApiError> {
        serde_json::from_str(text).map_err(|e| self.garbled(&e))
    }

    /// Returns the error with which the coordinator ended a stream.
    fn refused_in_stream(&self, value: Value) -> ApiError {
        match serde_json::from_value::<ErrorBody>(value) {
            // It came after the status line, so the status is that of its usual cause.
            Ok(body) => ApiError::Refused {
                status: StatusCode::GONE.as_u16(),
                error: body.error,
            },
            Err(error) => self.garbled(&error),
        }
    }
}

fn events_query(since: Since, filter: EventFilter<'_>) -> Query<'static> {
    let since = match since {
        Since::Oldest => None,
        Since::Now => Some(("since", "now".to_owned())),
        Since::After(number) => Some(("since", number.to_string())),
    };
    let step = filter.step.map(|step| ("step", step.to_owned()));
    let node = filter.node.map(|node| ("node", node.to_owned()));
    let types = filter.types.map(|types| ("type", types.to_owned()));
    [since, step, node, types].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_is_a_number_or_now_and_only_goes_forward() {
        assert_eq!("now".parse(), Ok(Since::Now));
        assert_eq!("12".parse(), Ok(Since::After(12)));
        for text in ["", "NOW", "-1", "1.5", "yesterday"] {
            let refusal = text.parse::<Since>().unwrap_err();
            assert!(refusal.contains("or `now`"), "{text}: {refusal}");
        }
        for mut since in [Since::Oldest, Since::Now, Since::After(3)] {
            let begun = since;
            since.pass(None);
            assert_eq!(since, begun);
            since.pass(Some(7));
            since.pass(Some(5));
            assert_eq!(since, Since::After(7));
        }
    }
}
