//! The rules of a pool over what is submitted to it: whether it takes anything now, what holds where a step says
//! nothing, and what it may say at most. The coordinator's core applies them; what was written is in [`crate::api`].

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::id::TemplateName;
use crate::id::{PlatformName, ValidationName};
use crate::platform::terms::UnmatchedPlatform;
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

/// The rules of a pool. The default lets everything in as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct PoolRules {
    /// What whoever submits to it is told while it takes nothing; `None` while it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<String>,
    /// What holds where a step says nothing.
    #[serde(skip_serializing_if = "is_default")]
    pub defaults: StepDefaults,
    /// What a step may say at most.
    #[serde(skip_serializing_if = "is_default")]
    pub max: StepMaxima,
    /// What may happen to steps that must give way; anything where it is empty.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub on_preempt_allowed: BTreeSet<OnPreempt>,
    /// The platform of steps that name none; any where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_platform: Option<PlatformName>,
    /// What becomes of a request for a platform that is declared and has no host.
    #[serde(skip_serializing_if = "is_default")]
    pub unmatched_platform: UnmatchedPlatform,
    /// The documents of assertions that a step must keep.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub validations: Vec<ValidationName>,
    /// What lies under its steps, the lowest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub templates: Vec<TemplateName>,
}

impl PoolRules {
    /// Whether it lets everything in as it is.
    pub fn is_empty(&self) -> bool {
        is_default(self)
    }

    /// Whether a mode of giving way is allowed.
    pub fn allows(&self, mode: OnPreempt) -> bool {
        self.on_preempt_allowed.is_empty() || self.on_preempt_allowed.contains(&mode)
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What holds where a step says nothing; what is absent here too is as it is anywhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct StepDefaults {
    /// How long it may run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// How long it may wait for its units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_timeout: Option<Span>,
    /// Between the stop signal and the kill.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_period: Option<Span>,
    /// How often it is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
    /// What happens when it must give way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_preempt: Option<OnPreempt>,
    /// How it has its processors, where as many as it asks for can be had so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_mode: Option<CpuMode>,
}

/// What a step may say at most; what is absent has no bound here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct StepMaxima {
    /// How long it may run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// How long it may wait for its units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_timeout: Option<Span>,
    /// Between the stop signal and the kill.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_period: Option<Span>,
    /// How often it is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
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
