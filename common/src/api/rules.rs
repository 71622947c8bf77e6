//! The rules of a pool as somebody writes them, and as they are shown: durations are texts such as `2h`.

use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use super::duration;
use crate::id::PlatformName;
use crate::id::ValidationName;
use crate::platform::terms::UnmatchedPlatform;
use crate::processors::CpuMode;
use crate::rules::{PoolRules, StepDefaults, StepMaxima};
use crate::step::OnPreempt;

/// What holds for steps of a pool where they say nothing themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct PoolDefaults {
    /// How long it may run, such as `2h`. Steps of `work: inference` and `work: notebook` do not take it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// How long it may wait for its units, such as `10m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_timeout: Option<String>,
    /// Between the stop signal and the kill, such as `30s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_period: Option<String>,
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

/// What steps of a pool may say at most.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct PoolMaxima {
    /// How long it may run, such as `2d`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// How long it may wait for its units, such as `1h`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_timeout: Option<String>,
    /// Between the stop signal and the kill, such as `2m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_period: Option<String>,
    /// How often it is tried again after a failure of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
}

impl PoolDefaults {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl PoolMaxima {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl From<&StepDefaults> for PoolDefaults {
    fn from(defaults: &StepDefaults) -> Self {
        Self {
            timeout: defaults.timeout.map(duration),
            queue_timeout: defaults.queue_timeout.map(duration),
            grace_period: defaults.grace_period.map(duration),
            retries: defaults.retries,
            on_preempt: defaults.on_preempt,
            cpu_mode: defaults.cpu_mode,
        }
    }
}

impl From<&StepMaxima> for PoolMaxima {
    fn from(max: &StepMaxima) -> Self {
        Self {
            timeout: max.timeout.map(duration),
            queue_timeout: max.queue_timeout.map(duration),
            grace_period: max.grace_period.map(duration),
            retries: max.retries,
        }
    }
}

/// The rules of a pool, to be taken apart into the fields of a document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RulesWritten {
    /// What whoever submits is told while the pool takes nothing.
    pub maintenance: Option<String>,
    /// What holds where a step says nothing.
    pub defaults: PoolDefaults,
    /// What a step may say at most.
    pub max: PoolMaxima,
    /// What may happen to steps that must give way.
    pub on_preempt_allowed: BTreeSet<OnPreempt>,
    /// The documents of assertions that a step must keep.
    pub validations: Vec<ValidationName>,
    /// The platform of steps that name none.
    pub default_platform: Option<PlatformName>,
    /// What becomes of a request for a platform that is declared and has no host.
    pub unmatched_platform: UnmatchedPlatform,
    /// What lies under its steps.
    pub templates: Vec<String>,
}

impl From<&PoolRules> for RulesWritten {
    fn from(rules: &PoolRules) -> Self {
        Self {
            maintenance: rules.maintenance.clone(),
            defaults: PoolDefaults::from(&rules.defaults),
            max: PoolMaxima::from(&rules.max),
            on_preempt_allowed: rules.on_preempt_allowed.clone(),
            validations: rules.validations.clone(),
            default_platform: rules.default_platform.clone(),
            unmatched_platform: rules.unmatched_platform,
            templates: rules.templates.iter().map(ToString::to_string).collect(),
        }
    }
}
