//! A run of a trace: the coordinator's own core, told of terms, hosts and steps as by the API and by agents, with simulated
//! hosts that do what they are told in the instant in which they are told it. So all that a cluster does with what is
//! submitted is done by the code that does it there: rules of pools, platforms, assertions, defaults, how long steps may wait.
//! What came of it is in the records, which are the same as a cluster's.
//!
//! ```text
//! owner --(put, join, submit, pass)--> TraceRun --(Input)--> Core
//!   ^-----------(records)-----------------|  ^--(orders)-------|
//! ```
//!
//! A step works for as long as its owner says, and ends well; one that is frozen works on when it is brought back,
//! one that starts again begins over. Hosts never fall silent.

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

/// Simulated hosts are never silent, so the terms of links hold nothing up. What is over is told by records and need not be
/// remembered.
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

/// Nobody else is there to be answered.
const REPLY: ReplyId = ReplyId(1);
/// A simulated process has no number of its own.
const PID: u32 = 1;

/// A simulated cluster under the coordinator's own core.
#[derive(Debug)]
pub struct TraceRun {
    core: Core,
    now: Time,
    sessions: BTreeMap<NodeName, SessionId>,
    timers: BTreeMap<TimerKey, Time>,
    /// The same by time.
    due: BTreeSet<(Time, TimerKey)>,
    work: BTreeMap<StepId, Work>,
    /// When what runs will be done, and which attempt that is.
    ends: BTreeSet<(Time, AttemptId)>,
    promises: NominationWatch,
    inbox: VecDeque<Input>,
    answer: Option<Answer>,
    refused: Option<String>,
    records: Vec<LogEntry>,
}

/// Why what documents declare cannot be made. Documents are counted from 0.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// A document says what none may say.
    #[error("{error}")]
    Malformed { at: usize, error: FieldError },
    /// What they declare cannot be.
    #[error("{why}")]
    Refused {
        /// The document that is to blame, if it is one of them.
        at: Option<usize>,
        why: String,
    },
}

/// What a step does.
#[derive(Clone, Debug)]
struct Work {
    /// Time for which it works; `None`: forever.
    lasts: Option<Span>,
    /// The attempt that works at it, if one does.
    attempt: Option<Attempt>,
}

/// One attempt at the work.
#[derive(Clone, Debug)]
struct Attempt {
    id: AttemptId,
    /// Where it runs.
    nodes: BTreeSet<NodeName>,
    timeout: Option<Span>,
    /// What it had done before it was frozen last.
    done: Span,
    /// Time since which it works; `None`: it is frozen.
    since: Option<Time>,
}

impl Attempt {
    /// When it will be done, and whether it is stopped then for having run too long.
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
    /// A cluster without hosts, with the pool that is always there.
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

    pub fn now(&self) -> Time {
        self.now
    }

    /// The truth as it stands.
    pub fn state(&self) -> &State {
        self.core.state()
    }

    /// The facts since they were asked for last, in order.
    pub fn records(&mut self) -> Vec<LogEntry> {
        std::mem::take(&mut self.records)
    }

    /// Makes what documents declare: all of it, or nothing.
    ///
    /// # Errors
    /// Why it cannot be made.
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

    /// A host joins a pool with what it has. It can do to processes all that a host can.
    ///
    /// # Errors
    /// Why it is not let in.
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

    /// A caller submits a step that works for so long; without end where that is not said. Whether it was within its
    /// subject's reserved share then, beside those that wait of whom that was so.
    ///
    /// # Errors
    /// Why it was not taken.
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

    /// When something happens next though nobody does anything.
    pub fn next_at(&self) -> Option<Time> {
        let end = self.ends.first().map(|(at, _)| *at);
        let timer = self.due.first().map(|(at, _)| *at);
        end.into_iter().chain(timer).min()
    }

    /// Lets time pass, and plays the first thing that falls due by then; whether there was one.
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

    /// What runs for a step is done, or has run for too long.
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
            // The processes of a gang end together; its hosts are free one by one, when each has seen to it.
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

    /// Nothing of an attempt is left on a host.
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

    /// Has the core handle all that there is, and hosts obey.
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
                if let Record::StepForgotten { step } = &stamped.record {
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
            // Nobody takes a simulated host off its connection.
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
            // Nothing is ever lost here, so nobody asks what a host knows.
            ToNode::Forget { .. } | ToNode::RestoreGpus { .. } | ToNode::ShowWarrant { .. } => {}
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
        // How much memory of its GPUs it fills is not known.
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
    }
}

fn started(at: Time) -> StartedProcess {
    StartedProcess { pid: PID, at }
}
