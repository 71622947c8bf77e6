//! Channels from the engine to sessions: where the orders of each link go, and when the engine drops a link.

use std::fmt;

use coordinator_core::{Input, SessionId};
use sluice_common::credential::NodeClaim;
use sluice_common::id::NodeName;
use sluice_common::wire::{Hello, HelloReply};
use tokio::sync::{mpsc, oneshot};

use super::Engine;
use super::effects::ToSession;

/// Sends orders to one connection. The engine drops it if its queue overflows or the connection was replaced.
pub struct SessionSender {
    /// Boxed: a queue has room for 32 messages from the start, and there is one for each link.
    orders: mpsc::Sender<Box<ToSession>>,
    /// Called when the node is accepted, before others can see that it is.
    on_welcome: Option<Box<dyn FnOnce(SessionId) + Send>>,
    /// Tells the receiver at once that the sender was dropped, however many orders are queued; or why it is.
    held: oneshot::Sender<String>,
}

/// The session's end of a [`SessionSender`].
#[derive(Debug)]
pub struct SessionReceiver {
    /// Messages to send, in order.
    pub orders: mpsc::Receiver<Box<ToSession>>,
    /// Resolves when the engine drops the connection, with a reason if there is one.
    pub let_go: oneshot::Receiver<String>,
}

impl fmt::Debug for SessionSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionSender")
            .field("orders", &self.orders)
            .finish_non_exhaustive()
    }
}

impl SessionSender {
    /// Makes a queue of at most `bound` orders.
    pub fn new(bound: usize) -> (SessionSender, SessionReceiver) {
        let (orders, queue) = mpsc::channel(bound);
        let (held, let_go) = oneshot::channel();
        let sender = SessionSender {
            orders,
            on_welcome: None,
            held,
        };
        let receiver = SessionReceiver {
            orders: queue,
            let_go,
        };
        (sender, receiver)
    }

    /// Sets a callback for the moment when the node is accepted, before others can see that it is; it must be quick.
    pub fn with_welcome(self, on_welcome: impl FnOnce(SessionId) + Send + 'static) -> Self {
        Self {
            on_welcome: Some(Box::new(on_welcome)),
            ..self
        }
    }
}

impl Engine {
    pub(super) fn on_hello(
        &mut self,
        hello: Box<Hello>,
        claim: NodeClaim,
        sender: SessionSender,
        tell: oneshot::Sender<SessionId>,
    ) {
        let session = SessionId(self.next_id());
        if tell.send(session).is_err() {
            return; // The connection is gone already; nobody would report its end.
        }
        self.sessions.insert(session, (hello.node.clone(), sender));
        let shown = hello.highest_epoch.as_ref();
        let seal = self.store.seal();
        let epoch_is_proven = shown.is_some_and(|shown| seal.knows_epoch(&hello.node, shown));
        self.handle(Input::NodeHello {
            session,
            hello,
            claim,
            epoch_is_proven,
        });
    }

    /// Sends a message. A session whose queue is full is disconnected: the core repeats everything after its next
    /// hello, while waiting here would delay every other node.
    pub(super) fn send(&mut self, session: SessionId, message: ToSession) {
        let Some((node, sender)) = self.sessions.get_mut(&session) else {
            return;
        };
        if let ToSession::Cut(why) = message {
            return self.cut(session, why);
        }
        let welcomed = matches!(message, ToSession::HelloReply(HelloReply::Welcome(_)));
        let node = node.clone();
        if let Some(on_welcome) = sender.on_welcome.take().filter(|_| welcomed) {
            on_welcome(session);
        }
        let sent = sender.orders.try_send(Box::new(message));
        if let Err(mpsc::error::TrySendError::Full(_)) = sent {
            tracing::warn!(%node, "the node does not read its orders fast enough: its connection is closed");
            self.drop_session(session);
        }
        if welcomed {
            self.on_accepted(session, node);
        }
    }

    /// Replaces the node's earlier connection. A refused session replaces none.
    fn on_accepted(&mut self, session: SessionId, node: NodeName) {
        let before = self.welcomed.insert(node, session);
        if let Some(before) = before.filter(|before| *before != session) {
            self.drop_session(before);
        }
    }

    pub(super) fn drop_session(&mut self, session: SessionId) {
        self.sessions.remove(&session);
    }

    fn cut(&mut self, session: SessionId, why: String) {
        if let Some((_, sender)) = self.sessions.remove(&session) {
            let _it_ended_by_itself = sender.held.send(why);
        }
    }
}
