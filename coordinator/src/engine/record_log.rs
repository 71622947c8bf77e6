//! Logs committed records for admins: one line for each that is an event, never before its commit, without the
//! environments and commands of steps.
//!
//! Thousands of steps may come in a minute, so nothing is formatted unless the line is written.

use coordinator_core::record::{
    Adopted, Allocated, CarvingFailed, Ended, GpusCordoned, JoinRefused, JoinTokenUsed,
    NodeDraining, NotSuspended, PoolPut, Started, StepQueued, Suspended, Suspending,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use coordinator_core::{
    HELD_BACK, JoinTokenMade, LogEntry, Placement, Record, RecoveryCause, RecoveryEnd,
    ReplicaPhase, State,
};
use sluice_common::access::AuditEntry;
use sluice_common::api::timestamp;
use sluice_common::gpu_state::GpuStates;
use sluice_common::id::{AttemptId, NodeName, StepId};
use sluice_common::inventory::Inventory;
use sluice_common::state::{NodeState, StepState};
use sluice_common::step::StepSpec;
use sluice_common::time::Span;
use sluice_common::wire::{AttemptEnd, StopReason};
use sluice_reasons::Cause;
use tracing::{Level, debug, enabled, info, warn};

/// Logs committed records. Remembers the last state of each node, because a record has only the new one.
#[derive(Debug)]
pub(super) struct RecordLogger {
    nodes: BTreeMap<NodeName, NodeState>,
    /// Nodes whose changes are held back because they change too often.
    held_back: BTreeSet<NodeName>,
}

impl RecordLogger {
    /// Starts from a state of which nothing was logged.
    pub(super) fn new(state: &State) -> Self {
        let nodes = state.nodes().iter();
        Self {
            nodes: nodes.map(|(name, n)| (name.clone(), n.state)).collect(),
            held_back: BTreeSet::new(),
        }
    }

    /// Logs one line for each event in `records`; `state` is the state after all of them.
    pub(super) fn log(&mut self, state: &State, records: &[LogEntry]) {
        if enabled!(Level::WARN) {
            for stamped in records {
                self.log_record(state, &stamped.record);
            }
        }
    }

    fn log_record(&mut self, state: &State, record: &Record) {
        match record {
            Record::CoordinatorStarted { epoch, .. } => {
                info!(epoch = epoch.counter, "coordinator started");
            }
            Record::ClockJumped(jump) => clock_jumped(jump.by),
            Record::RecoveryBegan { why, .. } => recovery_began(*why),
            Record::RecoveryEnded { end } => recovery_ended(*end),
            Record::Adopted(Adopted {
                attempt: AttemptId { step, number },
                node,
                warrant,
                ..
            }) => {
                let pool = &warrant.pool;
                info!(%step, attempt = number, %pool, %node, gpus = gpus(&warrant.placements), "step adopted");
            }
            Record::ClusterPut { .. } => info!("settings of the cluster set"),
            Record::TopologyPut { .. } => info!("topology set"),
            Record::ValidationPut { validation, .. } => info!(%validation, "validation set"),
            Record::ValidationDeleted { validation } => info!(%validation, "validation deleted"),
            Record::TemplatePut { template, .. } => info!(%template, "template set"),
            Record::TemplateDeleted { template } => info!(%template, "template deleted"),
            Record::AccessChanged { change } => info!("access changed: {}", change.about()),
            Record::Audited { entry } if !entry.allowed => {
                let AuditEntry {
                    who,
                    from,
                    verb,
                    resource,
                    ..
                } = entry;
                info!(who, from, %verb, %resource, "refused");
            }
            Record::Audited { .. } => {}
            Record::PoolPut(PoolPut { pool, .. }) => info!(%pool, "pool set"),
            Record::PlatformPut(it) => {
                info!(pool = %it.pool, platform = %it.platform, "platform set");
            }
            Record::PlatformDeleted { pool, platform } => {
                info!(%pool, %platform, "platform deleted")
            }
            Record::PolicyPut(it) => info!(pool = %it.pool, subject = %it.subject, "policy set"),
            Record::PoolDeleted { pool } => info!(%pool, "pool deleted"),
            Record::PolicyDeleted { pool, subject } => info!(%pool, %subject, "policy deleted"),
            Record::NodeReported(it) => {
                self.on_reported(&it.node, it.pool.as_str(), &it.version, &it.inventory);
            }
            Record::NodeReady { node } => self.on_node(node, NodeState::Ready),
            Record::NodeReconciling { node } => self.on_node(node, NodeState::Reconciling),
            Record::NodeUnsupervised { node, why } => {
                self.nodes.insert(node.clone(), NodeState::Unsupervised);
                warn!(%node, "node has no supervisor, so it gets no new work: {why}");
            }
            Record::NodeUnreachable { node } => self.on_node(node, NodeState::Unreachable),
            Record::NodeLost { node } => self.on_node(node, NodeState::Lost),
            Record::StepQueued(StepQueued { step, spec, .. }) => accepted(step, spec),
            Record::PartQueued(it) => debug!(step = %it.step, "part queued"),
            Record::PartsEnded(it) => {
                info!(step = %it.step, count = it.parts.len(), state = %it.state, "waiting parts ended");
            }
            Record::StepRejected(it) => rejected(&it.step, &it.spec, &it.reason),
            Record::Allocated(Allocated {
                attempt,
                pool,
                placements,
                ..
            }) => {
                let AttemptId { step, number } = attempt;
                info!(%step, attempt = number, %pool, node = %HostList(placements), gpus = gpus(placements), "step allocated");
            }
            Record::Nominated { step, .. } => debug!(%step, "step nominated for a place"),
            Record::Withdrawn { step } => debug!(%step, "nomination of a step ended"),
            Record::Starting {
                attempt: AttemptId { step, number },
                node,
            } => {
                debug!(%step, attempt = number, %node, "step starting");
            }
            Record::Started(Started {
                attempt: AttemptId { step, number },
                node,
                process,
            }) => {
                info!(%step, attempt = number, %node, pid = process.pid, "step started");
            }
            Record::Checkpointed {
                attempt: AttemptId { step, number },
                ..
            } => debug!(%step, attempt = number, "step saved its work"),
            Record::Stopping(it) => stopping(&it.attempt, it.why, it.by.as_ref()),
            Record::Ended(Ended {
                attempt: AttemptId { step, number },
                node,
                end,
            }) => {
                let (exit_code, signal) = (end.exit.code(), end.exit.signal());
                let duration_ms = duration_ms(end);
                debug!(%step, attempt = number, %node, exit_code, signal, duration_ms, "attempt ended");
            }
            Record::Released(it) => {
                let AttemptId { step, number } = &it.attempt;
                debug!(%step, attempt = number, node = %it.node, "resources released");
            }
            Record::DependencyMet { step, on } => info!(%step, %on, "dependency met"),
            Record::BeginReached { step } => info!(%step, "begin reached"),
            Record::StepMoved(it) => info!(step = %it.step, pool = %it.pool, "step moved"),
            Record::Requeued { step, reason } => requeued(state, step, reason),
            Record::StepEnded(it) => ended(state, &it.step, it.state, &it.reason),
            Record::StepForgotten { step, deleted } => debug!(%step, deleted, "step forgotten"),
            Record::NodeCordoned { node, reason } => info!(%node, why = %reason, "node cordoned"),
            Record::NodeDraining(NodeDraining {
                node,
                reason,
                deadline,
            }) => {
                let deadline = deadline.map(|at| timestamp(at).to_string());
                info!(%node, why = %reason, deadline, "node draining");
            }
            Record::NodeMoving { node, pool } => info!(%node, %pool, "node is to change its pool"),
            Record::NodeMoved { node, pool } => info!(%node, %pool, "node moved to another pool"),
            Record::NodeUncordoned { node } => info!(%node, "node uncordoned"),
            Record::NodeLabelled(it) => info!(node = %it.node, "node labelled"),
            Record::NodeLeaving { node } => info!(%node, "node is forgotten once it is lost"),
            Record::NodeDeleted { node } => {
                self.nodes.remove(node);
                info!(%node, "node deleted");
            }
            Record::NodeDrained { node } => info!(%node, "node drained: nothing is left on it"),
            Record::JoinTokenMade(JoinTokenMade { token, pool, .. }) => {
                let pool = pool.as_ref().map(ToString::to_string);
                info!(%token, pool, "join token made");
            }
            Record::JoinTokenUsed(JoinTokenUsed { token, node, .. }) => {
                info!(%token, %node, "host joined by a token");
            }
            Record::JoinTokenRevoked { token } => info!(%token, "join token revoked"),
            Record::JoinRefused(JoinRefused { token, node, why }) => {
                debug!(%token, %node, "host may not join: {why}");
            }
            // The session that was refused has logged it.
            Record::NodeRefused { .. } => {}
            Record::NodeRevoked { node, .. } => info!(%node, "access of the node ended"),
            Record::Held { step } => info!(%step, "step held"),
            Record::Renewed(it) => debug!(step = %it.step, "allocation renewed"),
            Record::Unheld { step } => info!(%step, "step released"),
            Record::GpusReported { .. }
            | Record::GpusCordoned(_)
            | Record::GpusUncordoned { .. }
            | Record::GpuCarving { .. }
            | Record::GpuCarved { .. }
            | Record::GpuNotCarved(_) => log_gpus(record),
            Record::PortsAllocated(_)
            | Record::ReadinessChanged(_)
            | Record::Suspending(_)
            | Record::Suspended(_)
            | Record::Resuming { .. }
            | Record::Resumed { .. }
            | Record::NotSuspended(_) => log_running(record),
            Record::ServicePut(_)
            | Record::ServiceScaled(_)
            | Record::ServiceDeleting { .. }
            | Record::ServiceDeleted(_)
            | Record::ReplicaStarted(_)
            | Record::ReplicaChanged(_)
            | Record::ReplicaEnded(_)
            | Record::ReplicaFailed(_)
            | Record::ServiceRecovered { .. }
            | Record::RolloutEnded { .. } => log_service(record),
        }
    }

    fn on_reported(&mut self, node: &NodeName, pool: &str, version: &str, has: &Inventory) {
        let (cpus, gpus) = (has.cpus, has.gpus.len());
        if !has.notes.iter().any(|note| note == HELD_BACK) {
            self.held_back.remove(node);
        } else if self.held_back.insert(node.clone()) {
            warn!(%node, "{HELD_BACK}");
        }
        if self.nodes.contains_key(node) {
            info!(%node, pool, version, cpus, gpus, "node changed");
        } else {
            info!(%node, pool, version, cpus, gpus, "node joined");
            // Holds until the next record of the node: it gets no work yet.
            self.nodes.insert(node.clone(), NodeState::Reconciling);
        }
    }

    fn on_node(&mut self, node: &NodeName, now: NodeState) {
        let before = self.nodes.insert(node.clone(), now);
        match (now, before) {
            (NodeState::Ready, Some(NodeState::Unreachable)) => info!(%node, "node is back"),
            (NodeState::Ready, Some(NodeState::Lost)) => {
                info!(%node, "node is back after it was lost");
            }
            (NodeState::Ready, _) => info!(%node, "node is ready"),
            (NodeState::Reconciling, _) => {
                info!(%node, "node still holds steps that were ended: no new work until they are gone");
            }
            (NodeState::Unsupervised, _) => {}
            (NodeState::Unreachable, _) => warn!(%node, "node unreachable: no new work"),
            (NodeState::Lost, _) => warn!(%node, "node lost: its steps restart elsewhere"),
        }
    }
}

/// Logs a record of a service.
fn log_service(record: &Record) {
    match record {
        Record::ServicePut(it) => {
            let (service, revision) = (&it.service, it.revision);
            match &it.rolled_back {
                None => info!(%service, revision, "service set"),
                Some(back) => warn!(%service, revision, "service went back: {}", back.why),
            }
        }
        Record::ServiceScaled(it) => {
            info!(service = %it.service, count = it.count, "service scaled");
        }
        Record::ServiceDeleting { service } => info!(%service, "service is being deleted"),
        Record::ServiceDeleted(it) => info!(service = %it.service, "service deleted"),
        Record::ReplicaStarted(it) => {
            debug!(service = %it.service, step = %it.replica, revision = it.revision, "replica added");
        }
        Record::ReplicaChanged(it) => {
            let (service, step) = (&it.service, &it.replica);
            match it.phase {
                ReplicaPhase::Serving { .. } => info!(%service, %step, "replica is ready"),
                ReplicaPhase::Starting => info!(%service, %step, "replica is not ready"),
                ReplicaPhase::Draining { .. } => info!(%service, %step, "replica is drained"),
            }
        }
        Record::ReplicaEnded(it) => {
            debug!(service = %it.service, step = %it.replica, "replica ended")
        }
        Record::ReplicaFailed(it) => {
            let (service, step) = (&it.service, &it.failure.step);
            let failures = it.failures;
            warn!(%service, %step, failures, "replica failed: {}", it.failure.end.message());
        }
        Record::ServiceRecovered { service } => info!(%service, "service has recovered"),
        Record::RolloutEnded {
            service,
            revision,
            stalled,
        } => match stalled {
            None => info!(%service, revision, "version of the service is complete"),
            Some(why) => warn!(%service, revision, "version of the service stalls: {why}"),
        },
        _ => {}
    }
}

/// Logs a record of GPUs.
fn log_gpus(record: &Record) {
    match record {
        Record::GpusReported { node, states } => gpus_reported(node, states),
        Record::GpusCordoned(GpusCordoned { node, gpus, reason }) => {
            info!(%node, gpus = gpus.join(","), why = %reason, "GPU cordoned");
        }
        Record::GpusUncordoned { node, gpus } => {
            info!(%node, gpus = gpus.join(","), "GPU uncordoned");
        }
        Record::GpuCarving { node, order } => {
            info!(%node, gpu = order.gpu, layout = %order.layout, "GPU is being cut");
        }
        Record::GpuCarved { node, gpu } => info!(%node, gpu, "GPU is cut"),
        Record::GpuNotCarved(CarvingFailed {
            node,
            gpu,
            why,
            is_restored,
            ..
        }) => warn!(%node, gpu, restored = is_restored, "GPU is not cut: {why}"),
        _ => {}
    }
}

fn gpus_reported(node: &NodeName, states: &GpuStates) {
    if states.faults.is_empty() {
        info!(%node, "every GPU of the node can be allocated");
    }
    for (gpu, fault) in &states.faults {
        warn!(%node, %gpu, "GPU cannot be allocated: {fault}");
    }
}

fn clock_jumped(by: Span) {
    warn!(
        %by,
        "the machine's clock is ahead of what is known to have passed since the last record: it was set meanwhile, or the \
         machine was restarted and nothing has set its clock by the network's since; no step's waiting time counts the \
         difference"
    );
}

fn recovery_began(why: RecoveryCause) {
    let why = match why {
        RecoveryCause::Restored => "the store was restored from a backup",
        RecoveryCause::StoreLost => "the store is new and the cluster is not",
        RecoveryCause::LaterEpoch => "a host has obeyed a later coordinator",
    };
    warn!(
        "recovering: {why}; nothing new starts until hosts have reported what they run, or that has stopped"
    );
}

fn recovery_ended(end: RecoveryEnd) {
    match end {
        RecoveryEnd::Complete => info!("recovered: queued steps may start"),
        RecoveryEnd::Ordered => {
            warn!(
                "the recovery was ended by an admin: steps that no host has reported yet are stopped"
            )
        }
    }
}

fn accepted(step: &StepId, spec: &StepSpec) {
    let pool = spec.pool.as_ref().map(|pool| pool.as_str());
    info!(%step, subject = %spec.subject, pool, name = %spec.name, "step accepted");
}

fn rejected(step: &StepId, spec: &StepSpec, why: &Cause) {
    let pool = spec.pool.as_ref().map(|pool| pool.as_str());
    info!(%step, subject = %spec.subject, pool, reason = why.code().as_str(), why = %why.to_reason().message, "step rejected");
}

fn stopping(attempt: &AttemptId, why: StopReason, by: Option<&StepId>) {
    let AttemptId { step, number } = attempt;
    let by = by.map(StepId::as_str);
    match why {
        StopReason::Preempted => info!(%step, attempt = number, by, "step preempted"),
        StopReason::Cancelled => info!(%step, attempt = number, "step stopping: it was cancelled"),
        StopReason::TimedOut => info!(%step, attempt = number, "step stopping: it timed out"),
        StopReason::Drained => info!(%step, attempt = number, "step stopping: its host is drained"),
        StopReason::GpuLost => info!(%step, attempt = number, "step stopping: a GPU of it is lost"),
        StopReason::PeerEnded => {
            info!(%step, attempt = number, "step stopping: a part of it on another host ended");
        }
        StopReason::Requeued => info!(%step, attempt = number, "step stopping: it is requeued"),
        StopReason::NotSuspended => {
            info!(%step, attempt = number, by, "step stopping: it could not be suspended");
        }
        StopReason::SuspendedTooLong => {
            info!(%step, attempt = number, "step stopping: it was suspended for too long");
        }
        StopReason::NotRenewed => {
            info!(%step, attempt = number, "step stopping: its holder did not renew it");
        }
        StopReason::LivenessFailed => {
            info!(%step, attempt = number, "step stopping: its liveness probe failed");
        }
        StopReason::Superseded => {
            info!(%step, attempt = number, "step stopping: its attempt was given up");
        }
    }
}

/// Logs changes of an attempt between its start and its stop: readiness and suspension.
fn log_running(record: &Record) {
    match record {
        Record::PortsAllocated(it) => {
            let AttemptId { step, number } = &it.attempt;
            debug!(%step, attempt = number, node = %it.node, ports = ?it.ports, "step has ports");
        }
        Record::ReadinessChanged(it) => {
            let AttemptId { step, number } = &it.attempt;
            let saw = it.failure.as_ref().map(|failure| failure.saw.as_str());
            let ready = it.ready;
            info!(%step, attempt = number, node = %it.node, ready, saw, "readiness of the step");
        }
        Record::Suspending(Suspending { attempt, by, .. }) => {
            let AttemptId { step, number } = attempt;
            let by = by.as_ref().map(StepId::as_str);
            info!(%step, attempt = number, by, "step suspending");
        }
        Record::Suspended(Suspended {
            attempt: AttemptId { step, number },
            node,
            moved_mb,
        }) => info!(%step, attempt = number, %node, moved_mb, "step suspended"),
        Record::Resuming { attempt, .. } => {
            let AttemptId { step, number } = attempt;
            info!(%step, attempt = number, "step resuming");
        }
        Record::Resumed {
            attempt: AttemptId { step, number },
            node,
        } => info!(%step, attempt = number, %node, "step resumed"),
        Record::NotSuspended(NotSuspended {
            attempt: AttemptId { step, number },
            node,
            why,
        }) => warn!(%step, attempt = number, %node, ?why, "step could not be suspended"),
        _ => {}
    }
}

fn requeued(state: &State, step: &StepId, why: &Cause) {
    let last = state.step(step).and_then(|found| found.latest());
    let attempt = last.map(|attempt| attempt.number);
    info!(%step, attempt, reason = why.code().as_str(), why = %why.to_reason().message, "step requeued");
}

fn ended(state: &State, step: &StepId, found: StepState, why: &Cause) {
    let last = state.step(step).and_then(|step| step.latest());
    let attempt = last.map(|attempt| attempt.number);
    let pool = last.map(|attempt| attempt.pool.as_str());
    let part = last.and_then(|attempt| attempt.decisive_part());
    let node = part.map(|part| part.node.as_str());
    let end = part.and_then(|part| part.end.as_ref());
    let exit_code = end.and_then(|end| end.exit.code());
    let signal = end.and_then(|end| end.exit.signal());
    let duration_ms = end.and_then(duration_ms);
    info!(
        %step, attempt, state = %found, node, pool, exit_code, signal, duration_ms,
        reason = why.code().as_str(), why = %why.to_reason().message, "step ended"
    );
}

/// Returns how long the process ran, if there was one.
fn duration_ms(end: &AttemptEnd) -> Option<u64> {
    end.started.map(|started| end.at.since(started.at).millis())
}

/// The hosts of a grant, separated by commas.
struct HostList<'a>(&'a [Placement]);

impl fmt::Display for HostList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (rank, placement) in self.0.iter().enumerate() {
            let comma = if rank > 0 { "," } else { "" };
            write!(f, "{comma}{}", placement.node)?;
        }
        Ok(())
    }
}

fn gpus(placements: &[Placement]) -> usize {
    placements
        .iter()
        .map(|placement| placement.gpus.len())
        .sum()
}
