//! A run of a trace: the coordinator's own core, fed with terms, hosts and steps as by the API and by agents, with
//! simulated hosts that carry out orders at once. So the cluster's own code handles what is submitted: rules of
//! pools, platforms, assertions, defaults and queue timeouts. The results are the records of the core, as on a real
//! cluster.
//!
//! ```text
//! owner --(put, join, submit, pass)--> TraceRun --(Input)--> Core
//!   ^-----------(records)-----------------|  ^--(orders)-------|
//! ```
//!
//! A step runs for as long as its owner says, and succeeds. A frozen step continues its work after it is resumed, a
//! requeued one starts over. Hosts never fall silent.

mod nominations;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use coordinator_core::record;
use coordinator_core::{
    Answer, Bounds, Core, Input, LogEntry, NewStep, Output, Record, Refusal, Refused, ReplyId,
    SessionId, Settings, State, TimerKey, spec,
};
use sluice_common::api::PutDocument;
use sluice_common::credential::NodeClaim;
use sluice_common::gpu_state::GpuStates;
use sluice_common::host_health::SupervisorState;
use sluice_common::id::{AttemptId, BootId, ClusterId, NodeName, PoolName, StepId};
use sluice_common::inventory::{Capability, Inventory, Mechanism};
use sluice_common::request::FieldError;
use sluice_common::supervision::{BootMillis, Exit};
use sluice_common::time::{Span, Time};
use sluice_common::usage::Usage;
use sluice_common::wire::{
    AttemptEnd, AttemptPhase, AttemptStatus, FromNode, Hello, HelloReply, PROTOCOL_VERSION,
    StartedProcess, StopReason, ToNode,
};

use nominations::NominationWatch;

/// Simulated hosts are never silent, so the settings of connections delay nothing. Ended steps are read from the
/// records and need not be remembered.
const SETTINGS: Settings = Settings {
    lease: Span::from_secs(300),
    stop_limit: Span::from_secs(30),
    heartbeat: Span::from_secs(3),
    unreachable_after: Span::from_secs(15),
    lost_after: Span::from_secs(390),
    bounds: Bounds {
        keep_finished: 0,
        ..Bounds::DEFAULT
    },
};

/// The run is the only caller.
const REPLY: ReplyId = ReplyId(1);
/// A simulated process has no number of its own.
const PID: u32 = 1;

/// A simulated cluster with the coordinator's own core.
#[derive(Debug)]
pub struct TraceRun {
    core: Core,
    now: Time,
    sessions: BTreeMap<NodeName, SessionId>,
    timers: BTreeMap<TimerKey, Time>,
    /// The same timers by time.
    due: BTreeSet<(Time, TimerKey)>,
    work: BTreeMap<StepId, Work>,
    /// End times of running attempts.
    ends: BTreeSet<(Time, AttemptId)>,
    promises: NominationWatch,
    inbox: VecDeque<Input>,
    answer: Option<Answer>,
    refused: Option<String>,
    records: Vec<LogEntry>,
}

/// The reason why documents cannot be applied. Documents are counted from 0.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// A field of a document is invalid.
    #[error("{error}")]
    Malformed { at: usize, error: FieldError },
    /// The core refused the documents.
    #[error("{why}")]
    Refused {
        /// The document at fault, if it is one of them.
        at: Option<usize>,
        why: String,
    },
}

/// The work of a step.
#[derive(Clone, Debug)]
struct Work {
    /// Duration; `None` for a step that never ends.
    lasts: Option<Span>,
    /// The attempt that does the work, if there is one.
    attempt: Option<Attempt>,
}

/// One attempt at the work.
#[derive(Clone, Debug)]
struct Attempt {
    id: AttemptId,
    nodes: BTreeSet<NodeName>,
    timeout: Option<Span>,
    /// Work that it had done before it was frozen last.
    done: Span,
    /// Start of its current work; `None` while it is frozen.
    since: Option<Time>,
}

impl Attempt {
    /// The end time of the work, and whether the attempt is stopped then because it reaches its timeout.
    fn end(&self, lasts: Option<Span>) -> Option<(Time, bool)> {
        let is_late = self
            .timeout
            .is_some_and(|most| lasts.is_none_or(|lasts| lasts > most));
        let works = if is_late { self.timeout } else { lasts };
        let left = works? - self.done;
        Some((self.since? + left, is_late))
    }
}

impl TraceRun {
    /// Makes a cluster without hosts, with the pool that always exists.
    pub fn new(now: Time) -> Self {
        let mut core = Core::recover(SETTINGS, State::default());
        let cluster = ClusterId::new("paper").expect("the constant is a well-formed name");
        core.start(now, cluster);
        let mut run = Self {
            core,
            now,
            sessions: BTreeMap::new(),
            timers: BTreeMap::new(),
            due: BTreeSet::new(),
            work: BTreeMap::new(),
            ends: BTreeSet::new(),
            promises: NominationWatch::default(),
            inbox: VecDeque::new(),
            answer: None,
            refused: None,
            records: Vec::new(),
        };
        run.play();
        run
    }

    /// The current time of the simulation.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The state of the core.
    pub fn state(&self) -> &State {
        self.core.state()
    }

    /// The records since the last call, in order.
    pub fn records(&mut self) -> Vec<LogEntry> {
        std::mem::take(&mut self.records)
    }

    /// Applies documents: all of them, or none.
    ///
    /// # Errors
    /// The reason why they cannot be applied.
    pub fn put(&mut self, documents: Vec<PutDocument>) -> Result<(), SetupError> {
        let changes = documents.into_iter().enumerate().map(|(at, document)| {
            spec::change(document).map_err(|error| SetupError::Malformed { at, error })
        });
        let changes = changes.collect::<Result<_, _>>()?;
        let answer = self.ask(Input::Apply {
            reply: REPLY,
            changes,
            force: false,
            dry_run: false,
        });
        match answer {
            Some(Answer::Applied(Ok(_))) => Ok(()),
            Some(Answer::Applied(Err(Refused { at, refusal }))) => Err(SetupError::Refused {
                at,
                why: refusal.to_string(),
            }),
            other => unreachable!("changes are answered with what they mean, not {other:?}"),
        }
    }

    /// Adds a host with its resources to a pool. The host has all capabilities.
    ///
    /// # Errors
    /// The reason why it is refused.
    pub fn join(
        &mut self,
        node: NodeName,
        pool: PoolName,
        labels: BTreeMap<String, String>,
        inventory: Inventory,
    ) -> Result<(), String> {
        let session = SessionId(self.sessions.len() as u64 + 1);
        self.sessions.insert(node.clone(), session);
        let can = Capability::ALL.map(|it| (it, Mechanism::Cgroup2));
        let inventory = Inventory {
            capabilities: can.into(),
            ..inventory
        };
        let hello = Box::new(Hello {
            protocol: PROTOCOL_VERSION,
            version: String::from("on paper"),
            node,
            pool,
            labels,
            address: String::new(),
            boot_id: BootId::new("paper").expect("the constant is a well-formed name"),
            state_dir: String::new(),
            highest_epoch: None,
            inventory,
            attempts: Vec::new(),
            gpu_states: GpuStates::default(),
            sent_at: BootMillis(0),
            supervisor: SupervisorState::Responding,
            challenge: None,
        });
        self.ask(Input::NodeHello {
            session,
            claim: NodeClaim::default(),
            hello,
            epoch_is_proven: false,
        });
        self.refused.take().map_or(Ok(()), Err)
    }

    /// Submits a step that works for `lasts`, or without end. Returns whether it was within its subject's reserved
    /// share, together with the queued steps for which that was so.
    ///
    /// # Errors
    /// The reason why it was refused.
    pub fn submit(&mut self, step: NewStep, lasts: Option<Span>) -> Result<bool, Refusal> {
        let demand = self.demand_in_share(&step);
        let in_share = demand.is_some();
        let id = step.id.clone();
        if let Some(demand) = demand {
            let subject = step.spec.subject.clone();
            self.promises.make(id.clone(), subject, demand);
        }
        let attempt = None;
        self.work.insert(step.id.clone(), Work { lasts, attempt });
        let steps = Vec::from([step]);
        let reply = REPLY;
        match self.ask(Input::Submit { reply, steps }) {
            Some(Answer::Submitted(results)) => {
                let refused = results.into_iter().find_map(Result::err);
                refused.map_or(Ok(in_share), |refusal| {
                    self.promises.end(&id);
                    self.work.remove(&id);
                    Err(refusal)
                })
            }
            other => unreachable!("a submit is answered with what was stored, not {other:?}"),
        }
    }

    /// The time of the next event if nobody does anything.
    pub fn next_at(&self) -> Option<Time> {
        let end = self.ends.first().map(|(at, _)| *at);
        let timer = self.due.first().map(|(at, _)| *at);
        end.into_iter().chain(timer).min()
    }

    /// Lets time pass until the first event that comes due by then, and plays it. Returns whether there was one.
    pub fn pass(&mut self, until: Time) -> bool {
        let next = self.next_at().filter(|at| *at <= until);
        self.now = next.unwrap_or(until).max(self.now);
        if let Some((_, id)) = self.ends.first().filter(|(at, _)| *at <= self.now) {
            let step = id.step.clone();
            self.end(&step);
            return true;
        }
        let due = self.due.first().filter(|(at, _)| *at <= self.now);
        let Some((_, key)) = due.cloned() else {
            return false;
        };
        self.timers.remove(&key);
        self.due.pop_first();
        self.ask(Input::Timer(key));
        true
    }

    /// Ends the attempt of a step that is done, or has run for too long.
    fn end(&mut self, step: &StepId) {
        let Some(work) = self.work.get(step) else {
            return;
        };
        let lasts = work.lasts;
        let Some(attempt) = &work.attempt else { return };
        let is_late = attempt.end(lasts).is_some_and(|(_, is_late)| is_late);
        let (exit, stopped) = match is_late {
            true => (Exit::Signal(15), Some(StopReason::TimedOut)),
            false => (Exit::Code(0), None),
        };
        let (id, nodes) = (attempt.id.clone(), attempt.nodes.clone());
        if nodes.len() > 1 {
            // The processes of a gang end together; its hosts are freed one by one, as each reports it.
            let end = ended(self.now, &exit, stopped);
            for node in &nodes {
                self.say(node, &id, AttemptPhase::Ended(end.clone()));
            }
        }
        for node in &nodes {
            self.leave(node, &id, &exit, stopped);
        }
        self.play();
    }

    /// Reports that nothing of an attempt is left on a host.
    fn leave(&mut self, node: &NodeName, id: &AttemptId, exit: &Exit, stopped: Option<StopReason>) {
        self.unplan(id);
        let now = self.now;
        let work = self.work.get_mut(&id.step);
        let attempt = work.and_then(|work| work.attempt.as_mut());
        if let Some(attempt) = attempt.filter(|attempt| attempt.id == *id) {
            attempt.nodes.remove(node);
        }
        self.say(node, id, AttemptPhase::Released(ended(now, exit, stopped)));
    }

    fn say(&mut self, node: &NodeName, id: &AttemptId, phase: AttemptPhase) {
        let attempt = id.clone();
        if let Some(session) = self.sessions.get(node).copied() {
            self.inbox.push_back(Input::FromNode {
                session,
                node: node.clone(),
                message: FromNode::Status(AttemptStatus { attempt, phase }),
            });
        }
    }

    fn ask(&mut self, input: Input) -> Option<Answer> {
        self.inbox.push_back(input);
        self.play();
        self.answer.take()
    }

    /// Has the core handle all inputs, and carries out the orders of the hosts.
    fn play(&mut self) {
        loop {
            for output in self.core.outputs() {
                self.act(output);
            }
            let Some(input) = self.inbox.pop_front() else {
                return;
            };
            self.core.handle(self.now, input);
        }
    }

    fn act(&mut self, output: Output) {
        match output {
            Output::Record(stamped) => {
                if let Record::Allocated(record::Allocated { attempt, .. }) = &stamped.record {
                    self.promises.end(&attempt.step);
                }
                if let Record::StepForgotten { step, .. } = &stamped.record {
                    self.work.remove(step);
                    self.promises.end(step);
                }
                self.records.push(stamped);
            }
            Output::Greet { greeting, .. } => match greeting {
                HelloReply::Welcome(_) => {}
                HelloReply::Refused { message } => self.refused = Some(message),
            },
            Output::ToNode { node, command, .. } => self.obey(&node, command.order),
            // Simulated hosts have no connections to close.
            Output::LetGo { .. } => {}
            Output::Reply { answer, .. } => self.answer = Some(answer),
            Output::SetTimer { key, at } => self.set_timer(key, at),
        }
    }

    fn set_timer(&mut self, key: TimerKey, at: Time) {
        if matches!(key, TimerKey::NodeSilence(_)) {
            return;
        }
        if let Some(before) = self.timers.insert(key.clone(), at) {
            self.due.remove(&(before, key.clone()));
        }
        self.due.insert((at, key));
    }

    fn obey(&mut self, node: &NodeName, order: ToNode) {
        match order {
            ToNode::Assign(assignment) => {
                self.begin(node, &assignment.attempt, assignment.timeout);
            }
            ToNode::Stop { attempt, why, .. } => {
                self.leave(node, &attempt, &Exit::Signal(15), Some(why));
            }
            ToNode::Suspend { attempt, .. } => self.freeze(node, &attempt),
            ToNode::Resume { attempt } => self.thaw(node, &attempt),
            // Nothing is lost here, so hosts are not asked for these.
            ToNode::Forget { .. }
            | ToNode::RestoreGpus { .. }
            | ToNode::ShowWarrant { .. }
            | ToNode::Carve(_) => {}
        }
    }

    fn begin(&mut self, node: &NodeName, id: &AttemptId, timeout: Option<Span>) {
        let now = self.now;
        if let Some(work) = self.work.get_mut(&id.step) {
            let attempt = work.attempt.take().filter(|known| known.id == *id);
            let mut attempt = attempt.unwrap_or_else(|| Attempt {
                id: id.clone(),
                nodes: BTreeSet::new(),
                timeout,
                done: Span::ZERO,
                since: Some(now),
            });
            attempt.nodes.insert(node.clone());
            work.attempt = Some(attempt);
        }
        self.plan(id);
        self.say(node, id, AttemptPhase::Running(started(now)));
    }

    fn freeze(&mut self, node: &NodeName, id: &AttemptId) {
        self.unplan(id);
        let now = self.now;
        if let Some(attempt) = self.attempt_mut(id) {
            let since = attempt.since.take();
            attempt.done = attempt.done + since.map_or(Span::ZERO, |since| now.since(since));
        }
        let started = started(now);
        // The used memory of its GPUs is unknown.
        let moved_mb = 0;
        self.say(node, id, AttemptPhase::Suspended { started, moved_mb });
    }

    fn thaw(&mut self, node: &NodeName, id: &AttemptId) {
        let now = self.now;
        if let Some(attempt) = self.attempt_mut(id) {
            attempt.since.get_or_insert(now);
        }
        self.plan(id);
        self.say(node, id, AttemptPhase::Running(started(now)));
    }

    fn attempt_mut(&mut self, id: &AttemptId) -> Option<&mut Attempt> {
        let attempt = self.work.get_mut(&id.step)?.attempt.as_mut();
        attempt.filter(|attempt| attempt.id == *id)
    }

    fn plan(&mut self, id: &AttemptId) {
        if let Some(at) = self.end_of(id) {
            self.ends.insert((at, id.clone()));
        }
    }

    fn unplan(&mut self, id: &AttemptId) {
        if let Some(at) = self.end_of(id) {
            self.ends.remove(&(at, id.clone()));
        }
    }

    fn end_of(&self, id: &AttemptId) -> Option<Time> {
        let work = self.work.get(&id.step)?;
        let attempt = work.attempt.as_ref().filter(|attempt| attempt.id == *id)?;
        attempt.end(work.lasts).map(|(at, _)| at)
    }
}

fn ended(at: Time, exit: &Exit, stopped: Option<StopReason>) -> AttemptEnd {
    AttemptEnd {
        started: Some(started(at)),
        exit: exit.clone(),
        stopped,
        at,
        usage: Usage::default(),
        kept: None,
    }
}

fn started(at: Time) -> StartedProcess {
    StartedProcess {
        pid: PID,
        at,
        workdir_refused: None,
    }
}
