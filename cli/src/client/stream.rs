//! The stream of events over every lost connection: each event once and in order, as long as the coordinator keeps them.

use std::io::Read;
use std::thread;

use serde_json::Value;

use super::{ApiError, Backoff, Client, Events, Patience};

/// Events that are followed.
pub(crate) struct Stream<'a> {
    client: &'a Client,
    last: Option<u64>,
    open: Option<Events<Box<dyn Read + Send>>>,
    backoff: Backoff,
}

impl<'a> Stream<'a> {
    /// What happens after the event of this number; from the oldest that is kept where `None`.
    pub(crate) fn after(client: &'a Client, last: Option<u64>) -> Self {
        Self {
            client,
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
                    let call = || self.client.follow_events(self.last);
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
            self.client.check_alive()?;
            thread::sleep(self.backoff.next());
        }
    }
}
