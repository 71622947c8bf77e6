//! The world around a core for the model test: a supervisor with steps that end, resist or fail to start,
//! timers that fire on time, and checks of every guarantee. Panics at the first violation.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;

use agent_core::{
    Core, GpuObservation, GpuScan, Input, LinkId, Output, ProbeCheck, ProbeOutcome, Settings,
    StoredEndpoint, StoredGpus, TimerKey, check,
};
use sluice_common::gpu_state::GpuFaults;
use sluice_common::id::{AttemptId, Epoch};
use sluice_common::port::PortName;
use sluice_common::probe::{Probe, ProbeAction, ProbeKind, Probes};
use sluice_common::supervision::{
    AttemptView, BootMillis, Exit, FreezerState, HostPhase, LaunchRecord, MovedMemory, Process,
    ProcessEnd, SpawnSpec, StopSignal, ToSupervisor,
};
use sluice_common::time::Span;
use sluice_common::usage::Usage;
use sluice_common::wire::{AttemptPhase, AttemptStatus, FromNode};

use crate::harness::{GRACE, LEASE, Orders, down, now, settings, up};

/// Most timer events in one advance of time: each attempt may be killed once a second.
const MOST_MOMENTS: u32 = 10_000;

/// Number of attempts; each has a behavior of its own.
pub(crate) const ATTEMPTS: u32 = 8;

/// Reaction of a step to signals.
#[derive(Clone, Copy, Debug)]
enum StepBehavior {
    /// Dies of the first signal, with all its children.
    Heeds,
    /// Dies only of a kill.
    Resists,
    /// The first kill ends the main process and leaves a child, which the second ends.
    Breeds,
    /// Cannot be started.
    Unmakeable,
}

const NATURES: [StepBehavior; 4] = [
    StepBehavior::Heeds,
    StepBehavior::Resists,
    StepBehavior::Breeds,
    StepBehavior::Unmakeable,
];

/// The actual state of one attempt.
#[derive(Debug)]
struct TrueState {
    view: AttemptView,
    nature: StepBehavior,
    lease_until: u64,
    /// The ports, from its variables.
    ports: BTreeSet<String>,
    kills: u32,
    /// When its last process ended.
    gone_at: Option<u64>,
    /// A signal that is delivered when the attempt is thawed.
    unheard: Option<StopSignal>,
}

/// Attempts without a GPU, with every behavior except failing to start.
const HAVE_NONE: RangeInclusive<u32> = 4..=6;

/// Time for which a GPU stays busy after the last process of a step; each attempt has another time.
fn lingers(id: &AttemptId) -> Option<u64> {
    match id.number % 3 {
        0 => Some(0),
        1 => Some(3000),
        _ => None,
    }
}

/// Longest time from the last process to the release, if scans are on time.
const LONGEST_RELEASE: u64 = 4000;

/// Short limits for GPUs, so that lives contain many waits.
fn short_waits() -> Settings {
    Settings {
        gpu_release_timeout: Span::from_millis(LONGEST_RELEASE),
        ..settings()
    }
}

impl TrueState {
    fn is_alive(&self) -> bool {
        !matches!(self.view.phase, HostPhase::Gone(_))
    }
}

/// Core, supervisor, clock and the recorded guarantees.
pub(crate) struct World {
    pub(crate) core: Core,
    pub(crate) boot: u64,
    pub(crate) link: Option<LinkId>,
    pub(crate) is_connected: bool,
    pub(crate) saved_epoch: Option<Epoch>,
    /// Latest time of an acknowledged message.
    pub(crate) answered: u64,
    /// Number of orders sent to the supervisor.
    pub(crate) messages: usize,
    /// By when each stopping attempt must have been killed.
    pub(crate) deadlines: BTreeMap<AttemptId, u64>,
    pub(crate) kept_gpus: StoredGpus,
    kept_endpoints: BTreeMap<AttemptId, StoredEndpoint>,
    /// Answers to probes that are on their way.
    probed: VecDeque<Input>,
    /// Whether the GPU driver answers.
    pub(crate) driver_answers: bool,
    truth: BTreeMap<AttemptId, TrueState>,
    /// Attempts whose timeout was paused at some time.
    frozen_once: BTreeSet<AttemptId>,
    /// Whether a GPU scan was requested.
    look_wanted: bool,
    /// The GPU faults that the coordinator knows.
    faults: GpuFaults,
    /// When the core last got a view.
    heard_at: u64,
    /// Until when each GPU is busy; `None` means for ever.
    busy: BTreeMap<String, Option<u64>>,
    inbox: VecDeque<AttemptView>,
    timers: BTreeMap<TimerKey, u64>,
    renewed_until: u64,
    greeted: Option<LinkId>,
    /// Returned attempts: no process of them may ever be made.
    given_back: BTreeSet<AttemptId>,
    /// Highest phase that was reported of each attempt on this link.
    ranks: BTreeMap<AttemptId, u8>,
    orders: Orders,
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            core: Core::new(short_waits(), None),
            boot: 100_000,
            link: None,
            is_connected: false,
            saved_epoch: None,
            answered: 0,
            messages: 0,
            deadlines: BTreeMap::new(),
            kept_gpus: StoredGpus::new(),
            kept_endpoints: BTreeMap::new(),
            probed: VecDeque::new(),
            driver_answers: true,
            truth: BTreeMap::new(),
            frozen_once: BTreeSet::new(),
            look_wanted: false,
            faults: GpuFaults::new(),
            heard_at: 0,
            busy: (0..=ATTEMPTS)
                .map(|n| (format!("GPU-{n}"), Some(0)))
                .collect(),
            inbox: VecDeque::new(),
            timers: BTreeMap::new(),
            renewed_until: 0,
            greeted: None,
            given_back: BTreeSet::new(),
            ranks: BTreeMap::new(),
            orders: Orders::default(),
        }
    }

    /// Feeds one input, performs the outputs and checks every guarantee.
    pub(crate) fn feed(&mut self, mut input: Input) {
        self.orders.send(&mut input, self.boot);
        self.core.handle(now(self.boot), input);
        let outputs: Vec<Output> = self.core.outputs().collect();
        for output in outputs {
            self.obey(output);
        }
        check(&self.core).expect("every invariant holds after every event");
        self.note_stops();
        self.every_stop_is_killed_in_time();
        self.no_two_run_on_the_same_processors();
        if std::mem::take(&mut self.look_wanted) {
            self.look();
        }
        if let Some(answer) = self.probed.pop_front() {
            self.feed(answer);
        }
    }

    /// Every GPU belongs to one attempt; some attempts have none, and can be frozen.
    pub(crate) fn gpus_of(id: &AttemptId) -> Vec<String> {
        if HAVE_NONE.contains(&id.number) {
            return vec![];
        }
        vec![format!("GPU-{}", id.number)]
    }

    /// Names of the ports of an attempt; every other attempt has two.
    pub(crate) fn port_names(id: &AttemptId) -> Vec<PortName> {
        let names = match id.number % 2 {
            0 => &["http", "metrics"][..],
            _ => &[],
        };
        names
            .iter()
            .map(|name| name.parse().expect("a name"))
            .collect()
    }

    /// Probes of an attempt with ports.
    pub(crate) fn probes_of(id: &AttemptId) -> Probes {
        let probe = Self::port_names(id).first().map(|port| Probe {
            action: ProbeAction::Tcp(port.clone()),
            period: Span::from_secs(20),
            timeout: Span::from_secs(1),
            failures: 2,
            successes: 1,
            initial_delay: Span::from_millis(500),
        });
        Probes {
            readiness: probe.clone(),
            liveness: probe,
            metric: None,
        }
    }

    /// Answers a probe after the event: some succeed, some fail, some are late.
    fn probe(&mut self, id: AttemptId, kind: ProbeKind, number: u32, check: &ProbeCheck) {
        let ProbeCheck::Tcp { port } = check else {
            panic!("{id} has no such probe: {check:?}");
        };
        if let Some(truth) = self.truth.get(&id) {
            assert!(truth.ports.contains(&port.to_string()), "{port} is not its");
        }
        let outcome = match (id.number + number) % 4 {
            0 => ProbeOutcome::Failed("it is busy".to_owned()),
            1 if id.number == 4 => ProbeOutcome::Failed("it hangs".to_owned()),
            2 => ProbeOutcome::Unknown,
            _ => ProbeOutcome::Succeeded,
        };
        self.probed.push_back(Input::Probed {
            attempt: id,
            kind,
            number,
            outcome,
        });
    }

    /// Scans the GPUs, unless the driver does not answer.
    pub(crate) fn look(&mut self) {
        if !self.driver_answers {
            return;
        }
        let boot = self.boot;
        let gpus = self.busy.iter().map(|(uuid, until)| {
            let is_busy = until.is_none_or(|until| boot < until);
            let memory_used = Some(if is_busy { 8 << 30 } else { 1 << 20 });
            let processes = Some(vec![]);
            (
                uuid.clone(),
                GpuObservation::Present {
                    processes,
                    memory_used,
                },
            )
        });
        let look = GpuScan {
            began: BootMillis(boot),
            gpus: gpus.collect(),
            units: BTreeMap::new(),
            memory_available: None,
        };
        self.feed(Input::Gpus(look));
    }

    /// Frees every GPU.
    pub(crate) fn free_gpus(&mut self) {
        for until in self.busy.values_mut() {
            *until = Some(0);
        }
    }

    /// Number of GPUs that the coordinator may not grant.
    pub(crate) fn faulty(&self) -> usize {
        self.faults.len()
    }

    /// If both the agent and the supervisor have lost an attempt, its GPUs cannot be known.
    fn drop_what_nobody_knows(&mut self) {
        let known: Vec<AttemptId> = self.core.statuses().map(|status| status.attempt).collect();
        let known = known.iter().chain(self.truth.keys());
        let known: Vec<String> = known.flat_map(Self::gpus_of).collect();
        for (uuid, until) in &mut self.busy {
            if !known.contains(uuid) {
                *until = Some(0);
            }
        }
    }

    fn is_free_or_told(&self, uuid: &str) -> bool {
        let free = self.busy[uuid].is_some_and(|until| until <= self.boot);
        free || self.faults.contains_key(uuid)
    }

    /// Advances the time, with every timer and lease on time.
    pub(crate) fn pass(&mut self, millis: u64) {
        let until = self.boot + millis;
        let mut moments = 0;
        while let Some(at) = self.next_moment().filter(|at| *at <= until) {
            self.boot = self.boot.max(at);
            self.expire_leases();
            self.fire_timers();
            moments += 1;
            assert!(
                moments < MOST_MOMENTS,
                "a timer is set for a time that has come"
            );
        }
        self.boot = until;
        self.nothing_outlives_its_timeout();
        self.nothing_waits_for_gpus_for_ever();
    }

    fn next_moment(&self) -> Option<u64> {
        let alive = self.truth.values().filter(|truth| truth.is_alive());
        let leases = alive.map(|truth| truth.lease_until);
        self.timers.values().copied().chain(leases).min()
    }

    fn fire_timers(&mut self) {
        let boot = self.boot;
        let due: Vec<TimerKey> = self
            .timers
            .extract_if(.., |_, at| *at <= boot)
            .map(|(key, _)| key)
            .collect();
        for key in due {
            self.feed(Input::Timer(key));
        }
    }

    fn expire_leases(&mut self) {
        let boot = self.boot;
        let expired: Vec<AttemptId> = self
            .truth
            .iter()
            .filter(|(_, truth)| truth.is_alive() && truth.lease_until <= boot)
            .map(|(id, _)| id.clone())
            .collect();
        for id in expired {
            self.end(&id, Exit::LeaseExpired);
            self.vanish(&id);
        }
    }

    /// The supervisor answers a new connection with all its attempts.
    pub(crate) fn connect(&mut self) {
        self.is_connected = true;
        self.inbox.clear();
        self.heard_at = self.boot;
        let views = self.truth.values().map(|truth| truth.view.clone());
        self.feed(up(views.collect()));
    }

    /// The connection breaks; steps keep running.
    pub(crate) fn disconnect(&mut self) {
        self.is_connected = false;
        self.inbox.clear();
        self.feed(down());
    }

    /// The supervisor dies with its steps, and restarts without state.
    pub(crate) fn lose_supervisor(&mut self) {
        let alive = self.truth.iter().filter(|(_, truth)| truth.is_alive());
        let alive: Vec<AttemptId> = alive.map(|(id, _)| id.clone()).collect();
        alive.iter().for_each(|id| self.let_go(id));
        self.truth.clear();
        self.drop_what_nobody_knows();
        self.disconnect();
    }

    /// The agent dies and restarts with its stored state.
    pub(crate) fn restart_agent(&mut self) {
        self.core = Core::new(short_waits(), self.saved_epoch.clone().map(Into::into))
            .with_gpus(self.kept_gpus.clone())
            .with_endpoints(self.kept_endpoints.clone());
        self.probed.clear();
        self.drop_what_nobody_knows();
        self.is_connected = false;
        self.link = None;
        self.greeted = None;
        // The coordinator may order these attempts again.
        self.given_back.clear();
        self.renewed_until = 0;
        self.inbox.clear();
        self.timers.clear();
        self.deadlines.clear();
    }

    /// Delivers one view; returns false if none is in transit.
    pub(crate) fn deliver(&mut self) -> bool {
        let view = self.inbox.pop_front();
        let is_some = view.is_some();
        if let Some(view) = view {
            self.heard_at = self.boot;
            self.feed(Input::Attempt(view));
        }
        is_some
    }

    /// The main process of a step exits by itself.
    pub(crate) fn exit(&mut self, id: &AttemptId) {
        self.end(id, Exit::Code(0));
    }

    /// The last process of a step ends, after its main process.
    pub(crate) fn empty(&mut self, id: &AttemptId) {
        let ended = self.truth.get(id).map(|truth| &truth.view.phase);
        if matches!(ended, Some(HostPhase::Ended(_))) {
            self.vanish(id);
        }
    }

    pub(crate) fn alive(&self) -> usize {
        self.truth.values().filter(|truth| truth.is_alive()).count()
    }

    fn end(&mut self, id: &AttemptId, exit: Exit) {
        let ended_at = now(self.boot).wall;
        let Some(truth) = self.truth.get_mut(id) else {
            return;
        };
        if let HostPhase::Running(process) = truth.view.phase {
            let end = ProcessEnd {
                process: Some(process),
                exit,
                ended_at,
                usage: Usage::default(),
                kept: None,
            };
            self.show(id, HostPhase::Ended(end));
        }
    }

    fn vanish(&mut self, id: &AttemptId) {
        if let Some(HostPhase::Ended(end)) = self.truth.get(id).map(|truth| &truth.view.phase) {
            let end = end.clone();
            self.let_go(id);
            self.show(id, HostPhase::Gone(end));
        }
    }

    /// The last process has ended; its GPU stays busy for a while.
    fn let_go(&mut self, id: &AttemptId) {
        let until = lingers(id).map(|millis| self.boot + millis);
        for uuid in Self::gpus_of(id) {
            self.busy.insert(uuid, until);
        }
        if let Some(truth) = self.truth.get_mut(id) {
            truth.gone_at.get_or_insert(self.boot);
        }
    }

    fn show(&mut self, id: &AttemptId, phase: HostPhase) {
        let truth = self.truth.get_mut(id).expect("the attempt exists");
        truth.view.phase = phase;
        if self.is_connected {
            self.inbox.push_back(truth.view.clone());
        }
    }

    fn spawn(&mut self, spec: SpawnSpec) {
        let is_port = |name: &String| name.starts_with("SLUICE_PORT_");
        let ports = spec.env.iter().filter(|(name, _)| is_port(name));
        let ports: BTreeSet<String> = ports.map(|(_, port)| port.clone()).collect();
        let id = spec.attempt;
        assert_eq!(
            ports.len(),
            Self::port_names(&id).len(),
            "{id} has its ports"
        );
        for (other, truth) in &self.truth {
            let shared = truth.ports.intersection(&ports).next();
            assert_eq!(shared, None, "{id} has a port of {other}");
        }
        assert!(!self.truth.contains_key(&id), "{id} is spawned twice");
        assert!(
            !self.given_back.contains(&id),
            "{id} begins though it was given back"
        );
        let lease_until = spec.lease_until.expect("every attempt has a lease").0;
        assert!(lease_until > self.boot, "{id} starts after its lease");
        assert!(
            lease_until <= self.answered + LEASE.millis(),
            "{id}: nobody answered for that"
        );
        let nature = NATURES[usize::try_from(id.number).expect("small") % NATURES.len()];
        let phase = self.born(nature);
        let truth = TrueState {
            view: view(&id, phase.clone(), spec.launch_record),
            nature,
            lease_until,
            ports,
            kills: 0,
            gone_at: None,
            unheard: None,
        };
        for uuid in &truth.view.launch_record.gpus {
            self.busy.insert(uuid.clone(), None);
        }
        if !truth.is_alive() {
            self.busy
                .extend(Self::gpus_of(&id).into_iter().map(|gpu| (gpu, Some(0))));
        }
        self.truth.insert(id.clone(), truth);
        self.show(&id, phase);
    }

    fn born(&self, nature: StepBehavior) -> HostPhase {
        let wall = now(self.boot).wall;
        match nature {
            StepBehavior::Unmakeable => HostPhase::Gone(ProcessEnd {
                process: None,
                exit: Exit::StartFailed("no such file".to_owned()),
                ended_at: wall,
                usage: Usage::default(),
                kept: None,
            }),
            StepBehavior::Heeds | StepBehavior::Resists | StepBehavior::Breeds => {
                HostPhase::Running(Process {
                    pid: 42,
                    start_ticks: self.boot / 10,
                    started_at: wall,
                    workdir_refused: None,
                })
            }
        }
    }

    fn signal(&mut self, id: &AttemptId, signal: StopSignal) {
        let Some(truth) = self.truth.get_mut(id) else {
            return;
        };
        let is_kill = signal == StopSignal::Kill;
        if is_frozen(&truth.view.freezer) && !is_kill {
            truth.unheard = Some(signal);
            return;
        }
        truth.kills += u32::from(is_kill);
        let (dies, leaves_a_child) = match truth.nature {
            StepBehavior::Heeds => (true, false),
            StepBehavior::Resists | StepBehavior::Unmakeable => (is_kill, false),
            StepBehavior::Breeds => (is_kill, truth.kills == 1),
        };
        if dies {
            self.end(id, Exit::Signal(if is_kill { 9 } else { 15 }));
        }
        if dies && !leaves_a_child {
            self.vanish(id);
        }
    }

    /// The supervisor answers with a view in any case.
    fn freeze(&mut self, id: &AttemptId, freezer: FreezerState) {
        if let Some(truth) = self.truth.get_mut(id).filter(|truth| truth.is_alive()) {
            self.frozen_once.insert(id.clone());
            truth.view.freezer = freezer;
            let phase = truth.view.phase.clone();
            self.show(id, phase);
        }
    }

    fn renew(&mut self, until: BootMillis) {
        assert!(until.0 >= self.renewed_until, "a lease went back");
        assert!(
            until.0 <= self.answered + LEASE.millis(),
            "nobody answered for that lease"
        );
        self.renewed_until = until.0;
        for truth in self.truth.values_mut() {
            truth.lease_until = truth.lease_until.max(until.0);
        }
    }

    fn obey(&mut self, output: Output) {
        match output {
            Output::SaveEpoch(epoch) => self.save(epoch.epoch),
            Output::Greet {
                link,
                attempts,
                gpu_states,
                ..
            } => {
                self.faults = gpu_states.faults;
                self.greet(link, &attempts);
            }
            Output::Send { link, message } => self.hear(link, message),
            Output::Reject { link, .. } => {
                assert_eq!(self.link, Some(link), "the link that counts");
                self.link = None;
            }
            Output::Supervise(message) => self.supervise(message),
            Output::SetTimer { key, at } => {
                self.timers.insert(key, at.0);
            }
            Output::ScanGpus => self.look_wanted = true,
            Output::SaveGpus(kept) => self.kept_gpus = kept,
            Output::KeepEndpoint { attempt, endpoint } => {
                self.kept_endpoints.insert(attempt, *endpoint);
            }
            Output::Probe {
                attempt,
                kind,
                number,
                check,
                ..
            } => self.probe(attempt, kind, number, &check),
            Output::KeepWarrant { .. }
            | Output::ShowWarrant { .. }
            | Output::FetchInputs { .. } => {
                panic!("nobody gave or asked for one")
            }
        }
    }

    fn save(&mut self, epoch: Epoch) {
        let saved = self.saved_epoch.as_ref();
        assert!(
            saved.is_none_or(|saved| saved.counter < epoch.counter),
            "an epoch went back"
        );
        self.saved_epoch = Some(epoch);
    }

    fn greet(&mut self, link: LinkId, attempts: &[AttemptStatus]) {
        assert_eq!(self.link, Some(link), "greeted on the link that counts");
        for id in self.truth.keys() {
            let is_told = attempts.iter().any(|status| status.attempt == *id);
            // An attempt that appeared while the supervisor was disconnected is reported later.
            assert!(is_told || !self.is_connected, "the hello leaves {id} out");
        }
        self.greeted = Some(link);
        self.ranks.clear();
        for status in attempts {
            self.note(status);
        }
    }

    fn hear(&mut self, link: LinkId, message: FromNode) {
        assert_eq!(self.link, Some(link), "sent on the link that counts");
        assert_eq!(self.greeted, Some(link), "sent after its hello");
        match message {
            FromNode::Status(status) => self.note(&status),
            FromNode::GpuStates(states) => self.faults = states.faults,
            FromNode::Inventory(_) | FromNode::Readings(_) => panic!("the core knows no hardware"),
            FromNode::Checkpoint { .. } => panic!("the core knows no files"),
            FromNode::Health(_) => panic!("the core hears of no check"),
            FromNode::Supervisor(_) => {}
            FromNode::Usages(_) => panic!("the core measures nothing"),
            FromNode::Labels(_) => panic!("the core knows no labels"),
            FromNode::Warrant { .. } => panic!("the core keeps no warrants"),
            FromNode::Carved { .. } => panic!("nobody ordered that"),
            FromNode::Endpoint(report) => {
                let id = &report.attempt;
                let phase = self.core.status(id);
                let runs = matches!(phase, Some(AttemptPhase::Running(_)));
                assert!(runs || !report.ready, "{id} is ready and is {phase:?}");
                let ports: BTreeSet<String> = report.ports.iter().map(u16::to_string).collect();
                if let Some(truth) = self.truth.get(id) {
                    assert_eq!(truth.ports, ports, "{id} is told other ports than it has");
                }
            }
        }
    }

    fn note(&mut self, status: &AttemptStatus) {
        let id = &status.attempt;
        if let AttemptPhase::Released(end) = &status.phase
            && let Exit::NotBegun(_) = end.exit
        {
            assert!(!self.truth.contains_key(id), "{id} is given back and began");
            self.given_back.insert(id.clone());
        }
        let rank = rank(&status.phase);
        let before = self.ranks.insert(id.clone(), rank);
        assert!(
            before.is_none_or(|before| before <= rank),
            "{id} went back: {:?}",
            status.phase
        );
        if let AttemptPhase::Suspended { .. } = status.phase {
            let freezer = self.truth.get(id).map(|truth| &truth.view.freezer);
            let frozen = freezer.is_none_or(is_frozen);
            assert!(frozen, "{id} is called frozen and is {freezer:?}");
        }
        if let AttemptPhase::Released(_) = status.phase {
            let is_alive = self.truth.get(id).is_some_and(TrueState::is_alive);
            assert!(!is_alive, "{id} is released and runs");
            if before != Some(rank) {
                for uuid in Self::gpus_of(id) {
                    assert!(self.is_free_or_told(&uuid), "{id}: {uuid} is busy");
                }
            }
        }
    }

    fn supervise(&mut self, message: ToSupervisor) {
        assert!(self.is_connected, "{message:?} is said to nobody");
        self.messages += 1;
        match message {
            ToSupervisor::Spawn(spec) => self.spawn(spec),
            ToSupervisor::Signal { attempt, signal } => self.signal(&attempt, signal),
            ToSupervisor::Renew { until } => self.renew(until),
            ToSupervisor::Forget { attempt } => {
                let truth = self.truth.remove(&attempt);
                assert!(
                    truth.is_none_or(|truth| !truth.is_alive()),
                    "{attempt} is dropped alive"
                );
            }
            ToSupervisor::List => panic!("a list could cross an order"),
            ToSupervisor::Ping => panic!("the driver asks, not the core"),
            ToSupervisor::Freeze { attempt } => self.freeze(&attempt, FreezerState::Frozen),
            ToSupervisor::Suspend {
                attempt,
                users,
                bytes,
                ..
            } => {
                let moved = MovedMemory { pids: users, bytes };
                self.freeze(&attempt, FreezerState::Moved(moved));
            }
            ToSupervisor::Thaw { attempt } => {
                self.freeze(&attempt, FreezerState::Thawed);
                let truth = self.truth.get_mut(&attempt);
                if let Some(signal) = truth.and_then(|truth| truth.unheard.take()) {
                    self.signal(&attempt, signal);
                }
            }
            ToSupervisor::Notice { .. } => {}
            ToSupervisor::Pin {
                attempt,
                processors,
            } => {
                if let Some(truth) = self.truth.get_mut(&attempt) {
                    truth.view.launch_record.processors = processors;
                }
            }
            ToSupervisor::Challenge | ToSupervisor::Lease(_) => {
                panic!("the core knows of no seals")
            }
            ToSupervisor::Exec { exec, .. } | ToSupervisor::EndExec { exec } => {
                panic!("the core knows of no {exec:?}")
            }
            ToSupervisor::Measure => panic!("the core measures nothing"),
            ToSupervisor::Carve(gpu, _) => panic!("nobody ordered to cut {gpu}"),
        }
    }

    /// Checks that no trace of a forgotten attempt is left, and clears the coordinator's records.
    pub(crate) fn is_forgotten(&mut self, id: &AttemptId) {
        assert_eq!(self.core.status(id), None);
        let core = format!("{:?}", self.core);
        let name = format!("{:?}", id.step);
        assert!(!core.contains(&name), "{id} remains in {core}");
        self.ranks.remove(id);
        self.deadlines.remove(id);
    }

    /// A stop that the core started by itself has the step's own grace.
    fn note_stops(&mut self) {
        for status in self.core.statuses() {
            if let AttemptPhase::Stopping { .. } | AttemptPhase::Ended(_) = status.phase {
                let deadline = self.boot + GRACE.millis();
                self.deadlines.entry(status.attempt).or_insert(deadline);
            }
        }
    }

    /// There are enough processors for all pinned attempts.
    fn no_two_run_on_the_same_processors(&self) {
        let running = self.truth.values().filter(|truth| truth.is_alive());
        let running = running.filter(|truth| truth.view.freezer == FreezerState::Thawed);
        let mut taken = BTreeSet::new();
        for truth in running {
            for number in truth.view.launch_record.processors.iter() {
                assert!(
                    taken.insert(number),
                    "{number} is twice in {:?}",
                    self.truth
                );
            }
        }
    }

    fn every_stop_is_killed_in_time(&self) {
        for (id, deadline) in &self.deadlines {
            let truth = self.truth.get(id).filter(|truth| truth.is_alive());
            let is_reachable = self.is_connected && self.is_seen(id);
            let timer = TimerKey::Grace(id.clone());
            // Timers of one moment fire in sequence, so this one may be next.
            let is_due_now = self.boot == *deadline || self.timers.get(&timer) == Some(&self.boot);
            if let Some(truth) = truth.filter(|_| is_reachable && !is_due_now) {
                let is_late = self.boot > *deadline && truth.kills == 0;
                assert!(
                    !is_late,
                    "{id} should have been killed at {deadline}: {truth:?}"
                );
            }
        }
    }

    /// Whether the core has seen a process of the attempt.
    fn is_seen(&self, id: &AttemptId) -> bool {
        match self.core.status(id) {
            None | Some(AttemptPhase::Starting | AttemptPhase::Stopping { started: None, .. }) => {
                false
            }
            Some(
                AttemptPhase::Running(_)
                | AttemptPhase::Stopping { .. }
                | AttemptPhase::Suspending(_)
                | AttemptPhase::Suspended { .. }
                | AttemptPhase::Resuming(_)
                | AttemptPhase::NotSuspended { .. }
                | AttemptPhase::Ended(_)
                | AttemptPhase::Released(_),
            ) => true,
        }
    }

    /// Even if the driver does not answer: GPUs that are not free in time are quarantined, and the attempt is
    /// over.
    fn nothing_waits_for_gpus_for_ever(&self) {
        for status in self.core.statuses() {
            let truth = self.truth.get(&status.attempt);
            let gone_at = truth.and_then(|truth| truth.gone_at);
            let is_told = self.is_connected && self.inbox.is_empty();
            if let (AttemptPhase::Ended(_), Some(gone_at), true) = (&status.phase, gone_at, is_told)
            {
                let told_at = gone_at.max(self.heard_at);
                assert!(
                    self.boot <= told_at + LONGEST_RELEASE,
                    "{} is not released",
                    status.attempt
                );
            }
        }
    }

    fn nothing_outlives_its_timeout(&self) {
        for status in self.core.statuses() {
            let truth = self.truth.get(&status.attempt);
            let timeout = truth.and_then(|truth| truth.view.launch_record.timeout);
            let timeout = timeout.filter(|_| !self.frozen_once.contains(&status.attempt));
            if let (AttemptPhase::Running(started), Some(timeout)) = (&status.phase, timeout) {
                let ran_for = now(self.boot).wall.since(started.at);
                assert!(
                    ran_for <= timeout,
                    "{} runs on after its timeout",
                    status.attempt
                );
            }
        }
    }
}

fn is_frozen(freezer: &FreezerState) -> bool {
    matches!(freezer, FreezerState::Frozen | FreezerState::Moved(_))
}

fn view(id: &AttemptId, phase: HostPhase, memo: LaunchRecord) -> AttemptView {
    AttemptView {
        attempt: id.clone(),
        phase,
        launch_record: memo,
        freezer: FreezerState::Thawed,
        frozen: Default::default(),
    }
}

fn rank(phase: &AttemptPhase) -> u8 {
    match phase {
        AttemptPhase::Starting => 0,
        // An attempt may be suspended and resumed any number of times.
        AttemptPhase::Running(_)
        | AttemptPhase::Suspending(_)
        | AttemptPhase::Suspended { .. }
        | AttemptPhase::Resuming(_)
        | AttemptPhase::NotSuspended { .. } => 1,
        AttemptPhase::Stopping { .. } => 2,
        AttemptPhase::Ended(_) => 3,
        AttemptPhase::Released(_) => 4,
    }
}
