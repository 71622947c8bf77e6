//! Follows the stream of events in a thread, which reports that something happened, and to which step.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use super::outage_note;
use crate::client::{ApiError, Backoff, Client, EventFilter, RetryLimit, Since};
use crate::failure::Failure;
use crate::out::Out;
use crate::render::event::Event;

/// Interval of reads without an event: some values change by themselves, such as the age of a node's last heartbeat.
const LOOK: Duration = Duration::from_secs(30);

/// A message of the thread that follows events.
pub(crate) enum WatchEvent {
    /// The stream is open: everything from now on will be reported.
    Open,
    /// Something happened, to this step if to one.
    Event(Option<String>),
    /// Events can no longer be followed.
    Over(ApiError),
}

/// Follows events over every lost connection.
pub(crate) fn follow(client: &Client, send: &Sender<WatchEvent>, out: Out) {
    let mut backoff = Backoff::for_calls();
    loop {
        let call = || client.follow_events(Since::Now, EventFilter::default());
        let events = match client.keep_trying(RetryLimit::Endless, outage_note(out), call) {
            Ok(events) => events,
            Err(error) => return drop(send.send(WatchEvent::Over(error))),
        };
        if send.send(WatchEvent::Open).is_err() {
            return;
        }
        for event in events.map_while(Result::ok) {
            // A stream that ended with an error is opened again, and everything is read again.
            let Ok(value) = serde_json::from_str(&event.data) else {
                break;
            };
            backoff.reset();
            let step = Event(value).step().map(str::to_owned);
            if send.send(WatchEvent::Event(step)).is_err() {
                return;
            }
        }
        if let Err(error) = client.check_alive() {
            return drop(send.send(WatchEvent::Over(error)));
        }
        thread::sleep(backoff.next());
    }
}

/// Rows that must be read again.
#[derive(Default)]
pub(crate) struct StaleRows {
    /// The stream was opened: anything may have happened before.
    pub(crate) all: bool,
    /// The interval has passed without an event.
    pub(crate) late: bool,
    /// Steps to which something happened.
    pub(crate) steps: BTreeSet<String>,
}

impl StaleRows {
    /// Waits for a message, and takes all that are waiting.
    pub(crate) fn wait(&mut self, news: &Receiver<WatchEvent>) -> Result<(), Failure> {
        match news.recv_timeout(LOOK) {
            Ok(first) => self.add(first)?,
            Err(RecvTimeoutError::Timeout) => self.late = true,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::Failed("the events are no longer followed".into()));
            }
        }
        news.try_iter().try_for_each(|news| self.add(news))
    }

    fn add(&mut self, news: WatchEvent) -> Result<(), Failure> {
        match news {
            WatchEvent::Open => self.all = true,
            WatchEvent::Event(Some(step)) => drop(self.steps.insert(step)),
            WatchEvent::Event(None) => {}
            WatchEvent::Over(error) => return Err(error.into()),
        }
        Ok(())
    }
}
