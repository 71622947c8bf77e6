//! The interface of the engine for other tasks. Cheap to clone; every call waits for room in the bounded inbox.

use std::sync::Arc;

use coordinator_core::{
    AccessSnapshot, Answer, Applied, Core, Input, JoinApplication, JoinRefusal, Joined, LogEntry,
    MoveTarget, NewStep, Preview, Refusal, Refused, ReplyId, SessionId, StepAction, Submitted,
    TermsChange, Warrant,
};
use sluice_common::access::AuditEntry;
use sluice_common::allocation::HolderState;
use sluice_common::credential::NodeClaim;
use sluice_common::id::{AttemptId, NodeName, StepId};
use sluice_common::time::Span;
use sluice_common::warrant::SealedWarrant;
use sluice_common::wire::{FromNode, Heartbeat, Hello};
use tokio::sync::{mpsc, oneshot, watch};

use super::log_tail::LogTail;
use super::queries::{PendingQueries, Query, QueryError};
use super::step_watch::{StepWatcher, StepWatchers};
use super::{Message, Meter, Retention, SessionSender};
use crate::seal::Seal;

/// The engine has ended. Whether a submit or a cancel under way took place is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the coordinator is stopping")]
pub struct EngineStopped;

/// One result for each step of a submit, in order.
type SubmitResults = Vec<Result<Submitted, Refusal>>;

/// A handle for calls of the engine.
#[derive(Clone, Debug)]
pub struct EngineHandle {
    inbox: mpsc::Sender<Message>,
    committed: watch::Receiver<u64>,
    interests: StepWatchers,
    log_tail: LogTail,
    meter: Arc<Meter>,
    access: Arc<watch::Sender<Arc<AccessSnapshot>>>,
    seal: Seal,
    pending: PendingQueries,
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
            interests: StepWatchers::default(),
            log_tail: LogTail::default(),
            meter: Arc::default(),
            access: Arc::new(watch::channel(Arc::default()).0),
            seal,
            pending: PendingQueries::default(),
        }
    }

    /// Returns the key that signs leases.
    pub fn seal(&self) -> &Seal {
        &self.seal
    }

    /// Submits steps in one durable commit. `view` gets the results and the state once they are durable, on the
    /// engine's thread: it should copy and not compute.
    ///
    /// # Errors
    /// If the engine ended first.
    pub async fn submit<R: Send + 'static>(
        &self,
        steps: Vec<NewStep>,
        view: impl FnOnce(&Core, SubmitResults) -> R + Send + 'static,
    ) -> Result<R, EngineStopped> {
        let (tell, answer) = oneshot::channel();
        let reply = Box::new(move |core: &Core, answer: Answer| {
            let Answer::Submitted(results) = answer else {
                unreachable!("a submit is answered as one");
            };
            let _caller_may_be_gone = tell.send(view(core, results));
        });
        self.call(Message::Submit { steps, reply }, answer).await
    }

    /// Does a dry run of a submit, and stores nothing. `view` as in [`EngineHandle::submit`].
    ///
    /// # Errors
    /// If the engine ended first, or the caller has too many queries waiting.
    pub async fn preview<R: Send + 'static>(
        &self,
        step: NewStep,
        view: impl FnOnce(&Core, Preview) -> R + Send + 'static,
    ) -> Result<R, QueryError> {
        let (tell, answer) = oneshot::channel();
        let reply = Box::new(move |core: &Core, answer: Answer| {
            let Answer::Previewed(preview) = answer else {
                unreachable!("what a submit would come to is answered as such");
            };
            let _caller_may_be_gone = tell.send(view(core, *preview));
        });
        let step = Box::new(step);
        let input = Box::new(move |reply| Input::Preview { reply, step });
        self.ask(Query::Preview { input, reply }, answer).await
    }

    /// Cancels a step, with a `grace` if that is to be shorter than its own. `view` as in [`EngineHandle::submit`].
    ///
    /// # Errors
    /// If the engine ended first.
    pub async fn cancel<R: Send + 'static>(
        &self,
        step: StepId,
        grace: Option<Span>,
        view: impl FnOnce(&Core, Result<StepId, Refusal>) -> R + Send + 'static,
    ) -> Result<R, EngineStopped> {
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

    /// Suspends, resumes or requeues a step. `view` as in [`EngineHandle::submit`].
    ///
    /// # Errors
    /// If the engine ended first.
    pub async fn act_on_step<R: Send + 'static>(
        &self,
        step: StepId,
        action: StepAction,
        view: impl FnOnce(&Core, Result<StepId, Refusal>) -> R + Send + 'static,
    ) -> Result<R, EngineStopped> {
        let input = Box::new(move |reply| Input::StepAction {
            reply,
            step,
            action,
        });
        self.steer(input, view).await
    }

    async fn steer<R: Send + 'static>(
        &self,
        input: Box<dyn FnOnce(ReplyId) -> Input + Send>,
        view: impl FnOnce(&Core, Result<StepId, Refusal>) -> R + Send + 'static,
    ) -> Result<R, EngineStopped> {
        let (tell, answer) = oneshot::channel();
        let reply = Box::new(move |core: &Core, answer: Answer| {
            let Answer::Steered(result) = answer else {
                unreachable!("what is wanted of a step is answered as such");
            };
            let _caller_may_be_gone = tell.send(view(core, result));
        });
        self.call(Message::Change { input, reply }, answer).await
    }

    /// Renews an allocation. `view` as in [`EngineHandle::submit`].
    ///
    /// # Errors
    /// If the engine ended first.
    pub async fn renew<R: Send + 'static>(
        &self,
        step: StepId,
        lease: Option<Span>,
        holder: Option<HolderState>,
        view: impl FnOnce(&Core, Result<StepId, Refusal>) -> R + Send + 'static,
    ) -> Result<R, EngineStopped> {
        let input = Box::new(move |reply| Input::Renew {
            reply,
            step,
            lease,
            holder,
        });
        self.steer(input, view).await
    }

    /// Moves a queued step to another pool; the result is whether it waited in another. `view` as in
    /// [`EngineHandle::submit`].
    ///
    /// # Errors
    /// If the engine ended first.
    pub async fn move_step<R: Send + 'static>(
        &self,
        step: StepId,
        target: MoveTarget,
        view: impl FnOnce(&Core, Result<bool, Refusal>) -> R + Send + 'static,
    ) -> Result<R, EngineStopped> {
        let (tell, answer) = oneshot::channel();
        let reply = Box::new(move |core: &Core, answer: Answer| {
            let Answer::Moved(result) = answer else {
                unreachable!("a move is answered as one");
            };
            let _caller_may_be_gone = tell.send(view(core, result));
        });
        let input = Box::new(move |reply| Input::MoveStep {
            reply,
            step,
            target,
            dry_run: false,
        });
        self.call(Message::Change { input, reply }, answer).await
    }

    /// Does a dry run of a move, and changes nothing. `view` as in [`EngineHandle::submit`].
    ///
    /// # Errors
    /// If the engine ended first, or the caller has too many queries waiting.
    pub async fn preview_move<R: Send + 'static>(
        &self,
        step: StepId,
        target: MoveTarget,
        view: impl FnOnce(&Core, Result<Preview, Refusal>) -> R + Send + 'static,
    ) -> Result<R, QueryError> {
        let (tell, answer) = oneshot::channel();
        let reply = Box::new(move |core: &Core, answer: Answer| {
            let result = match answer {
                Answer::Previewed(preview) => Ok(*preview),
                Answer::Moved(Err(refusal)) => Err(refusal),
                _ => unreachable!("a dry run of a move is answered as one"),
            };
            let _caller_may_be_gone = tell.send(view(core, result));
        });
        let input = Box::new(move |reply| Input::MoveStep {
            reply,
            step,
            target,
            dry_run: true,
        });
        self.ask(Query::Preview { input, reply }, answer).await
    }

    /// Applies documents, all of `changes` or none; with `dry_run` it only returns their effects. `view` as in
    /// [`EngineHandle::submit`].
    ///
    /// # Errors
    /// If the engine ended first.
    pub async fn apply<R: Send + 'static>(
        &self,
        changes: Vec<TermsChange>,
        force: bool,
        dry_run: bool,
        view: impl FnOnce(&Core, Result<Applied, Refused>) -> R + Send + 'static,
    ) -> Result<R, EngineStopped> {
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

    /// Changes a node; `input` makes the change. `view` as in [`EngineHandle::submit`].
    ///
    /// # Errors
    /// If the engine ended first.
    pub async fn change<R: Send + 'static>(
        &self,
        input: impl FnOnce(ReplyId) -> Input + Send + 'static,
        view: impl FnOnce(&Core, Result<(), Refusal>) -> R + Send + 'static,
    ) -> Result<R, EngineStopped> {
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

    /// Redeems a join token for a host. If the host is admitted, that is durable when this returns.
    ///
    /// # Errors
    /// If the engine ended first.
    pub async fn join(
        &self,
        application: JoinApplication,
    ) -> Result<Result<Joined, JoinRefusal>, EngineStopped> {
        let (tell, answer) = oneshot::channel();
        let reply = Box::new(move |_: &Core, answer: Answer| {
            let Answer::Joined(joined) = answer else {
                unreachable!("a host that wants in is answered as one");
            };
            let _caller_may_be_gone = tell.send(joined);
        });
        let input = Box::new(move |reply| Input::Join { reply, application });
        self.call(Message::Change { input, reply }, answer).await
    }

    /// Reads the core on its thread, after the commit of the batch in which the call arrived.
    ///
    /// # Errors
    /// If the engine ended first, or the caller has too many queries waiting.
    pub async fn read<R: Send + 'static>(
        &self,
        read: impl FnOnce(&Core) -> R + Send + 'static,
    ) -> Result<R, QueryError> {
        let (tell, answer) = oneshot::channel();
        let read = Box::new(move |core: &Core| {
            // Skips the work for a caller that has hung up.
            if !tell.is_closed() {
                let _caller_may_be_gone = tell.send(read(core));
            }
        });
        self.ask(Query::Read(read), answer).await
    }

    async fn ask<R>(&self, ask: Query, answer: oneshot::Receiver<R>) -> Result<R, QueryError> {
        let query = self.pending.query(ask)?;
        Ok(self.call(Message::Query(query), answer).await?)
    }

    /// Passes on a node's hello; greeting and orders come through `sender`.
    ///
    /// # Errors
    /// If the engine ended first.
    pub async fn hello(
        &self,
        hello: Hello,
        claim: NodeClaim,
        sender: SessionSender,
    ) -> Result<SessionId, EngineStopped> {
        let (session, answer) = oneshot::channel();
        let message = Message::Hello {
            hello: Box::new(hello),
            claim,
            sender,
            session,
        };
        self.call(message, answer).await
    }

    /// Changes how much history is kept.
    ///
    /// # Errors
    /// If the engine has ended.
    pub async fn keep(&self, keep: Retention) -> Result<(), EngineStopped> {
        self.tell(Message::Retention(keep)).await
    }

    /// Passes on a message that a node sent after its hello.
    ///
    /// # Errors
    /// If the engine has ended.
    pub async fn message(
        &self,
        session: SessionId,
        node: NodeName,
        message: FromNode,
    ) -> Result<(), EngineStopped> {
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

    /// Opens a warrant if this cluster sealed it.
    fn known(
        &self,
        node: &NodeName,
        attempt: &AttemptId,
        shown: Option<SealedWarrant>,
    ) -> Option<Box<Warrant>> {
        let sealed = shown?;
        let warrant = self.seal.open(attempt, &sealed);
        if warrant.is_none() {
            tracing::warn!(%node, %attempt, "a host presented a warrant that this cluster has not signed: the attempt is stopped");
        }
        warrant.map(Box::new)
    }

    /// Passes on a node's heartbeat. Once this returns, the heartbeat is in the inbox ahead of every timer that has not
    /// come due.
    ///
    /// # Errors
    /// If the engine has ended.
    pub async fn heartbeat(
        &self,
        session: SessionId,
        node: NodeName,
        beat: Heartbeat,
    ) -> Result<(), EngineStopped> {
        let input = Input::Heartbeat {
            session,
            node,
            beat,
        };
        self.tell(Message::Session(Box::new(input))).await
    }

    /// Passes on the end of a connection.
    ///
    /// # Errors
    /// If the engine has ended.
    pub async fn disconnected(
        &self,
        session: SessionId,
        node: NodeName,
    ) -> Result<(), EngineStopped> {
        let input = Input::NodeGone { session, node };
        self.tell(Message::Session(Box::new(input))).await
    }

    /// Asks the loop to end after what came before. The loop may have ended already.
    pub async fn stop(&self) {
        let _ended_already = self.tell(Message::Stop).await;
    }

    /// Number of the last durable record, with its changes.
    pub fn committed(&self) -> watch::Receiver<u64> {
        self.committed.clone()
    }

    /// Watches a step for changes.
    pub fn watch_step(&self, step: StepId) -> StepWatcher {
        self.interests.watch(step)
    }

    /// Returns the engine's counters.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Returns the committed access rules, without waiting for the engine.
    pub fn access_snapshot(&self) -> Arc<AccessSnapshot> {
        Arc::clone(&self.access.borrow())
    }

    /// Returns the committed access rules, with their changes.
    pub fn access_changes(&self) -> watch::Receiver<Arc<AccessSnapshot>> {
        self.access.subscribe()
    }

    /// Records who did something, or was refused. The entry is in the log before whatever is asked next, and durable no
    /// later.
    ///
    /// # Errors
    /// If the engine has ended.
    pub async fn audit(&self, entry: AuditEntry) -> Result<(), EngineStopped> {
        self.tell(Message::Note(entry)).await
    }

    /// Returns the records that were committed last. It may be ahead of [`EngineHandle::committed`] for a moment.
    pub fn log_tail(&self) -> &LogTail {
        &self.log_tail
    }

    pub(super) fn publish(&self, access: AccessSnapshot) {
        self.access.send_replace(Arc::new(access));
    }

    pub(super) fn touch(&self, records: &[LogEntry]) {
        self.interests.touch(records);
    }

    async fn tell(&self, message: Message) -> Result<(), EngineStopped> {
        self.inbox.send(message).await.map_err(|_| EngineStopped)
    }

    async fn call<R>(
        &self,
        message: Message,
        answer: oneshot::Receiver<R>,
    ) -> Result<R, EngineStopped> {
        self.tell(message).await?;
        answer.await.map_err(|_| EngineStopped)
    }
}
