//! The rules of a pool as somebody writes them, and as they are shown: durations are texts such as `2h`.

use alloc::string::String;
use serde::{Deserialize, Serialize};

use super::duration;
use crate::processors::CpuMode;
use crate::rules::{StepDefaults, StepMaxima};
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
