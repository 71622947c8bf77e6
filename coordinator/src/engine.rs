//! The engine: one thread that owns the core and the store, and handles every input in order.
//!
//! ```text
//! wait -> take all of the inbox -> handle each -> drain the core's outputs
//!      -> commit the records -> send -> reply -> answer queries -> fire timers -> wait
//! ```
//! The order is the promise of the whole program: nothing is sent before the records behind it are durable. A failed
//! commit ends the loop, and with it the process. Records that nobody waits for, such as the start of a program, are
//! committed together with the next ones, after [`effects::RECORD_DELAY`] at the latest. Timers fire after everything
//! that was in the inbox when they came due, so that a waiting heartbeat is heard before a node counts as silent. Queries
//! change nothing and some are expensive, so each round spends [`QUERY_TIME`] on them and no more.
//!
//! Other modules hold an [`EngineHandle`]. The core decides what an input means.

mod effects;
mod handle;
mod log_tail;
mod meter;
mod queries;
mod record_log;
mod session_channel;
mod snapshots;
mod step_watch;
#[cfg(test)]
mod tests;
mod timers;

use std::collections::BTreeMap;
use std::iter;
use std::thread;
use std::time::{Duration, Instant};

use coordinator_core::{
    AccessSnapshot, Answer, Bounds, Core, Input, LogEntry, NewStep, Output, RecoveryCause, ReplyId,
    SessionId, Settings,
};
use sluice_common::access::AuditEntry;
use sluice_common::credential::NodeClaim;
use sluice_common::id::{ClusterId, NodeName};
use sluice_common::time::Span;
use sluice_common::wire::{Command, Hello, HelloReply, ToNode};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinError;

use crate::clock::Clock;
use crate::store::{Event, Recovered, Store, StoreError};

pub use effects::ToSession;
pub use handle::{EngineHandle, EngineStopped};
pub use log_tail::LogTail;
pub use meter::{Histogram, Meter};
pub use queries::{QueryError, asked_by};
pub use session_channel::{SessionReceiver, SessionSender};
pub use step_watch::StepWatcher;

use effects::Effects;
use queries::{Query, QueryQueue, QueuedQuery};
use record_log::RecordLogger;
use snapshots::{SnapshotOutput, SnapshotWriter};
use timers::Timers;

/// Messages that may wait for the loop. Senders block beyond it, which slows network readers and callers down to the
/// speed of the disk; large enough for a large group commit under load.
const INBOX: usize = 4096;

/// Messages handled between two commits. The first caller of a batch waits until the last message is handled.
const MAX_BATCH: usize = 1024;

/// Records of one commit, give or take those of one message. Bounds the time and memory of a commit.
const MAX_COMMIT_RECORDS: usize = 16 * 1024;

/// Time that an audit entry waits for the change that it announces, so that both are one commit.
const NOTE_DELAY: Duration = Duration::from_millis(20);

/// Time spent on queries in one round; the last one begun is finished.
const QUERY_TIME: Duration = Duration::from_millis(20);

/// A commit that takes longer is logged, because every caller and node waits for it.
const SLOW_COMMIT: Duration = Duration::from_millis(500);

/// Bounds of the kept history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Number of records kept for followers of events.
    pub records: u64,
    /// Bounds of remembered steps.
    pub bounds: Bounds,
}

type InputFn = Box<dyn FnOnce(ReplyId) -> Input + Send>;
type ReplyFn = Box<dyn FnOnce(&Core, Answer) + Send>;

/// A message to the loop.
enum Message {
    Submit {
        steps: Vec<NewStep>,
        reply: ReplyFn,
    },
    /// A change of a pool, a policy, a node or a step.
    Change {
        input: InputFn,
        reply: ReplyFn,
    },
    Hello {
        hello: Box<Hello>,
        claim: NodeClaim,
        sender: SessionSender,
        session: oneshot::Sender<SessionId>,
    },
    /// An input from a session after its hello.
    Session(Box<Input>),
    /// An audit entry: who did something, or was refused.
    Note(AuditEntry),
    /// New retention limits after a reload.
    Retention(Retention),
    Query(QueuedQuery),
    Stop,
}

/// Why the loop ended although it was not asked to.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Records could not be made durable. They were sent to nobody.
    #[error("the coordinator cannot go on without its store")]
    Store(#[from] StoreError),
    /// The thread could not be started.
    #[error("cannot start the engine's thread")]
    Thread(#[source] std::io::Error),
    /// The loop panicked.
    #[error("the engine has crashed, which is a defect; its report is above")]
    Panicked,
}

/// Waits for the end of the loop.
#[derive(Debug)]
pub struct EngineThread {
    ended: oneshot::Receiver<Result<(), EngineError>>,
}

impl EngineThread {
    /// Waits until the loop has ended: after [`EngineHandle::stop`], or because of an error.
    ///
    /// # Errors
    /// Why the loop failed.
    pub async fn ended(&mut self) -> Result<(), EngineError> {
        (&mut self.ended)
            .await
            .unwrap_or(Err(EngineError::Panicked))
    }
}

/// Starts the loop on its own thread and begins a new epoch.
///
/// # Errors
/// If the epoch could not be made durable.
pub fn start(
    settings: Settings,
    store: Store,
    recovered: Recovered,
    clock: Clock,
) -> Result<(EngineHandle, EngineThread), EngineError> {
    let (outbox, inbox) = mpsc::channel(INBOX);
    let (committed, watched) = watch::channel(recovered.last_seq);
    let handle = EngineHandle::new(outbox, watched, store.seal().clone());
    let mut engine = Engine {
        record_logger: RecordLogger::new(&recovered.state),
        clock,
        core: Core::recover(settings, recovered.state),
        store,
        snapshots: SnapshotWriter::default(),
        inbox,
        committed,
        shared: handle.clone(),
        timers: Timers::default(),
        sessions: BTreeMap::new(),
        welcomed: BTreeMap::new(),
        replies: BTreeMap::new(),
        effects: Effects::default(),
        queries: QueryQueue::default(),
        notes: Vec::new(),
        drawn: 0,
        stopping: false,
    };
    engine.begin(recovered.cluster, recovered.recovers)?;
    let (tell, ended) = oneshot::channel();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(EngineError::Thread)?;
    thread::Builder::new()
        .name("engine".to_owned())
        .spawn(move || {
            let result = runtime.block_on(engine.run());
            // The receiver is gone if the process is exiting already.
            let _ = tell.send(result);
        })
        .map_err(EngineError::Thread)?;
    Ok((handle, EngineThread { ended }))
}

struct Engine {
    core: Core,
    store: Store,
    snapshots: SnapshotWriter,
    record_logger: RecordLogger,
    clock: Clock,
    inbox: mpsc::Receiver<Message>,
    committed: watch::Sender<u64>,
    shared: EngineHandle,
    timers: Timers,
    sessions: BTreeMap<SessionId, (NodeName, SessionSender)>,
    /// Session of each node that was accepted last.
    welcomed: BTreeMap<NodeName, SessionId>,
    replies: BTreeMap<ReplyId, ReplyFn>,
    effects: Effects,
    /// Queries that wait for an answer.
    queries: QueryQueue,
    /// Audit entries to be logged before the next change.
    notes: Vec<AuditEntry>,
    /// Last id drawn for sessions and replies.
    drawn: u64,
    stopping: bool,
}

impl Engine {
    fn begin(
        &mut self,
        cluster: ClusterId,
        recovers: Option<RecoveryCause>,
    ) -> Result<(), EngineError> {
        let now = self.clock.now();
        match recovers {
            Some(why) => self.core.start_recovering(now, cluster, why),
            None => self.core.start(now, cluster),
        }
        let jumped = self.clock.jumped();
        if jumped > Span::ZERO {
            self.core.handle(now, Input::ClockJumped(jumped));
        }
        self.collect_outputs();
        self.flush()?;
        self.shared.publish(AccessSnapshot::of(self.core.state()));
        Ok(())
    }

    async fn run(mut self) -> Result<(), EngineError> {
        let mut batch = Vec::with_capacity(MAX_BATCH);
        while !self.stopping {
            self.clock.tell();
            if let Some(piece) = self.wait(&mut batch).await {
                let piece = piece.map_err(|_| EngineError::Panicked)?;
                snapshots::add(&mut self.store, &piece)?;
                // Between two pieces all that waits has its turn.
                batch.extend(iter::from_fn(|| self.inbox.try_recv().ok()).take(MAX_BATCH));
            }
            let handled = batch.len();
            if handled == 0 && self.effects.records().is_empty() {
                self.write_notes();
            }
            for message in batch.drain(..) {
                self.take(message);
                if self.effects.records().len() >= MAX_COMMIT_RECORDS {
                    self.flush()?;
                }
            }
            if self.effects.are_due() || !self.queries.is_empty() {
                self.flush()?;
            }
            if self.effects.records().is_empty() {
                let state = self.core.state();
                self.snapshots.begin_if_due(&mut self.store, state);
            }
            self.answer_queries()?;
            self.fire_timers(handled)?;
        }
        self.flush()?;
        Ok(self.store.close()?)
    }

    /// Waits for a message, a timer or a piece of a snapshot, and takes all waiting messages. The loop holds a handle
    /// itself, so only [`Message::Stop`] ends it.
    async fn wait(
        &mut self,
        batch: &mut Vec<Message>,
    ) -> Option<Result<SnapshotOutput, JoinError>> {
        let timer = self.timers.next().map(|at| self.clock.until(at));
        let note = (!self.notes.is_empty()).then_some(NOTE_DELAY);
        let query = (!self.queries.is_empty()).then_some(Duration::ZERO);
        let effects = self.effects.due_in();
        let limits = timer.into_iter().chain(note).chain(query).chain(effects);
        let limit = limits.min();
        let timer = async {
            match limit {
                None => std::future::pending().await,
                Some(limit) => tokio::time::sleep(limit).await,
            }
        };
        tokio::select! {
            biased;
            piece = self.snapshots.next() => Some(piece),
            _ = self.inbox.recv_many(batch, MAX_BATCH) => None,
            () = timer => None,
        }
    }

    fn take(&mut self, message: Message) {
        match &message {
            // No caller waits for a change by these.
            Message::Note(_) | Message::Query(_) | Message::Session(_) => {}
            _ => self.write_notes(),
        }
        match message {
            Message::Note(entry) => self.notes.push(entry),
            Message::Submit { steps, reply } => {
                let reply = self.expect_reply(reply);
                self.handle(Input::Submit { reply, steps });
            }
            Message::Change { input, reply } => {
                let reply = self.expect_reply(reply);
                self.handle(input(reply));
            }
            Message::Hello {
                hello,
                claim,
                sender,
                session,
            } => self.on_hello(hello, claim, sender, session),
            Message::Session(input) => {
                if let Input::NodeGone { session, node } = &*input {
                    self.drop_session(*session);
                    if self.welcomed.get(node) == Some(session) {
                        self.welcomed.remove(node);
                    }
                }
                self.handle(*input);
            }
            Message::Query(query) => self.queries.push(query),
            Message::Retention(Retention { records, bounds }) => {
                self.store.keep(records);
                self.handle(Input::Bounds(bounds));
            }
            Message::Stop => self.stopping = true,
        }
    }

    fn write_notes(&mut self) {
        for entry in std::mem::take(&mut self.notes) {
            self.handle(Input::Audit { entry });
        }
    }

    fn next_id(&mut self) -> u64 {
        self.drawn += 1;
        self.drawn
    }

    fn expect_reply(&mut self, reply: ReplyFn) -> ReplyId {
        let id = ReplyId(self.next_id());
        self.replies.insert(id, reply);
        id
    }

    fn handle(&mut self, input: Input) {
        let began = Instant::now();
        self.core.handle(self.clock.now(), input);
        self.shared.meter().decided(began.elapsed());
        self.collect_outputs();
    }

    fn collect_outputs(&mut self) {
        for output in self.core.outputs() {
            match output {
                Output::Record(record) => self.effects.record(record),
                Output::Greet { session, greeting } => {
                    let greeting = ToSession::HelloReply(self.with_epoch_proof(session, greeting));
                    self.effects.sends.push((session, greeting));
                }
                Output::ToNode {
                    session,
                    node,
                    command,
                } => {
                    let command = ToSession::Command(self.with_warrant(&node, command));
                    self.effects.sends.push((session, command));
                }
                Output::LetGo { session, why } => {
                    self.effects.sends.push((session, ToSession::Cut(why)));
                }
                Output::Reply { reply, answer } => self.effects.replies.push((reply, answer)),
                Output::SetTimer { key, at } => self.timers.set(key, at),
            }
        }
    }

    /// Adds the proof of the epoch to a welcome. The host keeps it and shows it in later hellos.
    fn with_epoch_proof(&self, session: SessionId, mut greeting: HelloReply) -> HelloReply {
        if let (HelloReply::Welcome(welcome), Some((node, _))) =
            (&mut greeting, self.sessions.get(&session))
        {
            let epoch = &mut welcome.epoch;
            epoch.seal = Some(self.store.seal().seal_epoch(node, &epoch.epoch));
        }
        greeting
    }

    /// Adds the sealed warrant of an attempt to its assignment.
    fn with_warrant(&self, node: &NodeName, mut command: Command) -> Command {
        if let ToNode::Assign(it) = &mut command.order {
            let warrant = self.core.state().warrant(&it.attempt);
            self.store.seal().seal_order(node, it, warrant.as_ref());
        }
        command
    }

    /// Carries out everything decided since the last flush, records first.
    fn flush(&mut self) -> Result<(), StoreError> {
        let mut effects = std::mem::take(&mut self.effects);
        self.commit(effects.take_records())?;
        for (session, message) in effects.sends {
            self.send(session, message);
        }
        for (id, answer) in effects.replies {
            let reply = self.replies.remove(&id);
            reply.expect("the core answers each caller once")(&self.core, answer);
        }
        Ok(())
    }

    /// Answers queries, after what came before them is durable.
    fn answer_queries(&mut self) -> Result<(), StoreError> {
        let began = Instant::now();
        while let Some(query) = self.queries.pop() {
            match query {
                Query::Read(read) => read(&self.core),
                Query::Preview { input, reply } => {
                    let reply = self.expect_reply(reply);
                    self.handle(input(reply));
                    self.flush()?;
                }
            }
            if began.elapsed() >= QUERY_TIME {
                break;
            }
        }
        Ok(())
    }

    fn commit(&mut self, records: Vec<LogEntry>) -> Result<(), StoreError> {
        let Some(last) = records.last() else {
            return Ok(());
        };
        let began = Instant::now();
        let written = self.store.append(&records)?;
        let took = began.elapsed();
        self.shared.meter().committed(records.len() as u64, took);
        if took > SLOW_COMMIT {
            let (records, took_ms) = (records.len(), millis(took));
            tracing::warn!(
                seq = last.seq,
                records,
                took_ms,
                "slow commit: the disk of the store is busy"
            );
        }
        if records
            .iter()
            .any(|it| AccessSnapshot::is_changed_by(&it.record))
        {
            self.shared.publish(AccessSnapshot::of(self.core.state()));
        }
        self.record_logger.log(self.core.state(), &records);
        self.shared.touch(&records);
        let seq = last.seq;
        let events = records.into_iter().zip(written);
        let events = events.map(|(record, json)| Event::new(record, json));
        self.shared.log_tail().push(events);
        self.committed.send_replace(seq);
        Ok(())
    }

    fn fire_timers(&mut self, handled: usize) -> Result<(), StoreError> {
        let due = self.timers.due(self.clock.now(), handled, self.inbox.len());
        if due.is_empty() {
            return Ok(());
        }
        for key in due {
            self.handle(Input::Timer(key));
        }
        self.flush()
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
