//! Applies records of services.

use alloc::collections::BTreeMap;
use alloc::string::String;

use sluice_common::id::{ServiceName, StepId};
use sluice_common::step::StepSpec;
use sluice_common::time::Time;

use super::{ApplyResult, Mismatch, RecordRef, need};
use crate::model::service::{
    EndedService, Replica, ReplicaBackoff, ReplicaPhase, Revision, Rollout, RolloutPhase, Service,
};
use crate::record::{
    ReplicaChanged, ReplicaEnded, ReplicaFailed, ReplicaStarted, ServiceDeleted, ServicePut,
    ServiceScale,
};
use crate::state::State;

/// Most deleted services whose counters are kept: those that were deleted last.
const MAX_RETIRED_KEPT: usize = 10_000;

/// Numbers that are passed over after a restore, because the lost part of the log may have used them.
const RECOVERY_GAP: u32 = 1_000;

impl State {
    pub(super) fn on_service_put(&mut self, at: Time, it: &ServicePut) -> ApplyResult {
        let retired = self.stored.retired_services.remove(&it.service);
        let known = self.stored.services.remove(&it.service);
        let next_replica = retired.map_or(1, |retired| retired.next_replica);
        let seq = self.stored.seq;
        let mut service = known.unwrap_or_else(|| Service {
            scale: it.spec.scale.clone(),
            rollout_spec: it.spec.rollout,
            placement: it.spec.placement,
            version: seq,
            made_at: at,
            revision: 0,
            revisions: BTreeMap::new(),
            count: it.spec.scale.count(None),
            next_replica,
            replicas: BTreeMap::new(),
            rollout: new_rollout(at),
            backoff: ReplicaBackoff::default(),
            deleting_since: None,
        });
        need(service.deleting_since.is_none(), || missing(&it.service))?;
        service.version = seq;
        service.scale = it.spec.scale.clone();
        service.count = service.scale.count(Some(service.count));
        service.rollout_spec = it.spec.rollout;
        service.placement = it.spec.placement;
        if it.revision != service.revision {
            service.revisions.insert(
                it.revision,
                Revision {
                    spec: it.spec.replica.clone(),
                    made_at: at,
                },
            );
            service.revision = it.revision;
            service.backoff = ReplicaBackoff {
                last: service.backoff.last.take(),
                ..ReplicaBackoff::default()
            };
            service.rollout = Rollout {
                stable: service.rollout.stable,
                rolled_back: it.rolled_back.clone(),
                ..new_rollout(at)
            };
        }
        if let Some(old) = it.forgets {
            service.revisions.remove(&old);
        }
        self.stored.services.insert(it.service.clone(), service);
        Ok(())
    }

    /// A number that follows the load is no new version for callers who change the service.
    pub(super) fn on_service_scaled(&mut self, it: &ServiceScale) -> ApplyResult {
        let (seq, count) = (self.stored.seq, it.count);
        let service = self.service_mut(&it.service)?;
        if it.load.is_none() {
            service.version = seq;
        }
        service.count = count;
        if service.scale.fixed {
            (service.scale.min, service.scale.max) = (count, count);
        }
        Ok(())
    }

    pub(super) fn on_service_deleting(&mut self, at: Time, name: &ServiceName) -> ApplyResult {
        let service = self.service_mut(name)?;
        service.deleting_since.get_or_insert(at);
        Ok(())
    }

    pub(super) fn on_service_deleted(&mut self, it: &ServiceDeleted) -> ApplyResult {
        let service = self.stored.services.remove(&it.service);
        let service = service.filter(|service| service.replicas.is_empty());
        let service = service.ok_or_else(|| missing(&it.service))?;
        let retired = &mut self.stored.retired_services;
        if retired.len() >= MAX_RETIRED_KEPT {
            let oldest = retired.iter().min_by_key(|(_, retired)| retired.seq);
            let oldest = oldest.map(|(name, _)| name.clone());
            oldest.map(|name| retired.remove(&name));
        }
        retired.insert(
            it.service.clone(),
            EndedService {
                seq: self.stored.seq,
                next_replica: service.next_replica,
                next_revision: service.next_revision(),
            },
        );
        Ok(())
    }

    pub(super) fn on_replica_started(&mut self, at: Time, it: &ReplicaStarted) -> ApplyResult {
        let service = self.service_mut(&it.service)?;
        need(!service.replicas.contains_key(&it.number), || {
            Mismatch::There(RecordRef::Step(it.replica.clone()))
        })?;
        service.next_replica = service.next_replica.max(it.number.saturating_add(1));
        service.replicas.insert(
            it.number,
            Replica {
                step: it.replica.clone(),
                revision: it.revision,
                added_at: at,
                phase: ReplicaPhase::Starting,
            },
        );
        Ok(())
    }

    pub(super) fn on_replica_changed(&mut self, at: Time, it: &ReplicaChanged) -> ApplyResult {
        let service = self.service_mut(&it.service)?;
        let is_wanted = |replica: &Replica| replica.revision == service.revision;
        let progresses =
            service.replicas.get(&it.number).is_some_and(is_wanted) && it.phase.is_serving();
        let replica = service.replicas.get_mut(&it.number);
        let replica = replica.ok_or_else(|| Mismatch::from(RecordRef::Step(it.replica.clone())))?;
        replica.phase = it.phase;
        if progresses {
            service.rollout.progress_at = at;
        }
        Ok(())
    }

    pub(super) fn on_replica_ended(&mut self, at: Time, it: &ReplicaEnded) -> ApplyResult {
        let service = self.service_mut(&it.service)?;
        let replica = service.replicas.remove(&it.number);
        let replica = replica.ok_or_else(|| Mismatch::from(RecordRef::Step(it.replica.clone())))?;
        if replica.phase.is_draining() {
            service.rollout.progress_at = at;
        }
        Ok(())
    }

    pub(super) fn on_replica_failed(&mut self, at: Time, it: &ReplicaFailed) -> ApplyResult {
        let service = self.service_mut(&it.service)?;
        service.backoff = ReplicaBackoff {
            failures: it.failures,
            raised_at: at,
            restart_at: it.restart_at,
            last: Some(it.failure.clone()),
        };
        Ok(())
    }

    pub(super) fn on_service_recovered(&mut self, name: &ServiceName) -> ApplyResult {
        let service = self.service_mut(name)?;
        service.backoff.failures = 0;
        Ok(())
    }

    pub(super) fn on_rollout_ended(
        &mut self,
        name: &ServiceName,
        stalled: Option<&String>,
    ) -> ApplyResult {
        let service = self.service_mut(name)?;
        service.rollout.phase = match stalled {
            Some(why) => RolloutPhase::Stalled { why: why.clone() },
            None => RolloutPhase::Complete,
        };
        if stalled.is_none() {
            service.rollout.stable = Some(service.revision);
        }
        Ok(())
    }

    /// Gives each change of version its whole time again, because no replica could become ready meanwhile.
    pub(super) fn renew_rollouts(&mut self) {
        let now = self.stored.clock;
        for service in self.stored.services.values_mut() {
            let rollout = &mut service.rollout;
            rollout.progress_at = rollout.progress_at.max(now);
        }
    }

    /// Passes over numbers of replicas that a lost part of the log may have used.
    pub(super) fn skip_replica_numbers(&mut self) {
        for service in self.stored.services.values_mut() {
            service.next_replica = service.next_replica.saturating_add(RECOVERY_GAP);
        }
    }

    /// Counts an adopted step as a replica again, if it was one of a service that is known.
    pub(super) fn claim_replica(&mut self, at: Time, step: &StepId, spec: &StepSpec) {
        let Some(place) = &spec.service else {
            return;
        };
        let Some(service) = self.stored.services.get_mut(&place.name) else {
            return;
        };
        service.next_replica = service.next_replica.max(place.number.saturating_add(1));
        let replica = service.replicas.entry(place.number);
        replica.or_insert_with(|| Replica {
            step: step.clone(),
            revision: place.revision,
            added_at: at,
            phase: ReplicaPhase::Starting,
        });
    }

    fn service_mut(&mut self, name: &ServiceName) -> Result<&mut Service, Mismatch> {
        let service = self.stored.services.get_mut(name);
        service.ok_or_else(|| missing(name))
    }
}

fn new_rollout(at: Time) -> Rollout {
    Rollout {
        phase: RolloutPhase::Rolling,
        began_at: at,
        progress_at: at,
        stable: None,
        rolled_back: None,
    }
}

fn missing(name: &ServiceName) -> Mismatch {
    RecordRef::Service(name.clone()).into()
}
