//! The host for the coordinator: hardware, labels, readings and health, and the supervisor's part of these.

use std::collections::BTreeMap;

use agent_core::Input;
use sluice_common::id::AttemptId;
use sluice_common::inventory::{Capability, Mechanism};
use sluice_common::supervision::ToSupervisor;
use sluice_common::time::Span;
use sluice_common::usage::UsageReport;
use sluice_common::wire::FromNode;

use super::Engine;
use crate::clock;
use crate::epoch::EpochError;
use crate::event::{ToLink, UsageEvent};

impl Engine {
    pub(super) fn on_supervisor_up(&mut self, input: Input) -> Result<(), EpochError> {
        self.feed(input)?;
        let known = self.core.statuses().map(|status| status.attempt);
        let known = known.collect();
        self.kept.warrants.retain(&known);
        self.kept.endpoints.retain(&known);
        self.live.replace(self.unreleased());
        self.order(ToSupervisor::Challenge);
        Ok(())
    }

    /// The supervisor's capabilities replace the detected ones.
    pub(super) fn on_capabilities(
        &mut self,
        found: BTreeMap<Capability, Mechanism>,
        carves_gpus: bool,
    ) {
        let before = self.identity.inventory.clone();
        self.capabilities = found;
        self.carves_gpus = carves_gpus;
        self.claim_capabilities();
        if self.identity.inventory != before {
            self.tell_inventory();
        }
    }

    /// A later link starts with the new labels.
    pub(super) fn on_labels(&mut self, labels: BTreeMap<String, String>) {
        if self.identity.labels == labels {
            return;
        }
        self.identity.labels = labels.clone();
        if let Some((link, _)) = &self.link {
            self.say(*link, ToLink::Say(FromNode::Labels(labels)));
        }
    }

    pub(super) fn claim_capabilities(&mut self) {
        if !self.identity.is_declared && !self.capabilities.is_empty() {
            self.identity.inventory.capabilities = self.capabilities.clone();
            self.identity.inventory.carves_gpus = self.carves_gpus;
        }
    }

    pub(super) fn tell_health(&mut self) {
        if let (Some((link, _)), Some(health)) = (&self.link, &self.health) {
            self.say(*link, ToLink::Say(FromNode::Health(health.clone())));
        }
    }

    /// Sends over the current link; a later one starts with the new inventory.
    pub(super) fn tell_inventory(&mut self) {
        if let Some((link, _)) = &self.link {
            let message = FromNode::Inventory(Box::new(self.identity.inventory.clone()));
            self.say(*link, ToLink::Say(message));
        }
    }

    /// A report that does not fit into the queue is dropped, because the agent repeats it.
    pub(super) fn tell_checkpoint(&self, attempt: AttemptId, ago: Span) {
        if let Some((_, outbox)) = &self.link {
            let _ = outbox.try_send(ToLink::Say(FromNode::Checkpoint { attempt, ago }));
        }
    }

    pub(super) fn on_usage(&mut self, event: UsageEvent) {
        match event {
            UsageEvent::Measured(usages) => self.on_measured(usages),
            UsageEvent::Metrics(usages) => self.tell_usages(usages),
            UsageEvent::Gpus(usage) => self.gpu_usage = *usage,
        }
    }

    /// Reports what replicas of services use, with their GPUs, and begins to read the metrics that they serve.
    fn on_measured(&self, mut usages: Vec<UsageReport>) {
        usages.retain(|report| self.core.is_measured(&report.attempt));
        let by = self.capabilities.get(&Capability::Kill);
        let has_groups = matches!(by, Some(Mechanism::Cgroup2 | Mechanism::Cgroup1));
        let now = clock::boot();
        for report in &mut usages {
            let (attempt, gpus) = (&report.attempt, self.core.gpus_of(&report.attempt));
            report.gpu_milli = self.gpu_usage.busy_milli(attempt, gpus, has_groups, now);
        }
        self.tell_usages(usages);
        self.probes.metric_reader.begin(self.core.metrics());
    }

    /// A report that does not fit into the queue is dropped, as with readings.
    fn tell_usages(&self, usages: Vec<UsageReport>) {
        if let Some((_, outbox)) = self.link.as_ref().filter(|_| !usages.is_empty()) {
            let _ = outbox.try_send(ToLink::Say(FromNode::Usages(usages)));
        }
    }

    /// A report that does not fit into the queue is dropped, because the next one follows soon.
    pub(super) fn tell_readings(&self) {
        if let (Some((_, outbox)), Some(readings)) = (&self.link, &self.readings) {
            let _ = outbox.try_send(ToLink::Say(FromNode::Readings(readings.clone())));
        }
    }
}
