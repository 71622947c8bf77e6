//! The main loop, which owns the core. It passes events of the link and the supervisor to the core in order,
//! and performs the core's outputs in order.
//!
//! The loop never waits for a peer: if an outbox is full, the connection is dropped, and the next hello
//! repeats everything that matters. So a slow coordinator cannot block the supervisor or vice versa, and no
//! two tasks wait for each other.

mod devices;
mod endpoints;
mod execs;
mod host;
mod output;
mod report;

use std::collections::BTreeMap;
use std::sync::Arc;

use agent_core::{Core, Input, LinkId, Output, TimerKey};
use sluice_common::gpu_state::GpuStates;
use sluice_common::host_health::{HostHealth, SupervisorState};
use sluice_common::id::{AttemptId, BootId, NodeName, PoolName};
use sluice_common::image::ContainerRuntime;
use sluice_common::inventory::{Capability, Inventory, Mechanism, Readings};
use sluice_common::lease::Challenge;
use sluice_common::limit::MAX_ATTEMPTS_PER_NODE;
use sluice_common::probe::ProbeKind;
use sluice_common::supervision::{BootMillis, ToSupervisor};
use sluice_common::wire::{AttemptPhase, FromNode, Hello, PROTOCOL_VERSION};
use tokio::sync::{mpsc, watch};
use tracing::{info, warn};

use crate::clock;
use crate::epoch::EpochError;
use crate::event::{Event, ToLink};
use crate::gpu_usage::GpuUsage;
use crate::input_fetch::InputReceiver;
use crate::logs::WritingAttempts;
use crate::probes::ProbeOrder;
use crate::state_files::StateFiles;

pub(crate) use endpoints::PortsAndProbes;
use output::writes;
use report::{AttemptLog, ChangedAttempts, assigned};

/// Most queued events. If the queue is full, the sending tasks wait, which slows their peers down.
pub(crate) const INBOX: usize = 1024;
/// Most queued messages for one peer: every attempt of a full host may change twice.
pub(crate) const OUTBOX: usize = 2 * MAX_ATTEMPTS_PER_NODE;

/// The host's part of a hello, which changes only with the host or its config.
#[derive(Debug)]
pub(crate) struct HostIdentity {
    pub(crate) node: NodeName,
    pub(crate) pool: PoolName,
    pub(crate) labels: BTreeMap<String, String>,
    /// Address at which the other hosts of a gang reach this one.
    pub(crate) address: String,
    pub(crate) boot_id: BootId,
    pub(crate) state_dir: String,
    pub(crate) inventory: Inventory,
    /// Whether the inventory was declared: then nothing that is detected is added.
    pub(crate) is_declared: bool,
}

/// Signals of the loop to other tasks of the agent.
#[derive(Debug)]
pub(crate) struct EngineSignals {
    /// Requests a GPU scan.
    pub(crate) looks: mpsc::Sender<()>,
    /// Turns true when a coordinator can be greeted: the supervisor has answered, or its absence is reported.
    pub(crate) can_greet: watch::Sender<bool>,
}

pub(crate) struct Engine {
    core: Core,
    identity: HostIdentity,
    kept: StateFiles,
    /// Requests a GPU scan.
    looks: mpsc::Sender<()>,
    live: Arc<WritingAttempts>,
    link: Option<(LinkId, mpsc::Sender<ToLink>)>,
    supervisor: Option<mpsc::Sender<ToSupervisor>>,
    can_greet: watch::Sender<bool>,
    /// The newest challenge of the supervisor.
    challenge: watch::Sender<Option<Challenge>>,
    readings: Option<Readings>,
    gpu_usage: GpuUsage,
    /// Result of the host's health check, if known.
    health: Option<HostHealth>,
    /// The supervisor's mechanisms; empty until it has connected.
    capabilities: BTreeMap<Capability, Mechanism>,
    /// Whether the supervisor's config allows GPUs to be cut.
    carves_gpus: bool,
    timers: BTreeMap<TimerKey, BootMillis>,
    report: AttemptLog,
    execs: execs::PendingExecs,
    inputs: InputReceiver,
    probes: PortsAndProbes,
}

impl Engine {
    pub(crate) fn new(
        core: Core,
        identity: HostIdentity,
        kept: StateFiles,
        live: Arc<WritingAttempts>,
        EngineSignals { looks, can_greet }: EngineSignals,
        inputs: InputReceiver,
        probes: PortsAndProbes,
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
            gpu_usage: GpuUsage::default(),
            health: None,
            capabilities: BTreeMap::new(),
            carves_gpus: false,
            timers: BTreeMap::new(),
            report: AttemptLog::default(),
            execs: execs::PendingExecs::default(),
            inputs,
            probes,
        }
    }

    /// The supervisor's challenge to be signed; `None` while it is disconnected.
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
                carves_gpus,
                outbox,
            } => {
                self.supervisor = Some(outbox);
                self.on_capabilities(capabilities, carves_gpus);
                self.on_supervisor_up(Input::SupervisorUp { boot_id, attempts })
            }
            Event::Readings(readings) => {
                self.readings = Some(*readings);
                self.tell_readings();
                Ok(())
            }
            Event::Usage(event) => {
                self.on_usage(event);
                Ok(())
            }
            Event::Asked(answer) => {
                let _nobody_waits_any_more = answer.send(());
                Ok(())
            }
            Event::Checkpoint { attempt, ago } => {
                self.tell_checkpoint(attempt, ago);
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
                self.search_ports(&input)?;
                let assigned = assigned(&input);
                self.feed(input)?;
                self.expect_output(assigned);
                Ok(())
            }
        }
    }

    /// Handles an input before the core does.
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
            | Input::Carved { .. }
            | Input::Looked { .. }
            | Input::Tuned(_)
            | Input::Inputs { .. }
            | Input::FreePorts(_)
            | Input::Probed { .. }
            | Input::Timer(_) => {}
        }
    }

    /// Removes the timers of an attempt without processes, because each event checks all timers.
    fn disarm(&mut self, attempt: &AttemptId) {
        self.timers.remove(&TimerKey::Grace(attempt.clone()));
        self.timers.remove(&TimerKey::Timeout(attempt.clone()));
        self.timers.remove(&TimerKey::Endpoint(attempt.clone()));
        for kind in ProbeKind::ALL {
            self.timers.remove(&TimerKey::Probe(attempt.clone(), kind));
        }
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
        let touched = ChangedAttempts::by(&input);
        self.core.handle(clock::now(), input);
        self.forget_output(&touched);
        self.report.tell(&self.core, touched);
        let can_greet = self.core.can_greet();
        self.can_greet
            .send_if_modified(|known| !std::mem::replace(known, can_greet) && can_greet);
        let outputs: Vec<Output> = self.core.outputs().collect();
        outputs
            .into_iter()
            .try_for_each(|output| self.act(output))?;
        let core = &self.core;
        self.inputs
            .keep(|id| core.status(id).is_some_and(|it| may_open_inputs(&it)));
        Ok(())
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
                warn!(%message, "the link is closed");
                self.drop_link(link);
            }
            Output::Supervise(order) => self.order(order),
            Output::SetTimer { key, at } => {
                self.timers.insert(key, at);
            }
            // If a request is pending, it serves both.
            Output::ScanGpus => drop(self.looks.try_send(())),
            Output::FetchInputs { attempt, files } => self.inputs.begin(attempt, files),
            Output::SaveGpus(kept) => self.kept.gpus.save(&kept),
            Output::KeepEndpoint { attempt, endpoint } => {
                self.kept.endpoints.keep(&attempt, *endpoint);
            }
            Output::Probe {
                attempt,
                kind,
                number,
                check,
                timeout,
            } => self.probes.probe_runner.begin(ProbeOrder {
                attempt,
                kind,
                number,
                check,
                timeout,
            }),
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

    fn say(&mut self, link: LinkId, message: ToLink) {
        let Some((current, outbox)) = &self.link else {
            return;
        };
        if *current == link && outbox.try_send(message).is_err() {
            warn!(
                "the coordinator does not read its messages: the link is closed and opened again"
            );
            self.drop_link(link);
        }
    }

    /// Dropping the sender ends the writer task, and with it the connection.
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
            self.kept.endpoints.drop(attempt);
        }
        if let ToSupervisor::Spawn(spec) = &mut order {
            self.live.add(spec.attempt.clone());
            let (devices, unknown) =
                devices::of(&spec.launch_record.gpus, &self.identity.inventory.gpus);
            spec.devices = devices;
            if let Some(container) = &mut spec.container {
                let runtimes = &self.identity.inventory.container_runtimes;
                container.runtime = ContainerRuntime::choose(container.image.form(), runtimes);
            }
            for gpu in unknown {
                let AttemptId { step, number } = &spec.attempt;
                warn!(%step, attempt = number, gpu, "the device node of an allocated GPU is unknown: a step with a device filter cannot open it");
            }
        }
        let Some(outbox) = &self.supervisor else {
            return;
        };
        if outbox.try_send(order).is_err() {
            warn!(
                "the supervisor does not read its messages: the connection is closed and opened again"
            );
            self.supervisor = None;
        }
    }
}

/// Whether the supervisor may still open the inputs of an attempt: until its program was seen, also if it is stopped
/// before that.
fn may_open_inputs(phase: &AttemptPhase) -> bool {
    matches!(
        phase,
        AttemptPhase::Starting | AttemptPhase::Stopping { started: None, .. }
    )
}

async fn sleep_until(due: Option<BootMillis>) {
    match due {
        Some(at) => tokio::time::sleep(clock::until(at)).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
