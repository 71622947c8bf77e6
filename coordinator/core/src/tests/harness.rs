//! Drives a core as its owner would: feeds inputs, drains outputs in order, stores the log and fires timers. After
//! every input it checks all invariants, that every record survives JSON, and that folding the log gives the core's
//! state.

use crate::record;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use alloc::{format, string};
use sluice_common::allocation::HolderState;
use sluice_common::pool::{PoolHosts, PoolSpec};

use sluice_common::amount::{Amounts, MCPU, MEMORY_MB, MGPU, ResourceKey, STEP_RUN, cores_of};
use sluice_common::carving::CarveOrder;
use sluice_common::credential::NodeClaim;
use sluice_common::environment::Environment;
use sluice_common::host_health::SupervisorState;
use sluice_common::id::{AttemptId, BootId, ClusterId, Epoch, NodeName, PoolName, StepId, Subject};
use sluice_common::inventory::{Gpu, Inventory, MigInstance};
use sluice_common::mig::MigRequest;
use sluice_common::pool::PolicySpec;
use sluice_common::reason::{Reason, ReasonCode};
use sluice_common::request::ResourceSettings;
use sluice_common::shared::Shared;
use sluice_common::state::{NodeState, StepState};
use sluice_common::step::{OnPreempt, StepSpec};
use sluice_common::supervision::{BootMillis, Exit};
use sluice_common::time::{Span, Time};
use sluice_common::usage::Usage;
use sluice_common::wire::{
    AttemptEnd, AttemptPhase, AttemptStatus, FromNode, Heartbeat, Hello, HelloReply,
    PROTOCOL_VERSION, StartedProcess, StopReason, ToNode, Welcome,
};

use crate::{
    Answer, ApplyError, Core, Desired, DesiredPool, Input, LogEntry, MoveTarget, NewStep,
    NodeChange, Output, Record, RecoveryCause, Refusal, ReplyId, SessionId, Settings, State, Step,
    StepAction, Submitted, TermsChange, TimerKey, Warrant, check, check_record,
};

pub(super) const SETTINGS: Settings = Settings {
    lease: Span::from_secs(300),
    stop_limit: Span::from_secs(30),
    heartbeat: Span::from_secs(3),
    unreachable_after: Span::from_secs(15),
    lost_after: Span::from_secs(390),
    bounds: crate::Bounds {
        keep_finished: 100,
        ..crate::Bounds::DEFAULT
    },
};

pub(super) const GRACE: Span = Span::from_secs(7);

/// Outputs of one input, by kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct InputEffects {
    pub(super) records: Vec<Record>,
    pub(super) greetings: Vec<HelloReply>,
    /// Orders as text, such as `assign a.1`.
    pub(super) orders: Vec<String>,
    pub(super) sent: Vec<ToNode>,
    /// Number of each order, and the heartbeat that it answers.
    pub(super) numbers: Vec<(u64, BootMillis)>,
    /// Reasons of closed connections.
    pub(super) cut: Vec<String>,
    pub(super) answers: Vec<Answer>,
    pub(super) timers: Vec<(TimerKey, Time)>,
}

impl InputEffects {
    /// The types of the records, in order, without those of forgetting.
    pub(super) fn types(&self) -> Vec<String> {
        self.records.iter().map(record_type).collect()
    }

    pub(super) fn greeting(&self) -> &HelloReply {
        assert_eq!(self.greetings.len(), 1, "{self:?}");
        &self.greetings[0]
    }

    pub(super) fn welcome(&self) -> &Welcome {
        match self.greeting() {
            HelloReply::Welcome(welcome) => welcome,
            HelloReply::Refused { message } => panic!("refused: {message}"),
        }
    }

    pub(super) fn refusal(&self) -> &str {
        match self.greeting() {
            HelloReply::Welcome(welcome) => panic!("let in: {welcome:?}"),
            HelloReply::Refused { message } => message,
        }
    }
}

fn record_type(record: &Record) -> String {
    let json = serde_json::to_value(record).unwrap();
    json["type"].as_str().unwrap().to_string()
}

pub(super) struct Harness {
    pub(super) core: Core,
    pub(super) now: Time,
    pub(super) log: Vec<LogEntry>,
    /// Length of the log after each input: records of one input are stored together.
    commits: Vec<usize>,
    /// Every output as text.
    pub(super) trace: String,
    folded: State,
    timers: BTreeMap<TimerKey, Time>,
    sessions: BTreeMap<NodeName, SessionId>,
    drawn: u64,
}

/// Returns a record as it is stored: without the values of variables.
fn stored_form(stamped: &LogEntry) -> LogEntry {
    let mut stored_form = stamped.clone();
    if let Record::StepQueued(record::StepQueued { spec, .. })
    | Record::StepMoved(record::StepMoved { spec, .. })
    | Record::StepRejected(record::StepRejected { spec, .. }) = &mut stored_form.record
    {
        Arc::make_mut(spec).env = spec.env.hidden();
    }
    if let Record::ServicePut(it) = &mut stored_form.record {
        it.spec.replica.env = it.spec.replica.env.hidden();
    }
    if let Record::Adopted(record::Adopted { warrant, .. }) = &mut stored_form.record {
        Arc::make_mut(&mut warrant.spec).env = warrant.spec.env.hidden();
    }
    stored_form
}

/// The variables that the store has under a key.
fn stored_environment(state: &State, key: &str) -> Option<Environment> {
    if let Ok(id) = StepId::new(key) {
        return Some(state.step(&id)?.spec.env.clone());
    }
    let services = state.services().iter();
    let mut revisions = services.flat_map(|(name, service)| {
        let revisions = service.revisions.iter();
        revisions.map(move |(number, it)| (crate::environment_key(name, *number), &it.spec.env))
    });
    let found = revisions.find(|(it, _)| it == key);
    found.map(|(_, env)| env.clone())
}

/// The pools whose rules exclude a queued step, each with the reason as text.
pub(super) fn excluded_by(harness: &Harness, id: &str) -> Vec<(String, String)> {
    let explained = harness.core.explain(&step(id)).expect("it is remembered");
    let excluded_by = explained.excluded_by.iter();
    let excluded_by = excluded_by.map(|(pool, why)| (pool.to_string(), why.message(pool)));
    excluded_by.collect()
}

impl Harness {
    /// Makes a cluster with the pool `default` and no node.
    pub(super) fn new() -> Self {
        Self::with(SETTINGS)
    }

    pub(super) fn with(settings: Settings) -> Self {
        let mut harness = Self::over(settings, State::default(), vec![]);
        harness.start();
        harness.put_policy("default", "s", PolicySpec::default());
        harness
    }

    /// Makes a core over the state of its log, without starting it.
    fn over(settings: Settings, state: State, log: Vec<LogEntry>) -> Self {
        Self {
            folded: state.clone(),
            core: Core::recover(settings, state),
            now: Time::from_unix_millis(1_000_000),
            commits: vec![log.len()],
            log,
            trace: String::new(),
            timers: BTreeMap::new(),
            sessions: BTreeMap::new(),
            drawn: 0,
        }
    }

    pub(super) fn start(&mut self) -> InputEffects {
        self.core.start(self.now, cluster());
        self.drain()
    }

    /// Makes a cluster whose node `n` of the pool `default` has these GPUs and cores.
    pub(super) fn one_node(gpus: u32, cpus: u32) -> Self {
        let mut harness = Self::new();
        harness.hello(hello("n", gpus, cpus));
        harness
    }

    /// Restarts from a snapshot made at the `snapshot_at`-th record and the records after it.
    pub(super) fn restart(&mut self, snapshot_at: usize) -> InputEffects {
        self.restart_with(*self.core.settings(), snapshot_at)
    }

    /// Does the same under settings that were changed meanwhile.
    pub(super) fn restart_with(&mut self, settings: Settings, snapshot_at: usize) -> InputEffects {
        let mut state = State::default();
        for stamped in &self.log[..snapshot_at] {
            state.apply(stamped).unwrap();
        }
        let snapshot = serde_json::to_string(&state).unwrap();
        let mut state: State = serde_json::from_str(&snapshot).unwrap();
        for stamped in &self.log[snapshot_at..] {
            state.apply(stamped).unwrap();
        }
        let before = self.core.state();
        let environment_of = |key: &str| Ok::<_, ApplyError>(stored_environment(before, key));
        assert_eq!(state.give_environments(environment_of).unwrap(), None);
        assert_eq!(&state, self.core.state());
        let commits = core::mem::take(&mut self.commits);
        let log = core::mem::take(&mut self.log);
        let trace = core::mem::take(&mut self.trace);
        let now = self.now;
        *self = Self::over(settings, state, log);
        self.trace = trace;
        self.commits = commits;
        self.now = now + Span::from_secs(1);
        self.start()
    }

    /// Does the same with a clock that is ahead by this much.
    pub(super) fn restart_ahead(&mut self, by: Span) {
        self.now = self.now + by;
        self.restart(self.log.len());
        self.feed(Input::ClockJumped(by));
    }

    /// Lengths of the log after each commit.
    pub(super) fn commits(&self) -> &[usize] {
        &self.commits
    }

    /// Restarts over the first records of the log; hosts stay as they are.
    pub(super) fn restore(&mut self, records: usize, why: RecoveryCause) -> InputEffects {
        let log: Vec<LogEntry> = self.log[..records].to_vec();
        let mut state = State::default();
        log.iter().for_each(|stamped| state.apply(stamped).unwrap());
        let (now, settings) = (self.now, *self.core.settings());
        let mut commits = core::mem::take(&mut self.commits);
        commits.retain(|commit| *commit <= records);
        *self = Self::over(settings, state, log);
        self.commits = commits;
        self.now = now + Span::from_secs(1);
        self.core.start_recovering(self.now, cluster(), why);
        self.drain()
    }

    /// Restarts over a log that was replaced.
    pub(super) fn restart_over_log(&mut self) {
        let log = core::mem::take(&mut self.log);
        let commits = core::mem::take(&mut self.commits);
        let mut state = State::default();
        log.iter().for_each(|stamped| state.apply(stamped).unwrap());
        let (now, settings) = (self.now, *self.core.settings());
        *self = Self::over(settings, state, log);
        self.commits = commits;
        self.now = now + Span::from_secs(1);
        self.start();
    }

    /// Shows the warrant of an attempt from a host, or reports that there is none.
    pub(super) fn show(&mut self, on: &str, id: &str, warrant: Option<&Warrant>) -> InputEffects {
        let session = self.session(on);
        self.feed(Input::Warrant {
            session,
            node: node(on),
            attempt: attempt(id),
            warrant: warrant.cloned().map(Box::new),
        })
    }

    pub(super) fn warrant(&self, id: &str) -> Warrant {
        let warrant = self.core.state().warrant(&attempt(id));
        warrant.expect("it is remembered")
    }

    pub(super) fn put_pool(&mut self, pool: &str) {
        self.apply(vec![wanted_pool(pool, &[])]);
        self.put_policy(pool, "s", PolicySpec::default());
    }

    pub(super) fn put_policy(
        &mut self,
        pool: &str,
        subject: &str,
        policy: PolicySpec,
    ) -> InputEffects {
        self.apply(vec![wanted_policy(pool, subject, policy)])
    }

    /// Applies documents with force, not as a dry run.
    pub(super) fn apply(&mut self, wanted: Vec<Desired>) -> InputEffects {
        let changes = wanted.into_iter().map(|wanted| TermsChange {
            desired: wanted,
            version: None,
        });
        self.feed(Input::Apply {
            reply: ReplyId(3),
            changes: changes.collect(),
            force: true,
            dry_run: false,
        })
    }

    pub(super) fn feed(&mut self, input: Input) -> InputEffects {
        self.core.handle(self.now, input);
        self.drain()
    }

    fn drain(&mut self) -> InputEffects {
        let mut effects = InputEffects::default();
        let outputs = self.core.outputs();
        assert!(outputs.is_sorted_by_key(kind), "{outputs:#?}");
        for output in outputs {
            self.trace.push_str(&format!("{output:?}\n"));
            self.act(output, &mut effects);
        }
        if self.commits.last() != Some(&self.log.len()) {
            self.commits.push(self.log.len());
        }
        assert_eq!(&self.folded, self.core.state());
        check(&self.core).unwrap();
        effects
    }

    fn act(&mut self, output: Output, effects: &mut InputEffects) {
        match output {
            Output::Record(stamped) => {
                check_record(&self.folded, &stamped.record).unwrap();
                let json = serde_json::to_string(&stamped).unwrap();
                let stored: LogEntry = serde_json::from_str(&json).unwrap();
                assert_eq!(stored, stored_form(&stamped));
                // Whoever looks for the records of a step or a node looks at the text first.
                let record = &stamped.record;
                let step = record.step().map(StepId::as_str);
                assert!(step.is_none_or(|step| json.contains(step)), "{json}");
                let named = self.folded.nodes().keys().filter(|it| record.names(it));
                named.for_each(|it| assert!(json.contains(it.as_str()), "{json}"));
                self.folded.apply(&stamped).unwrap();
                effects.records.push(stamped.record.clone());
                self.log.push(stamped);
            }
            Output::Greet { greeting, .. } => effects.greetings.push(greeting),
            Output::ToNode {
                session,
                node,
                command,
            } => {
                assert_eq!(self.sessions.get(&node), Some(&session), "an old session");
                assert_eq!(Some(&command.epoch), self.folded.epoch());
                effects.orders.push(order_in_words(&command.order));
                effects.numbers.push((command.number, command.last_heard));
                effects.sent.push(command.order);
            }
            Output::LetGo { session, why } => {
                self.sessions.retain(|_, known| *known != session);
                effects.cut.push(why);
            }
            Output::Reply { answer, .. } => effects.answers.push(answer),
            Output::SetTimer { key, at } => {
                self.timers.insert(key.clone(), at);
                effects.timers.push((key, at));
            }
        }
    }

    pub(super) fn submit(&mut self, id: &str, spec: StepSpec) -> Result<Submitted, Refusal> {
        let mut results = self.submit_all(vec![(id, spec)]);
        assert_eq!(results.len(), 1);
        results.remove(0)
    }

    pub(super) fn submit_all(
        &mut self,
        steps: Vec<(&str, StepSpec)>,
    ) -> Vec<Result<Submitted, Refusal>> {
        let steps = steps.into_iter();
        let steps = steps.map(|(id, spec)| NewStep::new(step(id), spec));
        let effects = self.feed(Input::Submit {
            reply: ReplyId(1),
            steps: steps.collect(),
        });
        match &effects.answers[..] {
            [Answer::Submitted(results)] => results.clone(),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn cancel(&mut self, id: &str) -> InputEffects {
        self.cancel_within(id, None)
    }

    /// Cancels a step with a grace in seconds.
    pub(super) fn cancel_within(&mut self, id: &str, grace: Option<u64>) -> InputEffects {
        self.feed(Input::Cancel {
            reply: ReplyId(2),
            step: step(id),
            grace: grace.map(Span::from_secs),
        })
    }

    pub(super) fn action(&mut self, id: &str, action: StepAction) -> InputEffects {
        self.feed(Input::StepAction {
            reply: ReplyId(5),
            step: step(id),
            action,
        })
    }

    /// Renews an allocation for some seconds, or for its own lease.
    pub(super) fn renew(
        &mut self,
        id: &str,
        secs: Option<u64>,
        holder: Option<HolderState>,
    ) -> Result<(), Refusal> {
        let effects = self.feed(Input::Renew {
            reply: ReplyId(5),
            step: step(id),
            lease: secs.map(Span::from_secs),
            holder,
        });
        match &effects.answers[..] {
            [Answer::Steered(answer)] => answer.clone().map(drop),
            other => panic!("{other:?}"),
        }
    }

    /// Moves a queued step to another pool; returns whether it waited in another, or the refusal.
    pub(super) fn move_step(&mut self, id: &str, pool: &str) -> Result<bool, Refusal> {
        let effects = self.feed(Input::MoveStep {
            reply: ReplyId(5),
            step: step(id),
            target: target(pool),
            dry_run: false,
        });
        match &effects.answers[..] {
            [Answer::Moved(answer)] => answer.clone(),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn change(&mut self, name: &str, change: NodeChange) -> InputEffects {
        self.feed(Input::ChangeNode {
            reply: ReplyId(4),
            node: node(name),
            change,
        })
    }

    /// Sends this hello on a new connection of the node.
    pub(super) fn hello(&mut self, hello: Hello) -> InputEffects {
        self.hello_with(hello, true)
    }

    /// Does the same; `epoch_is_proven` tells whether it shows the cluster's seal for its epoch.
    pub(super) fn hello_with(&mut self, hello: Hello, epoch_is_proven: bool) -> InputEffects {
        self.drawn += 1;
        let session = SessionId(self.drawn);
        let before = self.sessions.insert(hello.node.clone(), session);
        let node = hello.node.clone();
        let hello = Box::new(hello);
        // With the latest generation of access.
        let generation = self.core.state().admission().generation(&node);
        let claim = NodeClaim {
            pool: None,
            generation,
        };
        let effects = self.feed(Input::NodeHello {
            session,
            hello,
            claim,
            epoch_is_proven,
        });
        if let (Some(before), [HelloReply::Refused { .. }]) = (before, &effects.greetings[..]) {
            self.sessions.insert(node, before);
        }
        effects
    }

    /// Moves the node to a pool as in logs of earlier releases, in which its config did so.
    pub(super) fn moved_by_config(&mut self, words: &Hello, pool: &str) {
        self.core
            .context_mut()
            .record(Record::NodeReported(Box::new(record::NodeReported {
                node: words.node.clone(),
                pool: PoolName::new(pool).unwrap(),
                pool_of_config: None,
                labels: words.labels.clone(),
                address: words.address.clone(),
                version: words.version.clone(),
                boot_id: words.boot_id.clone(),
                inventory: words.inventory.clone(),
            })));
    }

    pub(super) fn session(&self, name: &str) -> SessionId {
        self.sessions
            .get(&node(name))
            .copied()
            .unwrap_or(SessionId(0))
    }

    pub(super) fn status(&mut self, on: &str, attempt: &str, phase: AttemptPhase) -> InputEffects {
        let message = FromNode::Status(status(attempt, phase));
        self.say(on, message)
    }

    pub(super) fn say(&mut self, on: &str, message: FromNode) -> InputEffects {
        let session = self.session(on);
        self.feed(Input::FromNode {
            session,
            node: node(on),
            message,
        })
    }

    /// Sends a heartbeat of a host that has received all orders.
    pub(super) fn heartbeat(&mut self, on: &str) -> InputEffects {
        let said_at = self.host_clock();
        self.beat(on, said_at, u64::MAX)
    }

    /// Sends a heartbeat of a host that has received this many orders.
    pub(super) fn beat(&mut self, on: &str, answered: BootMillis, orders: u64) -> InputEffects {
        let beat = Heartbeat {
            number: 1,
            sent_at: self.host_clock(),
            last_acknowledged: answered,
            last_order: orders,
            challenge: None,
        };
        self.feed(Input::Heartbeat {
            session: self.session(on),
            node: node(on),
            beat,
        })
    }

    /// The clock of every host.
    pub(super) fn host_clock(&self) -> BootMillis {
        BootMillis(self.now.unix_millis())
    }

    pub(super) fn gone(&mut self, on: &str) -> InputEffects {
        let session = self.session(on);
        self.feed(Input::NodeGone {
            session,
            node: node(on),
        })
    }

    /// Lets time pass, fires timers when they come due, and returns all outputs.
    pub(super) fn pass(&mut self, secs: u64) -> InputEffects {
        let until = self.now + Span::from_secs(secs);
        let mut all = InputEffects::default();
        while let Some((key, at)) = self.next_timer(until) {
            self.timers.remove(&key);
            self.now = self.now.max(at);
            let effects = self.feed(Input::Timer(key));
            all.records.extend(effects.records);
            all.orders.extend(effects.orders);
            all.cut.extend(effects.cut);
        }
        self.now = until;
        all
    }

    fn next_timer(&self, until: Time) -> Option<(TimerKey, Time)> {
        let due = self.timers.iter().filter(|(_, at)| **at <= until);
        due.min_by_key(|(_, at)| **at)
            .map(|(key, at)| (key.clone(), *at))
    }

    pub(super) fn step(&self, id: &str) -> &Step {
        self.core.state().step(&step(id)).expect("it is remembered")
    }

    pub(super) fn state(&self, id: &str) -> StepState {
        self.step(id).state
    }

    pub(super) fn code(&self, id: &str) -> ReasonCode {
        self.reason(id).code
    }

    pub(super) fn reason(&self, id: &str) -> Reason {
        self.core.reason(self.step(id)).to_reason()
    }

    pub(super) fn node_state(&self, name: &str) -> NodeState {
        let node = self.core.state().node(&node(name));
        node.expect("it is remembered").state
    }

    /// The host of the step's latest attempt, and its GPUs.
    pub(super) fn placed(&self, id: &str) -> (String, Vec<String>) {
        let attempt = self.step(id).latest().expect("it has an attempt");
        let part = &attempt.parts[0];
        (part.node.to_string(), part.gpus.clone())
    }

    /// Reports all phases of the step's first attempt on `n` until its process runs.
    pub(super) fn run(&mut self, attempt: &str) {
        self.status("n", attempt, running());
    }
}

/// An amount by the name of its key; of `gpu` whole ones.
pub(super) fn amount(key: &str, n: u64) -> (ResourceKey, u64) {
    let (key, n) = match key {
        "gpu" => (MGPU, n * 1000),
        key => (key, n),
    };
    (ResourceKey::new(key).unwrap(), n)
}

pub(super) fn wanted_pool(pool: &str, capacity: &[(&str, u64)]) -> Desired {
    let capacity = capacity.iter();
    Desired::Pool {
        pool: PoolName::new(pool).unwrap(),
        terms: alloc::boxed::Box::new(DesiredPool::from(PoolSpec {
            capacity: capacity.map(|(key, n)| amount(key, *n)).collect(),
            ..PoolSpec::default()
        })),
    }
}

/// A pool without hosts, which counts these amounts.
pub(super) fn hostless_pool(pool: &str, capacity: &[(&str, u64)]) -> Desired {
    let Desired::Pool { pool, mut terms } = wanted_pool(pool, capacity) else {
        unreachable!("it is a pool");
    };
    terms.spec.hosts = PoolHosts::None;
    Desired::Pool { pool, terms }
}

pub(super) fn wanted_policy(pool: &str, subject: &str, policy: PolicySpec) -> Desired {
    Desired::Policy {
        pool: PoolName::new(pool).unwrap(),
        subject: Subject::new(subject).unwrap(),
        policy,
    }
}

/// The kind of an output, by the order in which outputs must be carried out.
fn kind(output: &Output) -> u8 {
    match output {
        Output::Record(_) => 0,
        Output::Greet { .. } | Output::ToNode { .. } | Output::LetGo { .. } => 1,
        Output::Reply { .. } => 2,
        Output::SetTimer { .. } => 3,
    }
}

fn order_in_words(order: &ToNode) -> String {
    match order {
        ToNode::Assign(assignment) => format!("assign {}", assignment.attempt),
        ToNode::Stop {
            attempt,
            why,
            grace,
        } => format!("stop {attempt} {why:?} {grace}"),
        ToNode::Forget { attempt } => format!("forget {attempt}"),
        ToNode::Suspend { attempt, room_mb } => format!("suspend {attempt} {room_mb}"),
        ToNode::Resume { attempt } => format!("resume {attempt}"),
        ToNode::RestoreGpus { gpus } => format!("restore {}", gpus.join(",")),
        ToNode::ShowWarrant { attempt } => format!("show {attempt}"),
        ToNode::Carve(order) => {
            let CarveOrder {
                gpu,
                layout,
                before,
            } = &**order;
            format!("carve {gpu} into {layout} from {before}")
        }
    }
}

pub(super) fn cluster() -> ClusterId {
    ClusterId::new("c").unwrap()
}

pub(super) fn epoch(counter: u64) -> Epoch {
    let cluster = cluster();
    Epoch { cluster, counter }
}

pub(super) fn step(id: &str) -> StepId {
    StepId::new(id).unwrap()
}

pub(super) fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

pub(super) fn attempt(id: &str) -> AttemptId {
    id.parse().unwrap()
}

pub(super) fn status(id: &str, phase: AttemptPhase) -> AttemptStatus {
    let attempt = attempt(id);
    AttemptStatus { attempt, phase }
}

pub(super) fn process() -> StartedProcess {
    StartedProcess {
        pid: 42,
        at: Time::from_unix_millis(5),
        workdir_refused: None,
    }
}

pub(super) fn running() -> AttemptPhase {
    AttemptPhase::Running(process())
}

pub(super) fn stopping(why: StopReason) -> AttemptPhase {
    let started = Some(process());
    AttemptPhase::Stopping { started, why }
}

pub(super) fn end(exit: Exit, stopped: Option<StopReason>) -> AttemptEnd {
    AttemptEnd {
        started: Some(process()),
        exit,
        stopped,
        at: Time::from_unix_millis(9),
        usage: Usage::default(),
        kept: None,
    }
}

pub(super) fn ended(exit: Exit) -> AttemptPhase {
    AttemptPhase::Ended(end(exit, None))
}

pub(super) fn released(exit: Exit) -> AttemptPhase {
    AttemptPhase::Released(end(exit, None))
}

/// The end of an attempt that was being stopped.
pub(super) fn gone(exit: Exit, why: StopReason) -> AttemptPhase {
    AttemptPhase::Released(end(exit, Some(why)))
}

/// Makes a step that asks for these amounts of one host, and for no memory.
pub(super) fn spec(gpus: u64, mcpu: u64) -> StepSpec {
    StepSpec {
        array: None,
        name: "train".into(),
        subject: Subject::new("s").unwrap(),
        submitted_by: None,
        pool: None,
        platform: None,
        command: vec!["train".into()],
        env: [(String::from("A"), String::from("b"))].into(),
        workdir: None,
        prefer_workdir: None,
        image: None,
        resources: Shared::from(ResourceSettings {
            gpu_count: Some(gpus),
            cpu_count: Some(cores_of(mcpu)),
            memory: Some("0B".into()),
            ..ResourceSettings::default()
        }),
        request: Amounts::new()
            .with_gpus(gpus)
            .with(MCPU, mcpu)
            .with(STEP_RUN, 1),
        preemptible: true,
        nodes: 1,
        within: None,
        priority: 0,
        retries: 0,
        timeout: Some(Span::from_secs(60)),
        grace: GRACE,
        on_preempt: OnPreempt::Requeue,
        allow_pending: false,
        free_preemptions: true,
        priority_class: None,
        work: None,
        suspend_timeout: None,
        queue_timeout: None,
        begin: None,
        deadline: None,
        after: Vec::new(),
        labels: BTreeMap::new(),
        cpu_mode: Default::default(),
        unset: Default::default(),
        mounts: None,
        privileged: false,
        host_network: false,
        inputs: Vec::new(),
        inputs_by: None,
        keep: Vec::new(),
        ports: Vec::new(),
        probes: Default::default(),
        lease: None,
        inside: None,
        service: None,
        streams: Default::default(),
        inherited: Default::default(),
    }
}

/// The step with slices of a profile in place of whole GPUs.
pub(super) fn of_slices(mut spec: StepSpec, profile: &str, count: u64) -> StepSpec {
    spec.resources.gpu_count = None;
    spec.resources.mig = Some(MigRequest {
        profile: profile.parse().unwrap(),
        count,
    });
    let mut request = spec.resources.demand().unwrap();
    for (key, amount) in spec.request.iter().filter(|(key, _)| key.as_str() != MGPU) {
        request.set(key.clone(), amount);
    }
    spec.request = request.with(STEP_RUN, 1);
    spec
}

/// A slice of the GPU with this UUID and `-whole`.
pub(super) fn slice_of(uuid: &str, profile: &str) -> MigInstance {
    MigInstance {
        profile: profile.into(),
        parent: format!("{uuid}-whole"),
    }
}

pub(super) fn target(pool: &str) -> MoveTarget {
    MoveTarget {
        pool: PoolName::new(pool).unwrap(),
        past_maintenance: false,
    }
}

pub(super) fn with_memory(mut spec: StepSpec, megabytes: u64) -> StepSpec {
    spec.request = spec.request.with(MEMORY_MB, megabytes);
    spec
}

pub(super) fn in_pool(mut spec: StepSpec, pool: &str) -> StepSpec {
    spec.pool = Some(PoolName::new(pool).unwrap());
    spec
}

pub(super) fn of_array(spec: StepSpec, indexes: &str) -> StepSpec {
    StepSpec {
        array: Some(indexes.parse().unwrap()),
        ..spec
    }
}

/// Has a step start after others, each as `prep` or `prep:any`.
pub(super) fn after(mut spec: StepSpec, others: &[&str]) -> StepSpec {
    spec.after = others.iter().map(|it| it.parse().unwrap()).collect();
    spec
}

pub(super) fn with_retries(mut spec: StepSpec, retries: u32) -> StepSpec {
    spec.retries = retries;
    spec
}

/// Makes the first hello of a host with these amounts: 1000 MB of memory for each core.
pub(super) fn hello(name: &str, gpus: u32, cpus: u32) -> Hello {
    Hello {
        protocol: PROTOCOL_VERSION,
        version: "1".to_string(),
        node: node(name),
        pool: PoolName::new("default").unwrap(),
        labels: BTreeMap::new(),
        address: String::new(),
        boot_id: BootId::new("boot-1").unwrap(),
        state_dir: String::new(),
        highest_epoch: None,
        inventory: inventory(name, gpus, cpus),
        attempts: vec![],
        gpu_states: Default::default(),
        sent_at: BootMillis(0),
        supervisor: SupervisorState::Responding,
        challenge: None,
    }
}

pub(super) fn inventory(name: &str, gpus: u32, cpus: u32) -> Inventory {
    Inventory {
        cpus,
        memory_bytes: u64::from(cpus) * 1_000_000_000,
        storage_bytes: 1_000_000_000,
        gpus: (0..gpus).map(|index| gpu(name, index)).collect(),
        ..Inventory::default()
    }
}

fn gpu(node: &str, index: u32) -> Gpu {
    Gpu {
        index,
        uuid: format!("GPU-{node}-{index}"),
        model: string::String::from("NVIDIA H100 80GB HBM3"),
        memory_bytes: 80_000_000_000,
        ..Gpu::default()
    }
}

/// Makes the same hello on a later connection, with these attempts.
pub(super) fn holding(mut hello: Hello, attempts: Vec<AttemptStatus>) -> Hello {
    hello.attempts = attempts;
    hello.highest_epoch = Some(epoch(1).into());
    hello
}

pub(super) fn rebooted(mut hello: Hello) -> Hello {
    hello.boot_id = BootId::new("boot-2").unwrap();
    hello
}
