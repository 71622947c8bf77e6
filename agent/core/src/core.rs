//! State of the agent's core, dispatch of inputs, and common actions: change an attempt, report it, order the
//! supervisor. [`crate::on`] handles the inputs, [`crate::attempt`] is one attempt.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::epoch::SealedEpoch;
use sluice_common::gpu_state::GpuStates;
use sluice_common::id::{AttemptId, Epoch};
use sluice_common::processors::CpuSet;
use sluice_common::supervision::{BootMillis, ToSupervisor};
use sluice_common::wire::{AttemptPhase, AttemptStatus, FromNode};

use crate::attempt::{Attempt, Effect, Effects};
use crate::carving::Carvings;
use crate::endpoint::Endpoint;
use crate::gpus::{Gpus, StoredGpus};
use crate::input::{GpuScan, Input, LinkId, Now, Settings, TimerKey};
use crate::link::{Link, LinkStage};
use crate::notice::notice;
use crate::output::Output;
use crate::waiting::{GpuWaits, ReleaseWait};

/// State of one host: its attempts, its link to the coordinator, its supervisor and its GPUs.
#[derive(Clone, Debug)]
pub struct Core {
    pub(crate) settings: Settings,
    pub(crate) highest_epoch: Option<SealedEpoch>,
    pub(crate) link: Option<Link>,
    pub(crate) supervisor: Supervisor,
    /// Set while the supervisor does not answer.
    pub(crate) absence: Option<Absence>,
    /// Until when the coordinator has renewed the lease of every attempt. Never moves back.
    pub(crate) lease_until: Option<BootMillis>,
    pub(crate) attempts: BTreeMap<AttemptId, Attempt>,
    /// The latest time that was fed.
    pub(crate) clock: BootMillis,
    /// Start of the latest GPU scan that was used.
    pub(crate) looked_at: BootMillis,
    /// GPUs of each attempt that is not released.
    pub(crate) assigned_gpus: BTreeMap<AttemptId, Vec<String>>,
    /// Those of them that are of allocations.
    pub(crate) allocations: BTreeSet<AttemptId>,
    /// Processors of each pinned attempt.
    pub(crate) pinned: BTreeMap<AttemptId, CpuSet>,
    /// Attempts that wait for their GPUs to be free.
    pub(crate) releases: BTreeMap<AttemptId, ReleaseWait>,
    /// Attempts that were stopped while suspended: their GPUs may belong to others since.
    pub(crate) freed: BTreeSet<AttemptId>,
    /// Attempts that wait for a GPU scan because of a suspension.
    pub(crate) moves: GpuWaits,
    pub(crate) gpus: Gpus,
    /// GPUs that are being cut into slices.
    pub(crate) carvings: Carvings,
    /// Ports and probes of each attempt that has any and is not forgotten.
    pub(crate) endpoints: BTreeMap<AttemptId, Endpoint>,
    /// Ports to which nothing was bound, for the next attempt.
    pub(crate) free_ports: Vec<u16>,
    /// A GPU scan from before the supervisor's first answer.
    pub(crate) early_scan: Option<GpuScan>,
    /// The GPU states that were last reported.
    pub(crate) reported_gpus: GpuStates,
    pub(crate) outputs: Vec<Output>,
}

/// State of the connection to the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Supervisor {
    /// The supervisor has not answered since the agent started, so running attempts are unknown.
    Unheard,
    Up,
    /// The supervisor has answered before and is disconnected now.
    Down,
}

/// An absence of the supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Absence {
    pub(crate) why: String,
    /// When the absence is reported, if it lasts.
    pub(crate) told_at: BootMillis,
    pub(crate) is_told: bool,
}

impl Core {
    /// A core without attempts. `highest_epoch` is from the last [`Output::SaveEpoch`] of this host.
    pub fn new(settings: Settings, highest_epoch: Option<SealedEpoch>) -> Self {
        Self {
            gpus: Gpus::new(settings.respect_foreign),
            settings,
            highest_epoch,
            link: None,
            supervisor: Supervisor::Unheard,
            absence: None,
            lease_until: None,
            attempts: BTreeMap::new(),
            clock: BootMillis(0),
            looked_at: BootMillis(0),
            assigned_gpus: BTreeMap::new(),
            allocations: BTreeSet::new(),
            pinned: BTreeMap::new(),
            releases: BTreeMap::new(),
            freed: BTreeSet::new(),
            moves: GpuWaits::new(),
            carvings: Carvings::default(),
            endpoints: BTreeMap::new(),
            free_ports: Vec::new(),
            early_scan: None,
            reported_gpus: GpuStates::default(),
            outputs: Vec::new(),
        }
    }

    /// Adds the GPU state of the last [`Output::SaveGpus`] of this boot.
    #[must_use]
    pub fn with_gpus(mut self, kept: StoredGpus) -> Self {
        self.gpus.remember(kept);
        self.reported_gpus = self.gpus.states();
        let at = self.clock;
        if self.gpus.any_held() {
            self.wake(TimerKey::GpuScan, at);
        }
        self
    }

    /// Handles one input; [`Core::outputs`] returns the resulting actions.
    pub fn handle(&mut self, now: Now, input: Input) {
        self.clock = self.clock.max(now.boot);
        match input {
            Input::Dialled { link } => self.on_dialled(now, link),
            Input::Welcomed { link, welcome } => self.on_welcomed(link, &welcome),
            Input::LinkLost { link } => self.on_link_lost(link),
            Input::Command { link, command } => self.on_command(now, link, command),
            Input::HeartbeatAcked { link, sent } => self.on_heartbeat_acked(now, link, sent),
            // An agent does not outlive a boot, so the supervisor's boot is its own.
            Input::SupervisorUp {
                boot_id: _,
                attempts,
            } => self.on_supervisor_up(now, &attempts),
            Input::SupervisorDown { why } => self.on_supervisor_down(now, why),
            Input::Attempt(view) => self.on_view(now, &view),
            Input::Timer(TimerKey::Grace(id)) => self.change(&id, |a| a.on_stop_timer(now)),
            Input::Timer(TimerKey::Timeout(id)) => self.change(&id, |a| a.on_timeout_timer(now)),
            Input::Timer(TimerKey::Release(id)) => self.on_release_timer(now, &id),
            Input::Timer(TimerKey::GpuScan) => self.on_look_timer(),
            Input::Timer(TimerKey::Suspension(id)) => self.on_suspension_timer(now, &id),
            Input::Timer(TimerKey::Probe(id, kind)) => self.on_probe_timer(&id, kind),
            Input::Timer(TimerKey::Endpoint(id)) => self.on_endpoint_timer(&id),
            Input::FreePorts(ports) => self.free_ports = ports,
            Input::Probed {
                attempt,
                kind,
                number,
                outcome,
            } => self.on_probed(now, &attempt, kind, number, outcome),
            Input::Timer(TimerKey::Supervisor) => self.on_supervisor_timer(now),
            Input::Gpus(look) => self.on_gpus(now, look),
            Input::GpuHealth(health) => self.on_gpu_health(health),
            Input::Carved {
                gpu,
                layout,
                failure,
            } => self.on_carved(&gpu, &layout, failure),
            Input::Looked { began } => self.on_full_look(began),
            Input::Tuned(tuning) => self.on_tuned(tuning),
            Input::Inputs { attempt, fetched } => self.on_inputs(now, &attempt, fetched),
        }
    }

    /// Drains the actions to perform, in order.
    pub fn outputs(&mut self) -> impl Iterator<Item = Output> {
        self.outputs.drain(..)
    }

    /// Phase of an attempt; `None` if the host does not know it or has forgotten it.
    pub fn status(&self, attempt: &AttemptId) -> Option<AttemptPhase> {
        self.attempts.get(attempt).map(Attempt::status)
    }

    /// Status of every attempt that was not forgotten, by id.
    pub fn statuses(&self) -> impl Iterator<Item = AttemptStatus> {
        self.attempts.iter().map(|(id, attempt)| AttemptStatus {
            attempt: id.clone(),
            phase: attempt.status(),
        })
    }

    /// The highest epoch that the host has obeyed.
    pub fn highest_epoch(&self) -> Option<&Epoch> {
        self.highest_epoch.as_ref().map(|highest| &highest.epoch)
    }

    /// Applies an event to an attempt and performs its effects; does nothing if the attempt is unknown.
    pub(crate) fn change(&mut self, id: &AttemptId, event: impl FnOnce(&mut Attempt) -> Effects) {
        if let Some(attempt) = self.attempts.get_mut(id) {
            let effects = event(attempt);
            self.act(id, effects);
        }
    }

    pub(crate) fn act(&mut self, id: &AttemptId, effects: Effects) {
        let stopping = self.attempts.get(id);
        if let Some(notice) = stopping.and_then(|attempt| notice(id, attempt, &effects)) {
            self.supervise(notice);
        }
        for effect in effects {
            match effect {
                Effect::Report(phase) => self.report(id, phase),
                Effect::Signal(signal) => self.supervise(ToSupervisor::Signal {
                    attempt: id.clone(),
                    signal,
                }),
                Effect::WakeStop(at) => self.wake(TimerKey::Grace(id.clone()), at),
                Effect::WakeTimeout(at) => self.wake(TimerKey::Timeout(id.clone()), at),
                Effect::AwaitGpus => self.await_gpus(id),
                Effect::AwaitMoved => self.await_moved(id),
                Effect::Freeze => self.freeze(id),
                Effect::Thaw => self.thaw(id),
                Effect::WakeSuspension(at) => self.wake(TimerKey::Suspension(id.clone()), at),
            }
        }
        self.follow_endpoint(id);
    }

    pub(crate) fn wake(&mut self, key: TimerKey, at: BootMillis) {
        self.outputs.push(Output::SetTimer { key, at });
    }

    /// Reports to the coordinator if the link was greeted; a later link gets the status in its hello.
    pub(crate) fn report(&mut self, id: &AttemptId, phase: AttemptPhase) {
        let Some(link) = self.greeted_link() else {
            return;
        };
        let status = AttemptStatus {
            attempt: id.clone(),
            phase,
        };
        self.outputs.push(Output::Send {
            link,
            message: FromNode::Status(status),
        });
    }

    /// The link on which a hello was sent and status changes are reported.
    pub(crate) fn greeted_link(&self) -> Option<LinkId> {
        let link = self.link.as_ref()?;
        match link.stage {
            LinkStage::Waiting => None,
            LinkStage::Greeted { .. } | LinkStage::Welcomed { .. } => Some(link.id),
        }
    }

    pub(crate) fn spawn(&mut self, id: &AttemptId) {
        let is_up = self.supervisor == Supervisor::Up;
        let Some(Attempt::Starting {
            spec,
            was_sent,
            awaits_inputs: false,
        }) = self.attempts.get_mut(id)
        else {
            return;
        };
        *was_sent |= is_up;
        let mut spec = spec.clone();
        spec.lease_until = self.lease_until;
        self.supervise(ToSupervisor::Spawn(*spec));
    }

    /// Orders the supervisor. While it is disconnected nothing is sent; its views show what it has missed
    /// when it is back.
    pub(crate) fn supervise(&mut self, message: ToSupervisor) {
        if self.supervisor == Supervisor::Up {
            self.outputs.push(Output::Supervise(message));
        }
    }
}
