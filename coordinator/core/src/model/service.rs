//! The stored service: its replicas, its versions, and where a change from one version to another has got to. Changed
//! only by `state/apply/service.rs`; `services/` decides.
//!
//! ```text
//! added --> starting <--> serving --> draining --> (its step has ended) gone
//!               \---------------------->/
//! ```

use alloc::collections::BTreeMap;
use alloc::string::String;

use serde::{Deserialize, Serialize};

use sluice_common::id::{ServiceName, StepId, Subject};
use sluice_common::pool::HostPlacement;
use sluice_common::service::{RolloutSpec, ScaleSpec, ServiceSpec, ServiceState};
use sluice_common::state::StepState;
use sluice_common::step::{StepSpec, serialize_without_env_values};
use sluice_common::time::Time;
use sluice_reasons::Cause;

/// Most versions of a service that are kept, so that it can go back to one of them. The one that was complete last is
/// always among them.
const MAX_REVISIONS_KEPT: usize = 5;

/// Failures in a row from which a service is shown as one whose replicas end again and again.
const CRASH_LOOP: u32 = 3;

/// A service, with its replicas and its versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    pub scale: ScaleSpec,
    pub rollout_spec: RolloutSpec,
    /// Whether its replicas are spread over hosts. Services of earlier versions are.
    #[serde(
        default = "HostPlacement::of_services",
        skip_serializing_if = "HostPlacement::is_spread"
    )]
    pub placement: HostPlacement,
    /// Number of the record that set it last.
    pub version: u64,
    pub made_at: Time,
    /// The wanted version of its replicas: one of `revisions`.
    pub revision: u32,
    /// The latest versions of its replicas.
    pub revisions: BTreeMap<u32, Revision>,
    /// Number of replicas that it is to have now.
    pub count: u32,
    /// Number of the next replica. Numbers are never used again.
    pub next_replica: u32,
    /// Replicas whose steps have not ended, by number.
    pub replicas: BTreeMap<u32, Replica>,
    pub rollout: Rollout,
    pub backoff: ReplicaBackoff,
    /// Time at which it was deleted, while its replicas stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleting_since: Option<Time>,
}

/// One version of the replicas of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revision {
    /// The step of each replica. The values of its variables are stored apart.
    #[serde(serialize_with = "serialize_without_env_values")]
    pub spec: StepSpec,
    pub made_at: Time,
}

/// A replica of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replica {
    pub step: StepId,
    /// Version of the replica.
    pub revision: u32,
    pub added_at: Time,
    pub phase: ReplicaPhase,
}

/// The phase of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum ReplicaPhase {
    /// Not ready: queued, starting, or running and not answering.
    Starting,
    /// Ready: its address is among the endpoints.
    Serving {
        /// Time since which it is ready.
        since: Time,
    },
    /// Among the endpoints no more, and stopped at a time.
    Draining {
        /// Time at which it is stopped.
        until: Time,
    },
}

/// The change of a service to its wanted version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollout {
    pub phase: RolloutPhase,
    pub began_at: Time,
    /// Last time at which a replica became ready, or one that was drained was gone.
    pub progress_at: Time,
    /// The version that was complete last, to which the service goes back if a change fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stable: Option<u32>,
    /// The version from which it went back, until the next one is applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolled_back: Option<FailedVersion>,
}

/// The phase of a change of version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub enum RolloutPhase {
    /// Not all replicas are of the wanted version and ready yet.
    Rolling,
    /// No replica became ready in time, and there is no version to go back to.
    Stalled {
        /// The reason, as a sentence.
        why: String,
    },
    /// All replicas are of the wanted version and were ready.
    Complete,
}

/// A version that did not become ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FailedVersion {
    /// Number of the version.
    pub revision: u32,
    pub at: Time,
    /// The reason, as a sentence.
    pub why: String,
}

/// Pauses before replicas are started again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaBackoff {
    /// Number of failures in a row. Replicas that fail together count once.
    pub failures: u32,
    /// Time of the last of them.
    pub raised_at: Time,
    /// Time before which no replica is added.
    pub restart_at: Time,
    /// The last failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<ReplicaFailure>,
}

/// The end of a replica that was not to end, or the reason why none could be added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplicaFailure {
    /// Step of the replica.
    pub step: StepId,
    pub at: Time,
    pub end: ReplicaEnd,
}

/// The way in which a replica failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ReplicaEnd {
    /// The step ended.
    Ended {
        state: StepState,
        #[cfg_attr(feature = "schema", schemars(with = "sluice_common::reason::Reason"))]
        reason: Cause,
    },
    /// The step was not accepted.
    Refused {
        /// The reason, as a sentence.
        why: String,
    },
}

impl ReplicaEnd {
    /// The reason as a sentence.
    pub fn message(&self) -> String {
        match self {
            ReplicaEnd::Ended { reason, .. } => reason.to_reason().message,
            ReplicaEnd::Refused { why } => why.clone(),
        }
    }
}

/// The counters of a deleted service, so that one of the same name uses no number again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedService {
    /// Number of the record that deleted it.
    pub seq: u64,
    pub next_replica: u32,
    pub next_revision: u32,
}

impl Service {
    /// The step of a replica of the wanted version.
    pub fn replica(&self) -> Option<&StepSpec> {
        self.revisions.get(&self.revision).map(|it| &it.spec)
    }

    /// The subject on whose behalf its replicas run.
    pub fn subject(&self) -> Option<&Subject> {
        self.replica().map(|spec| &spec.subject)
    }

    /// All that was applied, as it is now.
    pub fn spec(&self) -> Option<ServiceSpec> {
        Some(ServiceSpec {
            scale: self.scale.clone(),
            rollout: self.rollout_spec,
            placement: self.placement,
            replica: self.replica()?.clone(),
        })
    }

    /// Number of the next version.
    pub fn next_revision(&self) -> u32 {
        let last = self.revisions.last_key_value();
        last.map_or(1, |(last, _)| last.saturating_add(1))
    }

    /// The oldest version, if one more would be too many.
    pub(crate) fn revision_to_forget(&self) -> Option<u32> {
        let needed = [Some(self.revision), self.rollout.stable];
        let mut old = self.revisions.keys();
        let oldest = old.find(|revision| !needed.contains(&Some(**revision)));
        oldest
            .copied()
            .filter(|_| self.revisions.len() >= MAX_REVISIONS_KEPT)
    }

    /// Replicas that are not draining.
    pub fn live(&self) -> impl Iterator<Item = &Replica> {
        let is_live = |replica: &&Replica| !replica.phase.is_draining();
        self.replicas.values().filter(is_live)
    }

    /// The state of the service in one word.
    pub fn state(&self) -> ServiceState {
        let is_short = self.serving() < self.count;
        if self.deleting_since.is_some() {
            return ServiceState::Deleting;
        }
        if is_short && self.backoff.failures >= CRASH_LOOP {
            return ServiceState::CrashLoop;
        }
        match self.rollout.phase {
            RolloutPhase::Stalled { .. } if is_short => ServiceState::Stalled,
            RolloutPhase::Rolling if self.rollout.stable.is_some() => ServiceState::Rolling,
            RolloutPhase::Rolling | RolloutPhase::Complete | RolloutPhase::Stalled { .. } => {
                match (is_short, self.count) {
                    (true, _) => ServiceState::Starting,
                    (false, 0) => ServiceState::Sleeping,
                    (false, _) => ServiceState::Ready,
                }
            }
        }
    }

    /// Number of replicas that are ready.
    pub fn serving(&self) -> u32 {
        let serving = self.live().filter(|replica| replica.phase.is_serving());
        u32::try_from(serving.count()).unwrap_or(u32::MAX)
    }
}

impl ReplicaPhase {
    /// Whether its address is among the endpoints.
    pub fn is_serving(&self) -> bool {
        matches!(self, ReplicaPhase::Serving { .. })
    }

    /// Whether it is to be stopped.
    pub fn is_draining(&self) -> bool {
        matches!(self, ReplicaPhase::Draining { .. })
    }
}

/// The key under which the variables of a version are stored. No step has such an id.
pub fn environment_key(service: &ServiceName, revision: u32) -> String {
    alloc::format!("service/{service}/{revision}")
}
