//! The link to the coordinator: connects, sends the hello and heartbeats, passes orders and statuses, and
//! serves output. After a failure it reconnects to the next address in the list, with backoff and jitter.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agent_core::{Input, LinkId};
use sluice_common::error_chain::error_chain;
use sluice_common::lease::{Challenge, renewal_age};
use sluice_common::supervision::BootMillis;
use sluice_common::time::Span;
use sluice_common::wire::{Command, Heartbeat, HeartbeatAck, HelloReply, StreamKind, Welcome};
use sluice_transport::{Backoff, Connection, FrameReader, FrameWriter, TransportError};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::clock;
use crate::engine::OUTBOX;
use crate::event::{Event, ToLink};
use crate::log_dedup::LogDedup;
use crate::logs::Logs;
use crate::renewal::{self, CertifiedDialer};

/// Time limit of a coordinator's answer to a hello; it commits a record first, which takes long on a busy
/// disk.
const GREETING_WITHIN: Duration = Duration::from_secs(10);
/// Longest wait of a link for the supervisor's challenge, which takes milliseconds.
const CHALLENGE_WITHIN: Duration = Duration::from_millis(500);
/// Most unacknowledged heartbeats. A link with more is dead.
const BEATS_UNDER_WAY: usize = 1000;

/// Why a link ended or could not be made.
#[derive(Debug, thiserror::Error)]
enum LinkError {
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error("the coordinator rejected this node: {message}")]
    Refused { message: String },
    #[error("the coordinator did not answer the hello within {}s", GREETING_WITHIN.as_secs())]
    NoGreeting,
    #[error("the coordinator closed the link")]
    Closed,
    #[error("the agent closed the link")]
    GivenUp,
    #[error("{BEATS_UNDER_WAY} heartbeats are unanswered")]
    Unanswered,
}

/// The link, across all its connections.
pub(crate) struct Link {
    pub(crate) dialer_source: CertifiedDialer,
    pub(crate) coordinators: Vec<String>,
    pub(crate) events: mpsc::Sender<Event>,
    pub(crate) logs: Arc<Logs>,
    /// The supervisor's challenge to be signed.
    pub(crate) challenges: watch::Receiver<Option<Challenge>>,
    /// The connection while it is one of an accepted node, for requests of this host.
    pub(crate) accepted: watch::Sender<Option<Connection>>,
}

impl Link {
    /// Keeps a link until the engine is gone. Connects only after `can_greet` has turned true.
    pub(crate) async fn run(mut self, mut can_greet: watch::Receiver<bool>) {
        if can_greet.wait_for(|can| *can).await.is_err() {
            return;
        }
        let mut backoff = Backoff::new();
        let mut told = LogDedup::default();
        let coordinators = self.coordinators.clone();
        let mut addresses = coordinators.iter().cycle();
        for number in 1.. {
            let Some(address) = addresses.next() else {
                return;
            };
            let mut linked = false;
            self.renew_challenge().await;
            let error = self
                .serve(address, LinkId(number), &mut backoff, &mut linked)
                .await;
            if self.events.is_closed() {
                return;
            }
            tell(address, linked, &error_chain(&error), &mut told);
            tokio::time::sleep(backoff.next(random())).await;
        }
    }

    /// Requests a new challenge and waits for it: a lease counts from its challenge. A disconnected supervisor draws
    /// none.
    async fn renew_challenge(&self) {
        let mut challenges = self.challenges.clone();
        challenges.mark_unchanged();
        if self.events.send(Event::WantChallenge).await.is_ok() {
            let _none_came = timeout(CHALLENGE_WITHIN, challenges.changed()).await;
        }
    }

    /// Runs one connection from dial to end; `linked` turns true once the coordinator has accepted this node.
    async fn serve(
        &mut self,
        address: &str,
        link: LinkId,
        backoff: &mut Backoff,
        linked: &mut bool,
    ) -> LinkError {
        let connection = match self.dialer_source.refresh().dial(address).await {
            Ok(connection) => connection,
            Err(error) => return error.into(),
        };
        let talk = self.talk(&connection, address, link, backoff, linked);
        let error = match talk.await {
            Ok(never) => match never {},
            Err(error) => error,
        };
        self.accepted.send_replace(None);
        connection.close("the agent ends this link");
        // Fails if the engine is gone.
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
        // A lower bound of the time of the hello, which the welcome acknowledges.
        let dialled_at = clock::boot();
        // Before the hello takes its challenge, so that no later change of the supervisor is missed.
        let mut challenges = self.challenges.clone();
        challenges.mark_unchanged();
        self.tell(Event::Dialled { link, outbox }).await?;
        say_next(&mut control, &mut outgoing).await?;
        let mut welcome = greeted(&mut orders).await?;
        // Before the core is told, so that the lease exists when something starts.
        let seal = welcome.seal.take();
        let is_leased = seal.is_some();
        if let Some(lease) = seal {
            self.tell(Event::Leased(lease)).await?;
        }
        info!(%address, epoch = welcome.epoch.epoch.counter, "linked to the coordinator");
        backoff.reset();
        *linked = true;
        let interval = welcome.heartbeat;
        let leased_at = is_leased.then_some(dialled_at);
        let known_lease = KnownLease::new(welcome.lease, leased_at);
        let beats = Heartbeats::new(beats, acks, dialled_at, known_lease);
        self.tell(Event::Core(Input::Welcomed { link, welcome }))
            .await?;
        self.accepted.send_replace(Some(connection.clone()));
        // Number of the newest received order.
        let arrived = AtomicU64::new(0);
        tokio::select! {
            end = write(control, outgoing) => end,
            end = self.read(orders, link, &arrived) => end,
            end = self.beat(beats, challenges, (link, interval), &arrived) => end,
            end = self.serve_logs(connection) => end,
            end = self.renew(connection) => end,
        }
    }

    async fn renew(&self, connection: &Connection) -> Result<Infallible, LinkError> {
        Ok(renewal::keep(connection, self.dialer_source.source()).await?)
    }

    async fn tell(&self, event: Event) -> Result<(), LinkError> {
        self.events
            .send(event)
            .await
            .map_err(|_| LinkError::GivenUp)
    }

    async fn read(
        &self,
        mut orders: FrameReader,
        link: LinkId,
        arrived: &AtomicU64,
    ) -> Result<Infallible, LinkError> {
        loop {
            let command: Command = orders.next().await?.ok_or(LinkError::Closed)?;
            arrived.store(command.number, Ordering::SeqCst);
            self.tell(Event::Core(Input::Command { link, command }))
                .await?;
        }
    }

    /// Sends a heartbeat at every interval, the first at once, and tells the core when the acknowledged ones
    /// were *sent*. A heartbeat carries a challenge if the supervisor needs another lease.
    async fn beat(
        &self,
        mut beats: Heartbeats,
        mut challenges: watch::Receiver<Option<Challenge>>,
        (link, interval): (LinkId, Span),
        arrived: &AtomicU64,
    ) -> Result<Infallible, LinkError> {
        let mut ticks = tokio::time::interval(Duration::from_millis(interval.millis().max(1)));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {
                    // A disconnected supervisor is not waited for, so that heartbeats continue.
                    let is_there = self.challenges.borrow().is_some();
                    let challenge = match is_there && beats.known_lease.is_due(clock::boot()) {
                        true => {
                            self.renew_challenge().await;
                            *challenges.borrow_and_update()
                        }
                        false => None,
                    };
                    beats.send(arrived, challenge).await?;
                }
                // Not asked for here: the supervisor is another, and has no lease, without which it starts nothing.
                Ok(()) = challenges.changed() => {
                    beats.known_lease.lose(beats.number);
                    if challenges.borrow_and_update().is_some() {
                        ticks.reset_immediately();
                    }
                }
                ack = beats.acks.next() => {
                    let ack: HeartbeatAck = ack?.ok_or(LinkError::Closed)?;
                    let is_leased = ack.seal.is_some();
                    if let Some(lease) = ack.seal {
                        self.tell(Event::Leased(lease)).await?;
                    }
                    if let Some(sent) = beats.settle(ack.number) {
                        if is_leased {
                            beats.known_lease.renew(ack.number, sent);
                        }
                        self.tell(Event::Core(Input::HeartbeatAcked { link, sent })).await?;
                    }
                }
            }
        }
    }

    /// The coordinator opens a stream for each transfer of output.
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

/// Logs the loss of a link once, and each new cause of failed attempts once.
fn tell(address: &str, linked: bool, why: &str, told: &mut LogDedup) {
    if linked {
        told.reached();
        warn!(%address, "link to the coordinator lost: {why}");
    } else if told.is_new(&format!("{address} {why}")) {
        warn!(%address, "no link to the coordinator: {why}");
    }
}

/// The heartbeats of one link.
struct Heartbeats {
    out: FrameWriter,
    acks: FrameReader,
    under_way: UnackedHeartbeats,
    /// When the newest acknowledged message was sent.
    answered: BootMillis,
    number: u64,
    known_lease: KnownLease,
}

/// The signed lease that the supervisor has, as far as the link knows.
struct KnownLease {
    /// When the message was sent whose challenge was signed.
    at: Option<BootMillis>,
    /// Age from which on another is needed.
    renewal_age: Span,
    /// Number of the first heartbeat whose challenge is of the present supervisor.
    valid_from: u64,
}

impl KnownLease {
    fn new(lease: Span, at: Option<BootMillis>) -> Self {
        Self {
            at,
            renewal_age: renewal_age(lease),
            valid_from: 0,
        }
    }

    fn is_due(&self, now: BootMillis) -> bool {
        let age = self.at.map(|at| now.0.saturating_sub(at.0));
        age.is_none_or(|age| age >= self.renewal_age.millis())
    }

    /// Forgets the lease, because the supervisor is another before the heartbeat `next`.
    fn lose(&mut self, next: u64) {
        self.at = None;
        self.valid_from = next;
    }

    /// Notes that the challenge of a heartbeat was signed.
    fn renew(&mut self, number: u64, sent: BootMillis) {
        if number >= self.valid_from {
            self.at = self.at.max(Some(sent));
        }
    }
}

impl Heartbeats {
    /// For a link whose hello, sent at `greeted_at` or later, was answered.
    fn new(
        out: FrameWriter,
        acks: FrameReader,
        greeted_at: BootMillis,
        known_lease: KnownLease,
    ) -> Self {
        Self {
            out,
            acks,
            under_way: UnackedHeartbeats::default(),
            answered: greeted_at,
            number: 0,
            known_lease,
        }
    }

    async fn send(
        &mut self,
        arrived: &AtomicU64,
        challenge: Option<Challenge>,
    ) -> Result<(), LinkError> {
        let (number, said_at) = (self.number, clock::boot());
        self.under_way.push(number, said_at)?;
        let beat = Heartbeat {
            number,
            sent_at: said_at,
            last_acknowledged: self.answered,
            // Read after the clock: an order that is not counted here is judged after `said_at`.
            last_order: arrived.load(Ordering::SeqCst),
            challenge,
        };
        self.out.send(&beat).await?;
        self.number += 1;
        Ok(())
    }

    /// When the acknowledged heartbeat was sent.
    fn settle(&mut self, acked: u64) -> Option<BootMillis> {
        let sent = self.under_way.settle(acked);
        self.answered = sent.unwrap_or(self.answered);
        sent
    }
}

/// Unacknowledged heartbeats with their sending times.
#[derive(Default)]
struct UnackedHeartbeats(VecDeque<(u64, BootMillis)>);

impl UnackedHeartbeats {
    fn push(&mut self, number: u64, sent: BootMillis) -> Result<(), LinkError> {
        if self.0.len() >= BEATS_UNDER_WAY {
            return Err(LinkError::Unanswered);
        }
        self.0.push_back((number, sent));
        Ok(())
    }

    /// Removes the acknowledged heartbeat and all before it; returns when it was sent.
    fn settle(&mut self, acked: u64) -> Option<BootMillis> {
        let mut sent = None;
        while let Some((_, at)) = self.0.pop_front_if(|(number, _)| *number <= acked) {
            sent = Some(at);
        }
        sent
    }
}

async fn greeted(orders: &mut FrameReader) -> Result<Welcome, LinkError> {
    let greeting = timeout(GREETING_WITHIN, orders.next())
        .await
        .map_err(|_| LinkError::NoGreeting)?;
    match greeting?.ok_or(LinkError::Closed)? {
        HelloReply::Welcome(welcome) => Ok(welcome),
        HelloReply::Refused { message } => Err(LinkError::Refused { message }),
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

/// Sends the next message of the engine. A dropped sender means that the engine has given the link up.
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

/// Randomness for jitter, so that a thousand agents do not reconnect at one moment.
fn random() -> u64 {
    getrandom::u64().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_renewed_when_a_twentieth_has_passed_or_the_supervisor_is_another() {
        let lease = Span::from_secs(100);
        let at = |seconds: u64| BootMillis(seconds * 1000);
        let mut known = KnownLease::new(lease, Some(at(10)));
        assert!(!known.is_due(at(14)));
        assert!(known.is_due(at(15)));
        known.renew(3, at(15));
        known.renew(2, at(12));
        assert!(!known.is_due(at(19)), "the newest counts");
        known.lose(5);
        assert!(known.is_due(at(16)));
        known.renew(4, at(16));
        assert!(known.is_due(at(16)), "it was of the supervisor before");
        known.renew(5, at(17));
        assert!(!known.is_due(at(21)));
        assert!(KnownLease::new(lease, None).is_due(at(0)));
    }

    #[test]
    fn an_acknowledgement_settles_all_before_it_and_counts_from_the_sending() {
        let mut under_way = UnackedHeartbeats::default();
        for (number, sent) in [(0, 10), (1, 20), (2, 30)] {
            under_way.push(number, BootMillis(sent)).unwrap();
        }
        assert_eq!(under_way.settle(1), Some(BootMillis(20)));
        assert_eq!(under_way.settle(1), None, "a repeat settles nothing");
        assert_eq!(
            under_way.settle(9),
            Some(BootMillis(30)),
            "no more than was sent"
        );
        assert!(under_way.0.is_empty());
    }
}
