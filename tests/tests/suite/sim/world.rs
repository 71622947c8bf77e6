//! The simulated cluster: one queue of events in time, one source of chance, a network that is late and breaks.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use agent_core::{Input as HostInput, LinkId, Output as HostOutput, TimerKey as HostTimer};
use coordinator_core::{
    Answer, Core, Input, NewStep, NodeChange, Output, ReplyId, SessionId, Settings, Stamped, State,
    TimerKey,
};
use sluice_common::amount::{Amounts, MCPU, STEP_RUN};
use sluice_common::id::{AttemptId, ClusterId, PoolName, StepId};
use sluice_common::inventory::Inventory;
use sluice_common::reason::ReasonCode;
use sluice_common::request::{ResourceSettings, StepRequest};
use sluice_common::supervision::Exit;
use sluice_common::time::Span;
use sluice_common::wire::{Command, FromNode, Greeting, Hello, PROTOCOL_VERSION};

use super::host::{Host, Wish, wall};

const HOSTS: usize = 4;
const STEPS: u64 = 60;
/// How long faults go on, in simulated milliseconds.
const FAULTY: u64 = 30 * 60 * 1000;
/// How long the healed cluster may take to finish.
const HEALED: u64 = 2 * 60 * 60 * 1000;
/// What the transport needs to notice a dead peer.
const IDLE: u64 = 20_000;

const SETTINGS: Settings = Settings {
    lease: Span::from_secs(60),
    stop_limit: Span::from_secs(15),
    heartbeat: Span::from_secs(3),
    unreachable_after: Span::from_secs(15),
    lost_after: Span::from_secs(90),
    keep_finished: 10_000,
};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due(u64, u64);

enum Event {
    Submit(u64),
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
}

enum ToCoordinator {
    Hello(Box<Hello>),
    Say(FromNode),
    Beat { sent: u64 },
}

enum ToHost {
    Greeting(Greeting),
    Order(Command),
    Ack { sent: u64 },
}

/// One connection; what is sent on it arrives in order, or never.
struct Wire {
    host: usize,
    up: bool,
    to_coordinator_at: u64,
    to_host_at: u64,
}

pub(crate) struct World {
    seed: u64,
    chance: u64,
    now: u64,
    drawn: u64,
    queue: BinaryHeap<Reverse<(Due, usize)>>,
    events: Vec<Option<Event>>,
    core: Option<Core>,
    coordinator_life: u64,
    log: Vec<String>,
    hosts: Vec<Host>,
    wires: BTreeMap<u64, Wire>,
    accepted: BTreeSet<StepId>,
    faulty: bool,
    /// Attempts whose end nobody could see.
    orphaned: BTreeSet<AttemptId>,
    /// Supervisors keep leases; a world in which they do not must be found out.
    leases_kept: bool,
}

fn uncordon(host: usize) -> Event {
    let change = NodeChange::Uncordon;
    Event::Admin { host, change }
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut world = Self {
            seed,
            chance: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            now: 0,
            drawn: 0,
            queue: BinaryHeap::new(),
            events: Vec::new(),
            core: None,
            coordinator_life: 0,
            log: Vec::new(),
            hosts: (0..HOSTS).map(Host::new).collect(),
            wires: BTreeMap::new(),
            accepted: BTreeSet::new(),
            faulty: true,
            orphaned: BTreeSet::new(),
            leases_kept: true,
        };
        world.after(0, Event::StartCoordinator);
        for host in 0..HOSTS {
            world.after(10, Event::StartAgent { host });
        }
        for number in 0..STEPS {
            let at = world.below(FAULTY);
            world.after(at, Event::Submit(number));
        }
        world.after(5000, Event::Fault);
        world
    }

    pub(crate) fn break_leases(&mut self) {
        self.leases_kept = false;
    }

    pub(crate) fn log(&self) -> &[String] {
        &self.log
    }

    pub(crate) fn run_with_faults(&mut self) {
        self.run_until(FAULTY, |_| false);
    }

    /// No more faults; every step must come to its end.
    pub(crate) fn heal_and_finish(&mut self) {
        self.faulty = false;
        self.hosts.iter_mut().for_each(|host| host.cut_until = 0);
        for host in 0..HOSTS {
            self.after(0, uncordon(host));
        }
        self.run_until(FAULTY + HEALED, |world| {
            let Some(core) = &world.core else {
                return false;
            };
            let steps = core.state().steps();
            steps.len() as u64 == STEPS
                && steps
                    .values()
                    .all(|step| step.state.is_terminal() && !step.holds_units())
                && world.hosts.iter().all(|host| host.procs.is_empty())
        });
    }

    /// The history as a whole.
    pub(crate) fn judge(&self) {
        let core = self.core.as_ref().expect("it is healed");
        for id in &self.accepted {
            let step = core.state().step(id);
            let state = step.map(|step| step.state);
            assert!(
                state.is_some_and(|state| state.is_terminal()),
                "{id} is {state:?} at the end ({self})"
            );
            let needle = format!("\"type\":\"step_ended\",\"step\":\"{id}\"");
            let ends = self
                .log
                .iter()
                .filter(|line| line.contains(&needle))
                .count();
            assert_eq!(ends, 1, "ends of {id} ({self})");
            let step = step.expect("it has a state");
            let unseen = step.reason.code == ReasonCode::ExitUnknown;
            let orphaned = || {
                self.orphaned
                    .contains(&step.attempt_id(step.attempts.len() as u32))
            };
            assert!(
                !unseen || orphaned(),
                "somebody saw the end of {id} ({self})"
            );
        }
        for host in &self.hosts {
            let left: Vec<_> = host.procs.keys().collect();
            assert!(
                left.is_empty(),
                "{} still remembers {left:?} ({self})",
                host.name
            );
        }
        assert_eq!(
            self.accepted.len() as u64,
            STEPS,
            "every submit was answered ({self})"
        );
    }

    fn run_until(&mut self, limit: u64, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            let Some(Reverse((Due(at, _), index))) = self.queue.pop() else {
                return;
            };
            if at > limit {
                self.queue.push(Reverse((Due(at, index as u64), index)));
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
                if let Some(view) = view.filter(|_| life == self.hosts[host].life) {
                    self.feed(host, HostInput::Attempt(view));
                }
            }
            Event::ProcessEnds {
                host,
                attempt,
                exit,
            } => self.process_ends(host, attempt, exit),
            Event::GroupGone { host, attempt } => {
                if self.hosts[host].gone(&attempt) {
                    self.tell_view(host, attempt);
                }
            }
            Event::Lease { host, attempt } => self.lease(host, attempt),
            Event::StartCoordinator => self.start_coordinator(),
            Event::StartAgent { host } => self.start_agent(host),
            Event::Fault => self.fault(),
            Event::Admin { host, change } => self.administer(host, change),
        }
    }

    // Chance and time.

    fn below(&mut self, bound: u64) -> u64 {
        self.chance ^= self.chance >> 12;
        self.chance ^= self.chance << 25;
        self.chance ^= self.chance >> 27;
        (self.chance.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
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
            Due(at.max(self.now), self.drawn),
            self.events.len() - 1,
        )));
    }

    // The coordinator.

    fn start_coordinator(&mut self) {
        if self.core.is_some() {
            return;
        }
        let mut state = State::default();
        for line in &self.log {
            let record: Stamped = serde_json::from_str(line).expect("a record is read back");
            state
                .apply(&record)
                .expect("a record fits the state that wrote it");
        }
        let mut core = Core::recover(SETTINGS, state);
        core.start(wall(self.now), ClusterId::new("sim").unwrap());
        self.core = Some(core);
        self.effects();
    }

    /// Takes every link with it; the hosts notice when nothing answers.
    fn kill_coordinator(&mut self) {
        self.core = None;
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

    /// The order of effects, with a death at either side of the commit.
    fn effects(&mut self) {
        let outputs: Vec<Output> = self
            .core
            .as_mut()
            .expect("it runs")
            .outputs()
            .into_iter()
            .collect();
        let records: Vec<&Stamped> = outputs
            .iter()
            .filter_map(|o| {
                if let Output::Record(r) = o {
                    Some(r)
                } else {
                    None
                }
            })
            .collect();
        let may_die = self.faulty && !records.is_empty();
        if may_die && self.one_in(400) {
            return self.kill_coordinator();
        }
        for record in &records {
            self.log
                .push(serde_json::to_string(record).expect("a record is JSON"));
        }
        if may_die && self.one_in(400) {
            return self.kill_coordinator();
        }
        for output in outputs {
            self.act(output);
        }
    }

    fn act(&mut self, output: Output) {
        match output {
            Output::Record(_) => {}
            Output::Greet { session, greeting } => {
                self.send_to_host(session.0, ToHost::Greeting(greeting))
            }
            Output::ToNode {
                session, command, ..
            } => self.send_to_host(session.0, ToHost::Order(command)),
            Output::Reply {
                answer: Answer::Submitted(results),
                ..
            } => {
                for result in results {
                    self.accepted
                        .insert(result.expect("the simulation submits valid steps").step);
                }
            }
            Output::Reply {
                answer:
                    Answer::Previewed(_)
                    | Answer::Cancelled(_)
                    | Answer::Changed(_)
                    | Answer::Applied(_)
                    | Answer::Steered(_),
                ..
            } => {}
            Output::SetTimer { key, at } => {
                let delay = at.since(wall(self.now)).millis();
                let life = self.coordinator_life;
                self.after(delay, Event::CoordinatorTimer { life, key });
            }
        }
    }

    /// A client that asks until it is answered.
    fn submit(&mut self, number: u64) {
        let id = StepId::new(format!("s{number}")).unwrap();
        if self.accepted.contains(&id) {
            return;
        }
        let request = StepRequest {
            command: vec!["work".to_owned()],
            ..StepRequest::default()
        };
        let mut spec = request.check().unwrap();
        // By its number and not by chance: a repeat must be the same step.
        let cores = 1000 * (1 + number % 3);
        spec.resources = ResourceSettings::default();
        spec.request = Amounts::new().with(MCPU, cores).with(STEP_RUN, 1);
        spec.nodes = if number % 4 == 1 { 2 } else { 1 };
        spec.grace = Span::from_secs(number % 20);
        spec.timeout = (number.is_multiple_of(7)).then_some(Span::from_secs(200));
        self.after(2000, Event::Submit(number));
        self.decide(Input::Submit {
            reply: ReplyId(number),
            steps: vec![NewStep {
                id: id.clone(),
                spec,
            }],
        });
        if number.is_multiple_of(5) && self.one_in(2) {
            self.decide(Input::Cancel {
                reply: ReplyId(1000 + number),
                step: id,
            });
        }
    }

    // The network.

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
        self.wires.insert(
            link,
            Wire {
                host,
                up: true,
                to_coordinator_at: self.now,
                to_host_at: self.now,
            },
        );
        self.hosts[host].link = Some(link);
        self.feed(host, HostInput::Dialled { link: LinkId(link) });
    }

    /// When what is sent now arrives: late, never before what was sent earlier, and not while the host is cut off.
    fn arrival(&mut self, link: u64, to_host: bool) -> Option<u64> {
        let late = if self.one_in(20) {
            self.below(3000)
        } else {
            self.below(20)
        };
        let wire = self.wires.get(&link).filter(|wire| wire.up)?;
        let cut = self.hosts[wire.host].cut_until;
        let wire = self.wires.get_mut(&link)?;
        let last = if to_host {
            &mut wire.to_host_at
        } else {
            &mut wire.to_coordinator_at
        };
        *last = (*last).max(self.now.max(cut) + late);
        Some(*last)
    }

    fn send_to_host(&mut self, link: u64, words: ToHost) {
        if let Some(at) = self.arrival(link, true) {
            self.at(at, Event::Reaches { link, words });
        }
    }

    fn send_to_coordinator(&mut self, link: u64, words: ToCoordinator) {
        if let Some(at) = self.arrival(link, false) {
            self.at(at, Event::Arrives { link, words });
        }
    }

    /// Neither end knows at once; what is under way is lost.
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

    fn arrives(&mut self, link: u64, words: ToCoordinator) {
        let Some(wire) = self.wires.get(&link).filter(|wire| wire.up) else {
            return;
        };
        let (session, node) = (SessionId(link), self.hosts[wire.host].name.clone());
        match words {
            ToCoordinator::Hello(hello) => self.decide(Input::NodeHello { session, hello }),
            ToCoordinator::Say(message) => self.decide(Input::FromNode {
                session,
                node,
                message,
            }),
            ToCoordinator::Beat { sent } => {
                // Heard first, acknowledged then.
                self.decide(Input::Heartbeat { session, node });
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
            ToHost::Greeting(Greeting::Welcome(welcome)) => {
                self.feed(host, HostInput::Welcomed { link: id, welcome });
                self.after(0, Event::Beat { host, link });
            }
            ToHost::Greeting(Greeting::Refused { .. }) => self.break_wire(link),
            ToHost::Order(command) => self.feed(host, HostInput::Command { link: id, command }),
            ToHost::Ack { sent } => {
                let sent = self.hosts[host].boot(sent);
                self.feed(host, HostInput::HeartbeatAcked { link: id, sent });
            }
        }
    }

    fn beat(&mut self, host: usize, link: u64) {
        if self.hosts[host].link == Some(link) {
            self.send_to_coordinator(link, ToCoordinator::Beat { sent: self.now });
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

    // Hosts.

    fn start_agent(&mut self, host: usize) {
        if self.hosts[host].core.is_some() {
            return;
        }
        self.hosts[host].start_agent();
        let (life, boot_id, attempts) = (
            self.hosts[host].life,
            self.hosts[host].boot_id(),
            self.hosts[host].views(),
        );
        self.feed(host, HostInput::SupervisorUp { boot_id, attempts });
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
            } => {
                let mut hello = self.hello(host, highest_epoch, attempts);
                hello.gpu_states = gpu_states;
                self.send_to_coordinator(link.0, ToCoordinator::Hello(Box::new(hello)));
            }
            HostOutput::Send { link, message } => {
                self.send_to_coordinator(link.0, ToCoordinator::Say(message))
            }
            HostOutput::Reject { link, .. } => self.break_wire(link.0),
            HostOutput::Supervise(order) => {
                let deaf = self.one_in(4);
                let wishes = self.hosts[host].obey(self.now, order, deaf);
                wishes.into_iter().for_each(|wish| self.grant(host, wish));
            }
            HostOutput::SetTimer { key, at } => {
                let (life, at) = (self.hosts[host].life, self.hosts[host].when(at));
                self.at(at, Event::HostTimer { host, life, key });
            }
            // These hosts have no GPUs.
            HostOutput::LookAtGpus | HostOutput::SaveGpus(_) => {}
        }
    }

    fn hello(
        &self,
        host: usize,
        highest_epoch: Option<sluice_common::id::Epoch>,
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
            highest_epoch,
            inventory: Inventory {
                cpus: 4,
                ..Inventory::default()
            },
            attempts,
            gpu_states: Default::default(),
        }
    }

    fn grant(&mut self, host: usize, wish: Wish) {
        match wish {
            Wish::Tell(attempt) => self.tell_view(host, attempt),
            Wish::Start(attempt) => {
                let lasts = self.below(180_000);
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
            Wish::End(attempt, exit) => {
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
            Wish::Lease(attempt, until) => {
                let at = self.hosts[host].when(until);
                self.at(at, Event::Lease { host, attempt });
            }
        }
    }

    fn tell_view(&mut self, host: usize, attempt: AttemptId) {
        // One socket: views arrive in order, and each shows the attempt as it is by then.
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
        if self.leases_kept && proc.runs() && proc.lease_until.is_some_and(|until| until <= boot) {
            let within = if proc.deaf {
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

    // Faults.

    fn fault(&mut self) {
        if !self.faulty {
            return;
        }
        let next = 1000 + self.below(60_000);
        self.after(next, Event::Fault);
        let host = self.below(HOSTS as u64) as usize;
        match self.below(9) {
            0 => self.kill_coordinator(),
            1 => self.kill_agent(host),
            2 => {
                self.kill_agent(host);
                self.kill_coordinator();
            }
            3 => self.cut(host, 3000),
            4 => self.cut(host, 200_000),
            5 => {
                self.kill_agent(host);
                self.hosts[host].reboot(self.now);
            }
            6 => self.interfere(host),
            7 => self.after(0, uncordon(host)),
            _ => self.orphan(host),
        }
    }

    /// An admin takes the host out of service, or has it forgotten.
    fn interfere(&mut self, host: usize) {
        let reason = None;
        let change = match self.below(4) {
            0 => NodeChange::Cordon { reason },
            1 => NodeChange::Drain {
                reason,
                deadline: None,
            },
            2 => NodeChange::Drain {
                reason,
                deadline: Some(Span::from_secs(self.below(60))),
            },
            _ => NodeChange::Delete { force: true },
        };
        self.after(0, Event::Admin { host, change });
    }

    /// An admin who asks until there is a coordinator.
    fn administer(&mut self, host: usize, change: NodeChange) {
        if self.core.is_none() {
            return self.after(1000, Event::Admin { host, change });
        }
        self.decide(Input::ChangeNode {
            reply: ReplyId(2000),
            node: self.hosts[host].name.clone(),
            change,
        });
    }

    /// The host's supervisor dies and comes back: exits of what runs by then cannot be seen any more.
    fn orphan(&mut self, host: usize) {
        let running = self.hosts[host]
            .procs
            .iter_mut()
            .filter(|(_, proc)| proc.runs());
        for (attempt, proc) in running {
            proc.orphaned = true;
            self.orphaned.insert(attempt.clone());
        }
    }

    /// Short cuts only delay; long ones outlast the transport's patience.
    fn cut(&mut self, host: usize, longest: u64) {
        let lasts = self.below(longest);
        self.hosts[host].cut_until = self.now + lasts;
        if let Some(link) = self.hosts[host].link.filter(|_| lasts > IDLE) {
            self.break_wire(link);
        }
    }

    // Promises.

    fn check(&self) {
        if let Some(core) = &self.core {
            coordinator_core::check(core)
                .unwrap_or_else(|broken| panic!("coordinator: {broken:?} ({self})"));
        }
        let mut running: BTreeMap<&StepId, Vec<&AttemptId>> = BTreeMap::new();
        for host in &self.hosts {
            if let Some(core) = &host.core {
                agent_core::check(core)
                    .unwrap_or_else(|broken| panic!("{}: {broken:?} ({self})", host.name));
            }
            for (attempt, _) in host.procs.iter().filter(|(_, proc)| proc.runs()) {
                running.entry(&attempt.step).or_default().push(attempt);
            }
        }
        for (step, attempts) in running {
            let one = attempts.iter().all(|attempt| *attempt == attempts[0]);
            assert!(one, "{attempts:?} run at once ({self})");
            let known = self.core.as_ref().and_then(|core| core.state().step(step));
            let most = known.map_or(2, |step| step.spec.nodes as usize);
            assert!(
                attempts.len() <= most,
                "{attempts:?} on {most} hosts ({self})"
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
