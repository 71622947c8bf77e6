//! What the HTTP API answers: shared by the coordinator, which writes it, and the command line, which reads it.
//! Readers ignore fields that they do not know, so that an older command line works with a newer coordinator.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::amount::{Amounts, ResourceKey};
use crate::environment::Environment;
use crate::inventory::Capability;
use crate::platform::spec::UnmatchedPlatform;
use crate::pool::{NamedPlatform, PolicySpec, PoolSpec};
use crate::pool_rules::{PoolStatus, Setting};
use crate::processors::CpuMode;
use crate::reason::Reason;
use crate::request::ResourceSettings;
use crate::state::{NodeState, StepState};
use crate::step::{OnPreempt, PriorityClass, WorkKind};
use crate::template::{LayeredList, Mount};
use crate::time::{Span, Time};
use crate::usage::Usage;

/// The header in which the coordinator tells its clock with an answer of `/readyz`, as a timestamp.
pub const CLOCK_HEADER: &str = "sluice-clock";

mod access;
mod admin;
mod answer;
mod apply;
mod cluster;
mod exit;
mod explain;
mod host;
mod join;
mod platform;
mod preview;
mod recovery;
mod replay;
mod template;
mod validation;

pub use access::{
    ApiTokenCreated, ApiTokenRequest, ApiTokenView, BindingView, CanIView, RoleView, WhoAmIView,
};
pub use admin::{
    CordonRequest, CordonView, DrainRequest, LabelsRequest, MoveRequest, UncordonRequest,
    UnfitGpuView,
};
pub use answer::{BatchItem, BatchRequest, BatchView, ErrorBody, ErrorView, Page};
pub use apply::{
    ApplyRequest, ApplyView, ChangeOutcome, DeleteDocument, DocumentKind, InUseView, PreemptedView,
    PutDocument, SpecChangeView, SpecView,
};
pub use cluster::ClusterView;
pub use exit::ExitView;
pub use explain::{
    AttemptOutcomeView, AwaitedRunView, BeyondShareView, ExplainView, HolderView, HoldingView,
    KeyUsageView, NominationView, PoolExplanation, RefusalView, RemedyChange, RemedyKind,
    RemedyView,
};
pub use host::{GpuView, HostView};
pub use join::{JoinTokenRequest, JoinTokenState, JoinTokenView, NewJoinTokenView};
pub use platform::{PlatformUse, PlatformView};
pub use preview::{CheckView, PreviewOutcome, PreviewStage, PreviewView, StageOutcome, StageView};
pub use recovery::RecoveryView;
pub use replay::{ChangeView, ChangesView, ReplayView};
pub use template::{EffectiveSpecView, TemplateView};
pub use validation::ValidationView;

/// A time of the cores as the API writes it, RFC 3339 in UTC.
pub fn timestamp(time: Time) -> Timestamp {
    let millis = i64::try_from(time.unix_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX)
}

/// A step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Step")
)]
pub struct StepView {
    /// Unique in the cluster.
    pub id: String,
    /// For people.
    pub name: String,
    /// On whose behalf.
    pub subject: String,
    /// The user whom the coordinator had authenticated when it was submitted; absent if the caller was no user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitted_by: Option<String>,
    /// The pool that holds it, or the one that it asked for.
    pub pool: Option<String>,
    /// The kind of hardware that it asked for.
    pub platform: Option<String>,
    /// Where it is in its life.
    pub state: StepState,
    /// Why.
    pub reason: Reason,
    /// As written.
    pub resources: ResourceSettings,
    /// As counted, on each host.
    pub request: Amounts,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Its own variables.
    pub env: Environment,
    /// Absolute path on the host.
    pub workdir: Option<String>,
    /// On how many hosts.
    pub nodes: u32,
    /// Order among its subject's own steps.
    pub priority: i64,
    /// Where it runs or ran last.
    pub placements: Vec<PlacementView>,
    /// Number of the latest attempt; 0 before the first.
    pub attempt: u32,
    /// Every attempt, oldest first.
    pub attempts: Vec<AttemptInfo>,
    /// How the latest attempt ended.
    pub exit: Option<ExitView>,
    /// When it was accepted.
    pub submitted_at: Timestamp,
    /// When units were granted to the latest attempt.
    pub allocated_at: Option<Timestamp>,
    /// When the latest attempt's process started.
    pub started_at: Option<Timestamp>,
    /// When it came to a terminal state.
    pub finished_at: Option<Timestamp>,
    /// How often it may be tried again after a failure of its own.
    pub retries: u32,
    /// Whether giving way to others and losing hosts leave its retries alone.
    #[serde(default)]
    pub free_preemptions: bool,
    /// How long it may run, such as `2h`.
    pub timeout: Option<String>,
    /// Between the stop signal and the kill, such as `30s`.
    pub grace_period: String,
    /// What happens when it must give way.
    pub on_preempt: OnPreempt,
    /// The step that it gave way to last.
    pub preempted_by: Option<String>,
    /// Whether it may be made to give way.
    #[serde(default = "yes")]
    pub preemptible: bool,
    /// The class that it was given.
    #[serde(default)]
    pub priority_class: Option<PriorityClass>,
    /// What kind of work it does.
    #[serde(default)]
    pub work: Option<WorkKind>,
    /// How long it may be frozen before it is stopped and waits to start anew, where it says so itself.
    #[serde(default)]
    pub suspend_timeout: Option<String>,
    /// Whether somebody suspended it: then it goes on only when somebody resumes it.
    #[serde(default)]
    pub held: bool,
    /// How long it may wait for its units before it fails, such as `10m`.
    #[serde(default)]
    pub queue_timeout: Option<String>,
    /// Pools whose rules did not let it in when it was submitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub barred: Vec<String>,
    /// Words of its submitter's own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// How it has the processors that it takes.
    #[serde(default)]
    pub cpu_mode: CpuMode,
    /// What it is to mount, as it says itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mounts: Option<LayeredList<Mount>>,
    /// Whether it asks to do what root may.
    #[serde(default)]
    pub privileged: bool,
    /// Whether it asks for the host's network.
    #[serde(default)]
    pub host_network: bool,
    /// What it is with all that lies under it, and where each value came from; lists leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged: Option<EffectiveSpecView>,
    /// The one pool that it asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_pool: Option<String>,
    /// Whether it waits rather than being rejected while no host could hold it.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub allow_pending: bool,
    /// Settings that it did not say itself, so that its pool may.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unset: BTreeSet<Setting>,
    /// Amounts that it asks for and that nothing keeps it to on its hosts, a sentence each; lists leave them out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// What steps are that older coordinators tell of.
fn yes() -> bool {
    true
}

/// One host's part of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Placement")
)]
pub struct PlacementView {
    /// The host.
    pub node: String,
    /// UUIDs of the GPUs.
    pub gpus: Vec<String>,
    /// Place among the hosts of a gang, from 0.
    pub rank: u32,
}

/// One execution of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Attempt")
)]
pub struct AttemptInfo {
    /// From 1.
    pub number: u32,
    /// Where.
    pub placements: Vec<PlacementView>,
    /// When units were granted.
    pub allocated_at: Timestamp,
    /// When its process started.
    pub started_at: Option<Timestamp>,
    /// When its process ended.
    pub ended_at: Option<Timestamp>,
    /// When its units were free again.
    pub released_at: Option<Timestamp>,
    /// How it ended.
    pub exit: Option<ExitView>,
    /// What it has used, on all hosts together, once it has ended.
    #[serde(default)]
    pub usage: Option<Usage>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Node")
)]
pub struct NodeView {
    /// Unique in the cluster.
    pub name: String,
    /// The pool that it is in.
    pub pool: String,
    /// The pool that its config names, or else its certificate, where it is in another. It changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_of_config: Option<String>,
    /// How it stands.
    pub state: NodeState,
    /// Why its supervisor does not answer and what to do there, while it is `unsupervised`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsupervised: Option<String>,
    /// Why and how it is closed to new work, where an admin closed it.
    #[serde(default)]
    pub cordon: Option<CordonView>,
    /// Those of its config, and over them those that an admin set.
    pub labels: BTreeMap<String, String>,
    /// Version of its agent.
    pub version: String,
    /// What it has, in units of the resource keys.
    pub capacity: Amounts,
    /// What is granted on it.
    pub used: Amounts,
    /// Steps that hold units on it.
    pub steps: Vec<String>,
    /// What its agent found.
    pub inventory: HostView,
    /// When it joined first.
    pub joined_at: Timestamp,
    /// When it was heard last.
    pub heard_at: Option<Timestamp>,
    /// Whether it is forgotten as soon as it is lost; it is kept where it is heard again before.
    #[serde(default)]
    pub leaving: bool,
    /// Capabilities that its pool requires and it does not have. While there are any it gets no new work.
    #[serde(default)]
    pub lacks: BTreeSet<Capability>,
    /// Its GPUs that are granted to nobody, and why.
    #[serde(default)]
    pub unfit_gpus: Vec<UnfitGpuView>,
    /// What was detected, as labels below `sluice/`: once for each kind of its GPUs, once where it has none.
    #[serde(default)]
    pub facts: Vec<BTreeMap<String, String>>,
    /// The platforms of its pool that it is of.
    #[serde(default)]
    pub platforms: BTreeSet<String>,
    /// Labels of its config that do not count, as it has them: an admin set them otherwise, or took them away.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels_of_config: BTreeMap<String, String>,
}

/// A pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Pool")
)]
pub struct PoolView {
    /// Unique in the cluster.
    pub name: String,
    /// What an admin decided, but what is told here under another name or in another form: `capacity`, `platforms` and
    /// `unmatched_platform`.
    #[serde(flatten)]
    pub spec: PoolSpec,
    /// Nodes that joined it.
    pub nodes: u64,
    /// Those of them that take work now.
    pub nodes_ready: u64,
    /// What there is: what its nodes have, added up, and no more than is declared.
    pub capacity: Amounts,
    /// What its nodes have, added up.
    #[serde(default)]
    pub detected: Amounts,
    /// What is granted.
    pub used: Amounts,
    /// What could be granted now, on nodes that take work; whether a step finds it on one of them is another question.
    #[serde(default)]
    pub free: Amounts,
    /// The part of what is granted that is within what is kept for whoever holds it, of keys that count.
    #[serde(default)]
    pub in_share: Amounts,
    /// The part that is beyond.
    #[serde(default)]
    pub borrowed: Amounts,
    /// What the steps that wait ask for.
    #[serde(default)]
    pub asked: Amounts,
    /// Capacity by key, where it is declared; for keys that nodes report it caps what they have.
    #[serde(default)]
    pub declared: BTreeMap<ResourceKey, u64>,
    /// Its hosts and GPUs by platform.
    #[serde(default)]
    pub platforms: BTreeMap<String, PlatformUse>,
    /// Steps that wait for it.
    pub queued: u64,
    /// Steps that hold units of it.
    pub running: u64,
    /// Whether more is reserved of a key than its nodes have: since nodes have gone, or GPUs.
    #[serde(default)]
    pub overcommitted: bool,
    /// Whether it takes work: `online`, `offline` while none of its nodes is heard, or `maintenance`.
    #[serde(default)]
    pub status: PoolStatus,
    /// What becomes of a request for a platform that it declares and of which it has no host.
    #[serde(default)]
    pub unmatched_platform: UnmatchedPlatform,
    /// The platforms that it declares, as they are written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub declared_platforms: Vec<NamedPlatform>,
    /// Counted up with every change of its terms; `ETag` and `If-Match` say the same.
    #[serde(default)]
    pub version: u64,
}

/// The binding of a subject to a pool, with what the subject uses there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Policy")
)]
pub struct PolicyView {
    /// The pool.
    pub pool: String,
    /// Who.
    pub subject: String,
    /// On which terms.
    #[serde(flatten)]
    pub spec: PolicySpec,
    /// What it uses.
    pub used: Amounts,
    /// The part of it that is within what is kept for it. Amounts of keys that do not count are left out.
    #[serde(default)]
    pub in_share: Amounts,
    /// The part of it that is beyond.
    #[serde(default)]
    pub borrowed: Amounts,
    /// Its steps that wait for the pool.
    #[serde(default)]
    pub queued: u64,
    /// Its steps that hold units of the pool.
    #[serde(default)]
    pub running: u64,
    /// Counted up with every change; `ETag` and `If-Match` say the same.
    #[serde(default)]
    pub version: u64,
}

/// A length of time as the API writes it.
pub fn duration(span: Span) -> String {
    alloc::string::ToString::to_string(&span)
}
