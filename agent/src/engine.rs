//! The loop: the one owner of the core. It takes events from the link and the supervisor, hands them to the core in
//! the order in which they came, and does what the core wants done, in the order in which it says so.
//!
//! The loop never waits for a peer: an outbox that is full is dropped, which ends that connection, and after the next
//! hello everything that still matters is said again. So neither a slow coordinator nor a slow supervisor can hold up
//! the other, and no two tasks wait for each other.

mod devices;
mod execs;
mod output;
mod report;

use std::collections::BTreeMap;
use std::sync::Arc;

use agent_core::{Core, Input, LinkId, Output, TimerKey};
use sluice_common::gpu_state::GpuStates;
use sluice_common::host_health::{HostHealth, SupervisorState};
use sluice_common::id::{AttemptId, BootId, NodeName, PoolName};
use sluice_common::inventory::{Capability, Inventory, Mechanism, Readings};
use sluice_common::lease::{Challenge, SealedLease};
use sluice_common::limit::MAX_ATTEMPTS_PER_NODE;
use sluice_common::supervision::{AttemptView, BootMillis, ToSupervisor};
use sluice_common::time::Span;
use sluice_common::wire::{FromNode, Hello, PROTOCOL_VERSION};
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{info, warn};

use crate::clock;
use crate::epoch::EpochError;
use crate::logs::Live;
use crate::state_files::StateFiles;

pub(crate) use execs::{Begun, ExecEvent};
use output::writes;
use report::{Report, Touched, assigned};

/// Events that wait for the loop. Beyond it the tasks that bring them wait, which slows their peers down.
pub(crate) const INBOX: usize = 1024;
/// Messages that wait for one peer: every attempt of a full host may change twice before the peer is given up.
pub(crate) const OUTBOX: usize = 2 * MAX_ATTEMPTS_PER_NODE;

/// What the tasks bring.
#[expect(
    clippy::large_enum_variant,
    reason = "what the core hears is what mostly comes, and the inbox is bounded"
)]
#[derive(Debug)]
pub(crate) enum Event {
    /// A connection to a coordinator stands.
    Dialled {
        link: LinkId,
        outbox: mpsc::Sender<ToLink>,
    },
    /// The supervisor has said hello.
    SupervisorUp {
        boot_id: BootId,
        attempts: Vec<AttemptView>,
        capabilities: BTreeMap<Capability, Mechanism>,
        outbox: mpsc::Sender<ToSupervisor>,
    },
    /// What the host has is no longer what it had.
    HostChanged(Box<Inventory>),
    /// How the host does.
    Readings(Box<Readings>),
    /// An attempt saved its work so long ago.
    Checkpoint { attempt: AttemptId, ago: Span },
    /// How the host is by its own check.
    Health(HostHealth),
    /// The config has these labels now: all of them.
    Labels(BTreeMap<String, String>),
    /// The supervisor has drawn a challenge.
    Challenge(Challenge),
    /// The supervisor is to draw another challenge.
    WantChallenge,
    /// The coordinator has signed a lease.
    Leased(Box<SealedLease>),
    /// Of a program beside an attempt.
    Exec(ExecEvent),
    /// Anything that needs no wiring.
    Core(Input),
    /// Somebody wants to know whether the loop turns.
    Asked(oneshot::Sender<()>),
}

/// What a link is to do.
#[derive(Debug)]
pub(crate) enum ToLink {
    /// The first words.
    Hello(Box<Hello>),
    Say(FromNode),
}

/// Who this host is: the part of a hello that is the same until the host or its config is another.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) node: NodeName,
    pub(crate) pool: PoolName,
    pub(crate) labels: BTreeMap<String, String>,
    /// Where the other hosts of a gang reach this one.
    pub(crate) address: String,
    pub(crate) boot_id: BootId,
    pub(crate) state_dir: String,
    pub(crate) inventory: Inventory,
    /// Whether the inventory was declared by hand: then nothing that is found here goes into it.
    pub(crate) is_declared: bool,
}

/// The loop and what it holds.
pub(crate) struct Engine {
    core: Core,
    identity: Identity,
    kept: StateFiles,
    /// Asks for a look at the GPUs.
    looks: mpsc::Sender<()>,
    live: Arc<Live>,
    link: Option<(LinkId, mpsc::Sender<ToLink>)>,
    supervisor: Option<mpsc::Sender<ToSupervisor>>,
    can_greet: watch::Sender<bool>,
    /// The newest that the supervisor has drawn.
    challenge: watch::Sender<Option<Challenge>>,
    readings: Option<Readings>,
    /// How the host is by its own check, once that is known.
    health: Option<HostHealth>,
    /// By which means the supervisor holds processes; empty until it has told.
    capabilities: BTreeMap<Capability, Mechanism>,
    timers: BTreeMap<TimerKey, BootMillis>,
    report: Report,
    execs: execs::Execs,
}

impl Engine {
    /// A loop that has not begun. `can_greet` turns true when the core has something to say to a coordinator: what the host
    /// runs, or that its supervisor is away.
    pub(crate) fn new(
        core: Core,
        identity: Identity,
        kept: StateFiles,
        looks: mpsc::Sender<()>,
        live: Arc<Live>,
        can_greet: watch::Sender<bool>,
    ) -> Self {
        Self {
            core,
            identity,
            kept,
            looks,
            live,
            link: None,
            supervisor: None,
            can_greet,
            challenge: watch::Sender::new(None),
            readings: None,
            health: None,
            capabilities: BTreeMap::new(),
            timers: BTreeMap::new(),
            report: Report::default(),
            execs: execs::Execs::default(),
        }
    }

    /// What the supervisor wants to see signed; `None` while it is away.
    pub(crate) fn challenges(&self) -> watch::Receiver<Option<Challenge>> {
        self.challenge.subscribe()
    }

    /// Runs until every sender of events is gone.
    pub(crate) async fn run(mut self, mut inbox: mpsc::Receiver<Event>) -> Result<(), EpochError> {
        loop {
            let due = self.timers.values().min().copied();
            tokio::select! {
                event = inbox.recv() => match event {
                    Some(event) => self.on_event(event)?,
                    None => return Ok(()),
                },
                () = sleep_until(due) => self.on_timers()?,
            }
        }
    }

    fn on_event(&mut self, event: Event) -> Result<(), EpochError> {
        match event {
            Event::Dialled { link, outbox } => {
                self.link = Some((link, outbox));
                self.feed(Input::Dialled { link })?;
                self.tell_readings();
                self.tell_health();
                Ok(())
            }
            Event::SupervisorUp {
                boot_id,
                attempts,
                capabilities,
                outbox,
            } => {
                self.supervisor = Some(outbox);
                self.on_capabilities(capabilities);
                self.feed(Input::SupervisorUp { boot_id, attempts })?;
                let known = self.core.statuses().map(|status| status.attempt);
                self.kept.warrants.retain(&known.collect());
                self.live.replace(self.unreleased());
                self.order(ToSupervisor::Challenge);
                Ok(())
            }
            Event::Readings(readings) => {
                self.readings = Some(*readings);
                self.tell_readings();
                Ok(())
            }
            Event::Asked(answer) => {
                let _nobody_waits_any_more = answer.send(());
                Ok(())
            }
            Event::Checkpoint { attempt, ago } => {
                // As with readings: it is told again.
                if let Some((_, outbox)) = &self.link {
                    let message = FromNode::Checkpoint { attempt, ago };
                    let _ = outbox.try_send(ToLink::Say(message));
                }
                Ok(())
            }
            Event::HostChanged(inventory) => {
                self.identity.inventory = *inventory;
                self.claim_capabilities();
                self.tell_inventory();
                Ok(())
            }
            Event::Health(health) => {
                self.health = Some(health);
                self.tell_health();
                Ok(())
            }
            Event::Labels(labels) => {
                self.on_labels(labels);
                Ok(())
            }
            Event::Challenge(challenge) => {
                self.challenge.send_replace(Some(challenge));
                Ok(())
            }
            Event::WantChallenge => {
                self.order(ToSupervisor::Challenge);
                Ok(())
            }
            Event::Leased(lease) => {
                self.order(ToSupervisor::Lease(*lease));
                Ok(())
            }
            Event::Exec(event) => {
                self.on_exec(event);
                Ok(())
            }
            Event::Core(input) => {
                self.on_input(&input);
                let assigned = assigned(&input);
                self.feed(input)?;
                self.expect_output(assigned);
                Ok(())
            }
        }
    }

    /// What the supervisor does counts, and not what the host would offer to others.
    fn on_capabilities(&mut self, found: BTreeMap<Capability, Mechanism>) {
        let before = self.identity.inventory.capabilities.clone();
        self.capabilities = found;
        self.claim_capabilities();
        if self.identity.inventory.capabilities != before {
            self.tell_inventory();
        }
    }

    /// A link that is made later begins with them.
    fn on_labels(&mut self, labels: BTreeMap<String, String>) {
        if self.identity.labels == labels {
            return;
        }
        self.identity.labels = labels.clone();
        if let Some((link, _)) = &self.link {
            self.say(*link, ToLink::Say(FromNode::Labels(labels)));
        }
    }

    fn claim_capabilities(&mut self) {
        if !self.identity.is_declared && !self.capabilities.is_empty() {
            self.identity.inventory.capabilities = self.capabilities.clone();
        }
    }

    fn tell_health(&mut self) {
        if let (Some((link, _)), Some(health)) = (&self.link, &self.health) {
            self.say(*link, ToLink::Say(FromNode::Health(health.clone())));
        }
    }

    /// What the loop itself learns from an input before the core hears it.
    fn on_input(&mut self, input: &Input) {
        match input {
            Input::Attempt(view) if writes(view) => self.live.add(view.attempt.clone()),
            Input::Attempt(view) => {
                self.live.remove(&view.attempt);
                self.disarm(&view.attempt);
            }
            Input::SupervisorDown { .. } => {
                self.supervisor = None;
                self.challenge.send_replace(None);
                self.execs.on_supervisor_down();
            }
            Input::LinkLost { link }
                if self
                    .link
                    .as_ref()
                    .is_some_and(|(current, _)| current == link) =>
            {
                self.link = None;
            }
            Input::Dialled { .. }
            | Input::Welcomed { .. }
            | Input::LinkLost { .. }
            | Input::Command { .. }
            | Input::HeartbeatAcked { .. }
            | Input::SupervisorUp { .. }
            | Input::Gpus(_)
            | Input::GpuHealth(_)
            | Input::Tuned(_)
            | Input::Timer(_) => {}
        }
    }

    /// Nothing of an attempt is left to wait for. Its timeout may lie days ahead, and each event looks at all timers.
    fn disarm(&mut self, attempt: &AttemptId) {
        self.timers.remove(&TimerKey::Grace(attempt.clone()));
        self.timers.remove(&TimerKey::Timeout(attempt.clone()));
    }

    fn on_timers(&mut self) -> Result<(), EpochError> {
        let now = clock::boot();
        let due: Vec<TimerKey> = self
            .timers
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(key, _)| key.clone())
            .collect();
        for key in due {
            self.timers.remove(&key);
            self.feed(Input::Timer(key))?;
        }
        Ok(())
    }

    fn feed(&mut self, input: Input) -> Result<(), EpochError> {
        let touched = Touched::by(&input);
        self.core.handle(clock::now(), input);
        self.forget_output(&touched);
        self.report.tell(&self.core, touched);
        let can_greet = self.core.can_greet();
        self.can_greet
            .send_if_modified(|known| !std::mem::replace(known, can_greet) && can_greet);
        let outputs: Vec<Output> = self.core.outputs().collect();
        outputs.into_iter().try_for_each(|output| self.act(output))
    }

    fn act(&mut self, output: Output) -> Result<(), EpochError> {
        match output {
            Output::SaveEpoch(epoch) => {
                info!(
                    epoch = epoch.epoch.counter,
                    "the coordinator speaks with a higher epoch"
                );
                self.kept.epoch.save(&epoch)?;
            }
            Output::Greet {
                link,
                highest_epoch,
                attempts,
                gpu_states,
                said_at,
                supervisor,
            } => {
                let mut hello = self.hello(highest_epoch, attempts, said_at);
                hello.gpu_states = gpu_states;
                hello.supervisor = supervisor;
                self.say(link, ToLink::Hello(Box::new(hello)));
            }
            Output::Send { link, message } => self.say(link, ToLink::Say(message)),
            Output::Reject { link, message } => {
                warn!(%message, "the link is dropped");
                self.drop_link(link);
            }
            Output::Supervise(order) => self.order(order),
            Output::SetTimer { key, at } => {
                self.timers.insert(key, at);
            }
            // Where one is asked for already, that one will do.
            Output::LookAtGpus => drop(self.looks.try_send(())),
            Output::SaveGpus(kept) => self.kept.gpus.save(&kept),
            Output::KeepWarrant { attempt, warrant } => self.kept.warrants.keep(&attempt, &warrant),
            Output::ShowWarrant { link, attempt } => {
                let warrant = self.kept.warrants.of(&attempt);
                self.say(link, ToLink::Say(FromNode::Warrant { attempt, warrant }));
            }
        }
        Ok(())
    }

    fn hello(
        &self,
        highest_epoch: Option<sluice_common::epoch::SealedEpoch>,
        attempts: Vec<sluice_common::wire::AttemptStatus>,
        said_at: BootMillis,
    ) -> Hello {
        Hello {
            protocol: PROTOCOL_VERSION,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            node: self.identity.node.clone(),
            pool: self.identity.pool.clone(),
            labels: self.identity.labels.clone(),
            address: self.identity.address.clone(),
            boot_id: self.identity.boot_id.clone(),
            state_dir: self.identity.state_dir.clone(),
            highest_epoch,
            inventory: self.identity.inventory.clone(),
            attempts,
            gpu_states: GpuStates::default(),
            sent_at: said_at,
            supervisor: SupervisorState::Responding,
            challenge: *self.challenge.borrow(),
        }
    }

    /// Over the link that stands now; one that is made later begins with it.
    fn tell_inventory(&mut self) {
        if let Some((link, _)) = &self.link {
            let message = FromNode::Inventory(Box::new(self.identity.inventory.clone()));
            self.say(*link, ToLink::Say(message));
        }
    }

    /// They are told again soon: where there is no room for them, nothing is lost.
    fn tell_readings(&self) {
        if let (Some((_, outbox)), Some(readings)) = (&self.link, &self.readings) {
            let _ = outbox.try_send(ToLink::Say(FromNode::Readings(readings.clone())));
        }
    }

    fn say(&mut self, link: LinkId, message: ToLink) {
        let Some((current, outbox)) = &self.link else {
            return;
        };
        if *current == link && outbox.try_send(message).is_err() {
            warn!(
                "the coordinator does not take what it is told: the link is dropped and made anew"
            );
            self.drop_link(link);
        }
    }

    /// Its writer ends with its last sender, and the connection with its writer.
    fn drop_link(&mut self, link: LinkId) {
        if self
            .link
            .as_ref()
            .is_some_and(|(current, _)| *current == link)
        {
            self.link = None;
        }
    }

    fn order(&mut self, mut order: ToSupervisor) {
        if let ToSupervisor::Forget { attempt } = &order {
            self.kept.warrants.drop(attempt);
        }
        if let ToSupervisor::Spawn(spec) = &mut order {
            self.live.add(spec.attempt.clone());
            let (devices, unknown) =
                devices::of(&spec.launch_record.gpus, &self.identity.inventory.gpus);
            spec.devices = devices;
            for gpu in unknown {
                let AttemptId { step, number } = &spec.attempt;
                warn!(%step, attempt = number, gpu, "the device of a granted GPU is not known: a fenced step cannot open it");
            }
        }
        let Some(outbox) = &self.supervisor else {
            return;
        };
        if outbox.try_send(order).is_err() {
            warn!("the supervisor does not take what it is told: the connection is made anew");
            self.supervisor = None;
        }
    }
}

async fn sleep_until(due: Option<BootMillis>) {
    match due {
        Some(at) => tokio::time::sleep(clock::until(at)).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
