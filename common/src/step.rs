//! A validated step with all defaults filled in. [`crate::request`] defines the form in which steps are submitted.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use serde::{Deserialize, Serialize};

use crate::amount::{Amounts, MGPU};
use crate::array::ArraySpec;
use crate::dependency::Dependency;
use crate::environment::Environment;
use crate::id::{PoolName, ServiceName, StepId, Subject, UserName};
use crate::image::Image;
use crate::inputs::{InputFile, InputHash};
use crate::keep::KeepPattern;
use crate::label::{LabelKey, LabelValue};
use crate::mig::GpuClass;
use crate::pool_rules::Setting;
use crate::port::PortName;
use crate::probe::Probes;
use crate::processors::CpuMode;
use crate::request::ResourceSettings;
use crate::shared::Shared;
use crate::streams::{OutputPath, StepInput, StepStreams};
use crate::template::{LayeredList, Mount};
use crate::time::{Span, Time};
use crate::topology::DomainRequest;

/// Action taken when a step is preempted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnPreempt {
    /// Stop the step and queue it again in its old place.
    #[default]
    Requeue,
    /// Freeze the step and empty its GPUs.
    Suspend,
    /// Stop the step for good.
    Fail,
}

/// Shorthand for preemptibility and order among a subject's steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PriorityClass {
    /// In the reserved share, not preemptible, ahead of the subject's other steps.
    High,
    /// In the reserved share, not preemptible.
    Normal,
    /// Borrowing and preemptible, behind the subject's other steps.
    Low,
}

impl fmt::Display for PriorityClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            PriorityClass::High => "high",
            PriorityClass::Normal => "normal",
            PriorityClass::Low => "low",
        })
    }
}

/// Kind of work that a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Work"))]
#[serde(rename_all = "snake_case")]
pub enum WorkKind {
    /// Trains a model, writes checkpoints and can restart from one.
    Training,
    /// Serves requests until it is stopped.
    Inference,
    /// Interactive session of a person.
    Notebook,
    /// Any other work that ends by itself.
    Compute,
}

impl WorkKind {
    /// All kinds, in display order.
    pub const ALL: [WorkKind; 4] = [
        WorkKind::Training,
        WorkKind::Inference,
        WorkKind::Notebook,
        WorkKind::Compute,
    ];

    /// The name as the API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            WorkKind::Training => "training",
            WorkKind::Inference => "inference",
            WorkKind::Notebook => "notebook",
            WorkKind::Compute => "compute",
        }
    }
}

impl FromStr for WorkKind {
    type Err = WorkKindError;

    fn from_str(text: &str) -> Result<Self, WorkKindError> {
        let known = WorkKind::ALL.into_iter().find(|work| work.as_str() == text);
        known.ok_or_else(|| WorkKindError {
            text: text.escape_default().to_string(),
        })
    }
}

/// Error for a text that is not a kind of work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a kind of work: write training, inference, notebook or compute")]
pub struct WorkKindError {
    /// The rejected text, escaped.
    pub text: String,
}

impl fmt::Display for WorkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Validated description of a step: what to run, for whom and with which resources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepSpec {
    /// Display name; need not be unique.
    pub name: String,
    /// The subject on whose behalf the step was submitted.
    pub subject: Subject,
    /// User whom the coordinator authenticated at the submit; `None` if the caller was not a user. Requests cannot set
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitted_by: Option<UserName>,
    /// The only pool that the step may run in; `None` leaves the choice to the coordinator.
    pub pool: Option<PoolName>,
    /// Requested platforms as written: names separated by `,`, or `any`.
    pub platform: Option<String>,
    /// Program and arguments; empty only for an allocation. The program is searched in the `PATH` of the step's own environment.
    pub command: Vec<String>,
    /// Environment variables, added to those that every step gets.
    pub env: Environment,
    /// Working directory, an absolute path on the host; `None` for a directory of the attempt's own.
    pub workdir: Option<String>,
    /// Working directory if the host lets the step's user enter it, an absolute path. Set if no directory is named alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefer_workdir: Option<String>,
    /// Image that the program runs in; `None` for the host itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// Requested resources as written.
    pub resources: Shared<ResourceSettings>,
    /// Requested resources per host in units of the resource keys.
    pub request: Amounts,
    /// Whether the step may be preempted.
    pub preemptible: bool,
    /// Number of distinct hosts that the step runs on at once; 0 in a request for as many as the allocation has in which it is
    /// to run.
    pub nodes: u32,
    /// Level of the topology within which its hosts are near to each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<DomainRequest>,
    /// Order among the steps of the same subject; higher goes first.
    pub priority: i64,
    /// Number of retries after own failures.
    pub retries: u32,
    /// Longest run time; `None` is unlimited.
    pub timeout: Option<Span>,
    /// Time between the stop signal and the kill.
    pub grace: Span,
    /// Action taken on preemption.
    pub on_preempt: OnPreempt,
    /// Whether the step waits, instead of being rejected, while no known host could hold it.
    pub allow_pending: bool,
    /// If true, preemptions and lost hosts do not count against `retries`.
    #[serde(default = "default_free_preemptions")]
    pub free_preemptions: bool,
    /// Priority class given in the request, already applied to `preemptible` and `priority`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class: Option<PriorityClass>,
    /// Kind of work that the step does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkKind>,
    /// Longest time suspended before the step is stopped and queued again; `None` is
    /// [`crate::limit::DEFAULT_SUSPEND_TIMEOUT`], or unlimited while a user holds the step suspended.
    #[serde(default)]
    pub suspend_timeout: Option<Span>,
    /// Longest time in the queue, counted from each time the step is queued; `None` is unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_timeout: Option<Span>,
    /// Time before which it does not start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin: Option<Time>,
    /// Time after which it does not start any more; later than `begin`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
    /// Steps that must have ended before this one starts, in the order of the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<Dependency>,
    /// Indexes of its parts, if it is an array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<ArraySpec>,
    /// Settings that the request leaves to the pool.
    #[serde(default, rename = "unsaid", skip_serializing_if = "BTreeSet::is_empty")]
    pub unset: BTreeSet<Setting>,
    /// Labels set by the submitter.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<LabelKey, LabelValue>,
    /// Mode in which the step gets its CPU cores.
    #[serde(default, skip_serializing_if = "CpuMode::is_default")]
    pub cpu_mode: CpuMode,
    /// Mounts that the step itself asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mounts: Option<LayeredList<Mount>>,
    /// Whether the wrapper should give the step root privileges.
    #[serde(default, skip_serializing_if = "is_false")]
    pub privileged: bool,
    /// Whether the wrapper should leave the step in the host's network.
    #[serde(default, skip_serializing_if = "is_false")]
    pub host_network: bool,
    /// Standard input, files of output, and terminal.
    #[serde(default, skip_serializing_if = "StepStreams::is_default")]
    pub streams: Shared<StepStreams>,
    /// Files that the step gets into its own directory, sorted by their paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<InputFile>,
    /// Hash of the caller who uploaded them. Requests cannot set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs_by: Option<InputHash>,
    /// Patterns of the files in the step's own directory that hosts keep after the end of an attempt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keep: Vec<KeepPattern>,
    /// Names of the ports that each of its hosts gives it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortName>,
    /// Probes of its readiness and liveness.
    #[serde(default, skip_serializing_if = "Probes::is_empty")]
    pub probes: Shared<Probes>,
    /// Time until its holder must renew it, if it is an allocation: it has no command, and holds its resources until it is
    /// released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Span>,
    /// The allocation inside which it runs, with resources of that alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inside: Option<StepId>,
    /// The service of which it is a replica. Requests cannot set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ReplicaOf>,
    /// Fields inherited from the request's `defaults`, such as `retries` or `env.LR`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub inherited: BTreeSet<String>,
}

/// The place of a replica in its service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplicaOf {
    /// Name of the service.
    pub name: ServiceName,
    /// Number of the replica, starting at 1.
    pub number: u32,
    /// Version of the service that it is of.
    pub revision: u32,
    /// Whether it is placed on a host without another replica, if one fits.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub spread: bool,
}

/// Overhead of a step and of each of its texts, in bytes.
const OWN_WEIGHT: usize = 1024;
const TEXT_WEIGHT: usize = 16;

/// Bytes of an input besides its name: hash, size and overhead.
const INPUT_WEIGHT: usize = 128;

/// Bytes of one range of indexes of an array, in its spec and among its waiting and ended parts.
const RANGE_WEIGHT: usize = 48;

impl StepSpec {
    /// Class of the GPUs that the step asks for, if it asks for any.
    pub fn gpu_class(&self) -> GpuClass {
        let mig = self.resources.mig.as_ref();
        mig.map_or(GpuClass::Whole, |mig| GpuClass::Slice(mig.profile.clone()))
    }

    /// Number of GPUs on each host, or of slices.
    pub fn gpu_count(&self) -> u64 {
        self.request.get(MGPU) / self.gpu_class().mgpu()
    }

    /// Approximate size of the stored step in bytes, counting everything that the submitter chooses.
    pub fn weight(&self) -> u64 {
        let weigh = |text: &str| text.len() + TEXT_WEIGHT;
        let one = [
            Some(&self.name),
            self.platform.as_ref(),
            self.workdir.as_ref(),
            self.prefer_workdir.as_ref(),
            match &self.streams.stdin {
                StepInput::File(path) => Some(path),
                StepInput::Empty | StepInput::Stream => None,
            },
        ];
        let files = [&self.streams.stdout, &self.streams.stderr];
        let files = files.into_iter().flatten();
        let one = one.into_iter().flatten().map(String::as_str);
        let one = one.chain(self.image.iter().map(Image::as_str));
        let one = one.chain(files.map(OutputPath::as_str)).map(weigh);
        let lists = self.command.iter().chain(&self.inherited);
        let lists = lists.map(|text| weigh(text));
        let variables = self.env.iter().map(|(k, v)| weigh(k) + weigh(v));
        let labels = self.labels.iter();
        let labels = labels.map(|(k, v)| weigh(k.as_str()) + weigh(v.as_str()));
        // Each stands in the spec and, until it is met, beside it.
        let after = self.after.iter();
        let after = after.map(|it| 2 * weigh(it.step.as_str()));
        let keys = self.request.iter().map(|(key, _)| weigh(key.as_str()));
        let mounts = self.mounts.iter().flat_map(LayeredList::items);
        let mounts = mounts.map(|it| weigh(&it.source) + it.target.as_deref().map_or(0, weigh));
        let texts: usize = one.chain(lists).chain(variables).sum();
        let others: usize = labels.chain(after).chain(keys).chain(mounts).sum();
        let ranges = self.array.as_ref().map_or(0, |it| it.indexes.range_count());
        let inputs = self.inputs.iter().map(|it| weigh(&it.name) + INPUT_WEIGHT);
        let keep = self.keep.iter().map(|it| weigh(it.as_str()));
        let ports = self.ports.iter().map(|it| weigh(it.as_str()));
        let others = others + inputs.sum::<usize>() + keep.sum::<usize>();
        let others = others + ports.sum::<usize>() + self.probes.weight();
        (OWN_WEIGHT + texts + others + ranges * RANGE_WEIGHT) as u64
    }
}

impl OnPreempt {
    /// All actions, in order of preference.
    pub const ALL: [OnPreempt; 3] = [OnPreempt::Requeue, OnPreempt::Suspend, OnPreempt::Fail];

    /// The name as the API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            OnPreempt::Requeue => "requeue",
            OnPreempt::Suspend => "suspend",
            OnPreempt::Fail => "fail",
        }
    }
}

/// Value of steps recorded before the field existed.
fn default_free_preemptions() -> bool {
    true
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde gives it by reference"
)]
fn is_false(value: &bool) -> bool {
    !value
}
/// Serializes a step with the values of its environment variables hidden.
///
/// # Errors
/// Those of the serializer.
pub fn serialize_without_env_values<S: serde::Serializer>(
    spec: &StepSpec,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    if spec.env.is_empty() {
        return spec.serialize(serializer);
    }
    let mut told = spec.clone();
    told.env = spec.env.hidden();
    told.serialize(serializer)
}
