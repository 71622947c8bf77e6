//! A pool's spec as the log stores it: spans in milliseconds, and the rules for steps below `rules`. Documents have
//! spans as texts and no such level.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use sluice_common::id::{PlatformName, TemplateName, ValidationName};
use sluice_common::inventory::Capability;
use sluice_common::platform::spec::UnmatchedPlatform;
use sluice_common::pool::{GpuHosts, PoolSpec, PriorityPreemption, ResourceTable};
use sluice_common::pool_rules::{StepDefaults, StepMaxima};
use sluice_common::processors::CpuMode;
use sluice_common::step::OnPreempt;
use sluice_common::time::Span;

/// A pool's spec, without its platforms.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(remote = "PoolSpec")]
pub(crate) struct StoredPoolSpec {
    description: String,
    /// Capacity by key, if it is declared; what is not is what its nodes report.
    #[serde(default)]
    capacity: ResourceTable,
    /// For how long after its start a run is spared by others' priority and reclaim.
    #[serde(default)]
    min_runtime: Span,
    /// What its nodes must be able to do to the processes of a step; one that cannot gets no new work.
    #[serde(default)]
    require: BTreeSet<Capability>,
    /// Use of CPU, memory and storage beside GPUs.
    #[serde(default, skip_serializing_if = "GpuHosts::is_entitled")]
    gpu_hosts: GpuHosts,
    /// Whether its steps are preempted by priority.
    #[serde(default, skip_serializing_if = "PriorityPreemption::is_on")]
    priority_preemption: PriorityPreemption,
    /// The rules over what is submitted to it.
    #[serde(
        default,
        getter = "PoolRules::of",
        skip_serializing_if = "PoolRules::is_empty"
    )]
    rules: PoolRules,
}

/// The rules of a pool. The default lets everything in as it is.
#[derive(Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
struct PoolRules {
    /// What whoever submits to it is told while it takes nothing; `None` while it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    maintenance: Option<String>,
    /// What holds where a step says nothing.
    #[serde(
        with = "StoredDefaults",
        skip_serializing_if = "StepDefaults::is_empty"
    )]
    defaults: StepDefaults,
    /// What a step may say at most.
    #[serde(with = "StoredMaxima", skip_serializing_if = "StepMaxima::is_empty")]
    max: StepMaxima,
    /// What may happen to steps that must be preempted; anything where it is empty.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    on_preempt_allowed: BTreeSet<OnPreempt>,
    /// The platform of steps that name none; any where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    default_platform: Option<PlatformName>,
    /// What becomes of a request for a platform that is declared and has no host.
    #[serde(skip_serializing_if = "UnmatchedPlatform::is_reject")]
    unmatched_platform: UnmatchedPlatform,
    /// The documents of assertions that a step must keep.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    validations: Vec<ValidationName>,
    /// What lies under its steps, the lowest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    templates: Vec<TemplateName>,
}

/// What holds where a step says nothing; what is absent here too is as it is anywhere.
#[derive(Default, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "StepDefaults")
)]
#[serde(default, remote = "StepDefaults")]
struct StoredDefaults {
    /// Time for which it may run.
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout: Option<Span>,
    /// Time for which it may wait for its resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_timeout: Option<Span>,
    /// Between the stop signal and the kill.
    #[serde(skip_serializing_if = "Option::is_none")]
    grace_period: Option<Span>,
    /// Number of times it is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    retries: Option<u32>,
    /// What happens when it must be preempted.
    #[serde(skip_serializing_if = "Option::is_none")]
    on_preempt: Option<OnPreempt>,
    /// How it has its processors, where as many as it asks for can be had so.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_mode: Option<CpuMode>,
}

/// What a step may say at most; what is absent has no bound here.
#[derive(Default, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "StepMaxima")
)]
#[serde(default, remote = "StepMaxima")]
struct StoredMaxima {
    /// Time for which it may run.
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout: Option<Span>,
    /// Time for which it may wait for its resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_timeout: Option<Span>,
    /// Between the stop signal and the kill.
    #[serde(skip_serializing_if = "Option::is_none")]
    grace_period: Option<Span>,
    /// Number of times it is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    retries: Option<u32>,
}

impl PoolRules {
    fn of(spec: &PoolSpec) -> Self {
        Self {
            maintenance: spec.maintenance.clone(),
            defaults: spec.defaults.clone(),
            max: spec.max.clone(),
            on_preempt_allowed: spec.on_preempt_allowed.clone(),
            default_platform: spec.default_platform.clone(),
            unmatched_platform: spec.unmatched_platform,
            validations: spec.validations.clone(),
            templates: spec.templates.clone(),
        }
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl From<StoredPoolSpec> for PoolSpec {
    fn from(logged: StoredPoolSpec) -> Self {
        let rules = logged.rules;
        Self {
            description: logged.description,
            capacity: logged.capacity,
            min_runtime: logged.min_runtime,
            require: logged.require,
            gpu_hosts: logged.gpu_hosts,
            priority_preemption: logged.priority_preemption,
            maintenance: rules.maintenance,
            defaults: rules.defaults,
            max: rules.max,
            on_preempt_allowed: rules.on_preempt_allowed,
            validations: rules.validations,
            default_platform: rules.default_platform,
            unmatched_platform: rules.unmatched_platform,
            platforms: None,
            templates: rules.templates,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;
    use std::string::ToString;

    const ALL: &str = r#"{"type":"pool_put","pool":"p","description":"d","capacity":{"gpu":8},"min_runtime":600000,"require":["kill"],"rules":{"maintenance":"m","defaults":{"timeout":7200000,"queue_timeout":60000,"grace_period":30000,"retries":2,"on_preempt":"fail","cpu_mode":"weight"},"max":{"timeout":86400000,"queue_timeout":120000,"grace_period":60000,"retries":3},"on_preempt_allowed":["fail"],"default_platform":"a100","unmatched_platform":"wait","validations":["v"],"templates":["t"]}}"#;
    const LEAST: &str = r#"{"type":"pool_put","pool":"p","description":"","capacity":{},"min_runtime":0,"require":[]}"#;

    #[test]
    fn a_pool_is_read_from_logs_and_written_to_them_as_ever() {
        for text in [ALL, LEAST] {
            let record: Record = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&record).unwrap(), text);
        }
    }

    #[test]
    fn what_logs_have_is_what_documents_say() {
        let document = r#"{"description":"d","capacity":{"gpu":8},"min_runtime":"10m","require":["kill"],
            "maintenance":"m","defaults":{"timeout":"2h","queue_timeout":"1m","grace_period":"30s","retries":2,
            "on_preempt":"fail","cpu_mode":"weight"},"max":{"timeout":"1d","queue_timeout":"2m","grace_period":"1m",
            "retries":3},"on_preempt_allowed":["fail"],"default_platform":"a100","unmatched_platform":"wait",
            "validations":["v"],"templates":["t"]}"#;
        let spec: PoolSpec = serde_json::from_str(document).unwrap();
        let record: Record = serde_json::from_str(ALL).unwrap();
        let Record::PoolPut(put) = record else {
            panic!("it is another record")
        };
        assert_eq!(put.spec, spec);
        let told: serde_json::Value = serde_json::from_str(document).unwrap();
        assert_eq!(serde_json::to_value(&spec).unwrap(), told);
        let wrong = serde_json::from_str::<PoolSpec>(r#"{"min_runtime":"5"}"#).unwrap_err();
        assert!(wrong.to_string().contains("such as `30s`"));
    }
}
