//! What a host knows of its attempts and of whom it obeys, where each event goes, and what all of them do: change an
//! attempt, report it, tell the supervisor. What follows from an event is in [`crate::on`], what one attempt does in
//! [`crate::attempt`].

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
use crate::gpus::{Gpus, KeptGpus};
use crate::input::{GpuLook, Input, LinkId, Now, Settings, TimerKey};
use crate::link::{Link, LinkStage};
use crate::notice::notice;
use crate::output::Output;
use crate::waiting::{Moves, Release};

/// All that one host knows of its attempts and of whom it obeys.
#[derive(Clone, Debug)]
pub struct Core {
    pub(crate) settings: Settings,
    pub(crate) highest_epoch: Option<SealedEpoch>,
    pub(crate) link: Option<Link>,
    pub(crate) supervisor: Supervisor,
    /// Why the supervisor does not answer, while it does not.
    pub(crate) absence: Option<Absence>,
    /// Until when the coordinator has answered for every attempt. Never goes back.
    pub(crate) lease_until: Option<BootMillis>,
    pub(crate) attempts: BTreeMap<AttemptId, Attempt>,
    /// The latest time that was fed.
    pub(crate) clock: BootMillis,
    /// When the last look at the GPUs was begun that counted.
    pub(crate) looked_at: BootMillis,
    /// Which GPUs each attempt was given that is not released.
    pub(crate) given: BTreeMap<AttemptId, Vec<String>>,
    /// Which processors are the own of each attempt that is pinned.
    pub(crate) pinned: BTreeMap<AttemptId, CpuSet>,
    /// Who waits for GPUs to come free.
    pub(crate) releases: BTreeMap<AttemptId, Release>,
    /// Who was stopped frozen: their GPUs may be others' since.
    pub(crate) freed: BTreeSet<AttemptId>,
    /// Whose GPUs are looked at before and after what is on them is moved.
    pub(crate) moves: Moves,
    pub(crate) gpus: Gpus,
    /// A look of before the supervisor was heard.
    pub(crate) early_look: Option<GpuLook>,
    /// What was said of them last.
    pub(crate) told_gpus: GpuStates,
    pub(crate) outputs: Vec<Output>,
}

/// How the supervisor stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Supervisor {
    /// It has not answered since the agent started: what runs is not known yet.
    Unheard,
    Up,
    /// It has answered and is gone for now.
    Down,
}

/// That the supervisor does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Absence {
    pub(crate) why: String,
    /// When it is told, if the supervisor does not answer before.
    pub(crate) told_at: BootMillis,
    pub(crate) is_told: bool,
}

impl Core {
    /// A core that knows no attempt yet. `highest_epoch` is what the last [`Output::SaveEpoch`] of this host said.
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
            given: BTreeMap::new(),
            pinned: BTreeMap::new(),
            releases: BTreeMap::new(),
            freed: BTreeSet::new(),
            moves: Moves::new(),
            early_look: None,
            told_gpus: GpuStates::default(),
            outputs: Vec::new(),
        }
    }

    /// The same with what the last [`Output::SaveGpus`] of this boot said.
    #[must_use]
    pub fn with_gpus(mut self, kept: KeptGpus) -> Self {
        self.gpus.remember(kept);
        self.told_gpus = self.gpus.states();
        let at = self.clock;
        if self.gpus.any_held() {
            self.wake(TimerKey::Look, at);
        }
        self
    }

    /// Takes one event; what is to be done about it waits in [`Core::outputs`].
    pub fn handle(&mut self, now: Now, input: Input) {
        self.clock = self.clock.max(now.boot);
        match input {
            Input::Dialled { link } => self.on_dialled(now, link),
            Input::Welcomed { link, welcome } => self.on_welcomed(link, &welcome),
            Input::LinkLost { link } => self.on_link_lost(link),
            Input::Command { link, command } => self.on_command(now, link, command),
            Input::HeartbeatAcked { link, sent } => self.on_heartbeat_acked(now, link, sent),
            // An agent does not outlive a boot, so the boot of its supervisor is its own.
            Input::SupervisorUp {
                boot_id: _,
                attempts,
            } => self.on_supervisor_up(now, &attempts),
            Input::SupervisorDown { why } => self.on_supervisor_down(now, why),
            Input::Attempt(view) => self.on_view(now, &view),
            Input::Timer(TimerKey::Grace(id)) => self.change(&id, |a| a.on_stop_timer(now)),
            Input::Timer(TimerKey::Timeout(id)) => self.change(&id, |a| a.on_timeout_timer(now)),
            Input::Timer(TimerKey::Release(id)) => self.on_release_timer(now, &id),
            Input::Timer(TimerKey::Look) => self.on_look_timer(),
            Input::Timer(TimerKey::Suspension(id)) => self.on_suspension_timer(now, &id),
            Input::Timer(TimerKey::Supervisor) => self.on_supervisor_timer(now),
            Input::Gpus(look) => self.on_gpus(now, look),
            Input::GpuHealth(health) => self.on_gpu_health(health),
            Input::Tuned(tuning) => self.on_tuned(tuning),
        }
    }

    /// Takes out what is to be done, in order.
    pub fn outputs(&mut self) -> impl Iterator<Item = Output> {
        self.outputs.drain(..)
    }

    /// Where an attempt stands; `None` where the host does not know it, or was told to forget it.
    pub fn status(&self, attempt: &AttemptId) -> Option<AttemptPhase> {
        self.attempts.get(attempt).map(Attempt::status)
    }

    /// Where every attempt stands that was not forgotten, by id.
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

    /// Lets an event change an attempt, and does what follows; nothing where there is no such attempt.
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
    }

    pub(crate) fn wake(&mut self, key: TimerKey, at: BootMillis) {
        self.outputs.push(Output::SetTimer { key, at });
    }

    /// Tells the coordinator, on a link that was greeted; any other learns it from its greeting.
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

    /// The link on which the coordinator was told how things stand, and hears what changes.
    pub(crate) fn greeted_link(&self) -> Option<LinkId> {
        let link = self.link.as_ref()?;
        match link.stage {
            LinkStage::Waiting => None,
            LinkStage::Greeted { .. } | LinkStage::Welcomed { .. } => Some(link.id),
        }
    }

    pub(crate) fn spawn(&mut self, id: &AttemptId) {
        let is_up = self.supervisor == Supervisor::Up;
        let Some(Attempt::Starting { spec, handed }) = self.attempts.get_mut(id) else {
            return;
        };
        *handed |= is_up;
        let mut spec = spec.clone();
        spec.lease_until = self.lease_until;
        self.supervise(ToSupervisor::Spawn(*spec));
    }

    /// While the supervisor is down nothing is said to it: when it is back, its views tell what it has missed.
    pub(crate) fn supervise(&mut self, message: ToSupervisor) {
        if self.supervisor == Supervisor::Up {
            self.outputs.push(Output::Supervise(message));
        }
    }
}
