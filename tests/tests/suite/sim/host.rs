//! One simulated host: a real `agent-core`, and a supervisor and processes that keep running whatever happens to it.

use std::collections::{BTreeMap, BTreeSet};

use agent_core::{Core, GpuObservation, GpuScan, Now, Settings, StoredGpus};
use sluice_common::epoch::SealedEpoch;
use sluice_common::id::{AttemptId, BootId, NodeName};
use sluice_common::image::ContainerRuntime;
use sluice_common::inventory::{self, Capability, Inventory, Mechanism};
use sluice_common::supervision::{
    AttemptView, BootMillis, Exit, HostPhase, LaunchRecord, Process, ProcessEnd, SpawnSpec,
    StopSignal, ToSupervisor,
};
use sluice_common::time::{Span, Time};
use sluice_common::usage::Usage;
use sluice_common::warrant::SealedWarrant;
use sluice_common::wire::Heartbeat;

use super::freezer::{CgroupState, Freezer, HelperOutcome, MoveRequest};
use super::gpu::{MEMORY, SimGpu};
use super::seeded_random::SeededRandom;
use super::world::Stream;

/// Longest time of a move.
const SUSPEND_LIMIT: Span = Span::from_secs(60);
/// Memory of each host in bytes.
const HOST_MEMORY: u64 = 96 << 30;

/// Wall clock at the start of the simulation; it must not matter.
const WALL: u64 = 1_700_000_000_000;

/// One attempt on the host, as its supervisor sees it.
pub(crate) struct SimAttempt {
    pub(crate) phase: HostPhase,
    pub(crate) memo: LaunchRecord,
    pub(crate) lease_until: Option<BootMillis>,
    pub(crate) lease_grace: u64,
    /// Whether only SIGKILL ends it.
    pub(crate) deaf: bool,
    /// Whether its exit will be unknown, because no supervisor was there.
    pub(crate) orphaned: bool,
    pub(crate) freezer: Freezer,
    /// Whether it was killed.
    pub(crate) is_killed: bool,
    /// Exit that happens as soon as it is thawed.
    pub(crate) due: Option<Exit>,
    /// Processes of the attempt that use its GPUs.
    pub(crate) gpu_pids: Vec<u32>,
    /// Bytes that each of them holds on each GPU.
    gpu_bytes: u64,
    /// Whether the driver lists processes whose memory was moved.
    is_listed_while_away: bool,
}

impl SimAttempt {
    pub(crate) fn runs(&self) -> bool {
        matches!(self.phase, HostPhase::Running(_))
    }

    fn is_there(&self) -> bool {
        !matches!(self.phase, HostPhase::Gone(_))
    }

    /// Whether it was granted a GPU and something of it is left.
    pub(crate) fn has(&self, uuid: &str) -> bool {
        self.is_there() && self.memo.gpus.iter().any(|gpu| gpu == uuid)
    }

    fn holding(&self) -> impl Iterator<Item = u32> {
        let moved = self.freezer.moved();
        let pids = self.gpu_pids.iter().copied();
        pids.filter(|pid| !moved.contains(pid))
    }

    /// Returns the bytes that it holds on each of its GPUs.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.gpu_bytes * self.holding().count() as u64
    }

    /// Returns its processes that the driver lists.
    pub(crate) fn listed(&self) -> Vec<u32> {
        match self.is_listed_while_away {
            true => self.gpu_pids.clone(),
            false => self.holding().collect(),
        }
    }

    /// Whether it holds memory of a GPU, or runs and may allocate some.
    pub(crate) fn may_use(&self, uuid: &str) -> bool {
        let is_still = self.freezer.group == CgroupState::Frozen;
        // An allocation uses its GPUs by the steps inside it alone.
        let has_one = self.has(uuid) && !self.memo.is_allocation;
        has_one && (!is_still || self.held_bytes() > 0)
    }
}

/// An action that the world carries out for a host's supervisor.
pub(crate) enum HostAction {
    /// Send the view of this attempt to the agent.
    Tell(AttemptId),
    /// Let this attempt end by itself some time.
    Start(AttemptId),
    /// End this attempt now, with this exit.
    End(AttemptId, Exit),
    /// Check this attempt's lease then.
    Lease(AttemptId, BootMillis),
    /// Bring the group of this attempt to rest after so long.
    Freezes(AttemptId, u64, u64),
    /// End the helper of this task with this outcome after so long.
    Helper(AttemptId, u64, HelperOutcome, u64),
}

/// State of the agent's look at the GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScanState {
    None,
    /// A look is under way, or about to be.
    Begun,
    /// Another look is to follow.
    Wanted,
}

/// A simulated host.
pub(crate) struct SimHost {
    pub(crate) name: NodeName,
    pub(crate) core: Option<Core>,
    /// Counted up at each start of the agent, so that messages for an earlier one are ignored.
    pub(crate) life: u64,
    /// Highest epoch obeyed; durable.
    pub(crate) epoch: Option<SealedEpoch>,
    pub(crate) link: Option<u64>,
    /// The newest order that has arrived by the link; below, the last answer of the supervisor.
    pub(crate) arrived: u64,
    pub(crate) answered: BootMillis,
    pub(crate) cut_until: u64,
    /// Time until which some streams of its link are held back, though the link stands.
    pub(crate) held: BTreeMap<Stream, u64>,
    pub(crate) procs: BTreeMap<AttemptId, SimAttempt>,
    pub(crate) gpus: Vec<SimGpu>,
    /// Durable until the next boot.
    pub(crate) kept_gpus: StoredGpus,
    pub(crate) warrants: BTreeMap<AttemptId, SealedWarrant>,
    pub(crate) looks: ScanState,
    /// Attempts whose inputs its present agent has.
    pub(crate) fetched: BTreeSet<AttemptId>,
    /// Whether its supervisor answers.
    pub(crate) is_supervised: bool,
    /// Whether some of its faults never end.
    pub(crate) is_faulty: bool,
    pub(crate) freezes: bool,
    pub(crate) driver_tells_processes: bool,
    /// Whether the driver hides leftovers of steps; a world with such a driver must be found out.
    pub(crate) driver_lies: bool,
    /// Whether it has a container runtime.
    pub(crate) runs_images: bool,
    pids: u32,
    boots: u64,
    booted_at: u64,
}

impl SimHost {
    pub(crate) fn new(number: usize) -> Self {
        let name = NodeName::new(format!("host-{number}")).unwrap();
        // Each boot clock has its own zero.
        let booted_at = 1000 * number as u64;
        let (procs, epoch) = (BTreeMap::new(), None);
        // One host has no freezer, and the driver of another does not list processes.
        let gpus = if number < 2 { 2 } else { 1 };
        let gpus = (0..gpus).map(|gpu| SimGpu::new(format!("GPU-{number}-{gpu}")));
        Self {
            name,
            core: None,
            life: 0,
            epoch,
            link: None,
            arrived: 0,
            answered: BootMillis(0),
            cut_until: 0,
            held: BTreeMap::new(),
            procs,
            gpus: gpus.collect(),
            kept_gpus: StoredGpus::new(),
            warrants: BTreeMap::new(),
            looks: ScanState::None,
            fetched: BTreeSet::new(),
            is_supervised: true,
            is_faulty: true,
            freezes: number != 2,
            driver_tells_processes: number != 3,
            driver_lies: false,
            runs_images: number.is_multiple_of(2),
            pids: 100,
            boots: 1,
            booted_at,
        }
    }

    pub(crate) fn inventory(&self) -> Inventory {
        let freezer = match self.freezes {
            true => Mechanism::Cgroup2,
            false => Mechanism::None,
        };
        let gpu = |(index, gpu): (u32, &SimGpu)| inventory::Gpu {
            index,
            uuid: gpu.uuid.clone(),
            model: "NVIDIA A100".to_owned(),
            platform: "a100".to_owned(),
            memory_bytes: MEMORY,
            ..inventory::Gpu::default()
        };
        Inventory {
            cpus: 4,
            memory_bytes: HOST_MEMORY,
            capabilities: [(Capability::Freeze, freezer)].into(),
            gpus: (0..).zip(&self.gpus).map(gpu).collect(),
            container_runtimes: match self.runs_images {
                true => [(ContainerRuntime::Podman, "4.3.1".to_owned())].into(),
                false => Default::default(),
            },
            ..Inventory::default()
        }
    }

    /// Returns what a look that begins now shows.
    pub(crate) fn glance(&self, now: u64, random: &mut SeededRandom) -> GpuScan {
        let memory = match random.one_in(10) {
            true => 1 << 30,
            false => HOST_MEMORY / 2,
        };
        let gpus: BTreeMap<String, GpuObservation> = self.look(now, random);
        GpuScan {
            began: self.boot(now),
            gpus,
            units: BTreeMap::new(),
            memory_available: Some(memory),
        }
    }

    pub(crate) fn now(&self, now: u64) -> Now {
        Now {
            wall: wall(now),
            boot: self.boot(now),
        }
    }

    pub(crate) fn boot(&self, now: u64) -> BootMillis {
        BootMillis((now + 100_000).saturating_sub(self.booted_at))
    }

    /// Returns the simulated time at which this host's boot clock shows `at`.
    pub(crate) fn when(&self, at: BootMillis) -> u64 {
        (at.0 + self.booted_at).saturating_sub(100_000)
    }

    pub(crate) fn boot_id(&self) -> BootId {
        BootId::new(format!("{}-boot-{}", self.name, self.boots)).unwrap()
    }

    pub(crate) fn start_agent(&mut self) {
        let settings = Settings {
            node: self.name.clone(),
            path: "/bin".to_owned(),
            gpu_release_timeout: Span::from_secs(30),
            respect_foreign: true,
            gpus_are_declared: false,
            suspend_limit: SUSPEND_LIMIT,
            topology: Default::default(),
            attempts_dir: "/attempts".to_owned(),
            inputs_dir: "/inputs".to_owned(),
            ports: Default::default(),
        };
        let core = Core::new(settings, self.epoch.clone());
        self.core = Some(core.with_gpus(self.kept_gpus.clone()));
        self.looks = ScanState::None;
        self.fetched.clear();
        self.life += 1;
    }

    pub(crate) fn dials(&mut self, link: u64, now: u64) {
        self.link = Some(link);
        self.arrived = 0;
        self.answered = self.boot(now);
    }

    pub(crate) fn beat(&self, now: u64) -> Heartbeat {
        Heartbeat {
            number: 0,
            sent_at: self.boot(now),
            last_acknowledged: self.answered,
            last_order: self.arrived,
            challenge: None,
        }
    }

    pub(crate) fn kill_agent(&mut self) {
        self.core = None;
        self.link = None;
        self.life += 1;
    }

    /// Kills everything that runs; the spool remembers it under the earlier boot.
    pub(crate) fn reboot(&mut self, now: u64) {
        self.kill_agent();
        self.boots += 1;
        self.booted_at = now;
        self.is_supervised = true;
        self.kept_gpus.clear();
        self.gpus.iter_mut().for_each(SimGpu::clear);
        for proc in self.procs.values_mut() {
            proc.freezer = Freezer::default();
            let process = match &proc.phase {
                HostPhase::Running(process) => Some(*process),
                HostPhase::Ended(end) | HostPhase::Gone(end) => end.process,
            };
            if !matches!(proc.phase, HostPhase::Gone(_)) {
                proc.phase = HostPhase::Gone(ProcessEnd {
                    process,
                    exit: Exit::HostRebooted,
                    ended_at: wall(now),
                    usage: Usage::default(),
                    kept: None,
                });
            }
        }
    }

    pub(crate) fn view(&self, attempt: &AttemptId) -> Option<AttemptView> {
        let proc = self.procs.get(attempt)?;
        Some(AttemptView {
            attempt: attempt.clone(),
            phase: proc.phase.clone(),
            launch_record: proc.memo.clone(),
            freezer: proc.freezer.shown.clone(),
            frozen: proc.freezer.time,
        })
    }

    pub(crate) fn views(&self) -> Vec<AttemptView> {
        self.procs
            .keys()
            .filter_map(|attempt| self.view(attempt))
            .collect()
    }

    /// Carries out an order to the supervisor.
    pub(crate) fn obey(
        &mut self,
        now: u64,
        order: ToSupervisor,
        random: &mut SeededRandom,
    ) -> Vec<HostAction> {
        match order {
            ToSupervisor::Spawn(spec) => self.spawn(now, spec, random),
            ToSupervisor::Signal { attempt, signal } => self.signal(attempt, signal),
            ToSupervisor::Renew { until } => {
                let boot = self.boot(now);
                let mut wishes = Vec::new();
                for (attempt, proc) in &mut self.procs {
                    // A passed lease stays passed.
                    if proc
                        .lease_until
                        .is_some_and(|lease| lease > boot && lease < until)
                    {
                        proc.lease_until = Some(until);
                        wishes.push(HostAction::Lease(attempt.clone(), until));
                    }
                }
                wishes
            }
            ToSupervisor::Forget { attempt } => {
                self.warrants.remove(&attempt);
                if self
                    .procs
                    .get(&attempt)
                    .is_some_and(|proc| matches!(proc.phase, HostPhase::Gone(_)))
                {
                    self.procs.remove(&attempt);
                }
                Vec::new()
            }
            ToSupervisor::Notice { .. } => Vec::new(),
            ToSupervisor::List => panic!("agent-core never asks for a list"),
            ToSupervisor::Ping => panic!("the driver asks, not the core"),
            ToSupervisor::Freeze { attempt } => self.freeze(now, &attempt, random),
            ToSupervisor::Thaw { attempt } => self.thaw(now, &attempt, random),
            ToSupervisor::Suspend {
                attempt,
                users,
                bytes,
                limit,
            } => {
                let what = MoveRequest {
                    users,
                    bytes,
                    limit,
                };
                self.suspend(now, &attempt, what, random)
            }
            ToSupervisor::Pin { attempt, .. } => panic!("{attempt} was never frozen"),
            ToSupervisor::Challenge | ToSupervisor::Lease(_) => {
                panic!("agent-core knows of no seals")
            }
            ToSupervisor::Exec { exec, .. } | ToSupervisor::EndExec { exec } => {
                panic!("agent-core knows of no {exec:?}")
            }
            ToSupervisor::Measure => panic!("the core measures nothing"),
            ToSupervisor::Carve(gpu, _) => panic!("no platform asks for slices of {gpu}"),
        }
    }

    fn signal(&mut self, attempt: AttemptId, signal: StopSignal) -> Vec<HostAction> {
        let Some(proc) = self.procs.get_mut(&attempt).filter(|proc| proc.runs()) else {
            return Vec::new();
        };
        let exit = match signal {
            StopSignal::Terminate if proc.deaf => return Vec::new(),
            StopSignal::Terminate => Exit::Signal(15),
            StopSignal::Kill => {
                proc.is_killed = true;
                Exit::Signal(9)
            }
        };
        vec![HostAction::End(attempt, exit)]
    }

    /// Most steps with GPUs use them by one process, some by several or by none.
    fn gpu_pids(&mut self, spec: &SpawnSpec, random: &mut SeededRandom) -> Vec<u32> {
        let record = &spec.launch_record;
        let uses_none = record.gpus.is_empty() || record.is_allocation;
        let count = match (uses_none, random.below(10)) {
            (true, _) | (false, 0) => 0,
            (false, 1) => 2,
            (false, _) => 1,
        };
        self.pids += 10;
        let first = self.pids + 1;
        (first..first + count).collect()
    }

    fn spawn(&mut self, now: u64, spec: SpawnSpec, random: &mut SeededRandom) -> Vec<HostAction> {
        let attempt = spec.attempt.clone();
        if self.procs.contains_key(&attempt) {
            return vec![HostAction::Tell(attempt)];
        }
        assert!(
            spec.inputs.is_none() || self.fetched.contains(&attempt),
            "{attempt} begins without its inputs"
        );
        for gpu in self
            .gpus
            .iter()
            .filter(|gpu| spec.launch_record.gpus.contains(&gpu.uuid))
        {
            assert!(
                !gpu.is_littered(now),
                "{attempt} begins on {} which was not seen free",
                gpu.uuid
            );
        }
        let gpu_pids = self.gpu_pids(&spec, random);
        let process = Process {
            pid: self.pids,
            start_ticks: self.boot(now).0 / 10,
            started_at: wall(now),
            workdir_refused: None,
        };
        let proc = SimAttempt {
            phase: HostPhase::Running(process),
            memo: spec.launch_record,
            lease_until: spec.lease_until,
            lease_grace: spec.lease_grace.millis(),
            deaf: random.one_in(4),
            orphaned: false,
            freezer: Freezer::default(),
            is_killed: false,
            due: None,
            gpu_pids,
            gpu_bytes: (1 + random.below(15)) << 30,
            is_listed_while_away: random.one_in(2),
        };
        self.procs.insert(attempt.clone(), proc);
        let lease = spec
            .lease_until
            .map(|until| HostAction::Lease(attempt.clone(), until));
        [
            HostAction::Tell(attempt.clone()),
            HostAction::Start(attempt),
        ]
        .into_iter()
        .chain(lease)
        .collect()
    }

    /// Ends the main process; returns whether that changed anything.
    pub(crate) fn end(&mut self, now: u64, attempt: &AttemptId, exit: Exit) -> bool {
        let Some(proc) = self.procs.get_mut(attempt) else {
            return false;
        };
        let HostPhase::Running(process) = proc.phase else {
            return false;
        };
        let is_forced = matches!(exit, Exit::Signal(9) | Exit::LeaseExpired);
        if proc.freezer.group != CgroupState::Running && !is_forced {
            proc.due = Some(exit);
            return false;
        }
        let exit = if proc.orphaned { Exit::Unknown } else { exit };
        proc.phase = HostPhase::Ended(ProcessEnd {
            process: Some(process),
            exit,
            ended_at: wall(now),
            usage: Usage::default(),
            kept: None,
        });
        true
    }

    /// Ends the rest of the group; returns whether that changed anything.
    pub(crate) fn gone(
        &mut self,
        now: u64,
        attempt: &AttemptId,
        random: &mut SeededRandom,
    ) -> bool {
        let Some(proc) = self.procs.get_mut(attempt) else {
            return false;
        };
        let HostPhase::Ended(end) = &proc.phase else {
            return false;
        };
        let had_some = proc.held_bytes() > 0;
        let had = |gpu: &&mut SimGpu| had_some && proc.memo.gpus.contains(&gpu.uuid);
        for gpu in self.gpus.iter_mut().filter(had).filter(|gpu| !gpu.is_lost) {
            gpu.leave(now, self.is_faulty, random);
        }
        proc.phase = HostPhase::Gone(end.clone());
        proc.freezer.on_empty();
        true
    }
}

/// Converts simulated time to wall-clock time.
pub(crate) fn wall(now: u64) -> Time {
    Time::from_unix_millis(WALL + now)
}
