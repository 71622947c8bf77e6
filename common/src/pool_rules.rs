//! Rules of a pool for the steps submitted to it: defaults, maxima and availability. The coordinator's core applies
//! them.

use core::fmt;

use serde::{Deserialize, Serialize};

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

/// Defaults for settings that steps leave open; absent fields fall back to the built-in defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "PoolDefaults")
)]
#[serde(deny_unknown_fields, default)]
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
}

impl StepDefaults {
    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
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
