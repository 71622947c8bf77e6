//! Links as the engine knows them: where the orders of each go, and when it lets go of one.

use std::fmt;

use coordinator_core::{Input, SessionId};
use sluice_common::credential::NodeClaim;
use sluice_common::id::NodeName;
use sluice_common::wire::{Command, Hello, HelloReply};
use tokio::sync::{mpsc, oneshot};

use super::Engine;

/// To a session, in order.
#[derive(Debug)]
pub enum ToSession {
    /// The answer to its hello.
    HelloReply(HelloReply),
    /// An order for its agent.
    Command(Command),
    /// The end of the link at once, and why. It overtakes what is still unsaid, and never comes out of the queue.
    Cut(String),
}

/// Where orders for one connection go. The engine drops it when it overflows or the connection was replaced.
pub struct Mouth {
    orders: mpsc::Sender<ToSession>,
    /// Called when the node is let in, before anybody can see that it is.
    on_welcome: Option<Box<dyn FnOnce(SessionId) + Send>>,
    /// Tells the ear when it is dropped, at once, however many orders are still unsaid; or why it is.
    held: oneshot::Sender<String>,
}

/// The session's end of a [`Mouth`].
#[derive(Debug)]
pub struct Ear {
    /// What to say, in order.
    pub orders: mpsc::Receiver<ToSession>,
    /// Comes to its end when the engine lets go of the connection, with a reason where somebody wanted that.
    pub let_go: oneshot::Receiver<String>,
}

impl fmt::Debug for Mouth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mouth")
            .field("orders", &self.orders)
            .finish_non_exhaustive()
    }
}

impl Mouth {
    /// A queue of at most `bound` orders.
    pub fn new(bound: usize) -> (Mouth, Ear) {
        let (orders, queue) = mpsc::channel(bound);
        let (held, let_go) = oneshot::channel();
        let mouth = Mouth {
            orders,
            on_welcome: None,
            held,
        };
        let ear = Ear {
            orders: queue,
            let_go,
        };
        (mouth, ear)
    }

    /// Has `on_welcome` called when the node is let in, before anybody can see that it is; it should be quick.
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
        mouth: Mouth,
        tell: oneshot::Sender<SessionId>,
    ) {
        let session = SessionId(self.draw());
        if tell.send(session).is_err() {
            return; // The connection is gone already; nobody would report its end.
        }
        self.sessions.insert(session, (hello.node.clone(), mouth));
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

    /// A session whose queue is full is cut off: the core says everything again after its next hello, while waiting
    /// for it here would hold up every other node.
    pub(super) fn send(&mut self, session: SessionId, message: ToSession) {
        let Some((node, mouth)) = self.sessions.get_mut(&session) else {
            return;
        };
        if let ToSession::Cut(why) = message {
            return self.cut(session, why);
        }
        let welcomed = matches!(message, ToSession::HelloReply(HelloReply::Welcome(_)));
        let node = node.clone();
        if let Some(on_welcome) = mouth.on_welcome.take().filter(|_| welcomed) {
            on_welcome(session);
        }
        if let Err(mpsc::error::TrySendError::Full(_)) = mouth.orders.try_send(message) {
            tracing::warn!(%node, "the node does not take its orders fast enough: its connection is closed");
            self.let_go(session);
        }
        if welcomed {
            self.on_welcomed(session, node);
        }
    }

    /// A node has one connection, the one that was let in last; one that was refused takes nobody's place.
    fn on_welcomed(&mut self, session: SessionId, node: NodeName) {
        let before = self.welcomed.insert(node, session);
        if let Some(before) = before.filter(|before| *before != session) {
            self.let_go(before);
        }
    }

    pub(super) fn let_go(&mut self, session: SessionId) {
        self.sessions.remove(&session);
    }

    fn cut(&mut self, session: SessionId, why: String) {
        if let Some((_, mouth)) = self.sessions.remove(&session) {
            let _it_ended_by_itself = mouth.held.send(why);
        }
    }
}
