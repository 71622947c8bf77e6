//! Links with agents, from the handshake to the end: one task each, which turns frames into the engine's inputs and the
//! engine's orders into frames.
//!
//! ```text
//! handshake -> two streams, by kind -> hello -> checked -> engine -> greeting -> orders, words and heartbeats -> gone
//! ```
//! Everything from a peer has a deadline and a bound, and is checked in [`check`] before it becomes an input: a peer can
//! close its own connection and nothing else. Heartbeats have a stream of their own and are acknowledged as soon as the
//! engine has them in its inbox, without waiting for a commit.
//!
//! What a node's words mean is the core's business; transfers of output are opened by [`crate::http`] on the connection
//! that [`Nodes`] knows.

mod certificates;
mod check;
mod joining;
mod nodes;
mod refusals;
mod seats;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::OnceLock;
use std::time::Duration;

use coordinator_core::SessionId;
use sluice_common::error_chain::error_chain;
use sluice_common::id::NodeName;
use sluice_common::lease::{Challenge, LeaseGrant, SealedLease};
use sluice_common::limit::MAX_ATTEMPTS_PER_NODE;
use sluice_common::time::Span;
use sluice_common::wire::{FromNode, Heartbeat, HeartbeatAck, Hello, HelloReply, StreamKind};
use sluice_transport::{
    AcceptedPeer, Connection, FrameReader, FrameWriter, Handshake, Listener, Peer, TransportError,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::Instrument;

use crate::engine::{Ear, EngineGone, EngineHandle, Mouth, ToSession};
use crate::issuance::Issuance;
pub use nodes::Nodes;

use joining::Door;
use refusals::Refusals;
use seats::Seats;

/// From the handshake to the hello. An agent has it ready when it dials.
const OPENING_LIMIT: Duration = Duration::from_secs(10);

/// How long a refusal may take to arrive before the link is closed over it.
const FAREWELL_LIMIT: Duration = Duration::from_secs(2);

/// Orders that may wait for a slow agent. After a hello the core may have something to say of every attempt that the
/// host holds and of every one that it should hold, so a lower bound would cut a full host off again and again.
const MAX_ORDERS: usize = 4 * MAX_ATTEMPTS_PER_NODE;

/// Links at once: twice the largest cluster, so that one that dials anew finds room beside its dead link.
const MAX_SESSIONS: usize = 20_000;

/// Why a link ended.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error("the connection ended: {0}")]
    Link(String),
    #[error("the agent broke the protocol")]
    Protocol(#[source] TransportError),
    #[error("the agent did not open its streams and say hello within {}s", OPENING_LIMIT.as_secs())]
    Slow,
    #[error("the agent opened two streams of one kind")]
    TwoOfAKind,
    #[error("the agent opened a stream for certificates before it was let in")]
    TooEarly,
    #[error("the agent ended a stream that lasts as long as the link")]
    StreamEnded,
    #[error("the agent said what it may not")]
    Invalid(#[from] check::Invalid),
    #[error("the node was not let in: {0}")]
    Refused(String),
    #[error(
        "another connection of this node has taken its place, or it did not take its orders fast enough"
    )]
    LetGo,
    #[error("{0}")]
    Cut(String),
    #[error(transparent)]
    Stopping(#[from] EngineGone),
}

/// A stream that fails because its link has ended is nobody's fault.
impl From<TransportError> for End {
    fn from(error: TransportError) -> Self {
        match error {
            TransportError::Lost { reason } => End::Link(reason),
            broken => End::Protocol(broken),
        }
    }
}

/// Takes whoever dials until the listener is closed; then waits for every session to end.
pub async fn serve(listener: &Listener, engine: EngineHandle, nodes: Nodes, issuance: Issuance) {
    let mut sessions = JoinSet::new();
    let refusals = Refusals::default();
    let door = Door::default();
    let seats = Seats::default();
    while let Some(handshake) = listener.accept().await {
        while sessions.try_join_next().is_some() {}
        if sessions.len() >= MAX_SESSIONS {
            let why = format!("{MAX_SESSIONS} links are open");
            refusals.tell(None, handshake.remote_addr(), &why);
            continue;
        }
        let hall = Hall {
            engine: engine.clone(),
            nodes: nodes.clone(),
            issuance: issuance.clone(),
            refusals: refusals.clone(),
            door: door.clone(),
            seats: seats.clone(),
        };
        sessions.spawn(session(handshake, hall));
    }
    sessions.join_all().await;
}

/// What every session needs.
struct Hall {
    engine: EngineHandle,
    nodes: Nodes,
    issuance: Issuance,
    refusals: Refusals,
    door: Door,
    seats: Seats,
}

async fn session(handshake: Handshake, hall: Hall) {
    let from = handshake.remote_addr();
    let refusals = &hall.refusals;
    let connection = match handshake.finish_any().await {
        Ok(AcceptedPeer::Node(connection)) => connection,
        Ok(AcceptedPeer::JoiningPeer(stranger)) => {
            let door = &hall.door;
            return door
                .meet(stranger, &hall.engine, &hall.issuance, refusals)
                .await;
        }
        Err(error) => return refusals.tell(None, from, &error_chain(&error)),
    };
    let name = match connection.peer() {
        Peer::Node(name) => NodeName::new(name.as_str()),
        // The listener lets only nodes in; were that to change, nothing more would be let in here.
        Peer::Coordinator => return connection.close("only agents dial in here"),
    };
    let Ok(node) = name else {
        return connection.close("the certificate's name is no node name");
    };
    let _seat = match hall.seats.take(&node) {
        Ok(seat) => seat,
        Err(none) => {
            let why = none.to_string();
            refusals.tell(Some(&node), from, &why);
            return connection.close(&why);
        }
    };
    // Of the highest level, so that the span is there for whatever the filter lets through.
    let span = tracing::error_span!("session", %node, %from);
    let talk = talk(&connection, &node, &hall);
    let end = talk.instrument(span.clone()).await;
    match &end {
        End::Refused(why) => refusals.tell(Some(&node), from, why),
        ended => {
            refusals.forget(&node);
            span.in_scope(|| tracing::info!("link closed: {}", error_chain(ended)));
        }
    }
    connection.close(&error_chain(&end));
}

/// The two streams that an agent opens.
struct Streams {
    control: (FrameWriter, FrameReader),
    heartbeat: (FrameWriter, FrameReader),
}

async fn talk(connection: &Connection, node: &NodeName, hall: &Hall) -> End {
    let (engine, nodes) = (&hall.engine, &hall.nodes);
    let opening = timeout(OPENING_LIMIT, open(connection)).await;
    let (mut streams, hello) = match opening {
        Ok(Ok(opened)) => opened,
        Ok(Err(end)) => return end,
        Err(_) => return End::Slow,
    };
    let hello = match check::hello(hello, node) {
        Ok(hello) => hello,
        Err(invalid) => return refuse(&mut streams.control.0, invalid.to_string()).await,
    };
    let (mouth, ear) = Mouth::new(MAX_ORDERS);
    let (links, linked, by) = (nodes.clone(), node.clone(), connection.clone());
    // Whoever sees what the node runs can ask it for its output.
    let mouth = mouth.with_welcome(move |session| links.put(linked, session, by));
    let claim = connection.peer_identity().claim.clone();
    let challenge = hello.challenge;
    let session = match engine.hello(hello, claim, mouth).await {
        Ok(session) => session,
        Err(gone) => return gone.into(),
    };
    if let Some(certificate) = connection.chain().first() {
        hall.issuance.note(node, certificate);
    }
    let link = Link {
        node: node.clone(),
        session,
        connection: connection.clone(),
        engine: engine.clone(),
        nodes: nodes.clone(),
        issuance: hall.issuance.clone(),
        challenge,
        terms: OnceLock::new(),
    };
    let end = link.run(streams, ear).await;
    nodes.remove(node, session);
    match (end, engine.gone(session, node.clone()).await) {
        // It lets go of everybody when it ends, and nobody has taken this link's place.
        (End::LetGo, Err(gone)) => gone.into(),
        (end, _) => end,
    }
}

async fn open(connection: &Connection) -> Result<(Streams, Hello), End> {
    let first = accept(connection).await?;
    let second = accept(connection).await?;
    let (control, heartbeat) = match (first, second) {
        ((StreamKind::Control, control), (StreamKind::Heartbeat, heartbeat))
        | ((StreamKind::Heartbeat, heartbeat), (StreamKind::Control, control)) => {
            (control, heartbeat)
        }
        ((StreamKind::Control, _), (StreamKind::Control, _))
        | ((StreamKind::Heartbeat, _), (StreamKind::Heartbeat, _)) => return Err(End::TwoOfAKind),
        ((StreamKind::Certificates, _), _) | (_, (StreamKind::Certificates, _)) => {
            return Err(End::TooEarly);
        }
    };
    let mut streams = Streams { control, heartbeat };
    let hello = said(&mut streams.control.1).await?;
    Ok((streams, hello))
}

async fn accept(connection: &Connection) -> Result<(StreamKind, (FrameWriter, FrameReader)), End> {
    let (writer, mut reader) = connection.accept().await?;
    let kind = said(&mut reader).await?;
    Ok((kind, (writer, reader)))
}

/// The next message of a stream that must not end.
async fn said<T: serde::de::DeserializeOwned>(reader: &mut FrameReader) -> Result<T, End> {
    reader.next().await?.ok_or(End::StreamEnded)
}

async fn refuse(control: &mut FrameWriter, message: String) -> End {
    let greeting = HelloReply::Refused {
        message: message.clone(),
    };
    if control.send(&greeting).await.is_ok() {
        see_off(control).await;
    }
    End::Refused(message)
}

/// Gives what was said last time to arrive, since closing a link throws away what is on its way.
async fn see_off(control: &mut FrameWriter) {
    control.finish();
    let _ = timeout(FAREWELL_LIMIT, control.delivered()).await;
}

/// A link whose hello has reached the engine.
struct Link {
    node: NodeName,
    session: SessionId,
    connection: Connection,
    engine: EngineHandle,
    nodes: Nodes,
    issuance: Issuance,
    /// What the hello's supervisor wants to see signed.
    challenge: Option<Challenge>,
    /// Lease and stop limit, once the node is let in: nothing is signed for a node that may be refused.
    terms: OnceLock<(Span, Span)>,
}

impl Link {
    /// Runs until the first of its parts ends.
    async fn run(&self, streams: Streams, ear: Ear) -> End {
        let Streams {
            control: (control_out, control_in),
            heartbeat: (heartbeat_out, heartbeat_in),
        } = streams;
        tokio::select! {
            // The end of the orders comes with it, and does not say why.
            biased;
            why = ear.let_go => why.map_or(End::LetGo, End::Cut),
            end = ended(self.speak(control_out, ear.orders)) => end,
            end = ended(self.listen(control_in)) => end,
            end = ended(self.beat(heartbeat_out, heartbeat_in)) => end,
            end = ended(self.certify()) => end,
            why = self.connection.closed() => End::Link(why),
        }
    }

    async fn speak(
        &self,
        mut control: FrameWriter,
        mut orders: mpsc::Receiver<ToSession>,
    ) -> Result<(), End> {
        while let Some(message) = orders.recv().await {
            match message {
                ToSession::Command(command) => control.send(&command).await?,
                ToSession::Cut(why) => return Err(End::Cut(why)),
                ToSession::HelloReply(HelloReply::Refused { message }) => {
                    return Err(refuse(&mut control, message).await);
                }
                ToSession::HelloReply(HelloReply::Welcome(mut welcome)) => {
                    let _it_is_let_in_once = self.terms.set((welcome.lease, welcome.stop_limit));
                    welcome.seal = self.challenge.and_then(|challenge| self.lease(challenge));
                    control.send(&HelloReply::Welcome(welcome)).await?;
                    tracing::info!("node linked");
                }
            }
        }
        Err(End::LetGo)
    }

    /// The one stream that a node may open after its first two, as often as it ends.
    async fn certify(&self) -> Result<(), End> {
        loop {
            let (kind, streams) = accept(&self.connection).await?;
            match kind {
                StreamKind::Certificates => {}
                StreamKind::Control | StreamKind::Heartbeat => return Err(End::TwoOfAKind),
            }
            certificates::serve(&self.node, &self.connection, &self.issuance, streams).await?;
        }
    }

    async fn listen(&self, mut control: FrameReader) -> Result<(), End> {
        loop {
            let message: FromNode = said(&mut control).await?;
            let message = check::from_node(message)?;
            if let FromNode::Readings(readings) = message {
                self.nodes.keep(&self.node, self.session, readings);
                continue;
            }
            let heard = self.engine.heard(self.session, self.node.clone(), message);
            heard.await?;
        }
    }

    /// First into the engine's inbox, then the acknowledgement: the agent counts its leases from it, so it must not
    /// be acknowledged what a timer could overtake.
    async fn beat(&self, mut out: FrameWriter, mut heartbeats: FrameReader) -> Result<(), End> {
        loop {
            let beat: Heartbeat = said(&mut heartbeats).await?;
            let heard = self.engine.heartbeat(self.session, self.node.clone(), beat);
            heard.await?;
            let seal = beat.challenge.and_then(|challenge| self.lease(challenge));
            let number = beat.number;
            out.send(&HeartbeatAck { number, seal }).await?;
        }
    }

    /// What the host's supervisor believes; `None` for a node that was not let in yet.
    fn lease(&self, challenge: Challenge) -> Option<Box<SealedLease>> {
        let (lease, stop_limit) = *self.terms.get()?;
        let grant = LeaseGrant {
            node: self.node.clone(),
            challenge,
            lease,
            stop_limit,
        };
        Some(Box::new(self.engine.seal().lease(grant)))
    }
}

async fn ended(part: impl Future<Output = Result<(), End>>) -> End {
    part.await.err().unwrap_or(End::StreamEnded)
}
