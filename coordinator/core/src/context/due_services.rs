//! The services for which something may be due, by the records of an input: those of a service itself, of the steps of its
//! replicas, and of the hosts on which these run.

use sluice_common::id::{NodeName, ServiceName, StepId};

use super::Context;
use crate::record::{Record, RecordSubject};
use crate::services::load::ServiceLoads;

impl Context {
    /// The first service for which something may be due.
    pub(crate) fn due_service(&self) -> Option<&ServiceName> {
        self.due_services.first()
    }

    pub(crate) fn set_service_due(&mut self, service: ServiceName) {
        self.due_services.insert(service);
    }

    pub(crate) fn set_all_services_due(&mut self) {
        let all = self.state.services().keys().cloned();
        self.due_services.extend(all);
    }

    pub(crate) fn set_service_settled(&mut self, service: &ServiceName) {
        self.due_services.remove(service);
    }

    /// Reports about the load of a service in this run.
    pub(crate) fn service_loads(&self, service: &ServiceName) -> Option<&ServiceLoads> {
        self.service_loads.get(service)
    }

    pub(crate) fn service_loads_mut(&mut self, service: &ServiceName) -> &mut ServiceLoads {
        self.service_loads.entry(service.clone()).or_default()
    }

    pub(crate) fn forget_service_loads(&mut self, service: &ServiceName) {
        self.service_loads.remove(service);
    }

    /// Notes the services that a record concerns, once it is applied.
    pub(super) fn note_due_services(&mut self, record: &Record) {
        if self.state.services().is_empty() {
            return;
        }
        if let Record::NodeReady { node }
        | Record::NodeReconciling { node }
        | Record::NodeUnsupervised { node, .. }
        | Record::NodeUnreachable { node }
        | Record::NodeLost { node } = record
        {
            self.note_node(node);
        }
        if let Record::RecoveryEnded { .. } = record {
            self.set_all_services_due();
        }
        if let RecordSubject::Service(service) = record.about() {
            self.set_service_due(service.clone());
        } else if let Some(step) = record.step() {
            self.note_replica(step);
        }
    }

    fn note_node(&mut self, node: &NodeName) {
        let attempts = self.state.attempts_on(node);
        let steps: alloc::vec::Vec<StepId> = attempts.map(|attempt| attempt.step.clone()).collect();
        steps.iter().for_each(|step| self.note_replica(step));
    }

    fn note_replica(&mut self, step: &StepId) {
        let step = self.state.step(step);
        if let Some(replica) = step.and_then(|step| step.spec.service.as_ref()) {
            self.due_services.insert(replica.name.clone());
        }
    }
}
