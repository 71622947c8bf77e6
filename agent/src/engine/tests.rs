//! Tests of what the loop adds to its core.

use std::collections::BTreeMap;

use agent_core::Settings;
use sluice_common::amount::Amounts;
use sluice_common::device::{DeviceNode, DeviceNumber};
use sluice_common::id::{ClusterId, Epoch, Subject};
use sluice_common::inputs::{InputFile, InputHash};
use sluice_common::inventory::Gpu;
use sluice_common::supervision::{
    AttemptView, Exit, FreezerState, HostPhase, LaunchRecord, Process, ProcessEnd,
};
use sluice_common::time::{Span, Time};
use sluice_common::usage::{Usage, UsageReport};
use sluice_common::wire::{Assignment, Command, FromNode, Gang, StopReason, ToNode, Welcome};

use super::*;
use crate::event::UsageEvent;
use crate::metrics::MetricReader;
use crate::ports::PortSearch;
use crate::probes::ProbeRunner;

const LINK: LinkId = LinkId(1);

struct TestEngine {
    engine: Engine,
    live: Arc<WritingAttempts>,
    /// Orders to the supervisor, by its connections.
    orders: Vec<mpsc::Receiver<ToSupervisor>>,
    /// Number of orders sent on the link.
    told: u64,
    link: mpsc::Receiver<ToLink>,
    dir: tempfile::TempDir,
}

impl TestEngine {
    /// A linked agent whose supervisor has no attempts.
    fn linked() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let node = NodeName::new("n").unwrap();
        let settings = Settings {
            node: node.clone(),
            path: String::new(),
            gpu_release_timeout: Span::from_secs(30),
            respect_foreign: true,
            gpus_are_declared: false,
            attempts_dir: "/attempts".to_owned(),
            inputs_dir: "/inputs".to_owned(),
            ports: Default::default(),
            suspend_limit: Span::from_secs(120),
            topology: Default::default(),
        };
        let identity = HostIdentity {
            node,
            pool: PoolName::new("default").unwrap(),
            labels: BTreeMap::new(),
            address: "box".to_owned(),
            boot_id: boot_id(),
            state_dir: String::new(),
            inventory: Inventory::default(),
            is_declared: false,
        };
        let live = Arc::new(WritingAttempts::default());
        let engine = Engine::new(
            Core::new(settings, None),
            identity,
            StateFiles::new(dir.path(), boot_id()),
            Arc::clone(&live),
            EngineSignals {
                looks: mpsc::channel(1).0,
                can_greet: watch::channel(false).0,
            },
            InputReceiver::new(
                dir.path().join("inputs"),
                mpsc::channel(1).0.downgrade(),
                watch::channel(None).1,
            ),
            PortsAndProbes {
                ports: PortSearch::new(Default::default()),
                probe_runner: ProbeRunner::new(
                    dir.path().into(),
                    Arc::clone(&live),
                    mpsc::channel(1).0.downgrade(),
                ),
                metric_reader: MetricReader::new(mpsc::channel(1).0.downgrade()),
            },
        );
        let (outbox, link) = mpsc::channel(OUTBOX);
        let mut rig = Self {
            engine,
            live,
            orders: Vec::new(),
            told: 0,
            link,
            dir,
        };
        rig.supervisor_up(vec![]);
        rig.feed(Event::Dialled { link: LINK, outbox });
        let welcome = Welcome {
            epoch: epoch().into(),
            lease: Span::from_secs(3600),
            stop_limit: Span::from_secs(30),
            heartbeat: Span::from_secs(3),
            order_limit: Span::from_secs(10),
            seal: None,
        };
        rig.feed(Event::Core(Input::Welcomed {
            link: LINK,
            welcome,
        }));
        rig
    }

    fn feed(&mut self, event: Event) {
        self.engine.on_event(event).unwrap();
    }

    fn supervisor_up(&mut self, attempts: Vec<AttemptView>) {
        let (outbox, orders) = mpsc::channel(OUTBOX);
        self.orders.push(orders);
        self.feed(Event::SupervisorUp {
            boot_id: boot_id(),
            attempts,
            capabilities: [(Capability::Kill, Mechanism::Cgroup2)].into(),
            carves_gpus: false,
            outbox,
        });
    }

    fn assign(&mut self) {
        self.assign_gpus(vec![]);
    }

    fn assign_gpus(&mut self, gpus: Vec<String>) {
        self.assign_as(gpus, false);
    }

    /// Measures what the attempt uses; returns what the coordinator hears of it.
    fn measured(&mut self) -> Vec<UsageReport> {
        while self.link.try_recv().is_ok() {}
        let report = UsageReport::empty(attempt());
        self.feed(Event::Usage(UsageEvent::Measured(vec![report])));
        let said = std::iter::from_fn(|| self.link.try_recv().ok());
        let reports = said.filter_map(|message| match message {
            ToLink::Say(FromNode::Usages(reports)) => Some(reports),
            _ => None,
        });
        reports.flatten().collect()
    }

    fn assign_as(&mut self, gpus: Vec<String>, is_measured: bool) {
        self.command(ToNode::Assign(Box::new(Assignment {
            gpus,
            is_measured,
            ..assignment()
        })));
    }

    fn command(&mut self, order: ToNode) {
        self.told += 1;
        let command = Command {
            epoch: epoch(),
            number: self.told,
            last_heard: crate::clock::boot(),
            order,
        };
        self.feed(Event::Core(Input::Command {
            link: LINK,
            command,
        }));
    }

    fn is_live(&self) -> bool {
        self.live.contains(&attempt())
    }
}

fn assignment() -> Assignment {
    Assignment {
        streams: Default::default(),
        container: None,
        inputs: vec![],
        keep: vec![],
        ports: vec![],
        probes: Default::default(),
        is_measured: false,
        attempt: attempt(),
        pool: PoolName::new("default").unwrap(),
        command: vec!["true".to_owned()],
        env: Default::default(),
        workdir: None,
        prefer_workdir: None,
        gpus: vec![],
        timeout: None,
        grace: Span::ZERO,
        gang: Gang::single("box"),
        subject: Subject::new("s").unwrap(),
        submitter: None,
        resources: Amounts::new(),
        cpu_mode: Default::default(),
        launch: sluice_common::template::launch::Launch::default(),
        warrant: Default::default(),
    }
}

fn attempt() -> AttemptId {
    "a.1".parse().unwrap()
}

fn boot_id() -> BootId {
    BootId::new("b").unwrap()
}

fn epoch() -> Epoch {
    Epoch {
        cluster: ClusterId::new("c").unwrap(),
        counter: 1,
    }
}

fn end() -> ProcessEnd {
    ProcessEnd {
        process: None,
        exit: Exit::Code(0),
        ended_at: Time::default(),
        usage: Usage::default(),
        kept: None,
    }
}

fn view(phase: HostPhase) -> AttemptView {
    AttemptView {
        attempt: attempt(),
        launch_record: LaunchRecord {
            timeout: Some(Span::from_secs(7 * 24 * 3600)),
            grace: Span::from_secs(30),
            gpus: Vec::new(),
            processors: Default::default(),
            is_allocation: false,
        },
        phase,
        freezer: FreezerState::Thawed,
        frozen: Default::default(),
    }
}

fn running() -> AttemptView {
    view(HostPhase::Running(Process {
        pid: 5,
        start_ticks: 1,
        started_at: Time::default(),
        workdir_refused: None,
    }))
}

fn gone() -> AttemptView {
    view(HostPhase::Gone(end()))
}

#[test]
fn output_may_grow_from_the_assignment_until_nothing_is_left() {
    let mut rig = TestEngine::linked();
    assert!(!rig.is_live());
    rig.assign();
    assert!(rig.is_live());
    rig.feed(Event::Core(Input::Attempt(gone())));
    assert!(!rig.is_live());
    rig.assign();
    assert!(!rig.is_live(), "it is told again of what is over");
}

#[test]
fn an_attempt_whose_start_waits_for_the_supervisor_is_not_taken_for_silent() {
    let mut rig = TestEngine::linked();
    rig.feed(Event::Core(Input::SupervisorDown {
        why: "gone".to_owned(),
    }));
    rig.assign();
    assert!(rig.is_live());
    rig.supervisor_up(vec![]);
    assert!(rig.is_live(), "it is started now");
    rig.supervisor_up(vec![gone()]);
    assert!(!rig.is_live());
}

#[test]
fn nothing_is_waited_for_when_nothing_is_left() {
    let mut rig = TestEngine::linked();
    rig.assign();
    rig.feed(Event::Core(Input::Attempt(running())));
    rig.feed(Event::Core(Input::Attempt(view(HostPhase::Ended(end())))));
    assert_eq!(rig.engine.timers.len(), 2, "timeout and sweep");
    rig.feed(Event::Core(Input::Attempt(gone())));
    assert!(rig.engine.timers.is_empty());
}

#[tokio::test]
async fn inputs_stay_until_the_program_is_seen_even_if_the_step_is_stopped_before() {
    let mut rig = TestEngine::linked();
    rig.command(ToNode::Assign(Box::new(Assignment {
        inputs: vec![InputFile {
            name: "data".to_owned(),
            sha256: InputHash::of_digest(&[0; 32]),
            size: 1,
            executable: false,
        }],
        ..assignment()
    })));
    let file = rig.dir.path().join("inputs/a.1");
    std::fs::create_dir(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "x").unwrap();
    rig.feed(Event::Core(Input::Inputs {
        attempt: attempt(),
        fetched: Ok(()),
    }));
    rig.command(ToNode::Stop {
        attempt: attempt(),
        why: StopReason::Cancelled,
        grace: Span::from_secs(30),
    });
    assert!(file.exists(), "the supervisor may be about to open it");
    rig.feed(Event::Core(Input::Attempt(running())));
    assert!(!file.exists());
}

fn gpu(uuid: &str, minor: u32) -> Gpu {
    Gpu {
        uuid: uuid.to_owned(),
        devices: vec![DeviceNode {
            path: format!("/dev/nvidia{minor}"),
            number: DeviceNumber::new(195, minor),
        }],
        ..Gpu::default()
    }
}

#[test]
fn a_spawn_carries_the_devices_of_what_was_granted_and_of_all() {
    let mut rig = TestEngine::linked();
    rig.feed(Event::HostChanged(Box::new(Inventory {
        gpus: vec![gpu("GPU-b", 0), gpu("GPU-a", 1)],
        ..Inventory::default()
    })));
    rig.assign_gpus(vec!["GPU-a".to_owned()]);
    let mut told = std::iter::from_fn(|| rig.orders[0].try_recv().ok());
    let spec = told.find_map(|order| match order {
        ToSupervisor::Spawn(spec) => Some(spec),
        _ => None,
    });
    let spec = spec.expect("it is started");
    let numbers = [0, 1].map(|minor| DeviceNumber::new(195, minor));
    assert_eq!(spec.devices.granted, numbers[1..]);
    assert_eq!(spec.devices.all_gpus, numbers);
}

#[test]
fn the_coordinator_hears_what_replicas_use_and_not_what_other_steps_do() {
    let mut step = TestEngine::linked();
    step.assign();
    assert_eq!(step.measured(), []);
    let mut replica = TestEngine::linked();
    replica.assign_as(vec![], true);
    assert_eq!(replica.measured(), [UsageReport::empty(attempt())]);
}

#[test]
fn what_the_supervisor_does_counts_and_not_what_the_host_would_offer() {
    let offered = || Inventory {
        capabilities: [(Capability::Kill, Mechanism::Cgroup1)].into(),
        ..Inventory::default()
    };
    let mut rig = TestEngine::linked();
    rig.feed(Event::HostChanged(Box::new(offered())));
    let told = |rig: &TestEngine| rig.engine.identity.inventory.capabilities.clone();
    assert_eq!(told(&rig)[&Capability::Kill], Mechanism::Cgroup2);
    rig.engine.identity.is_declared = true;
    rig.feed(Event::HostChanged(Box::new(offered())));
    assert_eq!(told(&rig)[&Capability::Kill], Mechanism::Cgroup1);
}
