//! The core: one function for each event. What one attempt does is in [`crate::attempt`], whose word is obeyed in
//! [`crate::link`].

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use sluice_common::epoch::SealedEpoch;
use sluice_common::gpu_state::GpuStates;
use sluice_common::id::{AttemptId, Epoch};
use sluice_common::limit::MAX_ATTEMPTS_PER_NODE;
use sluice_common::processors::CpuSet;
use sluice_common::supervision::{BootMillis, Exit, ToSupervisor};
use sluice_common::time::Span;
use sluice_common::wire::{
    Assignment, AttemptEnd, AttemptPhase, AttemptStatus, Command, FromNode, StopWhy, ToNode,
    Welcome,
};

use crate::attempt::{Attempt, Effect, Effects};
use crate::gpus::{Gpus, KeptGpus};
use crate::input::{GpuLook, Input, LinkId, Now, Settings, TimerKey};
use crate::link::{Link, LinkStage, Rejection, Standing, Terms, judge};
use crate::moves::Moves;
use crate::notice::notice;
use crate::output::Output;
use crate::release::Release;
use crate::spawn::{self, LEASE_PASSED, never_started};
use crate::stop::later;
use crate::supervised::Absence;

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
    /// It answers.
    Up,
    /// It has answered and is gone for now.
    Down,
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

    // The link.

    fn on_dialled(&mut self, now: Now, link: LinkId) {
        self.link = Some(Link::new(link));
        self.greet(now);
    }

    /// Says hello where one is due and the supervisor has told what runs, or has been away for too long.
    pub(crate) fn greet(&mut self, now: Now) {
        if !self.can_greet() {
            return;
        }
        let Some(Link {
            id,
            stage: stage @ LinkStage::Waiting,
            orders: _,
        }) = &mut self.link
        else {
            return;
        };
        *stage = LinkStage::Greeted { at: now.boot };
        let link = *id;
        let attempts = self.statuses().collect();
        let highest_epoch = self.highest_epoch.clone();
        let gpu_states = self.gpus.states();
        let supervisor = self.supervisor_state();
        self.outputs.push(Output::Greet {
            link,
            highest_epoch,
            attempts,
            gpu_states,
            said_at: now.boot,
            supervisor,
        });
    }

    fn on_welcomed(&mut self, link: LinkId, welcome: &Welcome) {
        if !self.is_current(link) {
            return;
        }
        if let Err(rejection) = self.accept(welcome) {
            self.reject(link, &rejection);
        }
    }

    fn accept(&mut self, welcome: &Welcome) -> Result<(), Rejection> {
        let Some(Link { stage, .. }) = &mut self.link else {
            return Ok(());
        };
        let greeted_at = match *stage {
            LinkStage::Waiting => return Err(Rejection::WelcomeBeforeHello),
            LinkStage::Greeted { at } => at,
            LinkStage::Welcomed { greeted_at, .. } => greeted_at,
        };
        let terms = Terms::from(welcome);
        *stage = LinkStage::Welcomed { greeted_at, terms };
        self.obey(&welcome.epoch)?;
        // The welcome answers the hello as an acknowledgement answers a heartbeat.
        self.renew(greeted_at, terms.lease);
        Ok(())
    }

    /// Whether a welcome with this epoch may be obeyed; a higher epoch or another seal is saved first.
    fn obey(&mut self, epoch: &SealedEpoch) -> Result<(), Rejection> {
        judge(self.highest_epoch(), &epoch.epoch)?;
        if self.highest_epoch.as_ref() != Some(epoch) {
            self.highest_epoch = Some(epoch.clone());
            self.outputs.push(Output::SaveEpoch(epoch.clone()));
        }
        Ok(())
    }

    /// Nothing stops: the leases run on.
    fn on_link_lost(&mut self, link: LinkId) {
        if self.is_current(link) {
            self.link = None;
        }
    }

    pub(crate) fn reject(&mut self, link: LinkId, rejection: &Rejection) {
        self.link = None;
        let message = rejection.to_string();
        self.outputs.push(Output::Reject { link, message });
    }

    fn is_current(&self, link: LinkId) -> bool {
        self.link.as_ref().is_some_and(|current| current.id == link)
    }

    /// The terms of a link that was let in.
    fn terms(&self) -> Option<Terms> {
        match self.link.as_ref()?.stage {
            LinkStage::Waiting | LinkStage::Greeted { .. } => None,
            LinkStage::Welcomed { terms, .. } => Some(terms),
        }
    }

    // The lease.

    fn on_heartbeat_acked(&mut self, now: Now, link: LinkId, sent: BootMillis) {
        if !self.is_current(link) {
            return;
        }
        if let Some(terms) = self.terms() {
            self.renew(sent.min(now.boot), terms.lease);
        }
    }

    /// The coordinator has answered what was sent at `sent`.
    fn renew(&mut self, sent: BootMillis, lease: Span) {
        let until = later(sent, lease);
        if self.lease_until.is_none_or(|known| known < until) {
            self.lease_until = Some(until);
            self.supervise(ToSupervisor::Renew { until });
        }
    }

    pub(crate) fn lease_passed(&self, now: Now) -> bool {
        self.lease_until.is_none_or(|until| until <= now.boot)
    }

    // Orders.

    fn on_command(&mut self, now: Now, link: LinkId, command: Command) {
        if !self.is_current(link) {
            return;
        }
        match self.admit(now, &command) {
            // Nobody knows yet what the order would be about. The next hello tells, and is answered by what still matters.
            Ok(_) if self.supervisor == Supervisor::Unheard => {}
            Ok(terms) => self.on_order(now, terms, command.order),
            Err(rejection) => self.reject(link, &rejection),
        }
    }

    /// An order is obeyed in the epoch of the last welcome only: a later epoch comes with a welcome, which brings its seal.
    fn admit(&mut self, now: Now, command: &Command) -> Result<Terms, Rejection> {
        let terms = self.terms().ok_or(Rejection::OrderBeforeWelcome)?;
        match judge(self.highest_epoch(), &command.epoch)? {
            Standing::Known => {}
            Standing::New => {
                return Err(Rejection::NotWelcomed {
                    found: command.epoch.counter,
                });
            }
        }
        if let Some(link) = &mut self.link {
            link.count(command.number)?;
        }
        terms.check_age(&command.order, command.heard, now.boot)?;
        Ok(terms)
    }

    fn on_order(&mut self, now: Now, terms: Terms, order: ToNode) {
        match order {
            ToNode::Assign(assignment) => self.on_assign(now, terms, *assignment),
            ToNode::Stop {
                attempt,
                why,
                grace,
            } => self.on_stop(now, attempt, why, grace),
            ToNode::Forget { attempt } => self.on_forget(attempt),
            ToNode::Suspend { attempt, room_mb } => self.on_suspend(now, attempt, room_mb),
            ToNode::Resume { attempt } => self.on_resume(now, attempt),
            ToNode::RestoreGpus { gpus } => self.on_restore_gpus(&gpus),
            ToNode::Show { attempt } => self.on_show(attempt),
        }
    }

    fn on_show(&mut self, attempt: AttemptId) {
        if let Some(link) = self.link.as_ref().map(|link| link.id) {
            self.outputs.push(Output::ShowWarrant { link, attempt });
        }
    }

    fn on_assign(&mut self, now: Now, terms: Terms, mut assignment: Assignment) {
        let id = assignment.attempt.clone();
        if let Some(phase) = self.status(&id) {
            return self.report(&id, phase);
        }
        if let Some(exit) = self.refusal(now, &assignment) {
            return self.settle(id, never_started(now, exit, None));
        }
        let processors = match self.processors_for(&assignment) {
            Ok(processors) => processors,
            Err(exit) => return self.settle(id, never_started(now, exit, None)),
        };
        let warrant = core::mem::take(&mut assignment.warrant);
        if !warrant.is_empty() {
            let attempt = id.clone();
            self.outputs.push(Output::KeepWarrant { attempt, warrant });
        }
        self.note_gpus(&id, &assignment.gpus);
        self.note_processors(&id, &processors.own);
        let spec = spawn::spec(assignment, processors, &self.settings, terms);
        let spec = Box::new(spec);
        let handed = false;
        self.attempts
            .insert(id.clone(), Attempt::Starting { spec, handed });
        self.report(&id, AttemptPhase::Starting);
        self.spawn(&id);
    }

    /// Why an assignment is not begun at all.
    fn refusal(&self, now: Now, assignment: &Assignment) -> Option<Exit> {
        if self.attempts.len() >= MAX_ATTEMPTS_PER_NODE {
            return Some(Exit::StartFailed(format!(
                "the host holds {} attempts already, and {MAX_ATTEMPTS_PER_NODE} are the most: wait until some of \
                 them have ended, or add hosts",
                self.attempts.len()
            )));
        }
        if assignment.command.is_empty() {
            return Some(Exit::StartFailed(
                "command: it is empty; name a program".to_owned(),
            ));
        }
        if let Some(why) = self.told_absence() {
            return Some(Exit::NotBegun(why.to_owned()));
        }
        self.lease_passed(now)
            .then(|| Exit::NotBegun(LEASE_PASSED.to_owned()))
    }

    /// Reports an attempt that never was as released, and remembers that, so that a late assignment of it starts
    /// nothing. A host that holds as many as it may only reports.
    pub(crate) fn settle(&mut self, id: AttemptId, end: AttemptEnd) {
        self.report(&id, AttemptPhase::Released(end.clone()));
        if self.attempts.len() < MAX_ATTEMPTS_PER_NODE {
            self.attempts.insert(id, Attempt::Released { end });
        }
    }

    fn on_stop(&mut self, now: Now, id: AttemptId, why: StopWhy, grace: Span) {
        if self.attempts.contains_key(&id) {
            self.let_go_of_gpus(&id);
            self.change(&id, |attempt| attempt.on_stop(now, why, grace));
        } else {
            self.settle(id, never_started(now, Exit::Unknown, Some(why)));
        }
    }

    /// Only what is released is forgotten: before that the order makes no sense, and its units are not free.
    fn on_forget(&mut self, attempt: AttemptId) {
        if let Some(Attempt::Released { .. }) = self.attempts.get(&attempt) {
            self.attempts.remove(&attempt);
            self.forget_gpus(&attempt);
            self.supervise(ToSupervisor::Forget { attempt });
        }
    }

    // Effects.

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
    fn report(&mut self, id: &AttemptId, phase: AttemptPhase) {
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
