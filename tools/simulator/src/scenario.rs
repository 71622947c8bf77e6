//! Scenarios: a cluster, events in order, and the expected end. These are the types of the files that `sluice
//! simulate` reads and of the published cases; the caller parses the JSON.

mod expected;
mod play;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;

use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use sluice_common::amount::table::DocumentAmount;
use sluice_common::amount::{MCPU, MEMORY_MB, STORAGE_MB, field, table};
use sluice_common::error_code::ErrorCode;
use sluice_common::id::{LevelName, NodeName, PoolName, StepId, Subject, UserName};
use sluice_common::mig::{MigProfile, MigRequest};
use sluice_common::pool::{HostPlacement, ResourceTable};
use sluice_common::priority_preemption::PriorityPreemption;
use sluice_common::request::FieldError;
use sluice_common::step::OnPreempt;
use sluice_common::time::Span;
use sluice_common::topology::TopologySpec;

pub use expected::{Difference, End, Expected};
pub use play::{CasePosition, Fault};

/// One scenario: pools, hosts and policies, the events in order, and the expected end.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub id: String,
    /// Description for people.
    #[serde(default)]
    pub about: String,
    pub pools: Vec<PoolPut>,
    /// The hosts. If absent, each pool has one host with the pool's whole declared capacity.
    #[serde(default)]
    pub nodes: Option<Vec<NodePut>>,
    /// Levels into which the labels of the hosts divide them.
    #[serde(default)]
    pub topology: TopologySpec,
    #[serde(default)]
    pub policies: Vec<PolicyPut>,
    /// The events; each is settled before the next.
    #[serde(default)]
    pub events: Vec<Event>,
    /// The expected end.
    #[serde(default)]
    pub expected: Option<Expected>,
    /// Several acceptable ends.
    #[serde(default)]
    pub expected_any_of: Vec<Expected>,
}

/// A pool's terms.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolPut {
    pub name: PoolName,
    #[serde(default)]
    pub capacity: Capacity,
    /// Seconds after its start for which a run is protected from preemption by others' priority and reclaim.
    #[serde(default)]
    pub min_runtime: u64,
    /// Whether and how far runs are preempted by priority.
    #[serde(default = "unlimited")]
    pub priority_preemption: PriorityPreemption,
    /// Choice of the host among those with room.
    #[serde(default)]
    pub placement: HostPlacement,
    /// Order of subjects of equal priority by what they borrowed.
    #[serde(default)]
    pub fair_share: Option<FairSharePut>,
    /// Whether the users of a subject share fairly too.
    #[serde(default)]
    pub fair_users: bool,
}

/// Scenarios that say nothing go by the rules of pools alone.
fn unlimited() -> PriorityPreemption {
    PriorityPreemption::Unlimited
}

/// Fair share of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FairSharePut {
    /// Seconds, or a text such as `7d`, after which use counts half as much.
    #[serde(deserialize_with = "seconds_or_text")]
    pub half_life: Span,
}

/// A span as a number of seconds or as a text with units.
fn seconds_or_text<'de, D: Deserializer<'de>>(from: D) -> Result<Span, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum SpanText {
        Seconds(u64),
        Text(String),
    }
    match SpanText::deserialize(from)? {
        SpanText::Seconds(seconds) => Ok(Span::from_secs(seconds)),
        SpanText::Text(text) => text.parse().map_err(de::Error::custom),
    }
}

/// A pool's capacity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Capacity {
    /// The resources of its hosts; written `"detected"`.
    #[default]
    Detected,
    Declared(ResourceTable),
}

impl<'de> Deserialize<'de> for Capacity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CapacityVisitor)
    }
}

struct CapacityVisitor;

impl<'de> Visitor<'de> for CapacityVisitor {
    type Value = Capacity;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("amounts by key, or \"detected\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Capacity, E> {
        match text {
            "detected" => Ok(Capacity::Detected),
            _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Capacity, A::Error> {
        let table = table::deserialize(de::value::MapAccessDeserializer::new(map))?;
        Ok(Capacity::Declared(table))
    }
}

/// A host. A key that is absent is not bounded; absent GPUs mean that it has none.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "NodeFields")]
pub struct NodePut {
    pub name: NodeName,
    pub pool: PoolName,
    /// Number of whole GPUs.
    pub gpus: u64,
    /// Slices of further GPUs: their number by profile, such as `{3g.40gb: 2}`.
    pub mig: BTreeMap<MigProfile, u64>,
    /// GPU model. The platform is named after it: `h100` for `H100`.
    pub gpu_model: Option<String>,
    /// Thousandths of a core.
    pub mcpu: Option<u64>,
    /// Memory in units of 10^6 bytes.
    pub memory_mb: Option<u64>,
    /// Disk space in units of 10^6 bytes.
    pub storage_mb: Option<u64>,
    pub labels: BTreeMap<String, String>,
}

/// A host as it is written; each amount in its usual or in its older spelling.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeFields {
    name: NodeName,
    pool: PoolName,
    #[serde(default)]
    gpus: u64,
    #[serde(default)]
    mig: BTreeMap<MigProfile, u64>,
    #[serde(default)]
    gpu_model: Option<String>,
    cpu: Option<DocumentAmount>,
    memory: Option<DocumentAmount>,
    storage: Option<DocumentAmount>,
    mcpu: Option<DocumentAmount>,
    memory_mb: Option<DocumentAmount>,
    storage_mb: Option<DocumentAmount>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

impl TryFrom<NodeFields> for NodePut {
    type Error = FieldError;

    fn try_from(fields: NodeFields) -> Result<Self, FieldError> {
        let amount = |name: &str, key, usual: Option<_>, older: Option<_>| match (usual, older) {
            (Some(_), Some(_)) => Err(FieldError {
                code: ErrorCode::InvalidBody,
                field: name.to_owned(),
                message: format!("`{key}` and `{name}` are one key: write it once"),
            }),
            (Some(usual), None) => field::amount(name, key, usual).map(Some),
            (None, older) => older.map(|it| field::amount(key, key, it)).transpose(),
        };
        Ok(Self {
            name: fields.name,
            pool: fields.pool,
            gpus: fields.gpus,
            mig: fields.mig,
            gpu_model: fields.gpu_model,
            mcpu: amount("cpu", MCPU, fields.cpu, fields.mcpu)?,
            memory_mb: amount("memory", MEMORY_MB, fields.memory, fields.memory_mb)?,
            storage_mb: amount("storage", STORAGE_MB, fields.storage, fields.storage_mb)?,
            labels: fields.labels,
        })
    }
}

/// A subject's policy in a pool.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyPut {
    pub pool: PoolName,
    pub subject: Subject,
    /// Priority; higher is preferred.
    #[serde(default)]
    pub priority: u64,
    /// Amounts reserved for the subject.
    #[serde(default, deserialize_with = "optional_table")]
    pub reserved: Option<ResourceTable>,
    /// Most that it may use.
    #[serde(default, deserialize_with = "optional_table")]
    pub limit: Option<ResourceTable>,
    /// Weight in fair share; 1 if absent.
    #[serde(default)]
    pub weight: Option<NonZeroU32>,
}

fn optional_table<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ResourceTable>, D::Error> {
    #[derive(Deserialize)]
    struct Read(#[serde(with = "table")] ResourceTable);
    let read = Option::<Read>::deserialize(from)?;
    Ok(read.map(|Read(table)| table))
}

/// An event of a scenario.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum Event {
    /// A caller submits a request.
    Submit(SubmitEvent),
    /// A running request ends, or a queued one is withdrawn.
    Finish {
        request: StepId,
    },
    /// A host is lost, with the requests that run there.
    NodeLost {
        node: NodeName,
    },
    /// A host takes work again.
    NodeBack {
        node: NodeName,
    },
    /// A host takes no more work; its runs go on.
    Drain {
        node: NodeName,
    },
    Advance {
        seconds: u64,
    },
    /// A caller sets the policy of a subject in a pool.
    PutPolicy(PolicyPut),
    /// A caller makes or changes a pool.
    PutPool(PoolPut),
}

/// The request that an event submits.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubmitEvent {
    /// Name, unique within the scenario.
    pub request: StepId,
    pub subject: Subject,
    /// User who submits it.
    #[serde(default)]
    pub user: Option<UserName>,
    /// Resources on each of its hosts.
    #[serde(default, with = "table")]
    pub resources: ResourceTable,
    /// Slices of GPUs on each of its hosts, instead of whole GPUs.
    #[serde(default)]
    pub mig: Option<MigRequest>,
    /// Whether it may be preempted; `true` if absent.
    #[serde(default = "yes")]
    pub preemptible: bool,
    /// The only pool that it may run in.
    #[serde(default)]
    pub pool: Option<PoolName>,
    /// Platforms that it may run on, most preferred first, separated by `,`; `any` if absent.
    #[serde(default)]
    pub platform: Option<String>,
    /// Number of hosts that it runs on at once; 1 if absent.
    #[serde(default = "one")]
    pub nodes: u32,
    /// Level of the topology within which all its hosts must be.
    #[serde(default)]
    pub within: Option<LevelName>,
    /// Level within which its hosts are if one domain of it has room.
    #[serde(default)]
    pub prefer_within: Option<LevelName>,
    /// Order among the requests of its subject.
    #[serde(default)]
    pub priority: i64,
    /// Number of retries.
    #[serde(default)]
    pub retries: u32,
    /// Whether preemptions and lost hosts spend no retry.
    #[serde(default)]
    pub free_preemptions: bool,
    /// Treatment when it is preempted.
    #[serde(default)]
    pub on_preempt: OnPreempt,
    /// Seconds, or a text such as `2h`, after which it ends.
    #[serde(default, deserialize_with = "optional_span")]
    pub timeout: Option<Span>,
}

fn optional_span<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Span>, D::Error> {
    seconds_or_text(from).map(Some)
}

fn yes() -> bool {
    true
}

fn one() -> u32 {
    1
}

/// The name of a list of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum List {
    /// Requests that run.
    Allocated,
    /// Requests that are queued.
    Queued,
    /// Requests that were preempted at least once.
    Preempted,
    /// Requests that could never be granted.
    Rejected,
    /// Requests that are frozen.
    Suspended,
    /// Subjects whose policy was accepted.
    PolicyAccepted,
    /// Subjects whose policy was refused.
    PolicyRefused,
    /// Hosts on which requests were started last.
    Placed,
}

impl List {
    /// The name in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            List::Allocated => "allocated",
            List::Queued => "queued",
            List::Preempted => "preempted",
            List::Rejected => "rejected",
            List::Suspended => "suspended",
            List::PolicyAccepted => "policy_accepted",
            List::PolicyRefused => "policy_refused",
            List::Placed => "placed",
        }
    }
}
