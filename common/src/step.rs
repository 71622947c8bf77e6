//! A step as it was understood: every field checked, every default filled in. [`crate::request`] is what was written.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use serde::{Deserialize, Serialize};

use crate::amount::Amounts;
use crate::environment::Environment;
use crate::id::{PoolName, Subject, UserName};
use crate::label::{LabelKey, LabelValue};
use crate::pool_rules::Setting;
use crate::processors::CpuMode;
use crate::request::ResourceSettings;
use crate::template::{LayeredList, Mount};
use crate::time::Span;

/// What happens to a step that gives way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnPreempt {
    /// It is stopped and waits again in its old place.
    #[default]
    Requeue,
    /// It is frozen, and its GPUs are emptied.
    Suspend,
    /// It is stopped for good.
    Fail,
}

/// The short form of whether a step gives way, and who of a subject's steps goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PriorityClass {
    /// Inside the reserved share, before its subject's others.
    High,
    /// Inside the reserved share.
    Normal,
    /// Borrows and gives way, after its subject's others.
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

/// What kind of work a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Work"))]
#[serde(rename_all = "snake_case")]
pub enum WorkKind {
    /// It makes a model, writes checkpoints and can begin again from one.
    Training,
    /// It answers requests, for as long as it is let.
    Inference,
    /// Somebody works in it.
    Notebook,
    /// Anything else that comes to an end.
    Compute,
}

impl WorkKind {
    /// Every kind, in the order in which they are shown.
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

/// Why a text is no kind of work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no kind of work: write training, inference, notebook or compute")]
pub struct WorkKindError {
    /// What was written, escaped.
    pub text: String,
}

impl fmt::Display for WorkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What to run, for whom and with how much.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepSpec {
    /// A name for people; need not be unique.
    pub name: String,
    /// On whose behalf.
    pub subject: Subject,
    /// The user whom the coordinator had authenticated when the step was submitted; `None` if the caller was no user. No
    /// request can say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitted_by: Option<UserName>,
    /// The one pool it may run in; `None` leaves the choice to the coordinator.
    pub pool: Option<PoolName>,
    /// The kind of hardware it asks for, as it was written: platforms with `,` between them, or `any`.
    pub platform: Option<String>,
    /// Program and arguments; never empty. The program is looked up in the `PATH` of the step's own environment.
    pub command: Vec<String>,
    /// Environment, on top of the few variables that every step gets.
    pub env: Environment,
    /// Absolute path on the host; `None` is a directory of the attempt's own.
    pub workdir: Option<String>,
    /// The resources as they were written, shown back unchanged.
    pub resources: ResourceSettings,
    /// What it takes on each host.
    pub request: Amounts,
    /// Whether it may be made to give way.
    pub preemptible: bool,
    /// On how many distinct hosts it runs at once.
    pub nodes: u32,
    /// Order among the steps of its own subject; higher goes first.
    pub priority: i64,
    /// How often it is tried again after a failure of its own.
    pub retries: u32,
    /// How long it may run; `None` is for ever.
    pub timeout: Option<Span>,
    /// Between the stop signal and the kill.
    pub grace: Span,
    /// What happens when it must give way.
    pub on_preempt: OnPreempt,
    /// Whether it waits, rather than being rejected, while no remembered host could hold it.
    pub allow_pending: bool,
    /// Whether giving way to others and losing hosts leave its retries alone; if not, they spend them.
    #[serde(default = "default_free_preemptions")]
    pub free_preemptions: bool,
    /// The class that it was given, which says what the fields above say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class: Option<PriorityClass>,
    /// What kind of work it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkKind>,
    /// How long it may be frozen before it is stopped and waits to start anew; `None` is
    /// [`crate::limit::DEFAULT_SUSPEND_TIMEOUT`], and for ever while somebody holds it.
    #[serde(default)]
    pub suspend_timeout: Option<Span>,
    /// How long it may wait for its units, from its submission or from when it was queued again; `None` is for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_timeout: Option<Span>,
    /// What it does not say itself, so that its pool may.
    #[serde(default, rename = "unsaid", skip_serializing_if = "BTreeSet::is_empty")]
    pub unset: BTreeSet<Setting>,
    /// Words of its submitter's own, by which lists and rules tell steps apart.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<LabelKey, LabelValue>,
    /// How it has the processors that it takes.
    #[serde(default, skip_serializing_if = "CpuMode::is_default")]
    pub cpu_mode: CpuMode,
    /// What its wrapper is to show it of the host, as it says itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mounts: Option<LayeredList<Mount>>,
    /// Whether its wrapper is to let it do what root may.
    #[serde(default, skip_serializing_if = "is_false")]
    pub privileged: bool,
    /// Whether its wrapper is to leave it in the host's network.
    #[serde(default, skip_serializing_if = "is_false")]
    pub host_network: bool,
    /// Fields that it takes from the `defaults` of what it belongs to, such as its pipeline: `retries`, `env.LR`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub inherited: BTreeSet<String>,
}

/// What each step weighs beside its texts, and each text beside its bytes.
const OWN_WEIGHT: usize = 1024;
const TEXT_WEIGHT: usize = 16;

impl StepSpec {
    /// About how many bytes it takes where it is stored and remembered. It counts what its submitter chooses.
    pub fn weight(&self) -> u64 {
        let weigh = |text: &str| text.len() + TEXT_WEIGHT;
        let one = [
            Some(&self.name),
            self.platform.as_ref(),
            self.workdir.as_ref(),
        ];
        let one = one.into_iter().flatten().map(|text| weigh(text));
        let lists = self.command.iter().chain(&self.inherited);
        let lists = lists.map(|text| weigh(text));
        let variables = self.env.iter().map(|(k, v)| weigh(k) + weigh(v));
        let labels = self.labels.iter();
        let labels = labels.map(|(k, v)| weigh(k.as_str()) + weigh(v.as_str()));
        let keys = self.request.iter().map(|(key, _)| weigh(key.as_str()));
        let mounts = self.mounts.iter().flat_map(LayeredList::items);
        let mounts = mounts.map(|it| weigh(&it.source) + it.target.as_deref().map_or(0, weigh));
        let texts: usize = one.chain(lists).chain(variables).sum();
        let others: usize = labels.chain(keys).chain(mounts).sum();
        (OWN_WEIGHT + texts + others) as u64
    }
}

impl OnPreempt {
    /// Every mode, in the order of preference.
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

/// What steps of before the choice have.
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
/// Writes a step without the values of its variables, for a text that many may read.
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
