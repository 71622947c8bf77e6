//! Specs of pools and policies, used in documents, requests, records and responses alike. Platforms are in
//! `platform/spec.rs`. The coordinator's core validates and applies them.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::num::NonZeroU32;

use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use crate::amount::table::DocumentAmount;
use crate::amount::{ResourceKey, STEP_RUN, table};
use crate::document::{PlatformItemId, SpecDocument};
use crate::document_text::{parse_texts, span_or_zero};
use crate::id::{PlatformName, TemplateName, ValidationName};
use crate::inventory::Capability;
use crate::platform::spec::{PlatformSpec, UnmatchedPlatform};
use crate::pool_rules::{StepDefaults, StepMaxima};
use crate::priority_preemption::PriorityPreemption;
use crate::step::OnPreempt;
use crate::time::Span;

/// Amounts by resource key as written; zeros are kept.
pub type ResourceTable = BTreeMap<ResourceKey, u64>;

/// A platform in its pool's list.
pub type NamedPlatform = SpecDocument<PlatformItemId, PlatformSpec>;

/// Spec of a pool. The default accepts every step unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "PoolRequest")
)]
#[serde(deny_unknown_fields, default)]
pub struct PoolSpec {
    /// Free text for people.
    pub description: String,
    /// Hosts of the pool: `joined` (the default), or `none` for a pool that only counts its declared capacity, such as
    /// licences. It grants allocations alone. Set when the pool is created, and never changed.
    #[serde(skip_serializing_if = "PoolHosts::are_joined")]
    pub hosts: PoolHosts,
    /// Declared capacity by key; for other keys the nodes' capacities are added up.
    #[serde(with = "table", skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(
        feature = "schema",
        schemars(with = "BTreeMap<String, DocumentAmount>")
    )]
    pub capacity: ResourceTable,
    /// Time after its start during which a run is protected from preemption by priority and reclaim, such as `10m`;
    /// `0s` if absent.
    #[serde(with = "span_or_zero")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "nullable_if_read"))]
    pub min_runtime: Span,
    /// Capabilities that nodes must have, such as `kill` or `devices`; a node that lacks one gets no new work.
    #[serde(deserialize_with = "parse_texts")]
    pub require: BTreeSet<Capability>,
    /// Message to submitters while the pool accepts no new steps; the pool accepts steps if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<String>,
    /// Defaults for settings and amounts that steps leave open.
    #[serde(default = "StepDefaults::of_new_pool")]
    pub defaults: StepDefaults,
    /// Upper bounds on settings of steps.
    #[serde(skip_serializing_if = "StepMaxima::is_empty")]
    pub max: StepMaxima,
    /// Permitted actions on preemption; all if empty.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub on_preempt_allowed: BTreeSet<OnPreempt>,
    /// Validations that steps must pass.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub validations: Vec<ValidationName>,
    /// Platform of steps that name none; any if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_platform: Option<PlatformName>,
    /// Action on a request for a declared platform without hosts: `reject` or `wait`.
    #[serde(skip_serializing_if = "UnmatchedPlatform::is_reject")]
    pub unmatched_platform: UnmatchedPlatform,
    /// Use of CPU, memory and storage beside GPUs: `entitled` or `open`.
    #[serde(skip_serializing_if = "GpuHosts::is_entitled")]
    pub gpu_hosts: GpuHosts,
    /// Host of a step, of those with room: with `pack` (the default) the one that is left with least, with `spread` the
    /// one with the most free GPUs, then cores.
    #[serde(skip_serializing_if = "HostPlacement::is_pack")]
    pub placement: HostPlacement,
    /// Whether steps are preempted by priority: `on` (the default) bounds the work lost in 24 hours to 1 % of the pool's
    /// GPU time, `{budget: 5%}` to another part; `unlimited`; `off`. Reserved shares are reclaimed either way.
    #[serde(skip_serializing_if = "PriorityPreemption::is_default")]
    pub priority_preemption: PriorityPreemption,
    /// Order of subjects of equal priority by what they borrowed lately; by submission if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_share: Option<FairShare>,
    /// Whether the users of a subject share fairly too. Needs `fair_share`.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub fair_users: bool,
    /// Complete list of declared platforms. If absent, only platforms that separate documents of the same call declare.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platforms: Option<Vec<NamedPlatform>>,
    /// Templates applied to the pool's steps, lowest first.
    #[serde(
        deserialize_with = "parse_texts",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub templates: Vec<TemplateName>,
}

impl PoolSpec {
    /// The spec of a pool whose document sets nothing.
    pub fn of_new_pool() -> Self {
        Self {
            defaults: StepDefaults::of_new_pool(),
            ..Self::default()
        }
    }

    /// Whether a step may choose this action on preemption.
    pub fn allows(&self, mode: OnPreempt) -> bool {
        self.on_preempt_allowed.is_empty() || self.on_preempt_allowed.contains(&mode)
    }
}

/// Hosts of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PoolHosts {
    /// Those that join it.
    #[default]
    Joined,
    /// None, ever: the pool counts what it declares, and whoever holds an allocation uses it elsewhere.
    None,
}

impl PoolHosts {
    /// Whether hosts may join: the default.
    pub fn are_joined(&self) -> bool {
        *self == Self::Joined
    }
}

/// Steps that may hold CPU, memory and storage of hosts with GPUs beyond what their own GPUs carry. Each GPU carries the
/// same part of its host's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum GpuHosts {
    /// Only preemptible steps, and steps whose policy reserves the resource.
    #[default]
    Entitled,
    /// Every step of every subject.
    Open,
}

impl GpuHosts {
    /// Whether GPUs entitle to what they carry: the default.
    pub fn is_entitled(&self) -> bool {
        *self == Self::Entitled
    }
}

/// Choice of the host of a step among those that have room for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum HostPlacement {
    /// The host that is left with least, so that the others stay free for large steps.
    #[default]
    Pack,
    /// The host with the most free GPUs, then cores, so that steps share hosts as little as possible.
    Spread,
}

impl HostPlacement {
    /// Whether hosts are filled one after the other: the default.
    pub fn is_pack(&self) -> bool {
        *self == Self::Pack
    }

    /// The default for the replicas of a service.
    pub const fn of_services() -> Self {
        Self::Spread
    }

    /// Whether steps share hosts as little as possible.
    pub fn is_spread(&self) -> bool {
        *self == Self::Spread
    }
}

/// Fair share over time: what a subject uses beyond its reserved share counts against it, and counts half as much after
/// each half-life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FairShare {
    /// Time after which use counts half as much, such as `7d`.
    #[serde(with = "span_or_zero")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub half_life: Span,
}

/// Schema of a span; allows `null` in requests only.
#[cfg(feature = "schema")]
fn nullable_if_read(schemas: &mut schemars::SchemaGenerator) -> schemars::Schema {
    match schemas.contract().is_deserialize() {
        true => schemas.subschema_for::<Option<String>>(),
        false => schemas.subschema_for::<String>(),
    }
}

/// Policy of a subject in a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "PolicyRequest")
)]
#[serde(deny_unknown_fields, default)]
pub struct PolicySpec {
    /// Priority of the subject; higher goes first.
    pub priority: u64,
    /// Reserved amounts by key; 0 for keys not named.
    #[serde(with = "table")]
    #[cfg_attr(
        feature = "schema",
        schemars(with = "BTreeMap<String, DocumentAmount>")
    )]
    pub reserved: ResourceTable,
    /// Limits by key; for keys not named only the pool bounds the subject.
    #[serde(with = "table")]
    #[cfg_attr(
        feature = "schema",
        schemars(with = "BTreeMap<String, DocumentAmount>")
    )]
    pub limit: ResourceTable,
    /// Weight in fair share over time; 1 if absent. A subject of weight 2 may borrow twice as much for the same rank.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<NonZeroU32>,
}

impl PolicySpec {
    /// Weight in fair share over time; at least 1.
    pub fn weight(&self) -> u64 {
        self.weight.map_or(1, |weight| weight.get().into())
    }

    fn names(&self, key: &str) -> bool {
        self.reserved.contains_key(key) || self.limit.contains_key(key)
    }

    /// Keys named in either table.
    pub fn keys(&self) -> impl Iterator<Item = &ResourceKey> {
        self.reserved.keys().chain(self.limit.keys())
    }

    /// Reserved amount of a key; `None` if the key does not count in shares.
    pub fn reserved(&self, key: &str) -> Option<u64> {
        match self.reserved.get(key) {
            Some(reserved) => Some(*reserved),
            None if key == STEP_RUN && !self.names(key) => None,
            None => Some(0),
        }
    }

    /// Limit of a key; `None` if only the pool bounds it.
    pub fn limit(&self, key: &str) -> Option<u64> {
        self.limit.get(key).copied()
    }
}
