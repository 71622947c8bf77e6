//! The engine's front: what everybody else calls. Cheap to clone; every call waits for room in the bounded inbox.

use std::sync::Arc;

use coordinator_core::{
    Answer, Applied, Book, Change, Core, Input, JoinAsk, JoinRefusal, Joined, NewStep, Preview,
    Refusal, Refused, ReplyId, SessionId, Stamped, Steer, Submitted, Warrant,
};
use sluice_common::access::AuditEntry;
use sluice_common::credential::NodeClaim;
use sluice_common::id::{AttemptId, NodeName, StepId};
use sluice_common::time::Span;
use sluice_common::warrant::SealedWarrant;
use sluice_common::wire::{FromNode, Heartbeat, Hello};
use tokio::sync::{mpsc, oneshot, watch};

use super::interest::{Interest, Interests};
use super::questions::{Ask, Askers, Unanswered};
use super::{Keep, Message, Meter, Mouth};
use crate::seal::Seal;

/// The engine has ended, or ended before it could answer. Whether a submit or a cancel took place is unknown then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the coordinator is stopping")]
pub struct EngineGone;

/// One result for each step of a submit, in order.
type SubmitResults = Vec<Result<Submitted, Refusal>>;

/// Calls the engine.
#[derive(Clone, Debug)]
pub struct EngineHandle {
    inbox: mpsc::Sender<Message>,
    committed: watch::Receiver<u64>,
    interests: Interests,
    meter: Arc<Meter>,
    book: Arc<watch::Sender<Arc<Book>>>,
    seal: Seal,
    askers: Askers,
}

impl EngineHandle {
    pub(super) fn new(
        inbox: mpsc::Sender<Message>,
        committed: watch::Receiver<u64>,
        seal: Seal,
    ) -> Self {
        Self {
            inbox,
            committed,
            interests: Interests::default(),
            meter: Arc::default(),
            book: Arc::new(watch::channel(Arc::default()).0),
            seal,
            askers: Askers::default(),
        }
    }

    /// What signs leases.
    pub fn seal(&self) -> &Seal {
        &self.seal
    }

    /// Submits steps in one durable commit. `view` sees the results and the state once they are durable, on the
    /// engine's thread: it should copy and not compute.
    ///
    /// # Errors
    /// Where the engine ended first.
    pub async fn submit<R: Send + 'static>(
        &self,
        steps: Vec<NewStep>,
        view: impl FnOnce(&Core, SubmitResults) -> R + Send + 'static,
    ) -> Result<R, EngineGone> {
        let (tell, answer) = oneshot::channel();
        let reply = Box::new(move |core: &Core, answer: Answer| {
            let Answer::Submitted(results) = answer else {
                unreachable!("a submit is answered as one");
            };
            let _caller_may_be_gone = tell.send(view(core, results));
        });
        self.call(Message::Submit { steps, reply }, answer).await
    }

    /// Tells what a submit would come to, and stores nothing. `view` as in [`EngineHandle::submit`].
    ///
    /// # Errors
    /// Where the engine ended first, or who asks has too much waiting.
    pub async fn preview<R: Send + 'static>(
        &self,
        step: NewStep,
        view: impl FnOnce(&Core, Preview) -> R + Send + 'static,
    ) -> Result<R, Unanswered> {
        let (tell, answer) = oneshot::channel();
        let reply = Box::new(move |core: &Core, answer: Answer| {
            let Answer::Previewed(preview) = answer else {
                unreachable!("what a submit would come to is answered as such");
            };
            let _caller_may_be_gone = tell.send(view(core, *preview));
        });
        let step = Box::new(step);
        self.ask(Ask::Preview { step, reply }, answer).await
    }

    /// Cancels a step, with a `grace` where that is to be shorter than its own. `view` as in [`EngineHandle::submit`].
    ///
    /// # Errors
    /// Where the engine ended first.
    pub async fn cancel<R: Send + 'static>(
        &self,
        step: StepId,
        grace: Option<Span>,
        view: impl FnOnce(&Core, Result<StepId, Refusal>) -> R + Send + 'static,
    ) -> Result<R, EngineGone> {
        let (tell, answer) = oneshot::channel();
        let reply = Box::new(move |core: &Core, answer: Answer| {
            let Answer::Cancelled(result) = answer else {
                unreachable!("a cancel is answered as one");
            };
            let _caller_may_be_gone = tell.send(view(core, result));
        });
        let input = Box::new(move |reply| Input::Cancel { reply, step, grace });
        self.call(Message::Change { input, reply }, answer).await
    }

    /// Suspends a step, resumes it or has it start anew. `view` as in [`EngineHandle::submit`].
    ///
    /// # Errors
    /// Where the engine ended first.
    pub async fn steer<R: Send + 'static>(
        &self,
        step: StepId,
        steer: Steer,
        view: impl FnOnce(&Core, Result<StepId, Refusal>) -> R + Send + 'static,
    ) -> Result<R, EngineGone> {
        let (tell, answer) = oneshot::channel();
        let reply = Box::new(move |core: &Core, answer: Answer| {
            let Answer::Steered(result) = answer else {
                unreachable!("what is wanted of a step is answered as such");
            };
            let _caller_may_be_gone = tell.send(view(core, result));
        });
        let input = Box::new(move |reply| Input::Steer { reply, step, steer });
        self.call(Message::Change { input, reply }, answer).await
    }

    /// Changes terms of pools and of subjects in them, all of `changes` or none; with `dry_run` it only tells what they
    /// would mean. `view` as in [`EngineHandle::submit`].
    ///
    /// # Errors
    /// Where the engine ended first.
    pub async fn apply<R: Send + 'static>(
        &self,
        changes: Vec<Change>,
        force: bool,
        dry_run: bool,
        view: impl FnOnce(&Core, Result<Applied, Refused>) -> R + Send + 'static,
    ) -> Result<R, EngineGone> {
        let (tell, answer) = oneshot::channel();
        let reply = Box::new(move |core: &Core, answer: Answer| {
            let Answer::Applied(result) = answer else {
                unreachable!("changes of terms are answered as such");
            };
            let _caller_may_be_gone = tell.send(view(core, result));
        });
        let input = Box::new(move |reply| Input::Apply {
            reply,
            changes,
            force,
            dry_run,
        });
        self.call(Message::Change { input, reply }, answer).await
    }

    /// Changes a node; `input` makes the change for who waits. `view` as in [`EngineHandle::submit`].
    ///
    /// # Errors
    /// Where the engine ended first.
    pub async fn change<R: Send + 'static>(
        &self,
        input: impl FnOnce(ReplyId) -> Input + Send + 'static,
        view: impl FnOnce(&Core, Result<(), Refusal>) -> R + Send + 'static,
    ) -> Result<R, EngineGone> {
        let (tell, answer) = oneshot::channel();
        let reply = Box::new(move |core: &Core, answer: Answer| {
            let Answer::Changed(result) = answer else {
                unreachable!("a change is answered as one");
            };
            let _caller_may_be_gone = tell.send(view(core, result));
        });
        let input = Box::new(input);
        self.call(Message::Change { input, reply }, answer).await
    }

    /// Shows a token's secret for a host. Where it is let in, that is durable when this returns.
    ///
    /// # Errors
    /// Where the engine ended first.
    pub async fn join(&self, ask: JoinAsk) -> Result<Result<Joined, JoinRefusal>, EngineGone> {
        let (tell, answer) = oneshot::channel();
        let reply = Box::new(move |_: &Core, answer: Answer| {
            let Answer::Joined(joined) = answer else {
                unreachable!("a host that wants in is answered as one");
            };
            let _caller_may_be_gone = tell.send(joined);
        });
        let input = Box::new(move |reply| Input::Join { reply, ask });
        self.call(Message::Change { input, reply }, answer).await
    }

    /// Looks at the core, on its thread, after the commit of the batch that the call arrived in.
    ///
    /// # Errors
    /// Where the engine ended first, or who asks has too much waiting.
    pub async fn read<R: Send + 'static>(
        &self,
        read: impl FnOnce(&Core) -> R + Send + 'static,
    ) -> Result<R, Unanswered> {
        let (tell, answer) = oneshot::channel();
        let read = Box::new(move |core: &Core| {
            // Who has hung up costs nobody else anything.
            if !tell.is_closed() {
                let _caller_may_be_gone = tell.send(read(core));
            }
        });
        self.ask(Ask::Read(read), answer).await
    }

    async fn ask<R>(&self, ask: Ask, answer: oneshot::Receiver<R>) -> Result<R, Unanswered> {
        let question = self.askers.question(ask)?;
        Ok(self.call(Message::Question(question), answer).await?)
    }

    /// Brings a node's hello; greeting and orders come through `mouth`.
    ///
    /// # Errors
    /// Where the engine ended first.
    pub async fn hello(
        &self,
        hello: Hello,
        claim: NodeClaim,
        mouth: Mouth,
    ) -> Result<SessionId, EngineGone> {
        let (session, answer) = oneshot::channel();
        let message = Message::Hello {
            hello: Box::new(hello),
            claim,
            mouth,
            session,
        };
        self.call(message, answer).await
    }

    /// Keeps so much of the past from now on.
    ///
    /// # Errors
    /// Where the engine has ended.
    pub async fn keep(&self, keep: Keep) -> Result<(), EngineGone> {
        self.tell(Message::Keep(keep)).await
    }

    /// Brings what a node said after its hello.
    ///
    /// # Errors
    /// Where the engine has ended.
    pub async fn heard(
        &self,
        session: SessionId,
        node: NodeName,
        message: FromNode,
    ) -> Result<(), EngineGone> {
        let input = match message {
            FromNode::Warrant { attempt, warrant } => Input::Warrant {
                warrant: self.known(&node, &attempt, warrant),
                session,
                node,
                attempt,
            },
            message => Input::FromNode {
                session,
                node,
                message,
            },
        };
        self.tell(Message::Session(Box::new(input))).await
    }

    /// What a warrant says, where it is one of ours.
    fn known(
        &self,
        node: &NodeName,
        attempt: &AttemptId,
        shown: Option<SealedWarrant>,
    ) -> Option<Box<Warrant>> {
        let sealed = shown?;
        let warrant = self.seal.open(attempt, &sealed);
        if warrant.is_none() {
            tracing::warn!(%node, %attempt, "a warrant was shown that this cluster has not sealed: the attempt is stopped");
        }
        warrant.map(Box::new)
    }

    /// Brings a node's sign of life. Once this has returned it stands in the inbox ahead of every timer that has not
    /// come due.
    ///
    /// # Errors
    /// Where the engine has ended.
    pub async fn heartbeat(
        &self,
        session: SessionId,
        node: NodeName,
        beat: Heartbeat,
    ) -> Result<(), EngineGone> {
        let input = Input::Heartbeat {
            session,
            node,
            beat,
        };
        self.tell(Message::Session(Box::new(input))).await
    }

    /// Brings the end of a connection.
    ///
    /// # Errors
    /// Where the engine has ended.
    pub async fn gone(&self, session: SessionId, node: NodeName) -> Result<(), EngineGone> {
        let input = Input::NodeGone { session, node };
        self.tell(Message::Session(Box::new(input))).await
    }

    /// Asks the loop to end once what came before is done. It may have ended already.
    pub async fn stop(&self) {
        let _ended_already = self.tell(Message::Stop).await;
    }

    /// The number of the last record that is durable, and how it grows.
    pub fn committed(&self) -> watch::Receiver<u64> {
        self.committed.clone()
    }

    /// News of a step.
    pub fn interest(&self, step: StepId) -> Interest {
        self.interests.watch(step)
    }

    /// What the engine has done so far.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Who may do what, as it was committed last. Reading it does not wait for the engine.
    pub fn book(&self) -> Arc<Book> {
        Arc::clone(&self.book.borrow())
    }

    /// The same, as it changes from now on.
    pub fn book_changes(&self) -> watch::Receiver<Arc<Book>> {
        self.book.subscribe()
    }

    /// Notes that somebody did something, or was refused. It stands in the log before whatever is asked for next, and
    /// is durable no later.
    ///
    /// # Errors
    /// Where the engine has ended.
    pub async fn audit(&self, entry: AuditEntry) -> Result<(), EngineGone> {
        self.tell(Message::Note(entry)).await
    }

    pub(super) fn publish(&self, book: Book) {
        self.book.send_replace(Arc::new(book));
    }

    pub(super) fn touch(&self, records: &[Stamped]) {
        self.interests.touch(records);
    }

    async fn tell(&self, message: Message) -> Result<(), EngineGone> {
        self.inbox.send(message).await.map_err(|_| EngineGone)
    }

    async fn call<R>(
        &self,
        message: Message,
        answer: oneshot::Receiver<R>,
    ) -> Result<R, EngineGone> {
        self.tell(message).await?;
        answer.await.map_err(|_| EngineGone)
    }
}
