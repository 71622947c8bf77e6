//! The link to the coordinator: dial, say hello, keep the heart beating, carry orders and statuses, serve output.
//! When it breaks it is made anew, to the next address in the list, with backoff and jitter.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use agent_core::{Input, LinkId};
use sluice_common::chain::chain;
use sluice_common::supervision::BootMillis;
use sluice_common::time::Span;
use sluice_common::wire::{Greeting, Heartbeat, HeartbeatAck, StreamKind, Welcome};
use sluice_transport::{Backoff, Connection, FrameReader, FrameWriter, TransportError};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::clock;
use crate::engine::{Event, OUTBOX, ToLink};
use crate::logs::Logs;
use crate::renewal::{self, Door};
use crate::told::Told;

/// How long a coordinator may take to answer a hello; it commits a record first, which on a busy disk takes long.
const GREETING_WITHIN: Duration = Duration::from_secs(10);
/// Heartbeats that may be under way. A link on which more are unanswered is as good as dead.
const BEATS_UNDER_WAY: usize = 1000;

/// Why a link ended or could not be made.
#[derive(Debug, thiserror::Error)]
enum LinkError {
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error("the coordinator does not let this node in: {message}")]
    Refused { message: String },
    #[error("the coordinator did not answer the hello within {}s", GREETING_WITHIN.as_secs())]
    NoGreeting,
    #[error("the coordinator closed the link")]
    Closed,
    #[error("the link was given up")]
    GivenUp,
    #[error("{BEATS_UNDER_WAY} heartbeats are unanswered")]
    Unanswered,
}

/// The link, through all its connections.
pub(crate) struct Link {
    pub(crate) door: Door,
    pub(crate) coordinators: Vec<String>,
    pub(crate) events: mpsc::Sender<Event>,
    pub(crate) logs: Arc<Logs>,
}

impl Link {
    /// Keeps a link until the loop is gone. Nothing is dialled before `supervised` is true.
    pub(crate) async fn run(mut self, mut supervised: watch::Receiver<bool>) {
        if supervised.wait_for(|up| *up).await.is_err() {
            return;
        }
        let mut backoff = Backoff::new();
        let mut told = Told::default();
        let coordinators = self.coordinators.clone();
        let mut addresses = coordinators.iter().cycle();
        for number in 1.. {
            let Some(address) = addresses.next() else {
                return;
            };
            let mut linked = false;
            let error = self
                .serve(address, LinkId(number), &mut backoff, &mut linked)
                .await;
            if self.events.is_closed() {
                return;
            }
            tell(address, linked, &chain(&error), &mut told);
            tokio::time::sleep(backoff.next(random())).await;
        }
    }

    /// One connection, from dialling to its end; `linked` turns true once the coordinator has let this node in.
    async fn serve(
        &mut self,
        address: &str,
        link: LinkId,
        backoff: &mut Backoff,
        linked: &mut bool,
    ) -> LinkError {
        let connection = match self.door.refresh().dial(address).await {
            Ok(connection) => connection,
            Err(error) => return error.into(),
        };
        let talk = self.talk(&connection, address, link, backoff, linked);
        let error = match talk.await {
            Ok(never) => match never {},
            Err(error) => error,
        };
        connection.close("the agent ends this link");
        // The loop may be gone, and then nobody needs to know.
        let _ = self
            .events
            .send(Event::Core(Input::LinkLost { link }))
            .await;
        error
    }

    async fn talk(
        &self,
        connection: &Connection,
        address: &str,
        link: LinkId,
        backoff: &mut Backoff,
        linked: &mut bool,
    ) -> Result<Infallible, LinkError> {
        let (mut control, mut orders) = connection.open().await?;
        control.send(&StreamKind::Control).await?;
        let (mut beats, acks) = connection.open().await?;
        beats.send(&StreamKind::Heartbeat).await?;
        let (outbox, mut outgoing) = mpsc::channel(OUTBOX);
        self.tell(Event::Dialled { link, outbox }).await?;
        say_next(&mut control, &mut outgoing).await?;
        let welcome = greeted(&mut orders).await?;
        info!(%address, epoch = welcome.epoch.counter, "linked to the coordinator");
        backoff.reset();
        *linked = true;
        let interval = welcome.heartbeat;
        self.tell(Event::Core(Input::Welcomed { link, welcome }))
            .await?;
        tokio::select! {
            end = write(control, outgoing) => end,
            end = self.read(orders, link) => end,
            end = self.beat(beats, acks, link, interval) => end,
            end = self.serve_logs(connection) => end,
            end = self.renew(connection) => end,
        }
    }

    async fn renew(&self, connection: &Connection) -> Result<Infallible, LinkError> {
        Ok(renewal::keep(connection, self.door.source()).await?)
    }

    async fn tell(&self, event: Event) -> Result<(), LinkError> {
        self.events
            .send(event)
            .await
            .map_err(|_| LinkError::GivenUp)
    }

    async fn read(&self, mut orders: FrameReader, link: LinkId) -> Result<Infallible, LinkError> {
        loop {
            let command = orders.next().await?.ok_or(LinkError::Closed)?;
            self.tell(Event::Core(Input::Command { link, command }))
                .await?;
        }
    }

    /// Beats at every interval, the first at once, and tells the core when the acknowledged ones were *sent*.
    async fn beat(
        &self,
        mut beats: FrameWriter,
        mut acks: FrameReader,
        link: LinkId,
        interval: Span,
    ) -> Result<Infallible, LinkError> {
        let mut ticks = tokio::time::interval(Duration::from_millis(interval.millis().max(1)));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut under_way: VecDeque<(u64, BootMillis)> = VecDeque::new();
        let mut number = 0;
        loop {
            tokio::select! {
                _ = ticks.tick() => {
                    if under_way.len() >= BEATS_UNDER_WAY {
                        return Err(LinkError::Unanswered);
                    }
                    under_way.push_back((number, clock::boot()));
                    beats.send(&Heartbeat { number }).await?;
                    number += 1;
                }
                ack = acks.next() => {
                    let HeartbeatAck { number } = ack?.ok_or(LinkError::Closed)?;
                    if let Some(sent) = settle(&mut under_way, number) {
                        self.tell(Event::Core(Input::HeartbeatAcked { link, sent })).await?;
                    }
                }
            }
        }
    }

    /// Each transfer of output has a stream of its own, which the coordinator opens.
    async fn serve_logs(&self, connection: &Connection) -> Result<Infallible, LinkError> {
        let mut transfers = JoinSet::new();
        loop {
            tokio::select! {
                accepted = connection.accept() => {
                    let (writer, reader) = accepted?;
                    let logs = Arc::clone(&self.logs);
                    transfers.spawn(async move { logs.serve(reader, writer).await });
                }
                Some(_) = transfers.join_next() => {}
            }
        }
    }
}

/// One line for the loss of a link, and one for each new cause that keeps another from standing, not one for each try.
fn tell(address: &str, linked: bool, why: &str, told: &mut Told) {
    if linked {
        told.reached();
        warn!(%address, "link to the coordinator lost: {why}");
    } else if told.is_new(&format!("{address} {why}")) {
        warn!(%address, "no link to the coordinator: {why}");
    }
}

/// Takes the acknowledged heartbeat and all before it off the list: when it was sent.
fn settle(under_way: &mut VecDeque<(u64, BootMillis)>, acked: u64) -> Option<BootMillis> {
    let mut sent = None;
    while let Some((_, at)) = under_way.pop_front_if(|(number, _)| *number <= acked) {
        sent = Some(at);
    }
    sent
}

async fn greeted(orders: &mut FrameReader) -> Result<Welcome, LinkError> {
    let greeting = timeout(GREETING_WITHIN, orders.next())
        .await
        .map_err(|_| LinkError::NoGreeting)?;
    match greeting?.ok_or(LinkError::Closed)? {
        Greeting::Welcome(welcome) => Ok(welcome),
        Greeting::Refused { message } => Err(LinkError::Refused { message }),
    }
}

async fn write(
    mut control: FrameWriter,
    mut outgoing: mpsc::Receiver<ToLink>,
) -> Result<Infallible, LinkError> {
    loop {
        say_next(&mut control, &mut outgoing).await?;
    }
}

/// The next words of the loop. When it has dropped its sender the link was given up.
async fn say_next(
    control: &mut FrameWriter,
    outgoing: &mut mpsc::Receiver<ToLink>,
) -> Result<(), LinkError> {
    match outgoing.recv().await.ok_or(LinkError::GivenUp)? {
        ToLink::Hello(hello) => control.send(&*hello).await?,
        ToLink::Say(message) => control.send(&message).await?,
    }
    Ok(())
}

/// For jitter, so that a thousand agents do not come back in one moment.
fn random() -> u64 {
    getrandom::u64().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledgement_settles_all_before_it_and_counts_from_the_sending() {
        let mut under_way: VecDeque<_> = [
            (0, BootMillis(10)),
            (1, BootMillis(20)),
            (2, BootMillis(30)),
        ]
        .into();
        assert_eq!(settle(&mut under_way, 1), Some(BootMillis(20)));
        assert_eq!(settle(&mut under_way, 1), None, "a repeat settles nothing");
        assert_eq!(
            settle(&mut under_way, 9),
            Some(BootMillis(30)),
            "no more than was sent"
        );
        assert!(under_way.is_empty());
    }
}
