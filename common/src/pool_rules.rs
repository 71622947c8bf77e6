//! Rules of a pool for the steps submitted to it: defaults, maxima and availability. The coordinator's core applies
//! them.

use core::fmt;

use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use crate::amount::table::DocumentAmount;
use crate::amount::{MCPU, MEMORY_MB, STORAGE_MB, field};
use crate::document_text::optional_span;
use crate::processors::CpuMode;
use crate::step::OnPreempt;
use crate::time::Span;

/// Setting of a step for which its pool may have a default or a maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    /// Longest run time.
    Timeout,
    /// Longest time in the queue.
    QueueTimeout,
    /// Time between the stop signal and the kill.
    GracePeriod,
    /// Number of retries after own failures.
    Retries,
    /// Action taken on preemption.
    OnPreempt,
    /// Mode in which the step gets its CPU cores.
    CpuMode,
}

impl Setting {
    /// All settings, in order of declaration.
    pub const ALL: [Setting; 6] = [
        Setting::Timeout,
        Setting::QueueTimeout,
        Setting::GracePeriod,
        Setting::Retries,
        Setting::OnPreempt,
        Setting::CpuMode,
    ];

    /// Name of the step's field in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Setting::Timeout => "timeout",
            Setting::QueueTimeout => "queue_timeout",
            Setting::GracePeriod => "grace_period",
            Setting::Retries => "retries",
            Setting::OnPreempt => "on_preempt",
            Setting::CpuMode => "cpu_mode",
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Cores and memory that a step holds in a new pool if it says nothing: those of ZenML.
const NEW_POOL_MCPU: u64 = 1000;
const NEW_POOL_MEMORY_MB: u64 = 2148;

/// Defaults for settings and amounts that steps leave open; absent settings fall back to the built-in defaults, and
/// absent amounts to those of a new pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "PoolDefaults")
)]
#[serde(deny_unknown_fields, default = "StepDefaults::of_new_pool")]
pub struct StepDefaults {
    /// Longest run time, such as `2h`. Does not apply to `work: inference` and `work: notebook`.
    #[serde(with = "optional_span", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<alloc::string::String>"))]
    pub timeout: Option<Span>,
    /// Longest time in the queue, such as `10m`.
    #[serde(with = "optional_span", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<alloc::string::String>"))]
    pub queue_timeout: Option<Span>,
    /// Time between the stop signal and the kill, such as `30s`.
    #[serde(with = "optional_span", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<alloc::string::String>"))]
    pub grace_period: Option<Span>,
    /// Number of retries after own failures. Steps that set `work` use its number instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
    /// Action taken on preemption.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_preempt: Option<OnPreempt>,
    /// Mode in which steps get their CPU cores. `weight` does not apply to steps that request no cores, `pinned` only
    /// to those that request whole cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_mode: Option<CpuMode>,
    /// Cores per host of a step without GPUs that does not state `cpu_count`, such as `1`; with `0` it holds none.
    #[serde(with = "field::cpu")]
    #[cfg_attr(feature = "schema", schemars(with = "DocumentAmount"))]
    pub cpu: u64,
    /// Memory per host of a step without GPUs that does not state `memory`, such as `2GiB`; with `0B` it holds none.
    #[serde(with = "field::memory")]
    #[cfg_attr(feature = "schema", schemars(with = "DocumentAmount"))]
    pub memory: u64,
    /// Storage per host of a step without GPUs that does not state `storage`, such as `10GiB`; with `0B` it holds none.
    #[serde(with = "field::storage", skip_serializing_if = "is_zero")]
    #[cfg_attr(feature = "schema", schemars(with = "DocumentAmount"))]
    pub storage: u64,
}

impl StepDefaults {
    /// The defaults of a pool whose document has none.
    pub fn of_new_pool() -> Self {
        Self {
            cpu: NEW_POOL_MCPU,
            memory: NEW_POOL_MEMORY_MB,
            ..Self::default()
        }
    }

    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The default amounts by key, in their units; 0 is none.
    pub fn amounts(&self) -> [(&'static str, u64); 3] {
        [
            (MCPU, self.cpu),
            (MEMORY_MB, self.memory),
            (STORAGE_MB, self.storage),
        ]
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde gives it by reference"
)]
fn is_zero(amount: &u64) -> bool {
    *amount == 0
}

/// Upper bounds on settings of steps; absent fields have no bound.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "PoolMaxima")
)]
#[serde(deny_unknown_fields, default)]
pub struct StepMaxima {
    /// Longest run time, such as `2d`.
    #[serde(with = "optional_span", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<alloc::string::String>"))]
    pub timeout: Option<Span>,
    /// Longest time in the queue, such as `1h`.
    #[serde(with = "optional_span", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<alloc::string::String>"))]
    pub queue_timeout: Option<Span>,
    /// Longest time between the stop signal and the kill, such as `2m`.
    #[serde(with = "optional_span", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<alloc::string::String>"))]
    pub grace_period: Option<Span>,
    /// Most retries after own failures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
}

impl StepMaxima {
    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Availability of a pool for submitters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PoolStatus {
    /// At least one host is connected.
    #[default]
    Online,
    /// No host is connected, or there is none: steps are accepted and wait.
    Offline,
    /// New steps are refused; queued and running steps continue.
    Maintenance,
    /// The coordinator was restored from an earlier state: steps are accepted, but none starts until hosts have
    /// reported what they run.
    Recovering,
}

impl PoolStatus {
    /// The status as the API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            PoolStatus::Online => "online",
            PoolStatus::Offline => "offline",
            PoolStatus::Maintenance => "maintenance",
            PoolStatus::Recovering => "recovering",
        }
    }
}
