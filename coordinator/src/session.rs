//! Sessions with agents, from the handshake to the end: one task per link, which turns frames into inputs of the engine
//! and the engine's orders into frames.
//!
//! ```text
//! handshake -> two streams, by kind -> hello -> checked -> engine -> greeting -> orders, messages and heartbeats -> end
//! ```
//! Everything from a peer has a deadline and a bound, and is validated in [`check`] before it becomes an input: a peer
//! can close its own connection and nothing else. Heartbeats have a stream of their own and are acknowledged once they
//! are in the engine's inbox, without waiting for a commit.
//!
//! The core decides what a node's messages mean; [`crate::http`] opens transfers of output on the connections that
//! [`Nodes`] holds.

mod certificates;
mod check;
mod inputs;
mod joining;
mod nodes;
mod permits;
mod refusals;
#[cfg(test)]
mod tests;

use std::pin::pin;
use std::sync::OnceLock;
use std::time::Duration;

use coordinator_core::SessionId;
use futures_util::future::OptionFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
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

use crate::engine::{EngineHandle, EngineStopped, SessionReceiver, SessionSender, ToSession};
use crate::inputs::InputStore;
use crate::issuance::CertificateIssuer;
pub use nodes::Nodes;

use joining::JoinAcceptor;
use permits::LinkPermits;
use refusals::RefusalLog;

/// Deadline from the handshake to the hello. An agent has its hello ready when it dials.
const OPENING_LIMIT: Duration = Duration::from_secs(10);

/// Time that a refusal may take to arrive before the link is closed.
const FAREWELL_LIMIT: Duration = Duration::from_secs(2);

/// Orders that may wait for a slow agent. After a hello the core may send an order for every attempt that the host
/// holds and every one that it should hold, so a lower bound would disconnect a full host again and again.
const MAX_ORDERS: usize = 4 * MAX_ATTEMPTS_PER_NODE;

/// Links at one time: twice the largest cluster, so that a node that dials again finds room beside its dead link.
const MAX_SESSIONS: usize = 20_000;

/// Why a link ended.
#[derive(Debug, thiserror::Error)]
enum SessionEnd {
    #[error("the connection ended: {0}")]
    Link(String),
    #[error("the agent broke the protocol")]
    Protocol(#[source] TransportError),
    #[error("the agent did not open its streams and say hello within {}s", OPENING_LIMIT.as_secs())]
    Slow,
    #[error("the agent opened two streams of one kind")]
    TwoOfAKind,
    #[error("the agent opened a stream for certificates or inputs before it was let in")]
    TooEarly,
    #[error("the agent ended a stream that lasts as long as the link")]
    StreamEnded,
    #[error("the agent sent an invalid message")]
    InvalidMessage(#[from] check::InvalidMessage),
    #[error("the node was rejected: {0}")]
    Refused(String),
    #[error(
        "another connection of this node has taken its place, or it did not read its orders fast enough"
    )]
    LetGo,
    #[error("{0}")]
    Cut(String),
    #[error(transparent)]
    Stopping(#[from] EngineStopped),
}

/// Maps a stream that failed because its link ended to the link's end.
impl From<TransportError> for SessionEnd {
    fn from(error: TransportError) -> Self {
        match error {
            TransportError::Lost { reason } => SessionEnd::Link(reason),
            broken => SessionEnd::Protocol(broken),
        }
    }
}

/// Accepts links until the listener is closed; then waits until every session has ended.
pub async fn serve(
    listener: &Listener,
    engine: EngineHandle,
    nodes: Nodes,
    issuance: CertificateIssuer,
    inputs: InputStore,
) {
    let mut sessions = JoinSet::new();
    let refusals = RefusalLog::default();
    let join_acceptor = JoinAcceptor::default();
    let link_permits = LinkPermits::default();
    while let Some(handshake) = listener.accept().await {
        while sessions.try_join_next().is_some() {}
        if sessions.len() >= MAX_SESSIONS {
            let why = format!("{MAX_SESSIONS} links are open");
            refusals.tell(None, handshake.remote_addr(), &why);
            continue;
        }
        let context = SessionContext {
            engine: engine.clone(),
            nodes: nodes.clone(),
            issuance: issuance.clone(),
            inputs: inputs.clone(),
            refusals: refusals.clone(),
            join_acceptor: join_acceptor.clone(),
            link_permits: link_permits.clone(),
        };
        sessions.spawn(session(handshake, context));
    }
    sessions.join_all().await;
}

/// Everything that a session needs.
struct SessionContext {
    engine: EngineHandle,
    nodes: Nodes,
    issuance: CertificateIssuer,
    inputs: InputStore,
    refusals: RefusalLog,
    join_acceptor: JoinAcceptor,
    link_permits: LinkPermits,
}

async fn session(handshake: Handshake, context: SessionContext) {
    let from = handshake.remote_addr();
    let refusals = &context.refusals;
    let connection = match handshake.finish_any().await {
        Ok(AcceptedPeer::Node(connection)) => connection,
        Ok(AcceptedPeer::JoiningPeer(peer)) => {
            let join_acceptor = &context.join_acceptor;
            return join_acceptor
                .meet(peer, &context.engine, &context.issuance, refusals)
                .await;
        }
        Err(error) => return refusals.tell(None, from, &error_chain(&error)),
    };
    let name = match connection.peer() {
        Peer::Node(name) => NodeName::new(name.as_str()),
        // The listener accepts only nodes; this guards against a change of that.
        Peer::Coordinator => return connection.close("only agents may connect here"),
    };
    let Ok(node) = name else {
        return connection.close("the certificate's name is not a node name");
    };
    let _permit = match context.link_permits.take(&node) {
        Ok(permit) => permit,
        Err(none) => {
            let why = none.to_string();
            refusals.tell(Some(&node), from, &why);
            return connection.close(&why);
        }
    };
    // At the highest level, so that the span exists whatever the filter passes.
    let span = tracing::error_span!("session", %node, %from);
    let talk = talk(&connection, &node, &context);
    let end = talk.instrument(span.clone()).await;
    match &end {
        SessionEnd::Refused(why) => refusals.tell(Some(&node), from, why),
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

async fn talk(connection: &Connection, node: &NodeName, context: &SessionContext) -> SessionEnd {
    let (engine, nodes) = (&context.engine, &context.nodes);
    let opening = timeout(OPENING_LIMIT, open(connection)).await;
    let (mut streams, hello) = match opening {
        Ok(Ok(opened)) => opened,
        Ok(Err(end)) => return end,
        Err(_) => return SessionEnd::Slow,
    };
    let hello = match check::hello(hello, node) {
        Ok(hello) => hello,
        Err(invalid) => return refuse(&mut streams.control.0, invalid.to_string()).await,
    };
    let (sender, receiver) = SessionSender::new(MAX_ORDERS);
    let (links, linked, by) = (nodes.clone(), node.clone(), connection.clone());
    // From here on callers can ask the node for output.
    let sender = sender.with_welcome(move |session| links.put(linked, session, by));
    let claim = connection.peer_identity().claim.clone();
    let challenge = hello.challenge;
    let session = match engine.hello(hello, claim, sender).await {
        Ok(session) => session,
        Err(gone) => return gone.into(),
    };
    if let Some(certificate) = connection.chain().first() {
        context.issuance.note(node, certificate);
    }
    let link = Link {
        node: node.clone(),
        session,
        connection: connection.clone(),
        engine: engine.clone(),
        nodes: nodes.clone(),
        issuance: context.issuance.clone(),
        inputs: context.inputs.clone(),
        challenge,
        terms: OnceLock::new(),
    };
    let end = link.run(streams, receiver).await;
    nodes.remove(node, session);
    match (end, engine.disconnected(session, node.clone()).await) {
        // The engine drops all sessions when it ends; this link was not replaced by another.
        (SessionEnd::LetGo, Err(gone)) => gone.into(),
        (end, _) => end,
    }
}

async fn open(connection: &Connection) -> Result<(Streams, Hello), SessionEnd> {
    let first = accept(connection).await?;
    let second = accept(connection).await?;
    let (control, heartbeat) = match (first, second) {
        ((StreamKind::Control, control), (StreamKind::Heartbeat, heartbeat))
        | ((StreamKind::Heartbeat, heartbeat), (StreamKind::Control, control)) => {
            (control, heartbeat)
        }
        ((StreamKind::Control, _), (StreamKind::Control, _))
        | ((StreamKind::Heartbeat, _), (StreamKind::Heartbeat, _)) => {
            return Err(SessionEnd::TwoOfAKind);
        }
        ((StreamKind::Certificates | StreamKind::Inputs, _), _)
        | (_, (StreamKind::Certificates | StreamKind::Inputs, _)) => {
            return Err(SessionEnd::TooEarly);
        }
    };
    let mut streams = Streams { control, heartbeat };
    let hello = next_message(&mut streams.control.1).await?;
    Ok((streams, hello))
}

async fn accept(
    connection: &Connection,
) -> Result<(StreamKind, (FrameWriter, FrameReader)), SessionEnd> {
    let (writer, mut reader) = connection.accept().await?;
    let kind = next_message(&mut reader).await?;
    Ok((kind, (writer, reader)))
}

/// Reads the next message of a stream that must not end.
async fn next_message<T: serde::de::DeserializeOwned>(
    reader: &mut FrameReader,
) -> Result<T, SessionEnd> {
    reader.next().await?.ok_or(SessionEnd::StreamEnded)
}

async fn refuse(control: &mut FrameWriter, message: String) -> SessionEnd {
    let greeting = HelloReply::Refused {
        message: message.clone(),
    };
    if control.send(&greeting).await.is_ok() {
        await_delivery(control).await;
    }
    SessionEnd::Refused(message)
}

/// Waits for the last message to arrive, because closing a link discards data in flight.
async fn await_delivery(control: &mut FrameWriter) {
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
    issuance: CertificateIssuer,
    inputs: InputStore,
    /// Challenge of the hello's supervisor, to be signed.
    challenge: Option<Challenge>,
    /// Lease and stop limit once the node is accepted: nothing is signed for a node that may be refused.
    terms: OnceLock<(Span, Span)>,
}

impl Link {
    /// Runs until the first of its parts ends.
    async fn run(&self, streams: Streams, receiver: SessionReceiver) -> SessionEnd {
        let Streams {
            control: (control_out, control_in),
            heartbeat: (heartbeat_out, heartbeat_in),
        } = streams;
        tokio::select! {
            // The end of the orders arrives at the same time, without a reason.
            biased;
            why = receiver.let_go => why.map_or(SessionEnd::LetGo, SessionEnd::Cut),
            end = self.speak(control_out, receiver.orders).map(end_of) => end,
            end = self.listen(control_in).map(end_of) => end,
            end = self.beat(heartbeat_out, heartbeat_in).map(end_of) => end,
            end = self.serve_requests().map(end_of) => end,
            why = self.connection.closed() => SessionEnd::Link(why),
        }
    }

    async fn speak(
        &self,
        mut control: FrameWriter,
        mut orders: mpsc::Receiver<Box<ToSession>>,
    ) -> Result<(), SessionEnd> {
        while let Some(message) = orders.recv().await {
            match *message {
                ToSession::Command(command) => control.send(&command).await?,
                ToSession::Cut(why) => return Err(SessionEnd::Cut(why)),
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
        Err(SessionEnd::LetGo)
    }

    /// Serves the streams that a node may open whenever it likes: one for certificates, and one for the inputs of each attempt
    /// that it is to start. The transport bounds their number. A newer stream for certificates takes the place of the one
    /// before, whose end may arrive later than it.
    async fn serve_requests(&self) -> Result<(), SessionEnd> {
        let mut certificates = pin!(OptionFuture::default());
        let mut serving_inputs = FuturesUnordered::new();
        loop {
            let (kind, streams) = tokio::select! {
                accepted = accept(&self.connection) => accepted?,
                Some(ended) = &mut certificates => {
                    certificates.set(OptionFuture::default());
                    ended?;
                    continue;
                }
                Some(()) = serving_inputs.next() => continue,
            };
            match kind {
                StreamKind::Certificates => {
                    let served =
                        certificates::serve(&self.node, &self.connection, &self.issuance, streams);
                    certificates.set(Some(served).into());
                }
                StreamKind::Inputs => serving_inputs.push(self.serve_inputs(streams)),
                StreamKind::Control | StreamKind::Heartbeat => {
                    return Err(SessionEnd::TwoOfAKind);
                }
            }
        }
    }

    /// Sends the inputs of an attempt. A host that does not want them any more ends the stream, and not the link.
    async fn serve_inputs(&self, streams: (FrameWriter, FrameReader)) {
        let served = inputs::serve(&self.node, &self.engine, &self.inputs, streams).await;
        if let Err(why) = served {
            tracing::debug!("inputs of an attempt were not sent: {}", error_chain(&why));
        }
    }

    async fn listen(&self, mut control: FrameReader) -> Result<(), SessionEnd> {
        loop {
            let message: FromNode = next_message(&mut control).await?;
            let message = check::from_node(message)?;
            if let FromNode::Readings(readings) = message {
                self.nodes.keep(&self.node, self.session, readings);
                continue;
            }
            let heard = self
                .engine
                .message(self.session, self.node.clone(), message);
            heard.await?;
        }
    }

    /// Puts a heartbeat into the engine's inbox, then acknowledges it. The agent counts its leases from the
    /// acknowledgement, so no timer may overtake an acknowledged heartbeat.
    async fn beat(
        &self,
        mut out: FrameWriter,
        mut heartbeats: FrameReader,
    ) -> Result<(), SessionEnd> {
        loop {
            let beat: Heartbeat = next_message(&mut heartbeats).await?;
            let heard = self.engine.heartbeat(self.session, self.node.clone(), beat);
            heard.await?;
            let seal = beat.challenge.and_then(|challenge| self.lease(challenge));
            let number = beat.number;
            out.send(&HeartbeatAck { number, seal }).await?;
        }
    }

    /// Signs the lease for the host's supervisor; `None` for a node that is not accepted yet.
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

/// The end of a part of a link, which lasts as long as the link.
fn end_of(part: Result<(), SessionEnd>) -> SessionEnd {
    part.err().unwrap_or(SessionEnd::StreamEnded)
}
