//! Bodies of the HTTP API: the coordinator writes them and the CLI reads them. Readers ignore unknown fields, so an
//! older CLI works with a newer coordinator.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::allocation::AllocationView;
use crate::amount::{Amounts, ResourceKey, table};
use crate::environment::Environment;
use crate::inputs::InputFile;
use crate::inventory::Capability;
use crate::platform::spec::UnmatchedPlatform;
use crate::pool::{NamedPlatform, PolicySpec, PoolSpec};
use crate::pool_rules::{PoolStatus, Setting};
use crate::probe::ProbesRequest;
use crate::processors::CpuMode;
use crate::reason::Reason;
use crate::request::ResourceSettings;
use crate::shared::Shared;
use crate::state::{NodeState, StepState};
use crate::step::{OnPreempt, PriorityClass, WorkKind};
use crate::template::{LayeredList, Mount};
use crate::time::Span;
use crate::topology::DomainRequest;

/// HTTP header of `/readyz` that carries the coordinator's clock as an RFC 3339 timestamp.
pub const CLOCK_HEADER: &str = "sluice-clock";

mod access;
mod admin;
mod answer;
mod apply;
mod attempt;
mod cluster;
mod exit;
mod explain;
mod host;
mod join;
mod platform;
mod preview;
mod recovery;
mod replay;
mod service;
mod steps;
mod template;
mod timestamp;
mod topology;
mod validation;

pub use access::{
    ApiTokenCreated, ApiTokenRequest, ApiTokenView, BindingView, CanIView, MissingSubject,
    RoleView, WhoAmIView,
};
pub use admin::{
    CordonRequest, CordonView, DrainRequest, LabelsRequest, MoveRequest, MoveStepRequest,
    UncordonRequest, UnfitGpuView,
};
pub use answer::{BatchItem, BatchRequest, BatchView, ErrorBody, ErrorView, Page};
pub use apply::{
    ApplyRequest, ApplyView, CarvePlanView, ChangeOutcome, DeleteDocument, DocumentKind, InUseView,
    PreemptedView, PutDocument, SpecChangeView, SpecView,
};
pub use attempt::{AttemptInfo, PlacementView};
pub use cluster::ClusterView;
pub use exit::ExitView;
pub use explain::{
    AttemptOutcomeView, AwaitedRunView, BeyondShareView, ExplainView, FairShareView, HolderView,
    HoldingView, KeyUsageView, NominationView, PoolExplanation, RefusalView, RemedyChange,
    RemedyKind, RemedyView,
};
pub use host::{GpuView, HostView};
pub use join::{JoinTokenRequest, JoinTokenState, JoinTokenView, NewJoinTokenView};
pub use platform::{PlatformUse, PlatformView};
pub use preview::{CheckView, PreviewOutcome, PreviewStage, PreviewView, StageOutcome, StageView};
pub use recovery::RecoveryView;
pub use replay::{ChangeView, ChangesView, ReplayView};
pub use service::{
    AutoscalingView, EndpointView, FailedVersionView, LoadReport, ReplicaFailureView, ReplicaView,
    RequestsView, RevisionView, RollbackRequest, RolloutState, RolloutView, ScaleRequest,
    ServicePreviewView, ServiceView, TargetGroup,
};
pub use steps::{
    ArrayView, InputView, MovedStepView, StepFilter, StepOrderKey, StepOutcomeView,
    StepsActionRequest, StepsActionView,
};
pub use template::{EffectiveSpecView, TemplateView};
pub use timestamp::{TimeError, parse_timestamp, timestamp};
pub use topology::{DomainView, TopologyView};
pub use validation::ValidationView;

/// A step as the API returns it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Step")
)]
pub struct StepView {
    /// Step id, unique in the cluster.
    pub id: String,
    /// Display name; need not be unique.
    pub name: String,
    /// The subject on whose behalf the step was submitted.
    pub subject: String,
    /// The authenticated user who submitted the step; absent if the caller was not a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitted_by: Option<String>,
    /// The pool that granted resources to the step, or else the pool that it asked for.
    pub pool: Option<String>,
    /// The platforms that the step asked for.
    pub platform: Option<String>,
    /// Current state of the step.
    pub state: StepState,
    /// Reason for the current state.
    pub reason: Reason,
    /// Requested resources as written in the request.
    pub resources: Shared<ResourceSettings>,
    /// Requested resources per host in units of the resource keys.
    pub request: Amounts,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Environment variables of the step itself.
    pub env: Environment,
    /// Working directory: an absolute path on the host.
    pub workdir: Option<String>,
    /// Working directory if the host lets the step's user enter it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefer_workdir: Option<String>,
    /// Number of hosts that the step needs.
    pub nodes: u32,
    /// Level of the topology within which these hosts are near to each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<DomainRequest>,
    /// Order among the steps of the same subject; higher goes first.
    pub priority: i64,
    /// Hosts and GPUs of the current or the last attempt.
    pub placements: Vec<PlacementView>,
    /// Number of the latest attempt; 0 before the first.
    pub attempt: u32,
    /// Every attempt, oldest first.
    pub attempts: Vec<AttemptInfo>,
    /// Exit of the latest attempt.
    pub exit: Option<ExitView>,
    /// Time when the step was accepted.
    pub submitted_at: Timestamp,
    /// Time when the latest attempt was granted its resources.
    pub allocated_at: Option<Timestamp>,
    /// Time when the process of the latest attempt started.
    pub started_at: Option<Timestamp>,
    /// Time when the step reached a terminal state.
    pub finished_at: Option<Timestamp>,
    /// Number of retries after failures of its own.
    pub retries: u32,
    /// If true, preemptions and lost hosts do not count against `retries`.
    #[serde(default)]
    pub free_preemptions: bool,
    /// Longest run time, such as `2h`.
    pub timeout: Option<String>,
    /// Time between the stop signal and the kill, such as `30s`.
    pub grace_period: String,
    /// Action taken if the step is preempted.
    pub on_preempt: OnPreempt,
    /// The step that preempted this one most recently.
    pub preempted_by: Option<String>,
    /// Whether the step may be preempted.
    #[serde(default = "yes")]
    pub preemptible: bool,
    /// Priority class given in the request.
    #[serde(default)]
    pub priority_class: Option<PriorityClass>,
    /// Kind of work given in the request.
    #[serde(default)]
    pub work: Option<WorkKind>,
    /// Longest time suspended before the step is stopped and queued again; absent if the request does not set it.
    #[serde(default)]
    pub suspend_timeout: Option<String>,
    /// Whether a user suspended the step; it then stays suspended until a user resumes it.
    #[serde(default)]
    pub held: bool,
    /// Longest time in the queue before the step fails, such as `10m`.
    #[serde(default)]
    pub queue_timeout: Option<String>,
    /// Time before which the step does not start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin: Option<Timestamp>,
    /// Time after which the step does not start any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// Steps after which this one starts, as in the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// Those of them for which the step still waits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<String>,
    /// State and lease, if the step is an allocation: it has no command, and holds its resources for somebody else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<AllocationView>,
    /// The allocation inside which the step runs, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inside: Option<String>,
    /// Progress of the parts, if the step is an array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<ArrayView>,
    /// The array of which the step is a part, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part_of: Option<String>,
    /// Index of the part in its array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array_index: Option<u32>,
    /// The service of which the step is a replica.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// Pools whose rules excluded the step when it was submitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub barred: Vec<String>,
    /// Labels set by the submitter.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Mode in which the step gets its CPU cores.
    #[serde(default)]
    pub cpu_mode: CpuMode,
    /// Mounts that the step itself asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mounts: Option<LayeredList<Mount>>,
    /// Whether the step asks for root privileges (`privileged`).
    #[serde(default)]
    pub privileged: bool,
    /// Whether the step asks for the host's network.
    #[serde(default)]
    pub host_network: bool,
    /// Image in which the program runs; omitted if it runs on the host itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Standard input: a file of the host, or `-` for what callers send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// File of the host that gets standard output too, as written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    /// File of the host that gets standard error too, as written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// Whether the files keep what they have.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub append: bool,
    /// Whether the program has a terminal.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub terminal: bool,
    /// Files that the step gets into its own directory before its program starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<InputFile>,
    /// Patterns of the files in the step's own directory that its hosts keep after the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keep: Vec<String>,
    /// Names of the ports that the step gets on each host; their numbers are in `placements`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<String>,
    /// Probes of readiness and liveness, with all defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probes: Option<ProbesRequest>,
    /// The step's spec with all templates and defaults applied, and the origin of each value; omitted from lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged: Option<EffectiveSpecView>,
    /// The only pool that the request allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_pool: Option<String>,
    /// The pool to which the step was moved while it waited: the only one that it may run in, whatever the request
    /// allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_to: Option<String>,
    /// Whether the step waits, instead of being rejected, while no host could hold it.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub allow_pending: bool,
    /// Settings that the request leaves to the pool.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unset: BTreeSet<Setting>,
    /// Requested amounts that no host enforces, and keys of which it holds nothing that is counted, one sentence each;
    /// omitted from lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Default of `preemptible` for answers of older coordinators.
fn yes() -> bool {
    true
}

/// A node as the API returns it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Node")
)]
pub struct NodeView {
    /// Node name, unique in the cluster.
    pub name: String,
    /// The pool of the node.
    pub pool: String,
    /// The pool in the node's config, or else in its certificate, if it differs from `pool`. Informative only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_of_config: Option<String>,
    /// Current state of the node.
    pub state: NodeState,
    /// Why the supervisor does not answer and what to do on the host; present while the state is `unsupervised`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsupervised: Option<String>,
    /// Present if an admin cordoned or drained the node.
    #[serde(default)]
    pub cordon: Option<CordonView>,
    /// Labels from the node's config, overridden by those that an admin set.
    pub labels: BTreeMap<String, String>,
    /// Version of the node's agent.
    pub version: String,
    /// Capacity in units of the resource keys.
    pub capacity: Amounts,
    /// Resources granted on the node.
    pub used: Amounts,
    /// Slices of GPUs by profile. They count in `gpu` of `capacity` and `used` as their part of a GPU.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub slices: BTreeMap<String, MigUse>,
    /// Steps that hold resources on the node.
    pub steps: Vec<String>,
    /// Hardware and software detected by the agent.
    pub inventory: HostView,
    /// Time when the node first joined.
    pub joined_at: Timestamp,
    /// Time of the last message from the node.
    pub heard_at: Option<Timestamp>,
    /// Whether the node is deleted as soon as it is lost; cancelled if the node reconnects first.
    #[serde(default)]
    pub leaving: bool,
    /// Capabilities that the pool requires and the node lacks. The node gets no new work while any are missing.
    #[serde(default)]
    pub lacks: BTreeSet<Capability>,
    /// GPUs that are not granted, with the reasons.
    #[serde(default)]
    pub unfit_gpus: Vec<UnfitGpuView>,
    /// Detected facts as labels below `sluice/`: one set for each distinct kind of GPU, or one set if the node has no
    /// GPU.
    #[serde(default)]
    pub facts: Vec<BTreeMap<String, String>>,
    /// Platforms of the pool that the node belongs to.
    #[serde(default)]
    pub platforms: BTreeSet<String>,
    /// Labels of the node's config that an admin overrode or removed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels_of_config: BTreeMap<String, String>,
    /// GPUs that platforms want to be cut into slices and that are not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub carvings: Vec<CarvingView>,
}

/// A GPU that a platform wants to be cut into slices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Carving")
)]
pub struct CarvingView {
    /// The driver's index of the GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// UUID of the whole GPU.
    pub uuid: String,
    /// Whether an admin has to do something before the GPU is cut.
    pub needs_admin: bool,
    /// Text about what the GPU waits for, or why it was not cut and what to do.
    pub message: String,
}

/// Slices of one profile on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MigUse {
    /// Number of slices.
    pub count: u64,
    /// Number of slices granted.
    pub used: u64,
}

/// A pool as the API returns it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Pool")
)]
pub struct PoolView {
    /// Pool name, unique in the cluster.
    pub name: String,
    /// The pool's spec. `capacity`, `platforms` and `unmatched_platform` are returned in the fields below instead.
    #[serde(flatten)]
    pub spec: PoolSpec,
    /// Number of nodes in the pool.
    pub nodes: u64,
    /// Number of nodes that take work now.
    pub nodes_ready: u64,
    /// Capacity of the pool: the nodes' capacities added up, capped by what is declared.
    pub capacity: Amounts,
    /// Capacities of the nodes added up.
    #[serde(default)]
    pub detected: Amounts,
    /// Resources granted in the pool.
    pub used: Amounts,
    /// Resources free on nodes that take work. A step may still not fit on any single node.
    #[serde(default)]
    pub free: Amounts,
    /// The part of `used` that lies within the holders' reserved shares, for keys that count in shares.
    #[serde(default)]
    pub in_share: Amounts,
    /// The part of `used` beyond the holders' reserved shares.
    #[serde(default)]
    pub borrowed: Amounts,
    /// Resources requested by queued steps.
    #[serde(default)]
    pub asked: Amounts,
    /// Declared capacity by key; caps what nodes report for that key.
    #[serde(default, with = "table")]
    #[cfg_attr(
        feature = "schema",
        schemars(with = "BTreeMap<String, table::DocumentAmount>")
    )]
    pub declared: BTreeMap<ResourceKey, u64>,
    /// Hosts and GPUs by platform.
    #[serde(default)]
    pub platforms: BTreeMap<String, PlatformUse>,
    /// Number of queued steps.
    pub queued: u64,
    /// Number of steps that hold resources.
    pub running: u64,
    /// Whether more of some key is reserved than the nodes have, because nodes or GPUs have gone.
    #[serde(default)]
    pub overcommitted: bool,
    /// Whether the pool takes work: `online`, `offline` (no node connected), `maintenance` or `recovering`.
    #[serde(default)]
    pub status: PoolStatus,
    /// Action taken on a request for a declared platform without hosts.
    #[serde(default)]
    pub unmatched_platform: UnmatchedPlatform,
    /// Declared platforms as written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub declared_platforms: Vec<NamedPlatform>,
    /// Version of the pool's spec, incremented by every change; also in `ETag` and `If-Match`.
    #[serde(default)]
    pub version: u64,
}

/// The policy of a subject in a pool, with the subject's usage there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Policy")
)]
pub struct PolicyView {
    /// Name of the pool.
    pub pool: String,
    /// The subject that the policy applies to.
    pub subject: String,
    /// Priority, reserved share and limit.
    #[serde(flatten)]
    pub spec: PolicySpec,
    /// Resources that the subject uses.
    pub used: Amounts,
    /// The part of `used` within the reserved share, for keys that count in shares.
    #[serde(default)]
    pub in_share: Amounts,
    /// The part of `used` beyond the reserved share.
    #[serde(default)]
    pub borrowed: Amounts,
    /// Number of the subject's queued steps.
    #[serde(default)]
    pub queued: u64,
    /// Number of the subject's steps that hold resources.
    #[serde(default)]
    pub running: u64,
    /// Version of the policy, incremented by every change; also in `ETag` and `If-Match`.
    #[serde(default)]
    pub version: u64,
}

/// Formats a length of time as the API writes it, such as `1h30m`.
pub fn duration(span: Span) -> String {
    alloc::string::ToString::to_string(&span)
}
