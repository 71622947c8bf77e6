//! The simulated cluster: one queue of events in time, one source of random numbers, a slow and unreliable network.

mod faults;
mod invariants;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use agent_core::{
    GpuScan, Input as HostInput, InputsFailure, LinkId, Output as HostOutput, TimerKey as HostTimer,
};
use coordinator_core::{
    Answer, Core, Desired, DesiredPool, Input, LogEntry, NewStep, Node, NodeChange, Output,
    RecoveryCause, Refusal, ReplyId, SessionId, Settings, State, Step, StepAction, TermsChange,
    TimerKey, check_record,
};
use sluice_common::allocation::HolderState;
use sluice_common::amount::{MGPU, ResourceKey, STEP_RUN, cores_of};
use sluice_common::credential::NodeClaim;
use sluice_common::dependency::{Dependency, ExpectedEnd};
use sluice_common::host_health::SupervisorState;
use sluice_common::id::{AttemptId, ClusterId, NodeName, PoolName, StepId, Subject};
use sluice_common::inputs::{InputFile, InputHash};
use sluice_common::pool::{PolicySpec, PoolHosts, PoolSpec};
use sluice_common::request::{ResourceSettings, StepRequest};
use sluice_common::state::StepState;
use sluice_common::step::{OnPreempt, StepSpec};
use sluice_common::supervision::{BootMillis, Exit};
use sluice_common::time::Span;
use sluice_common::warrant::SealedWarrant;
use sluice_common::wire::{
    Command, FromNode, Heartbeat, Hello, HelloReply, PROTOCOL_VERSION, ToNode,
};

use super::freezer::{CgroupState, HelperOutcome};
use super::host::{HostAction, ScanState, SimHost, wall};
use super::seeded_random::SeededRandom;

const HOSTS: usize = 4;
const STEPS: u64 = 60;
/// Steps per burst, so that they compete.
const BURST: u64 = 12;
/// Interval of unrequested looks at GPUs.
const GLANCE: u64 = 10_000;
/// Duration of the faults, in simulated milliseconds.
const FAULTY: u64 = 30 * 60 * 1000;
/// Time that the healed cluster may take to finish.
const HEALED: u64 = 2 * 60 * 60 * 1000;
/// Allocations on hosts in the worlds that have some, and the steps inside each.
const ALLOCATIONS: u64 = STEPS / 10;
const INSIDE_EACH: u64 = 6;
/// Lease of the allocations.
const LEASE: Span = Span::from_secs(60);
/// The pool that has no hosts, ever.
const LICENCES: &str = "licences";
/// Time that the transport needs to notice a dead peer.
const IDLE: u64 = 20_000;

const SETTINGS: Settings = Settings {
    lease: Span::from_secs(60),
    stop_limit: Span::from_secs(15),
    heartbeat: Span::from_secs(3),
    unreachable_after: Span::from_secs(15),
    lost_after: Span::from_secs(90),
    bounds: coordinator_core::Bounds {
        keep_finished: 10_000,
        ..coordinator_core::Bounds::DEFAULT
    },
};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct EventTime(u64, u64);

enum Event {
    Submit(u64),
    /// The holder of an allocation renews it, or is gone.
    Renew(u64),
    Dial {
        host: usize,
        life: u64,
    },
    Beat {
        host: usize,
        link: u64,
    },
    Arrives {
        link: u64,
        words: ToCoordinator,
    },
    Reaches {
        link: u64,
        words: ToHost,
    },
    CoordinatorSeesBreak {
        link: u64,
    },
    HostSeesBreak {
        link: u64,
    },
    CoordinatorTimer {
        life: u64,
        key: TimerKey,
    },
    HostTimer {
        host: usize,
        life: u64,
        key: HostTimer,
    },
    ViewArrives {
        host: usize,
        life: u64,
        attempt: AttemptId,
    },
    ProcessEnds {
        host: usize,
        attempt: AttemptId,
        exit: Exit,
    },
    GroupGone {
        host: usize,
        attempt: AttemptId,
    },
    Lease {
        host: usize,
        attempt: AttemptId,
    },
    StartCoordinator,
    StartAgent {
        host: usize,
    },
    Fault,
    Admin {
        host: usize,
        change: NodeChange,
    },
    User {
        step: StepId,
        steer: StepAction,
    },
    MoveStep {
        step: StepId,
        pool: &'static str,
    },
    /// Looks at GPUs go on by themselves as long as the agent lives.
    Glance {
        host: usize,
        life: u64,
    },
    InputsFetched {
        host: usize,
        life: u64,
        attempt: AttemptId,
        fetched: Result<(), InputsFailure>,
    },
    LookBegins {
        host: usize,
        life: u64,
    },
    LookEnds {
        host: usize,
        life: u64,
        look: GpuScan,
        is_stale: bool,
    },
    Frozen {
        host: usize,
        attempt: AttemptId,
        errand: u64,
    },
    HelperEnds {
        host: usize,
        attempt: AttemptId,
        errand: u64,
        fate: HelperOutcome,
    },
    StartSupervisor {
        host: usize,
    },
}

enum ToCoordinator {
    Hello(Box<Hello>),
    Say(FromNode),
    Beat { sent: u64, beat: Heartbeat },
}

enum ToHost {
    HelloReply(HelloReply),
    Order(Command),
    Ack { sent: u64 },
}

/// One connection. Messages on one stream arrive in order, or never.
struct Connection {
    host: usize,
    up: bool,
    /// Arrival of the last message of each stream.
    latest: BTreeMap<Stream, u64>,
}

/// One direction of one stream of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stream {
    to_host: bool,
    /// Whether it is the stream of heartbeats, or that of orders and statuses.
    beats: bool,
}

impl Stream {
    const ALL: [Self; 4] = [
        Self::new(false, false),
        Self::new(false, true),
        Self::new(true, false),
        Self::new(true, true),
    ];

    const fn new(to_host: bool, beats: bool) -> Self {
        Self { to_host, beats }
    }
}

pub(crate) struct World {
    seed: u64,
    random: SeededRandom,
    now: u64,
    drawn: u64,
    queue: BinaryHeap<Reverse<(EventTime, usize)>>,
    events: Vec<Option<Event>>,
    core: Option<Core>,
    coordinator_life: u64,
    log: Vec<String>,
    /// State after the log's records.
    durable: State,
    /// Whether the coordinator, and which hosts, did anything since the last check of the invariants.
    stirred: (bool, [bool; HOSTS]),
    hosts: Vec<SimHost>,
    wires: BTreeMap<u64, Connection>,
    accepted: BTreeSet<StepId>,
    /// Steps that were refused because the allocation that they were meant for is over.
    late: BTreeSet<StepId>,
    /// Steps in a transitional state, all of whose hosts can act, and its start.
    on_the_way: BTreeMap<StepId, (StepState, u64)>,
    faulty: bool,
    /// Attempts whose exit is unknown.
    orphaned: BTreeSet<AttemptId>,
    /// Whether supervisors enforce leases; a world in which they do not must be found out.
    leases_kept: bool,
    /// Why the next coordinator begins with a recovery, if it does.
    restored: Option<RecoveryCause>,
    /// Length of the log after each commit.
    commits: Vec<usize>,
}

fn step_id(number: u64) -> StepId {
    StepId::new(format!("s{number}")).unwrap()
}

/// Two subjects: what one of them has reserved is lent to the other meanwhile. Both may use a pool without hosts too, to
/// which users move steps and from which they move them back.
fn terms() -> Vec<TermsChange> {
    let change = |desired| TermsChange {
        desired,
        version: None,
    };
    let policy = |pool: &str, subject: &str, priority, reserved: u64| {
        change(Desired::Policy {
            pool: PoolName::new(pool).unwrap(),
            subject: Subject::new(subject).unwrap(),
            policy: PolicySpec {
                priority,
                reserved: [(ResourceKey::new(MGPU).unwrap(), reserved * 1000)].into(),
                ..PolicySpec::default()
            },
        })
    };
    let seats = |pool: &str, subject: &str, reserved: u64| {
        change(Desired::Policy {
            pool: PoolName::new(pool).unwrap(),
            subject: Subject::new(subject).unwrap(),
            policy: PolicySpec {
                reserved: [(seat(), reserved)].into(),
                ..PolicySpec::default()
            },
        })
    };
    let licences = Desired::Pool {
        pool: PoolName::new(LICENCES).unwrap(),
        terms: Box::new(DesiredPool::from(PoolSpec {
            hosts: PoolHosts::None,
            capacity: [(seat(), 2)].into(),
            ..PoolSpec::default()
        })),
    };
    let spare = Desired::Pool {
        pool: PoolName::new("spare").unwrap(),
        terms: Box::new(DesiredPool::from(PoolSpec::default())),
    };
    vec![
        change(spare),
        policy("default", "low", 0, 0),
        policy("default", "vip", 10, 2),
        policy("spare", "low", 0, 0),
        policy("spare", "vip", 0, 0),
        change(licences),
        seats(LICENCES, "low", 0),
        seats(LICENCES, "vip", 1),
    ]
}

/// The resource that the pool without hosts counts.
fn seat() -> ResourceKey {
    ResourceKey::new("seat").unwrap()
}

fn is_array(number: u64) -> bool {
    number % 11 == 4
}

/// Depends on its number and not on chance, because a repeat must be the same step.
fn spec(number: u64) -> StepSpec {
    let request = StepRequest {
        command: vec!["work".to_owned()],
        ..StepRequest::default()
    };
    let mut spec = request.check().unwrap();
    let gpus = match number % 10 {
        0..=4 => 1,
        5 => 2,
        _ => 0,
    };
    spec.subject = Subject::new(if number % 4 == 3 { "vip" } else { "low" }).unwrap();
    *spec.resources = ResourceSettings {
        gpu_count: (gpus > 0).then_some(gpus),
        cpu_count: Some(cores_of(500 * (1 + number % 3))),
        memory: Some(format!("{}GB", 1 + number % 5)),
        ..ResourceSettings::default()
    };
    spec.request = spec.resources.demand().unwrap().with(STEP_RUN, 1);
    spec.nodes = if number % 8 == 1 { 2 } else { 1 };
    spec.grace = Span::from_secs(number % 20);
    spec.timeout = (number.is_multiple_of(7)).then_some(Span::from_secs(200));
    spec.on_preempt = match number % 5 {
        4 => OnPreempt::Requeue,
        _ => OnPreempt::Suspend,
    };
    spec.suspend_timeout = (number.is_multiple_of(3)).then_some(Span::from_secs(120));
    spec.preemptible = !(gpus == 1 && number % 12 == 3);
    let after = |before: u64, end| {
        let step = step_id(number.checked_sub(before)?);
        Some(Dependency {
            step,
            each: false,
            end,
        })
    };
    spec.after = match number % 6 {
        2 => after(2, ExpectedEnd::Ok).into_iter().collect(),
        5 => [after(1, ExpectedEnd::Any), after(3, ExpectedEnd::Failed)]
            .into_iter()
            .flatten()
            .collect(),
        _ => Vec::new(),
    };
    if is_array(number) {
        spec.array = "0-3%2".parse().ok();
        let paired = after(11, ExpectedEnd::Any).filter(|_| number % 22 == 15);
        let paired = paired.map(|on| Dependency { each: true, ..on });
        spec.after.extend(paired);
    }
    // Hosts come and go, and a forgotten one could have held it.
    spec.allow_pending = true;
    spec
}

/// The allocation inside which a step runs, if there is one.
fn allocation_of(number: u64) -> Option<u64> {
    let among = number.checked_sub(STEPS)?;
    Some(2 + 10 * (among / INSIDE_EACH))
}

/// A step inside an allocation: one of six asks for all of it, one for its GPU, and the others for some of its cores.
fn spec_inside(number: u64, allocation: u64) -> StepSpec {
    let request = StepRequest {
        command: vec!["work".to_owned()],
        inside: Some(step_id(allocation).to_string()),
        ..StepRequest::default()
    };
    let mut spec = request.check().unwrap();
    spec.subject = self::spec(allocation).subject;
    spec.grace = Span::from_secs(number % 5);
    *spec.resources = match number % INSIDE_EACH {
        0 => ResourceSettings::default(),
        1 => ResourceSettings {
            gpu_count: Some(1),
            cpu_count: Some(cores_of(100)),
            ..ResourceSettings::default()
        },
        _ => ResourceSettings {
            cpu_count: Some(cores_of(300)),
            ..ResourceSettings::default()
        },
    };
    spec.request = spec.resources.demand().unwrap().with(STEP_RUN, 1);
    spec
}

fn uncordon(host: usize) -> Event {
    let change = NodeChange::Uncordon;
    Event::Admin { host, change }
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut world = Self {
            seed,
            random: SeededRandom::new(seed),
            now: 0,
            drawn: 0,
            queue: BinaryHeap::new(),
            events: Vec::new(),
            core: None,
            coordinator_life: 0,
            log: Vec::new(),
            durable: State::default(),
            stirred: (false, [false; HOSTS]),
            hosts: (0..HOSTS).map(SimHost::new).collect(),
            wires: BTreeMap::new(),
            accepted: BTreeSet::new(),
            late: BTreeSet::new(),
            on_the_way: BTreeMap::new(),
            faulty: true,
            orphaned: BTreeSet::new(),
            leases_kept: true,
            restored: None,
            commits: vec![0],
        };
        world.after(0, Event::StartCoordinator);
        for host in 0..HOSTS {
            world.after(10, Event::StartAgent { host });
        }
        for number in 0..STEPS {
            let burst = STEPS.div_ceil(BURST);
            let at = FAULTY * (number % burst) / burst + world.below(30_000);
            world.after(at, Event::Submit(number));
            let inside = (STEPS..world.steps()).filter(|it| allocation_of(*it) == Some(number));
            for inside in inside {
                let later = at + world.below(180_000);
                world.after(later, Event::Submit(inside));
            }
        }
        world.after(5000, Event::Fault);
        world
    }

    pub(crate) fn break_leases(&mut self) {
        self.leases_kept = false;
    }

    pub(crate) fn break_looks(&mut self) {
        self.hosts
            .iter_mut()
            .for_each(|host| host.driver_lies = true);
    }

    pub(crate) fn log(&self) -> &[String] {
        &self.log
    }

    pub(crate) fn run_with_faults(&mut self) {
        self.run_until(FAULTY, |_| false);
    }

    /// Stops all faults; every step must then end.
    pub(crate) fn heal_and_finish(&mut self) {
        self.faulty = false;
        for host in 0..HOSTS {
            self.mend(host);
        }
        for number in 0..self.steps() {
            let (step, steer) = (step_id(number), StepAction::Resume);
            self.after(0, Event::User { step, steer });
            let (step, pool) = (step_id(number), "default");
            self.after(0, Event::MoveStep { step, pool });
        }
        self.run_until(FAULTY + HEALED, |world| {
            let is_left = |host: &SimHost| host.procs.is_empty();
            let Some(core) = world
                .core
                .as_ref()
                .filter(|_| world.hosts.iter().all(is_left))
            else {
                return false;
            };
            let steps = core.state().steps();
            let over = |step: &Step| step.state.is_terminal() && !step.holds_units();
            let is_fit = |node: &Node| node.gpus.faults.is_empty();
            (0..world.steps()).all(|number| world.is_answered(number))
                && steps.values().all(over)
                && core.state().nodes().values().all(is_fit)
        });
    }

    fn run_until(&mut self, limit: u64, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            let Some(Reverse((EventTime(at, _), index))) = self.queue.pop() else {
                return;
            };
            if at > limit {
                self.queue
                    .push(Reverse((EventTime(at, index as u64), index)));
                return;
            }
            self.now = self.now.max(at);
            let event = self.events[index].take().expect("an event happens once");
            self.happen(event);
            self.check();
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Submit(number) => self.submit(number),
            Event::Renew(number) => self.renew(number),
            Event::Dial { host, life } => self.dial(host, life),
            Event::Beat { host, link } => self.beat(host, link),
            Event::Arrives { link, words } => self.arrives(link, words),
            Event::Reaches { link, words } => self.reaches(link, words),
            Event::CoordinatorSeesBreak { link } => self.coordinator_sees_break(link),
            Event::HostSeesBreak { link } => self.host_sees_break(link),
            Event::CoordinatorTimer { life, key } if life == self.coordinator_life => {
                self.decide(Input::Timer(key))
            }
            Event::HostTimer { host, life, key } if life == self.hosts[host].life => {
                self.feed(host, HostInput::Timer(key))
            }
            Event::CoordinatorTimer { .. } | Event::HostTimer { .. } => {}
            Event::ViewArrives {
                host,
                life,
                attempt,
            } => {
                let view = self.hosts[host].view(&attempt);
                let is_told = self.hosts[host].is_supervised && life == self.hosts[host].life;
                if let Some(view) = view.filter(|_| is_told) {
                    self.feed(host, HostInput::Attempt(view));
                }
            }
            Event::ProcessEnds {
                host,
                attempt,
                exit,
            } => self.process_ends(host, attempt, exit),
            Event::GroupGone { host, attempt } => {
                if self.hosts[host].gone(self.now, &attempt, &mut self.random) {
                    self.tell_view(host, attempt);
                }
            }
            Event::Lease { host, attempt } => self.lease(host, attempt),
            Event::StartCoordinator => self.start_coordinator(),
            Event::StartAgent { host } => self.start_agent(host),
            Event::Fault => self.fault(),
            Event::Admin { host, change } => self.administer(host, change),
            Event::User { step, steer } => self.steer(step, steer),
            Event::MoveStep { step, pool } => self.move_step(step, pool),
            Event::Glance { host, life } => self.glance(host, life),
            Event::InputsFetched {
                host,
                life,
                attempt,
                fetched,
            } => self.inputs_fetched(host, life, attempt, fetched),
            Event::LookBegins { host, life } => self.look_begins(host, life),
            Event::LookEnds {
                host,
                life,
                look,
                is_stale,
            } => self.look_ends(host, life, look, is_stale),
            Event::Frozen {
                host,
                attempt,
                errand,
            } => {
                if self.hosts[host].comes_to_rest(self.now, &attempt, errand) {
                    self.tell_view(host, attempt);
                }
            }
            Event::HelperEnds {
                host,
                attempt,
                errand,
                fate,
            } => {
                let (now, random) = (self.now, &mut self.random);
                let wishes = self.hosts[host].helper_ends(now, &attempt, errand, &fate, random);
                self.grant_all(host, wishes);
            }
            Event::StartSupervisor { host } => self.start_supervisor(host),
        }
    }

    // Random numbers and time.

    fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    fn after(&mut self, delay: u64, event: Event) {
        self.at(self.now + delay, event);
    }

    fn at(&mut self, at: u64, event: Event) {
        self.drawn += 1;
        self.events.push(Some(event));
        self.queue.push(Reverse((
            EventTime(at.max(self.now), self.drawn),
            self.events.len() - 1,
        )));
    }

    // Methods of the coordinator.

    fn start_coordinator(&mut self) {
        if self.core.is_some() {
            return;
        }
        let mut state = State::default();
        for line in &self.log {
            let record: LogEntry = serde_json::from_str(line).expect("a record is read back");
            state
                .apply(&record)
                .expect("a record fits the state that wrote it");
        }
        let mut core = Core::recover(SETTINGS, state);
        let (now, cluster) = (wall(self.now), ClusterId::new("sim").unwrap());
        match self.restored.take() {
            Some(why) => core.start_recovering(now, cluster, why),
            None => core.start(now, cluster),
        }
        self.core = Some(core);
        self.effects();
        self.decide(Input::Apply {
            reply: ReplyId(4000),
            changes: terms(),
            force: false,
            dry_run: false,
        });
    }

    /// Kills it with all its links; the hosts notice when nothing answers.
    fn kill_coordinator(&mut self) {
        self.core = None;
        if self.faulty && self.one_in(6) {
            self.put_back_an_older_store();
        }
        self.coordinator_life += 1;
        let links: Vec<u64> = self.wires.keys().copied().collect();
        for link in links {
            self.break_wire(link);
        }
        let away = 100 + self.below(40_000);
        self.after(away, Event::StartCoordinator);
    }

    fn decide(&mut self, input: Input) {
        let Some(core) = &mut self.core else { return };
        core.handle(wall(self.now), input);
        self.effects();
    }

    /// Carries out effects in order, with a possible death on either side of the commit.
    fn effects(&mut self) {
        let outputs: Vec<Output> = self
            .core
            .as_mut()
            .expect("it runs")
            .outputs()
            .into_iter()
            .collect();
        let records: Vec<&LogEntry> = outputs
            .iter()
            .filter_map(|o| {
                if let Output::Record(r) = o {
                    Some(r)
                } else {
                    None
                }
            })
            .collect();
        self.stirred.0 |= !outputs.is_empty();
        let may_die = self.faulty && !records.is_empty();
        if may_die && self.one_in(400) {
            return self.kill_coordinator();
        }
        for record in &records {
            self.log
                .push(serde_json::to_string(record).expect("a record is JSON"));
            if let Err(broken) = check_record(&self.durable, &record.record) {
                panic!("{record:?}: {broken:?} ({self})");
            }
            self.durable.apply(record).expect("a record fits");
        }
        self.commits.push(self.log.len());
        if may_die && self.one_in(400) {
            return self.kill_coordinator();
        }
        for output in outputs {
            self.act(output);
        }
    }

    fn act(&mut self, output: Output) {
        match output {
            Output::ToNode {
                session,
                mut command,
                ..
            } => {
                if let ToNode::Assign(assignment) = &mut command.order {
                    assignment.warrant = self.warrant(&assignment.attempt);
                }
                self.send_to_host(session.0, ToHost::Order(command));
            }
            Output::Record(_) => {}
            Output::Greet { session, greeting } => {
                self.send_to_host(session.0, ToHost::HelloReply(greeting))
            }
            Output::Reply {
                reply,
                answer: Answer::Submitted(results),
            } => {
                for result in results {
                    match result {
                        Ok(submitted) => drop(self.accepted.insert(submitted.step)),
                        // Its client asks again until that step was accepted.
                        Err(Refusal::UnknownDependency { .. }) => {}
                        // The allocation that it is meant for is not there yet.
                        Err(Refusal::UnknownStep { .. }) if reply.0 >= STEPS => {}
                        Err(Refusal::StepOver { .. }) if reply.0 >= STEPS => {
                            self.late.insert(step_id(reply.0));
                        }
                        Err(refusal) => panic!("the simulation submits valid steps: {refusal}"),
                    }
                }
            }
            Output::Reply {
                answer:
                    Answer::Previewed(_)
                    | Answer::Cancelled(_)
                    | Answer::Changed(_)
                    | Answer::Applied(_)
                    | Answer::Steered(_)
                    | Answer::Moved(_)
                    | Answer::Joined(_),
                ..
            } => {}
            Output::LetGo { session, .. } => self.break_wire(session.0),
            Output::SetTimer { key, at } => {
                let delay = at.since(wall(self.now)).millis();
                let life = self.coordinator_life;
                self.after(delay, Event::CoordinatorTimer { life, key });
            }
        }
    }

    fn warrant(&self, attempt: &AttemptId) -> SealedWarrant {
        let core = self.core.as_ref();
        let warrant = core.and_then(|core| core.state().warrant(attempt));
        let json = serde_json::to_string(&warrant).expect("a warrant is JSON");
        SealedWarrant::new(json)
    }

    /// The same step in every world, but for images, inputs and allocations: in every other world some steps have an image, so
    /// that not every host can run them, in every third some have inputs, and in every fourth some are allocations,
    /// half of them in a pool without hosts, and others run inside these.
    fn spec(&self, number: u64) -> StepSpec {
        if let Some(allocation) = allocation_of(number) {
            return spec_inside(number, allocation);
        }
        let mut spec = spec(number);
        let has_image = self.seed.is_multiple_of(2) && spec.nodes == 1 && number % 9 == 4;
        spec.image = has_image.then(|| "docker.io/library/busybox".parse().unwrap());
        let has_inputs = self.seed.is_multiple_of(3) && number % 5 == 2;
        spec.inputs.extend(has_inputs.then(|| InputFile {
            name: "data.csv".to_owned(),
            sha256: InputHash::of_digest(&[7; 32]),
            size: 1,
            executable: false,
        }));
        if self.is_allocation(number) {
            spec.lease = Some(LEASE);
            spec.on_preempt = OnPreempt::Fail;
            spec.command = Vec::new();
            (spec.image, spec.inputs) = (None, Vec::new());
            if number % 20 == 12 {
                // It finds a host in a full cluster.
                spec.resources.gpu_count = None;
                spec.request = spec.resources.demand().unwrap().with(STEP_RUN, 1);
            }
            if number % 10 == 7 {
                spec.pool = Some(PoolName::new(LICENCES).unwrap());
                spec.nodes = 1;
                *spec.resources = ResourceSettings {
                    pool_resources: [(seat().to_string(), 1)].into(),
                    ..ResourceSettings::default()
                };
                spec.request = spec.resources.demand().unwrap().with(STEP_RUN, 1);
            }
        }
        spec
    }

    fn has_allocations(&self) -> bool {
        self.seed % 4 == 3
    }

    fn is_allocation(&self, number: u64) -> bool {
        self.has_allocations() && number < STEPS && number % 5 == 2 && !is_array(number)
    }

    /// Number of steps that are submitted, with those inside allocations.
    fn steps(&self) -> u64 {
        match self.has_allocations() {
            true => STEPS + ALLOCATIONS * INSIDE_EACH,
            false => STEPS,
        }
    }

    fn is_answered(&self, number: u64) -> bool {
        let id = step_id(number);
        self.accepted.contains(&id) || self.late.contains(&id)
    }

    /// A holder that renews until its allocation has ended, or is gone some time.
    fn renew(&mut self, number: u64) {
        if self.core.is_none() {
            return self.after(1000, Event::Renew(number));
        }
        let step = step_id(number);
        let core = self.core.as_ref();
        let known = core.and_then(|core| core.state().step(&step));
        let is_over = known.is_none_or(|step| step.state.is_terminal());
        if is_over || self.one_in(15) {
            return;
        }
        self.after(LEASE.millis() / 3, Event::Renew(number));
        self.decide(Input::Renew {
            reply: ReplyId(4000 + number),
            step,
            lease: None,
            holder: Some(HolderState::Running),
        });
    }

    /// A client that asks until it is answered.
    fn submit(&mut self, number: u64) {
        let id = step_id(number);
        if self.is_answered(number) {
            return;
        }
        self.after(2000, Event::Submit(number));
        self.decide(Input::Submit {
            reply: ReplyId(number),
            steps: vec![NewStep::new(id.clone(), self.spec(number))],
        });
        if self.is_allocation(number) {
            self.after(LEASE.millis() / 3, Event::Renew(number));
        }
        if number.is_multiple_of(5) && self.one_in(2) {
            self.decide(Input::Cancel {
                reply: ReplyId(1000 + number),
                step: id,
                grace: None,
            });
        }
    }

    // Methods of the network.

    fn dial(&mut self, host: usize, life: u64) {
        if self.hosts[host].life != life || self.hosts[host].link.is_some() {
            return;
        }
        let reachable = self.core.is_some() && self.hosts[host].cut_until <= self.now;
        if !reachable {
            let backoff = 500 + self.below(2000);
            return self.after(backoff, Event::Dial { host, life });
        }
        self.drawn += 1;
        let link = self.drawn;
        let wire = Connection {
            host,
            up: true,
            latest: BTreeMap::new(),
        };
        self.wires.insert(link, wire);
        self.hosts[host].dials(link, self.now);
        self.feed(host, HostInput::Dialled { link: LinkId(link) });
    }

    /// Returns the arrival of a message sent now: late, never before an earlier one, and not while the host is cut off.
    fn arrival(&mut self, link: u64, stream: Stream) -> Option<u64> {
        let late = if self.one_in(20) {
            self.below(3000)
        } else {
            self.below(20)
        };
        let wire = self.wires.get(&link).filter(|wire| wire.up)?;
        let host = &self.hosts[wire.host];
        let held = host.held.get(&stream).copied().unwrap_or_default();
        let from = self.now.max(host.cut_until).max(held);
        let wire = self.wires.get_mut(&link)?;
        let latest = wire.latest.entry(stream).or_default();
        *latest = (*latest).max(from + late);
        Some(*latest)
    }

    fn send_to_host(&mut self, link: u64, words: ToHost) {
        let beats = matches!(words, ToHost::Ack { .. });
        if let Some(at) = self.arrival(link, Stream::new(true, beats)) {
            self.at(at, Event::Reaches { link, words });
        }
    }

    fn send_to_coordinator(&mut self, link: u64, words: ToCoordinator) {
        let beats = matches!(words, ToCoordinator::Beat { .. });
        if let Some(at) = self.arrival(link, Stream::new(false, beats)) {
            self.at(at, Event::Arrives { link, words });
        }
    }

    /// Breaks a link: neither end knows at once, and messages in flight are lost.
    fn break_wire(&mut self, link: u64) {
        let Some(wire) = self.wires.get_mut(&link) else {
            return;
        };
        if std::mem::replace(&mut wire.up, false) {
            let (one, other) = (self.below(IDLE), self.below(IDLE));
            self.after(one, Event::CoordinatorSeesBreak { link });
            self.after(other, Event::HostSeesBreak { link });
        }
    }

    /// A deleted node that comes back has a new certificate.
    fn claim(&self, node: &NodeName) -> NodeClaim {
        let core = self.core.as_ref();
        let generation = core.map(|core| core.state().admission().generation(node));
        NodeClaim {
            pool: None,
            generation: generation.unwrap_or_default(),
        }
    }

    fn arrives(&mut self, link: u64, words: ToCoordinator) {
        let Some(wire) = self.wires.get(&link).filter(|wire| wire.up) else {
            return;
        };
        let (session, node) = (SessionId(link), self.hosts[wire.host].name.clone());
        match words {
            ToCoordinator::Hello(hello) => {
                let claim = self.claim(&node);
                self.decide(Input::NodeHello {
                    session,
                    hello,
                    claim,
                    // Hosts of the simulation are honest.
                    epoch_is_proven: true,
                });
            }
            ToCoordinator::Say(FromNode::Warrant { attempt, warrant }) => {
                let read = |text: SealedWarrant| {
                    serde_json::from_str(text.as_str()).expect("it is kept as it came")
                };
                let warrant = warrant.and_then(read);
                self.decide(Input::Warrant {
                    session,
                    node,
                    attempt,
                    warrant,
                });
            }
            ToCoordinator::Say(message) => self.decide(Input::FromNode {
                session,
                node,
                message,
            }),
            ToCoordinator::Beat { sent, beat } => {
                // Heard first, acknowledged then.
                self.decide(Input::Heartbeat {
                    session,
                    node,
                    beat,
                });
                if self.core.is_some() {
                    self.send_to_host(link, ToHost::Ack { sent });
                }
            }
        }
    }

    fn reaches(&mut self, link: u64, words: ToHost) {
        let Some(wire) = self.wires.get(&link).filter(|wire| wire.up) else {
            return;
        };
        let host = wire.host;
        if self.hosts[host].link != Some(link) {
            return;
        }
        let id = LinkId(link);
        match words {
            ToHost::HelloReply(HelloReply::Welcome(welcome)) => {
                self.feed(host, HostInput::Welcomed { link: id, welcome });
                self.after(0, Event::Beat { host, link });
            }
            ToHost::HelloReply(HelloReply::Refused { .. }) => self.break_wire(link),
            ToHost::Order(command) => {
                self.hosts[host].arrived = command.number;
                self.feed(host, HostInput::Command { link: id, command });
            }
            ToHost::Ack { sent } => {
                let sent = self.hosts[host].boot(sent);
                self.hosts[host].answered = sent;
                self.feed(host, HostInput::HeartbeatAcked { link: id, sent });
            }
        }
    }

    fn beat(&mut self, host: usize, link: u64) {
        if self.hosts[host].link == Some(link) {
            let (sent, beat) = (self.now, self.hosts[host].beat(self.now));
            self.send_to_coordinator(link, ToCoordinator::Beat { sent, beat });
            self.after(SETTINGS.heartbeat.millis(), Event::Beat { host, link });
        }
    }

    fn coordinator_sees_break(&mut self, link: u64) {
        let Some(wire) = self.wires.get(&link) else {
            return;
        };
        let node = self.hosts[wire.host].name.clone();
        self.decide(Input::NodeGone {
            session: SessionId(link),
            node,
        });
    }

    fn host_sees_break(&mut self, link: u64) {
        let Some(wire) = self.wires.get(&link) else {
            return;
        };
        let host = wire.host;
        if self.hosts[host].link == Some(link) {
            self.hosts[host].link = None;
            self.feed(host, HostInput::LinkLost { link: LinkId(link) });
            let life = self.hosts[host].life;
            self.after(300, Event::Dial { host, life });
        }
    }

    // Methods of the hosts.

    fn start_agent(&mut self, host: usize) {
        if self.hosts[host].core.is_some() {
            return;
        }
        self.hosts[host].start_agent();
        let life = self.hosts[host].life;
        match self.hosts[host].is_supervised {
            true => self.supervisor_answers(host),
            false => self.supervisor_is_away(host),
        }
        self.after(self.now % 3, Event::Glance { host, life });
        self.after(50, Event::Dial { host, life });
    }

    fn kill_agent(&mut self, host: usize) {
        if let Some(link) = self.hosts[host].link {
            self.break_wire(link);
        }
        self.hosts[host].kill_agent();
        let away = 100 + self.below(30_000);
        self.after(away, Event::StartAgent { host });
    }

    fn feed(&mut self, host: usize, input: HostInput) {
        let now = self.hosts[host].now(self.now);
        let Some(core) = &mut self.hosts[host].core else {
            return;
        };
        core.handle(now, input);
        let outputs: Vec<HostOutput> = core.outputs().collect();
        self.stirred.1[host] |= !outputs.is_empty();
        for output in outputs {
            // Killed between two effects: the rest never happens.
            if self.faulty && self.one_in(3000) {
                return self.kill_agent(host);
            }
            self.host_acts(host, output);
        }
    }

    fn host_acts(&mut self, host: usize, output: HostOutput) {
        match output {
            HostOutput::SaveEpoch(epoch) => self.hosts[host].epoch = Some(epoch),
            HostOutput::Greet {
                link,
                highest_epoch,
                attempts,
                gpu_states,
                said_at,
                supervisor,
            } => {
                let mut hello = self.hello(host, highest_epoch, attempts);
                (hello.gpu_states, hello.sent_at) = (gpu_states, said_at);
                hello.supervisor = supervisor;
                self.send_to_coordinator(link.0, ToCoordinator::Hello(Box::new(hello)));
            }
            HostOutput::Send { link, message } => {
                self.send_to_coordinator(link.0, ToCoordinator::Say(message))
            }
            HostOutput::Reject { link, .. } => self.break_wire(link.0),
            HostOutput::Supervise(order) => {
                let wishes = self.hosts[host].obey(self.now, order, &mut self.random);
                self.grant_all(host, wishes);
            }
            HostOutput::SetTimer { key, at } => {
                let (life, at) = (self.hosts[host].life, self.hosts[host].when(at));
                self.at(at, Event::HostTimer { host, life, key });
            }
            HostOutput::ScanGpus => {
                self.want_look(host);
            }
            HostOutput::FetchInputs { attempt, .. } => self.fetch_inputs(host, attempt),
            HostOutput::SaveGpus(kept) => self.hosts[host].kept_gpus = kept,
            // No simulated step has ports or probes.
            HostOutput::KeepEndpoint { .. } | HostOutput::Probe { .. } => {}
            HostOutput::KeepWarrant { attempt, warrant } => {
                self.hosts[host].warrants.insert(attempt, warrant);
            }
            HostOutput::ShowWarrant { link, attempt } => {
                let warrant = self.hosts[host].warrants.get(&attempt).cloned();
                let message = FromNode::Warrant { attempt, warrant };
                self.send_to_coordinator(link.0, ToCoordinator::Say(message));
            }
        }
    }

    /// Inputs take from no time to minutes, and now and then the host cannot store them.
    fn fetch_inputs(&mut self, host: usize, attempt: AttemptId) {
        let life = self.hosts[host].life;
        let millis = if self.one_in(4) { 100_000 } else { 500 };
        let millis = self.below(millis);
        let fetched = match self.one_in(20) && self.faulty {
            true => Err(InputsFailure::Host("the simulated disk is full".to_owned())),
            false => Ok(()),
        };
        let event = Event::InputsFetched {
            host,
            life,
            attempt,
            fetched,
        };
        self.after(millis, event);
    }

    fn inputs_fetched(
        &mut self,
        host: usize,
        life: u64,
        attempt: AttemptId,
        fetched: Result<(), InputsFailure>,
    ) {
        if life != self.hosts[host].life || self.hosts[host].core.is_none() {
            return;
        }
        if fetched.is_ok() {
            self.hosts[host].fetched.insert(attempt.clone());
        }
        self.feed(host, HostInput::Inputs { attempt, fetched });
    }

    /// Sends the supervisor's views to an agent that has just connected to it.
    fn supervisor_answers(&mut self, host: usize) {
        let (boot_id, attempts) = (self.hosts[host].boot_id(), self.hosts[host].views());
        self.feed(host, HostInput::SupervisorUp { boot_id, attempts });
    }

    fn supervisor_is_away(&mut self, host: usize) {
        let why = "the simulated supervisor is away".to_owned();
        self.feed(host, HostInput::SupervisorDown { why });
    }

    /// Requests a look: one that is under way is followed by one that serves all requests of the meantime.
    fn want_look(&mut self, host: usize) {
        match self.hosts[host].looks {
            ScanState::None => {
                self.hosts[host].looks = ScanState::Begun;
                let (life, soon) = (self.hosts[host].life, self.below(300));
                self.after(soon, Event::LookBegins { host, life });
            }
            ScanState::Begun | ScanState::Wanted => self.hosts[host].looks = ScanState::Wanted,
        }
    }

    fn glance(&mut self, host: usize, life: u64) {
        if life == self.hosts[host].life {
            self.want_look(host);
            self.after(GLANCE, Event::Glance { host, life });
        }
    }

    /// A driver takes its time: it shows the state at the beginning or at the end of the look.
    fn look_begins(&mut self, host: usize, life: u64) {
        if life != self.hosts[host].life {
            return;
        }
        let look = self.hosts[host].glance(self.now, &mut self.random);
        let lasts = match self.one_in(30) {
            true => self.below(5000),
            false => self.below(50),
        };
        let is_stale = self.one_in(2);
        let ends = Event::LookEnds {
            host,
            life,
            look,
            is_stale,
        };
        self.after(lasts, ends);
    }

    fn look_ends(&mut self, host: usize, life: u64, look: GpuScan, is_stale: bool) {
        if life != self.hosts[host].life {
            return;
        }
        let asked = std::mem::replace(&mut self.hosts[host].looks, ScanState::None);
        if asked == ScanState::Wanted {
            self.want_look(host);
        }
        // One in thirty fails completely.
        if self.one_in(30) {
            return;
        }
        let shown = match is_stale {
            true => look,
            false => GpuScan {
                began: look.began,
                ..self.hosts[host].glance(self.now, &mut self.random)
            },
        };
        self.feed(host, HostInput::Gpus(shown));
    }

    fn grant_all(&mut self, host: usize, wishes: Vec<HostAction>) {
        wishes.into_iter().for_each(|wish| self.grant(host, wish));
    }

    fn hello(
        &self,
        host: usize,
        highest_epoch: Option<sluice_common::epoch::SealedEpoch>,
        attempts: Vec<sluice_common::wire::AttemptStatus>,
    ) -> Hello {
        Hello {
            protocol: PROTOCOL_VERSION,
            version: "sim".to_owned(),
            node: self.hosts[host].name.clone(),
            pool: PoolName::new("default").unwrap(),
            labels: BTreeMap::new(),
            address: String::new(),
            boot_id: self.hosts[host].boot_id(),
            state_dir: String::new(),
            highest_epoch,
            inventory: self.hosts[host].inventory(),
            attempts,
            gpu_states: Default::default(),
            sent_at: BootMillis(0),
            supervisor: SupervisorState::Responding,
            challenge: None,
        }
    }

    fn grant(&mut self, host: usize, wish: HostAction) {
        match wish {
            HostAction::Tell(attempt) => self.tell_view(host, attempt),
            HostAction::Start(attempt) => {
                let lasts = self.below(300_000);
                let exit = Exit::Code(i32::from(self.one_in(5)));
                self.after(
                    lasts,
                    Event::ProcessEnds {
                        host,
                        attempt,
                        exit,
                    },
                );
            }
            HostAction::End(attempt, exit) => {
                let after = self.below(50);
                self.after(
                    after,
                    Event::ProcessEnds {
                        host,
                        attempt,
                        exit,
                    },
                );
            }
            HostAction::Lease(attempt, until) => {
                let at = self.hosts[host].when(until);
                self.at(at, Event::Lease { host, attempt });
            }
            HostAction::Freezes(attempt, errand, after) => {
                let frozen = Event::Frozen {
                    host,
                    attempt,
                    errand,
                };
                self.after(after, frozen);
            }
            HostAction::Helper(attempt, errand, fate, after) => {
                let ends = Event::HelperEnds {
                    host,
                    attempt,
                    errand,
                    fate,
                };
                self.after(after, ends);
            }
        }
    }

    fn tell_view(&mut self, host: usize, attempt: AttemptId) {
        // One socket: views arrive in order, and each shows the attempt as it is then.
        let life = self.hosts[host].life;
        self.after(
            1,
            Event::ViewArrives {
                host,
                life,
                attempt,
            },
        );
    }

    fn process_ends(&mut self, host: usize, attempt: AttemptId, exit: Exit) {
        let now = self.now;
        if self.hosts[host].end(now, &attempt, exit) {
            self.tell_view(host, attempt.clone());
            let lingers = self.below(200);
            self.after(lingers, Event::GroupGone { host, attempt });
        }
    }

    fn lease(&mut self, host: usize, attempt: AttemptId) {
        let boot = self.hosts[host].boot(self.now);
        let Some(proc) = self.hosts[host].procs.get(&attempt) else {
            return;
        };
        let is_kept = self.leases_kept && self.hosts[host].is_supervised;
        if is_kept && proc.runs() && proc.lease_until.is_some_and(|until| until <= boot) {
            let within = if proc.deaf || proc.freezer.group != CgroupState::Running {
                proc.lease_grace
            } else {
                proc.lease_grace.min(100)
            };
            self.after(
                within,
                Event::ProcessEnds {
                    host,
                    attempt,
                    exit: Exit::LeaseExpired,
                },
            );
        }
    }
}

impl std::fmt::Display for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "SLUICE_SIM_SEED={} at {} ms, {} records",
            self.seed,
            self.now,
            self.log.len()
        )
    }
}
