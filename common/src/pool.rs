//! What an admin decides of a pool and of a subject in it: the one shape in which it is written, asked for, kept and shown.
//! Platforms are apart (`platform/spec.rs`). What may be written is checked by the coordinator's core, which applies it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::amount::{ResourceKey, STEP_RUN};
use crate::document::{PlatformItemId, SpecDocument};
use crate::document_text::{parse_texts, span_or_zero};
use crate::id::{PlatformName, TemplateName, ValidationName};
use crate::inventory::Capability;
use crate::platform::spec::{PlatformSpec, UnmatchedPlatform};
use crate::pool_rules::{StepDefaults, StepMaxima};
use crate::step::OnPreempt;
use crate::time::Span;

/// Amounts by key, as somebody wrote them: zeros count.
pub type ResourceTable = BTreeMap<ResourceKey, u64>;

/// A platform in the list of its pool.
pub type NamedPlatform = SpecDocument<PlatformItemId, PlatformSpec>;

/// A pool as somebody writes it. The default lets everything in as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "PoolRequest")
)]
#[serde(deny_unknown_fields, default)]
pub struct PoolSpec {
    /// For people.
    pub description: String,
    /// Capacity by key, where it is declared; what is not is what its nodes report.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: ResourceTable,
    /// For how long after its start a run is spared by others' priority and reclaim, such as `10m`; `0s` where absent.
    #[serde(with = "span_or_zero")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "nullable_if_read"))]
    pub min_runtime: Span,
    /// Capabilities that its nodes must have, such as `kill` or `devices`; one that lacks any gets no new work.
    #[serde(deserialize_with = "parse_texts")]
    pub require: BTreeSet<Capability>,
    /// What whoever submits to it is told while it takes no new steps; it takes them where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<String>,
    /// What holds for its steps where they say nothing themselves.
    #[serde(skip_serializing_if = "StepDefaults::is_empty")]
    pub defaults: StepDefaults,
    /// What its steps may say at most.
    #[serde(skip_serializing_if = "StepMaxima::is_empty")]
    pub max: StepMaxima,
    /// What may happen to its steps when they must give way; anything where it is empty.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub on_preempt_allowed: BTreeSet<OnPreempt>,
    /// The documents of assertions that its steps must keep.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub validations: Vec<ValidationName>,
    /// The platform of its steps that name none; any where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_platform: Option<PlatformName>,
    /// What becomes of a request for a platform that it declares and of which it has no host: `reject`, or `wait`.
    #[serde(skip_serializing_if = "UnmatchedPlatform::is_reject")]
    pub unmatched_platform: UnmatchedPlatform,
    /// The platforms that it declares, and no others. Where they are absent it declares those alone that documents of
    /// their own declare in the same call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platforms: Option<Vec<NamedPlatform>>,
    /// Templates that lie under its steps, the lowest first.
    #[serde(
        deserialize_with = "parse_texts",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub templates: Vec<TemplateName>,
}

impl PoolSpec {
    /// Whether a mode of giving way is allowed.
    pub fn allows(&self, mode: OnPreempt) -> bool {
        self.on_preempt_allowed.is_empty() || self.on_preempt_allowed.contains(&mode)
    }
}

/// The text of a span, which may be `null` where it is read.
#[cfg(feature = "schema")]
fn nullable_if_read(schemas: &mut schemars::SchemaGenerator) -> schemars::Schema {
    match schemas.contract().is_deserialize() {
        true => schemas.subschema_for::<Option<String>>(),
        false => schemas.subschema_for::<String>(),
    }
}

/// The binding of a subject to a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "PolicyRequest")
)]
#[serde(deny_unknown_fields, default)]
pub struct PolicySpec {
    /// Higher is preferred.
    pub priority: u64,
    /// What is kept for the subject, by key; a key that is not named counts as 0.
    pub reserved: ResourceTable,
    /// What it may use at most, by key; a key that is not named is bounded by the pool alone.
    pub limit: ResourceTable,
}

impl PolicySpec {
    fn names(&self, key: &str) -> bool {
        self.reserved.contains_key(key) || self.limit.contains_key(key)
    }

    /// Keys that it names, in either table.
    pub fn keys(&self) -> impl Iterator<Item = &ResourceKey> {
        self.reserved.keys().chain(self.limit.keys())
    }

    /// How much of a key is reserved; `None` where the key does not count in the tests of reserved share.
    pub fn reserved(&self, key: &str) -> Option<u64> {
        match self.reserved.get(key) {
            Some(reserved) => Some(*reserved),
            None if key == STEP_RUN && !self.names(key) => None,
            None => Some(0),
        }
    }

    /// How much of a key may be used at most; `None` where the pool alone bounds it.
    pub fn limit(&self, key: &str) -> Option<u64> {
        self.limit.get(key).copied()
    }
}
