//! The rules of a pool over what is submitted to it: whether it takes anything now, what holds where a step says
//! nothing, and what it may say at most. The coordinator's core applies them.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::document_text::optional_span;
use crate::processors::CpuMode;
use crate::step::OnPreempt;
use crate::time::Span;

/// A setting of a step that its pool has a say in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    /// How long it may run.
    Timeout,
    /// How long it may wait for its units.
    QueueTimeout,
    /// Between the stop signal and the kill.
    GracePeriod,
    /// How often it is tried again.
    Retries,
    /// What happens when it must give way.
    OnPreempt,
    /// How it has its processors.
    CpuMode,
}

impl Setting {
    /// All of them.
    pub const ALL: [Setting; 6] = [
        Setting::Timeout,
        Setting::QueueTimeout,
        Setting::GracePeriod,
        Setting::Retries,
        Setting::OnPreempt,
        Setting::CpuMode,
    ];

    /// The field of a step as the API writes it.
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

/// What holds for steps of a pool where they say nothing themselves; what is absent here too is as it is anywhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "PoolDefaults")
)]
#[serde(deny_unknown_fields, default)]
pub struct StepDefaults {
    /// How long it may run, such as `2h`. Steps of `work: inference` and `work: notebook` do not take it.
    #[serde(with = "optional_span", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<alloc::string::String>"))]
    pub timeout: Option<Span>,
    /// How long it may wait for its units, such as `10m`.
    #[serde(with = "optional_span", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<alloc::string::String>"))]
    pub queue_timeout: Option<Span>,
    /// Between the stop signal and the kill, such as `30s`.
    #[serde(with = "optional_span", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<alloc::string::String>"))]
    pub grace_period: Option<Span>,
    /// How often it is tried again after a failure of its own. Steps that say their kind of `work` have its number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
    /// What happens when it must give way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_preempt: Option<OnPreempt>,
    /// How it has its processors. Steps that ask for none take no `weight`, and those that ask for parts of one, or for
    /// none, are not `pinned`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_mode: Option<CpuMode>,
}

impl StepDefaults {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What steps of a pool may say at most; what is absent has no bound here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "PoolMaxima")
)]
#[serde(deny_unknown_fields, default)]
pub struct StepMaxima {
    /// How long it may run, such as `2d`.
    #[serde(with = "optional_span", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<alloc::string::String>"))]
    pub timeout: Option<Span>,
    /// How long it may wait for its units, such as `1h`.
    #[serde(with = "optional_span", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<alloc::string::String>"))]
    pub queue_timeout: Option<Span>,
    /// Between the stop signal and the kill, such as `2m`.
    #[serde(with = "optional_span", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<alloc::string::String>"))]
    pub grace_period: Option<Span>,
    /// How often it is tried again after a failure of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
}

impl StepMaxima {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// How a pool stands for whoever submits to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PoolStatus {
    /// A host of it at least is heard.
    #[default]
    Online,
    /// None of its hosts is heard, or there are none: steps are accepted and wait.
    Offline,
    /// It takes no new steps; those that wait or run go on.
    Maintenance,
    /// The coordinator was brought back from an earlier time: steps are accepted, and none starts until hosts have told what
    /// they run.
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
