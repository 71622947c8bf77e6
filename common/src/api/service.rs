//! Services and their endpoints as the API returns them.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{ChangeOutcome, PreviewView};
use crate::environment::Environment;
use crate::pool::HostPlacement;
use crate::request::{ResourceSettings, RolloutRequest};
use crate::service::ServiceState;
use crate::state::StepState;

/// A service: a step that is kept running in a number of replicas.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Service")
)]
pub struct ServiceView {
    /// Name of the service.
    pub name: String,
    /// The subject on whose behalf its replicas run.
    pub subject: String,
    /// The only pool that its replicas may run in.
    pub pool: Option<String>,
    /// Platforms that its replicas ask for.
    pub platform: Option<String>,
    /// State of the service.
    pub state: ServiceState,
    /// The state as a sentence, with the numbers.
    pub message: String,
    /// Number of the record that set it last, for `If-Match`.
    pub version: u64,
    /// The wanted version of its replicas.
    pub revision: u32,
    /// Number of replicas that it is to have now.
    pub replicas: u32,
    /// Number of replicas that are ready.
    pub ready: u32,
    /// Fewest replicas that it may have.
    pub min_replicas: u32,
    /// Most replicas; `null` if the service sets no limit.
    pub max_replicas: Option<u32>,
    /// Program and arguments of a replica.
    pub command: Vec<String>,
    /// Variables of a replica, without their values.
    pub env: Environment,
    /// Image in which the program runs; omitted if it runs on the host itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Resources as written, with the settings of the number of replicas.
    pub resources: ResourceSettings,
    /// Terms of a change to another version.
    pub rollout: RolloutRequest,
    /// Whether its replicas are spread over hosts, or placed as all steps of the pool.
    pub placement: HostPlacement,
    /// The number of replicas by the load; omitted if no metric decides about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscaling: Option<AutoscalingView>,
    /// Requests that gateways counted in the last 15 seconds; omitted if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<RequestsView>,
    /// The last change to another version.
    pub status: RolloutView,
    /// Number of failures of replicas in a row.
    pub failures: u32,
    /// Time before which no replica is started again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_at: Option<Timestamp>,
    /// The last replica that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<ReplicaFailureView>,
    /// Replicas that have not ended, by number.
    pub members: Vec<ReplicaView>,
    /// The versions that are kept, the oldest first.
    pub revisions: Vec<RevisionView>,
    /// Time when the service was made.
    pub made_at: Timestamp,
    /// Effect of the `PUT` that this answers; omitted in other answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<ChangeOutcome>,
}

/// The number of replicas of a service by its load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Autoscaling")
)]
pub struct AutoscalingView {
    /// The metric that decides: `cpu`, `memory`, `concurrency`, `rps`, `gpu`, or one that the replicas serve.
    pub metric: String,
    /// Name of the port at which the replicas serve it; omitted if they do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// Path at which they serve it; omitted if they do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Target of the metric for each replica.
    pub target: f64,
    /// Value of the metric for all replicas together; `null` if it is unknown, so that the number stays.
    pub total: Option<f64>,
    /// Replicas that the load needed when it was looked at last; `null` if it never was since the coordinator started.
    pub needed: Option<u32>,
    /// Time for which fewer replicas must be enough before there are fewer.
    pub down_after: String,
    /// The reason for the number, as a sentence.
    pub message: String,
}

/// Requests to a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Requests")
)]
pub struct RequestsView {
    /// Requests under way or waiting.
    pub concurrency: f64,
    /// Requests per second.
    pub rps: f64,
}

/// Body of a call that reports the load of a service. The values of different reporters are added; a report counts for 15
/// seconds, or until the next one of its reporter.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LoadReport {
    /// Name of the reporter, such as that of a gateway.
    pub reporter: String,
    /// Requests under way or waiting, from 0 to 10^9.
    pub concurrency: f64,
    /// Requests per second, from 0 to 10^9.
    pub rps: f64,
}

/// The last change of a service to another version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Rollout")
)]
pub struct RolloutView {
    /// State of the change.
    pub state: RolloutState,
    /// Replicas of the wanted version that are ready.
    pub updated: u32,
    /// Replicas of other versions that have not ended.
    pub outdated: u32,
    /// Time at which it began.
    pub began_at: Timestamp,
    /// The version that was complete last.
    pub stable: Option<u32>,
    /// The reason, if it is stalled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The version from which the service went back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolled_back: Option<FailedVersionView>,
}

/// State of a change of version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RolloutState {
    /// Not all replicas are of the wanted version and ready yet.
    Rolling,
    /// No replica became ready in time.
    Stalled,
    /// All replicas are of the wanted version and were ready.
    Complete,
}

/// A version that did not become ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "FailedVersionView")
)]
pub struct FailedVersionView {
    /// Number of the version.
    pub revision: u32,
    /// Time at which the service went back.
    pub at: Timestamp,
    /// The reason as a sentence.
    pub why: String,
}

/// A replica that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "FailedReplica")
)]
pub struct ReplicaFailureView {
    /// Id of its step.
    pub id: String,
    /// Time at which it failed.
    pub at: Timestamp,
    /// The reason as a sentence.
    pub message: String,
}

/// A replica of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Replica")
)]
pub struct ReplicaView {
    /// Id of its step.
    pub id: String,
    /// Version of the replica.
    pub revision: u32,
    /// State of its step.
    pub state: StepState,
    /// Whether it is ready, and among the endpoints.
    pub ready: bool,
    /// Time at which it is stopped, if it is among the endpoints no more and is to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stops_at: Option<Timestamp>,
    /// Host of its rank 0.
    pub node: Option<String>,
    /// Whether it may be preempted.
    pub preemptible: bool,
    /// Reason for the state of its step.
    pub message: String,
}

/// A version of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Revision")
)]
pub struct RevisionView {
    /// Number of the version.
    pub revision: u32,
    /// Time at which it was applied.
    pub made_at: Timestamp,
    /// Program and arguments of a replica.
    pub command: Vec<String>,
}

/// Result of applying a service in a dry run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "ServicePreview")
)]
pub struct ServicePreviewView {
    /// Effect on the service.
    pub outcome: ChangeOutcome,
    /// Whether its replicas would be replaced by those of another version.
    pub new_revision: bool,
    /// Preview of a replica as a step.
    pub replica: PreviewView,
}

/// Body of a call that sets the number of replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ScaleRequest {
    /// Number of replicas.
    pub replicas: u64,
}

/// Body of a call that goes back to another version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct RollbackRequest {
    /// The version; the last one that differs from the present one if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<u32>,
}

/// A replica that is ready, with its address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Endpoint")
)]
pub struct EndpointView {
    /// Name of the service.
    pub service: String,
    /// The subject of the service.
    pub subject: String,
    /// Id of the replica's step.
    pub replica: String,
    /// Version of the replica.
    pub revision: u32,
    /// Host of the replica.
    pub node: String,
    /// Address of the host.
    pub address: String,
    /// Ports of the replica by name.
    pub ports: BTreeMap<String, u16>,
    /// Time since which it is ready.
    pub since: Timestamp,
}

/// Endpoints as Prometheus reads them (`http_sd`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TargetGroup {
    /// Addresses with ports.
    pub targets: Vec<String>,
    /// Labels of all of them.
    pub labels: BTreeMap<String, String>,
}
