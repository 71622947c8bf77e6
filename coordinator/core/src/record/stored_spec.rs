//! A pool's spec as the log stores it: spans in milliseconds, and the rules for steps below `rules`. In documents,
//! spans are texts and there is no such level.

#[cfg(feature = "schema")]
use alloc::collections::BTreeMap;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use sluice_common::amount::table;
use sluice_common::id::{PlatformName, TemplateName, ValidationName};
use sluice_common::inventory::Capability;
use sluice_common::platform::spec::UnmatchedPlatform;
use sluice_common::pool::{FairShare, GpuHosts, HostPlacement, PoolHosts, PoolSpec, ResourceTable};
use sluice_common::pool_rules::{StepDefaults, StepMaxima};
use sluice_common::priority_preemption::PriorityPreemption;
use sluice_common::processors::CpuMode;
use sluice_common::step::OnPreempt;
use sluice_common::time::Span;

/// A pool's spec, without its platforms.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(remote = "PoolSpec")]
pub(crate) struct StoredPoolSpec {
    description: String,
    /// Hosts of the pool.
    #[serde(default, skip_serializing_if = "PoolHosts::are_joined")]
    hosts: PoolHosts,
    /// Declared capacity by key. Other keys have what the nodes report.
    #[serde(default, with = "table")]
    #[cfg_attr(
        feature = "schema",
        schemars(with = "BTreeMap<String, table::DocumentAmount>")
    )]
    capacity: ResourceTable,
    /// Time after its start for which a run is protected from preemption by others' priority and reclaim.
    #[serde(default)]
    min_runtime: Span,
    /// Capabilities that its nodes must have. A node that lacks one gets no new work.
    #[serde(default)]
    require: BTreeSet<Capability>,
    /// Use of CPU, memory and storage beside GPUs.
    #[serde(default, skip_serializing_if = "GpuHosts::is_entitled")]
    gpu_hosts: GpuHosts,
    /// Choice of the host among those with room.
    #[serde(default, skip_serializing_if = "HostPlacement::is_pack")]
    placement: HostPlacement,
    /// Whether and how far its steps are preempted by priority.
    #[serde(default, skip_serializing_if = "PriorityPreemption::is_default")]
    priority_preemption: PriorityPreemption,
    /// Order of subjects of equal priority by what they borrowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fair_share: Option<FairShare>,
    /// Whether the users of a subject share fairly too.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    fair_users: bool,
    /// Rules for submitted steps.
    #[serde(
        default,
        getter = "PoolRules::of",
        skip_serializing_if = "PoolRules::is_empty"
    )]
    rules: PoolRules,
}

/// The rules of a pool. The default admits every step as it is.
#[derive(Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
struct PoolRules {
    /// Message to submitters while the pool is in maintenance; `None` while it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    maintenance: Option<String>,
    /// Defaults for fields that a step leaves out.
    #[serde(
        with = "StoredDefaults",
        skip_serializing_if = "StepDefaults::is_empty"
    )]
    defaults: StepDefaults,
    /// Maxima for fields of a step.
    #[serde(with = "StoredMaxima", skip_serializing_if = "StepMaxima::is_empty")]
    max: StepMaxima,
    /// Allowed modes of preemption; any if empty.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    on_preempt_allowed: BTreeSet<OnPreempt>,
    /// The platform of steps that name none; any if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    default_platform: Option<PlatformName>,
    /// Treatment of a request for a declared platform without hosts.
    #[serde(skip_serializing_if = "UnmatchedPlatform::is_reject")]
    unmatched_platform: UnmatchedPlatform,
    /// Validation documents that a step must keep.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    validations: Vec<ValidationName>,
    /// Templates under its steps, the lowest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    templates: Vec<TemplateName>,
}

/// Defaults of a pool. A field that is absent here too has the built-in default.
#[derive(Default, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "StepDefaults")
)]
#[serde(default, remote = "StepDefaults")]
struct StoredDefaults {
    /// Longest run time.
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout: Option<Span>,
    /// Longest time in the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_timeout: Option<Span>,
    /// Time between the stop signal and the kill.
    #[serde(skip_serializing_if = "Option::is_none")]
    grace_period: Option<Span>,
    /// Number of retries.
    #[serde(skip_serializing_if = "Option::is_none")]
    retries: Option<u32>,
    /// Mode of preemption.
    #[serde(skip_serializing_if = "Option::is_none")]
    on_preempt: Option<OnPreempt>,
    /// CPU mode, if it allows the number of cores that the step asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_mode: Option<CpuMode>,
    /// Amounts, in the units of their keys. Pools of older releases have none.
    #[serde(rename = "mcpu", skip_serializing_if = "is_zero")]
    cpu: u64,
    #[serde(rename = "memory_mb", skip_serializing_if = "is_zero")]
    memory: u64,
    #[serde(rename = "storage_mb", skip_serializing_if = "is_zero")]
    storage: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde gives it by reference"
)]
fn is_zero(amount: &u64) -> bool {
    *amount == 0
}

/// Maxima of a pool. A field that is absent has no bound here.
#[derive(Default, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "StepMaxima")
)]
#[serde(default, remote = "StepMaxima")]
struct StoredMaxima {
    /// Longest run time.
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout: Option<Span>,
    /// Longest time in the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_timeout: Option<Span>,
    /// Time between the stop signal and the kill.
    #[serde(skip_serializing_if = "Option::is_none")]
    grace_period: Option<Span>,
    /// Number of retries.
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
            hosts: logged.hosts,
            capacity: logged.capacity,
            min_runtime: logged.min_runtime,
            require: logged.require,
            gpu_hosts: logged.gpu_hosts,
            placement: logged.placement,
            priority_preemption: logged.priority_preemption,
            fair_share: logged.fair_share,
            fair_users: logged.fair_users,
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

    const ALL: &str = r#"{"type":"pool_put","pool":"p","description":"d","capacity":{"gpu":8},"min_runtime":600000,"require":["kill"],"placement":"spread","rules":{"maintenance":"m","defaults":{"timeout":7200000,"queue_timeout":60000,"grace_period":30000,"retries":2,"on_preempt":"fail","cpu_mode":"weight","mcpu":1000,"memory_mb":2148,"storage_mb":1000},"max":{"timeout":86400000,"queue_timeout":120000,"grace_period":60000,"retries":3},"on_preempt_allowed":["fail"],"default_platform":"a100","unmatched_platform":"wait","validations":["v"],"templates":["t"]}}"#;
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
            "placement":"spread","maintenance":"m","defaults":{"timeout":"2h","queue_timeout":"1m","grace_period":"30s","retries":2,
            "on_preempt":"fail","cpu_mode":"weight","cpu":1,"memory":"2GiB","storage":"1GB"},"max":{"timeout":"1d","queue_timeout":"2m","grace_period":"1m",
            "retries":3},"on_preempt_allowed":["fail"],"default_platform":"a100","unmatched_platform":"wait",
            "validations":["v"],"templates":["t"]}"#;
        let spec: PoolSpec = serde_json::from_str(document).unwrap();
        let record: Record = serde_json::from_str(ALL).unwrap();
        let Record::PoolPut(put) = record else {
            panic!("it is another record")
        };
        assert_eq!(put.spec, spec);
        let expected: serde_json::Value = serde_json::from_str(document).unwrap();
        assert_eq!(serde_json::to_value(&spec).unwrap(), expected);
        let wrong = serde_json::from_str::<PoolSpec>(r#"{"min_runtime":"5"}"#).unwrap_err();
        assert!(wrong.to_string().contains("such as `30s`"));
    }
}
