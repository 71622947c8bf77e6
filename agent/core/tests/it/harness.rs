//! A test harness for the core: feeds it events, checks its invariants after each, and describes its outputs
//! in words.

use std::collections::BTreeMap;

use agent_core::{
    Core, Input, LinkId, Now, Output, Processor, Settings, StoredGpus, TimerKey, Topology, check,
};
use sluice_common::amount::Amounts;
use sluice_common::gpu_state::GpuStates;
use sluice_common::host_health::SupervisorState;
use sluice_common::id::{AttemptId, BootId, ClusterId, Epoch, NodeName, PoolName, Subject};
use sluice_common::supervision::{
    AttemptView, BootMillis, Exit, FreezerState, HostPhase, LaunchRecord, Process, ProcessEnd,
    SpawnSpec, StopSignal, ToSupervisor,
};
use sluice_common::time::{Span, Time};
use sluice_common::usage::Usage;
use sluice_common::wire::{
    Assignment, AttemptPhase, AttemptStatus, Command, FromNode, Gang, StopReason, ToNode, Welcome,
};

pub(crate) const LEASE: Span = Span::from_secs(300);
pub(crate) const STOP_LIMIT: Span = Span::from_secs(30);
pub(crate) const ORDER_LIMIT: Span = Span::from_secs(10);
pub(crate) const GRACE: Span = Span::from_secs(10);
pub(crate) const RELEASE_TIMEOUT: Span = Span::from_secs(20);
pub(crate) const LINK: LinkId = LinkId(1);

/// A core, and the time that it was last fed.
pub(crate) struct Harness {
    pub(crate) core: Core,
    pub(crate) boot: u64,
    orders: Orders,
}

/// Number of orders sent on each link. An order without a number gets the next one of its link.
#[derive(Default)]
pub(crate) struct Orders(BTreeMap<LinkId, u64>);

impl Orders {
    /// Sends an order now that answers the host's message of now.
    pub(crate) fn send(&mut self, input: &mut Input, boot: u64) {
        if let Input::Command { link, command } = input
            && command.number == 0
        {
            let count = self.0.entry(*link).or_default();
            *count += 1;
            command.number = *count;
            command.last_heard = BootMillis(boot);
        }
    }
}

impl Harness {
    /// A core without any input.
    pub(crate) fn new() -> Self {
        Self::with_epoch(None)
    }

    /// A core on a host that has obeyed an epoch.
    pub(crate) fn with_epoch(highest: Option<Epoch>) -> Self {
        Self {
            core: Core::new(settings(), highest.map(Into::into)),
            boot: 100_000,
            orders: Orders::default(),
        }
    }

    /// A core with a supervisor without attempts, and a coordinator of epoch 5 that has accepted it.
    pub(crate) fn linked() -> Self {
        Self::linked_with(StoredGpus::new())
    }

    /// A linked core with stored GPU states of an earlier agent.
    pub(crate) fn linked_with(kept: StoredGpus) -> Self {
        let mut harness = Self::new();
        harness.core = Core::new(settings(), None).with_gpus(kept);
        harness.feed(up(vec![]));
        harness.feed(Input::Dialled { link: LINK });
        harness.feed(welcomed(LINK, 5));
        harness
    }

    /// A linked core with `a.1` running.
    pub(crate) fn running() -> Self {
        let mut harness = Self::linked();
        harness.feed(assign("a.1"));
        harness.feed(Input::Attempt(running("a.1")));
        harness
    }

    /// Feeds one input, and returns the outputs.
    pub(crate) fn feed(&mut self, mut input: Input) -> Vec<Output> {
        self.orders.send(&mut input, self.boot);
        let now = now(self.boot);
        self.core.handle(now, input.clone());
        check(&self.core).unwrap_or_else(|violation| panic!("{violation} after {input:?}"));
        self.core.outputs().collect()
    }

    /// Feeds one input, and returns the outputs in words.
    pub(crate) fn told(&mut self, input: Input) -> String {
        words(&self.feed(input))
    }

    /// Advances the time; the caller fires timers.
    pub(crate) fn pass(&mut self, millis: u64) {
        self.boot += millis;
    }

    /// Phase of an attempt in words.
    pub(crate) fn phase(&self, id: &str) -> String {
        self.core
            .status(&attempt(id))
            .map_or("unknown".to_owned(), |phase| phase_word(&phase))
    }
}

/// Both clocks at `boot`: the wall clock is ahead by a constant.
pub(crate) fn now(boot: u64) -> Now {
    Now {
        wall: Time::from_unix_millis(1_000_000_000 + boot),
        boot: BootMillis(boot),
    }
}

pub(crate) fn settings() -> Settings {
    Settings {
        node: NodeName::new("host-1").expect("a name"),
        path: "/usr/bin:/bin".to_owned(),
        gpu_release_timeout: RELEASE_TIMEOUT,
        respect_foreign: true,
        gpus_are_declared: false,
        attempts_dir: "/attempts".to_owned(),
        inputs_dir: "/inputs".to_owned(),
        ports: Default::default(),
        suspend_limit: Span::from_secs(120),
        topology: Topology {
            processors: (0..PROCESSORS).map(processor).collect(),
            gpu_nodes: Default::default(),
        },
    }
}

/// Number of processors of the host, on one node, with one thread for each core.
pub(crate) const PROCESSORS: u32 = 6;

fn processor(number: u32) -> Processor {
    Processor {
        node: 0,
        core: number,
        number,
    }
}

pub(crate) fn attempt(id: &str) -> AttemptId {
    id.parse().expect("an attempt id")
}

pub(crate) fn epoch(counter: u64) -> Epoch {
    Epoch {
        cluster: ClusterId::new("c").expect("a name"),
        counter,
    }
}

pub(crate) fn other_cluster(counter: u64) -> Epoch {
    Epoch {
        cluster: ClusterId::new("other").expect("a name"),
        counter,
    }
}

pub(crate) fn welcome_as(link: LinkId, epoch: Epoch) -> Input {
    let welcome = Welcome {
        epoch: epoch.into(),
        lease: LEASE,
        stop_limit: STOP_LIMIT,
        heartbeat: Span::from_secs(3),
        order_limit: ORDER_LIMIT,
        seal: None,
    };
    Input::Welcomed { link, welcome }
}

pub(crate) fn welcomed(link: LinkId, counter: u64) -> Input {
    welcome_as(link, epoch(counter))
}

pub(crate) fn assignment(id: &str) -> Assignment {
    Assignment {
        attempt: attempt(id),
        pool: PoolName::new("p").expect("a name"),
        command: vec!["train".to_owned(), "--fast".to_owned()],
        env: [("LR".to_owned(), "1".to_owned())].into(),
        workdir: Some("/data".to_owned()),
        prefer_workdir: None,
        gpus: vec![],
        timeout: None,
        grace: GRACE,
        gang: Gang::single("box"),
        subject: Subject::new("s").expect("a name"),
        submitter: None,
        resources: Amounts::new(),
        cpu_mode: Default::default(),
        launch: sluice_common::template::launch::Launch::default(),
        warrant: Default::default(),
        streams: Default::default(),
        container: None,
        inputs: vec![],
        keep: vec![],
        ports: vec![],
        probes: Default::default(),
        is_measured: false,
    }
}

pub(crate) fn order_as(link: LinkId, epoch: Epoch, order: ToNode) -> Input {
    let command = Command {
        epoch,
        number: 0,
        last_heard: BootMillis(0),
        order,
    };
    Input::Command { link, command }
}

pub(crate) fn order(order: ToNode) -> Input {
    order_as(LINK, epoch(5), order)
}

pub(crate) fn assign(id: &str) -> Input {
    order(ToNode::Assign(Box::new(assignment(id))))
}

pub(crate) fn stop(id: &str, grace_secs: u64) -> Input {
    order(ToNode::Stop {
        attempt: attempt(id),
        why: StopReason::Cancelled,
        grace: Span::from_secs(grace_secs),
    })
}

pub(crate) fn forget(id: &str) -> Input {
    order(ToNode::Forget {
        attempt: attempt(id),
    })
}

pub(crate) fn acked(sent: u64) -> Input {
    Input::HeartbeatAcked {
        link: LINK,
        sent: BootMillis(sent),
    }
}

/// The supervisor does not answer.
pub(crate) fn down() -> Input {
    Input::SupervisorDown {
        why: "gone".to_owned(),
    }
}

pub(crate) fn up(attempts: Vec<AttemptView>) -> Input {
    Input::SupervisorUp {
        boot_id: BootId::new("boot").expect("a name"),
        attempts,
    }
}

pub(crate) fn grace_timer(id: &str) -> Input {
    Input::Timer(TimerKey::Grace(attempt(id)))
}

pub(crate) fn timeout_timer(id: &str) -> Input {
    Input::Timer(TimerKey::Timeout(attempt(id)))
}

pub(crate) fn memo() -> LaunchRecord {
    LaunchRecord {
        timeout: None,
        grace: GRACE,
        gpus: vec![],
        processors: Default::default(),
        is_allocation: false,
    }
}

pub(crate) fn process() -> Process {
    Process {
        pid: 42,
        start_ticks: 10_000,
        started_at: now(100_000).wall,
        workdir_refused: None,
    }
}

pub(crate) fn view(id: &str, phase: HostPhase) -> AttemptView {
    AttemptView {
        attempt: attempt(id),
        phase,
        launch_record: memo(),
        freezer: FreezerState::Thawed,
        frozen: Default::default(),
    }
}

pub(crate) fn running(id: &str) -> AttemptView {
    view(id, HostPhase::Running(process()))
}

fn host_end() -> ProcessEnd {
    ProcessEnd {
        process: Some(process()),
        exit: Exit::Code(0),
        ended_at: now(100_000).wall,
        usage: Usage::default(),
        kept: None,
    }
}

pub(crate) fn ended(id: &str) -> AttemptView {
    view(id, HostPhase::Ended(host_end()))
}

pub(crate) fn gone(id: &str) -> AttemptView {
    view(id, HostPhase::Gone(host_end()))
}

/// The only start order among `outputs`.
pub(crate) fn spawn_of(outputs: &[Output]) -> &SpawnSpec {
    let mut specs = outputs.iter().filter_map(|output| match output {
        Output::Supervise(ToSupervisor::Spawn(spec)) => Some(spec),
        _ => None,
    });
    let spec = specs.next().expect("a spawn");
    assert_eq!(specs.next(), None, "one spawn only");
    spec
}

/// The outputs in words, one phrase each, in order, separated by `; `.
pub(crate) fn words(outputs: &[Output]) -> String {
    outputs.iter().map(word).collect::<Vec<_>>().join("; ")
}

fn word(output: &Output) -> String {
    match output {
        Output::SetTimer {
            key: TimerKey::Suspension(id),
            at,
        } => format!("suspension of {id} at {}", at.0),
        Output::SetTimer {
            key: TimerKey::Supervisor,
            at,
        } => format!("supervisor at {}", at.0),
        Output::KeepEndpoint { attempt, endpoint } => {
            let ports = endpoint.ports.iter().map(|(_, port)| port.to_string());
            let ports: Vec<String> = ports.collect();
            let ready = if endpoint.is_ready { " ready" } else { "" };
            format!("keep ports {} of {attempt}{ready}", ports.join(","))
        }
        Output::Probe {
            attempt,
            kind,
            number,
            ..
        } => format!("probe {kind} {number} of {attempt}"),
        Output::KeepWarrant { attempt, warrant } => format!("keep {attempt} {}", warrant.as_str()),
        Output::ShowWarrant { link, attempt } => format!("show {} {attempt}", link.0),
        Output::SaveEpoch(epoch) => format!("save {}", epoch.epoch.counter),
        Output::Greet {
            link,
            highest_epoch,
            attempts,
            gpu_states,
            said_at: _,
            supervisor,
        } => {
            let away = match supervisor {
                SupervisorState::Responding => String::new(),
                state => format!(" {state:?}"),
            };
            let epoch = highest_epoch.as_ref().map_or(0, |it| it.epoch.counter);
            let attempts: Vec<String> = attempts.iter().map(status_word).collect();
            let faults = faults_word(gpu_states);
            format!(
                "greet {} epoch {epoch} [{}]{faults}{away}",
                link.0,
                attempts.join(", ")
            )
        }
        Output::Send {
            link,
            message: FromNode::Status(status),
        } => format!("{}: {}", link.0, status_word(status)),
        Output::Send {
            link,
            message: FromNode::GpuStates(states),
        } => format!("{}: gpus{}", link.0, faults_word(states)),
        Output::Send {
            link,
            message: FromNode::Endpoint(report),
        } => {
            let ready = if report.ready { "ready" } else { "not ready" };
            let saw = report.failure.as_ref();
            let saw = saw
                .map(|it| format!(" ({} {it})", it.probe))
                .unwrap_or_default();
            format!(
                "{}: {} {:?} {ready}{saw}",
                link.0, report.attempt, report.ports
            )
        }
        Output::Send { link, message } => format!("{}: {message:?}", link.0),
        Output::Reject { link, message } => format!("reject {}: {message}", link.0),
        Output::Supervise(message) => supervise_word(message),
        Output::SetTimer {
            key: TimerKey::Grace(id),
            at,
        } => format!("wake {id} {}", at.0),
        Output::SetTimer {
            key: TimerKey::Timeout(id),
            at,
        } => format!("timeout {id} {}", at.0),
        Output::SetTimer {
            key: TimerKey::Release(id),
            at,
        } => format!("release {id} {}", at.0),
        Output::SetTimer {
            key: TimerKey::GpuScan,
            at,
        } => format!("look at {}", at.0),
        Output::SetTimer {
            key: TimerKey::Probe(id, kind),
            at,
        } => format!("{kind} of {id} at {}", at.0),
        Output::SetTimer {
            key: TimerKey::Endpoint(id),
            at,
        } => format!("report {id} at {}", at.0),
        Output::ScanGpus => "look".to_owned(),
        Output::SaveGpus(_) => "keep".to_owned(),
        Output::FetchInputs { attempt, files } => format!("fetch {} of {attempt}", files.len()),
    }
}

/// The faults of each GPU, and of the host.
fn faults_word(states: &GpuStates) -> String {
    let faults = states.faults.iter();
    let faults = faults.map(|(uuid, fault)| format!(" {uuid} {fault}"));
    let drain = states.drain.iter().map(|why| format!(" drain: {why}"));
    faults.chain(drain).collect()
}

fn supervise_word(message: &ToSupervisor) -> String {
    match message {
        ToSupervisor::Spawn(spec) => format!("spawn {}", spec.attempt),
        ToSupervisor::Signal {
            attempt,
            signal: StopSignal::Terminate,
        } => format!("TERM {attempt}"),
        ToSupervisor::Signal {
            attempt,
            signal: StopSignal::Kill,
        } => format!("KILL {attempt}"),
        ToSupervisor::Renew { until } => format!("renew {}", until.0),
        ToSupervisor::Forget { attempt } => format!("drop {attempt}"),
        ToSupervisor::List => "list".to_owned(),
        ToSupervisor::Ping => "ping".to_owned(),
        ToSupervisor::Freeze { attempt } => format!("freeze {attempt}"),
        ToSupervisor::Suspend {
            attempt,
            users,
            bytes,
            ..
        } => format!("suspend {attempt} moving {bytes} of {users:?}"),
        ToSupervisor::Thaw { attempt } => format!("thaw {attempt}"),
        ToSupervisor::Pin {
            attempt,
            processors,
        } => format!("pin {attempt} to {processors}"),
        ToSupervisor::Challenge | ToSupervisor::Lease(_) => {
            panic!("the core knows of no seals")
        }
        ToSupervisor::Exec { exec, .. } | ToSupervisor::EndExec { exec } => {
            panic!("the core knows of no {exec:?}")
        }
        ToSupervisor::Measure => panic!("the core measures nothing"),
        ToSupervisor::Carve(gpu, layout) => format!("carve {gpu} into {layout}"),
        ToSupervisor::Notice {
            attempt, kill_at, ..
        } => format!("notice {attempt} {}", kill_at.0),
    }
}

fn status_word(status: &AttemptStatus) -> String {
    format!("{} {}", status.attempt, phase_word(&status.phase))
}

fn phase_word(phase: &AttemptPhase) -> String {
    match phase {
        AttemptPhase::Starting => "starting".to_owned(),
        AttemptPhase::Running(_) => "running".to_owned(),
        AttemptPhase::Stopping { why, .. } => format!("stopping {why:?}"),
        AttemptPhase::Suspending(_) => "suspending".to_owned(),
        AttemptPhase::Suspended { moved_mb, .. } => format!("suspended {moved_mb}"),
        AttemptPhase::Resuming(_) => "resuming".to_owned(),
        AttemptPhase::NotSuspended { why, .. } => format!("not suspended {why:?}"),
        AttemptPhase::Ended(end) => format!("ended {:?}", end.exit),
        AttemptPhase::Released(end) => format!("released {:?}", end.exit),
    }
}
