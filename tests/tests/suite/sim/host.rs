//! One simulated host: a real `agent-core`, and a supervisor and processes that keep running whatever happens to it.

use std::collections::BTreeMap;

use agent_core::{Core, Now, Settings};
use sluice_common::id::{AttemptId, BootId, Epoch, NodeName};
use sluice_common::supervision::{
    AttemptView, BootMillis, Exit, FreezerState, HostEnd, HostPhase, Memo, Process, SpawnSpec,
    StopSignal, ToSupervisor,
};
use sluice_common::time::{Span, Time};
use sluice_common::usage::Usage;

/// Wall clock when the simulation begins; it must not matter.
const WALL: u64 = 1_700_000_000_000;

/// One attempt on the host, as its supervisor sees it.
pub(crate) struct Proc {
    pub(crate) phase: HostPhase,
    pub(crate) memo: Memo,
    pub(crate) lease_until: Option<BootMillis>,
    pub(crate) lease_grace: u64,
    /// It ends only by SIGKILL.
    pub(crate) deaf: bool,
    /// Its end will not be seen: no supervisor was there.
    pub(crate) orphaned: bool,
}

impl Proc {
    pub(crate) fn runs(&self) -> bool {
        matches!(self.phase, HostPhase::Running(_))
    }
}

/// What the world is to do for a host's supervisor.
pub(crate) enum Wish {
    /// The view of this attempt goes to the agent.
    Tell(AttemptId),
    /// This attempt ends by itself some time.
    Start(AttemptId),
    /// This attempt ends now, so.
    End(AttemptId, Exit),
    /// Look at this attempt's lease then.
    Lease(AttemptId, BootMillis),
}

/// A host.
pub(crate) struct Host {
    pub(crate) name: NodeName,
    pub(crate) core: Option<Core>,
    /// Counted up at each start of the agent, so that what was meant for an earlier one is dropped.
    pub(crate) life: u64,
    /// Durable.
    pub(crate) epoch: Option<Epoch>,
    pub(crate) link: Option<u64>,
    pub(crate) cut_until: u64,
    pub(crate) procs: BTreeMap<AttemptId, Proc>,
    boots: u64,
    booted_at: u64,
}

impl Host {
    pub(crate) fn new(number: usize) -> Self {
        let name = NodeName::new(format!("host-{number}")).unwrap();
        // Each boot clock has its own zero.
        let booted_at = 1000 * number as u64;
        let (procs, epoch) = (BTreeMap::new(), None);
        Self {
            name,
            core: None,
            life: 0,
            epoch,
            link: None,
            cut_until: 0,
            procs,
            boots: 1,
            booted_at,
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

    /// The simulated time at which this host's boot clock says `at`.
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
            suspend_limit: Span::from_secs(120),
        };
        self.core = Some(Core::new(settings, self.epoch.clone()));
        self.life += 1;
    }

    pub(crate) fn kill_agent(&mut self) {
        self.core = None;
        self.link = None;
        self.life += 1;
    }

    /// Everything that runs dies, and the spool remembers it under the earlier boot.
    pub(crate) fn reboot(&mut self, now: u64) {
        self.kill_agent();
        self.boots += 1;
        self.booted_at = now;
        for proc in self.procs.values_mut() {
            let process = match &proc.phase {
                HostPhase::Running(process) => Some(*process),
                HostPhase::Ended(end) | HostPhase::Gone(end) => end.process,
            };
            if !matches!(proc.phase, HostPhase::Gone(_)) {
                proc.phase = HostPhase::Gone(HostEnd {
                    process,
                    exit: Exit::HostRebooted,
                    ended_at: wall(now),
                    usage: Usage::default(),
                });
            }
        }
    }

    pub(crate) fn view(&self, attempt: &AttemptId) -> Option<AttemptView> {
        let proc = self.procs.get(attempt)?;
        Some(AttemptView {
            attempt: attempt.clone(),
            phase: proc.phase.clone(),
            memo: proc.memo.clone(),
            freezer: FreezerState::Thawed,
            frozen: Default::default(),
        })
    }

    pub(crate) fn views(&self) -> Vec<AttemptView> {
        self.procs
            .keys()
            .filter_map(|attempt| self.view(attempt))
            .collect()
    }

    /// The supervisor obeys.
    pub(crate) fn obey(&mut self, now: u64, order: ToSupervisor, deaf: bool) -> Vec<Wish> {
        match order {
            ToSupervisor::Spawn(spec) => self.spawn(now, spec, deaf),
            ToSupervisor::Signal { attempt, signal } => {
                let exit = match signal {
                    StopSignal::Terminate => Exit::Signal(15),
                    StopSignal::Kill => Exit::Signal(9),
                };
                let dies =
                    |proc: &Proc| proc.runs() && !(proc.deaf && signal == StopSignal::Terminate);
                self.procs
                    .get(&attempt)
                    .filter(|proc| dies(proc))
                    .map(|_| Wish::End(attempt.clone(), exit))
                    .into_iter()
                    .collect()
            }
            ToSupervisor::Renew { until } => {
                let boot = self.boot(now);
                let mut wishes = Vec::new();
                for (attempt, proc) in &mut self.procs {
                    // One that has passed stays passed.
                    if proc
                        .lease_until
                        .is_some_and(|lease| lease > boot && lease < until)
                    {
                        proc.lease_until = Some(until);
                        wishes.push(Wish::Lease(attempt.clone(), until));
                    }
                }
                wishes
            }
            ToSupervisor::Forget { attempt } => {
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
            ToSupervisor::Freeze { attempt }
            | ToSupervisor::Suspend { attempt, .. }
            | ToSupervisor::Thaw { attempt } => {
                panic!("nobody asked for a freeze of {attempt}")
            }
            ToSupervisor::Exec { exec, .. } | ToSupervisor::EndExec { exec } => {
                panic!("agent-core knows of no {exec:?}")
            }
        }
    }

    fn spawn(&mut self, now: u64, spec: SpawnSpec, deaf: bool) -> Vec<Wish> {
        let attempt = spec.attempt.clone();
        if self.procs.contains_key(&attempt) {
            return vec![Wish::Tell(attempt)];
        }
        let process = Process {
            pid: 100,
            start_ticks: self.boot(now).0 / 10,
            started_at: wall(now),
        };
        let proc = Proc {
            phase: HostPhase::Running(process),
            memo: spec.memo,
            lease_until: spec.lease_until,
            lease_grace: spec.lease_grace.millis(),
            deaf,
            orphaned: false,
        };
        self.procs.insert(attempt.clone(), proc);
        let lease = spec
            .lease_until
            .map(|until| Wish::Lease(attempt.clone(), until));
        [Wish::Tell(attempt.clone()), Wish::Start(attempt)]
            .into_iter()
            .chain(lease)
            .collect()
    }

    /// The main process ends; whether that changed anything.
    pub(crate) fn end(&mut self, now: u64, attempt: &AttemptId, exit: Exit) -> bool {
        let Some(proc) = self.procs.get_mut(attempt) else {
            return false;
        };
        let HostPhase::Running(process) = proc.phase else {
            return false;
        };
        let exit = if proc.orphaned { Exit::Unknown } else { exit };
        proc.phase = HostPhase::Ended(HostEnd {
            process: Some(process),
            exit,
            ended_at: wall(now),
            usage: Usage::default(),
        });
        true
    }

    /// The rest of the group is gone too; whether that changed anything.
    pub(crate) fn gone(&mut self, attempt: &AttemptId) -> bool {
        let Some(proc) = self.procs.get_mut(attempt) else {
            return false;
        };
        let HostPhase::Ended(end) = &proc.phase else {
            return false;
        };
        proc.phase = HostPhase::Gone(end.clone());
        true
    }
}

/// Simulated time as the wall clock of everybody.
pub(crate) fn wall(now: u64) -> Time {
    Time::from_unix_millis(WALL + now)
}
