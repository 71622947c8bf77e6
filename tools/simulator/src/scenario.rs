//! Scenarios: a cluster, what happens to it in order, and what must have become of it. This is the meaning of the files
//! that `sluice simulate` reads and that the published cases are written in; whoever reads one brings the JSON.

mod expected;
mod play;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use sluice_common::id::{NodeName, PoolName, StepId, Subject};
use sluice_common::pool::ResourceTable;
use sluice_common::step::OnPreempt;

pub use expected::{Difference, End, Expected};
pub use play::{Fault, Place};

/// One scenario: pools, hosts and policies, what happens to them in order, and what must have come of it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// What it is called.
    pub id: String,
    /// What it shows, for people.
    #[serde(default)]
    pub about: String,
    pub pools: Vec<PoolPut>,
    /// The hosts. Where absent, each pool has one host that holds the pool's whole declared capacity.
    #[serde(default)]
    pub nodes: Option<Vec<NodePut>>,
    /// Who may use which pool, and how.
    #[serde(default)]
    pub policies: Vec<PolicyPut>,
    /// What happens, each settled before the next.
    #[serde(default)]
    pub events: Vec<Event>,
    /// What must have become of it.
    #[serde(default)]
    pub expected: Option<Expected>,
    /// The same, where several ends are acceptable.
    #[serde(default)]
    pub expected_any_of: Vec<Expected>,
}

/// A pool's terms.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolPut {
    pub name: PoolName,
    /// What is declared of it.
    #[serde(default)]
    pub capacity: Capacity,
    /// For how many seconds after its start a run is spared by others' priority and reclaim.
    #[serde(default)]
    pub min_runtime: u64,
}

/// A pool's capacity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Capacity {
    /// What its hosts have; written `"detected"`.
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
        let table = ResourceTable::deserialize(de::value::MapAccessDeserializer::new(map))?;
        Ok(Capacity::Declared(table))
    }
}

/// A host. A key that it does not name is not bounded by it; GPUs that it does not name it does not have.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodePut {
    pub name: NodeName,
    /// The pool that it joins.
    pub pool: PoolName,
    /// Number of GPUs it has.
    #[serde(default)]
    pub gpus: u64,
    /// Which: their platform is named after it, `h100` for `H100`.
    #[serde(default)]
    pub gpu_model: Option<String>,
    /// Thousandths of a core.
    #[serde(default)]
    pub mcpu: Option<u64>,
    /// Memory in units of 10^6 bytes.
    #[serde(default)]
    pub memory_mb: Option<u64>,
    /// Disk space in units of 10^6 bytes.
    #[serde(default)]
    pub storage_mb: Option<u64>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// A subject's policy in a pool.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyPut {
    pub pool: PoolName,
    pub subject: Subject,
    /// Higher is preferred.
    #[serde(default)]
    pub priority: u64,
    /// What is kept for the subject.
    #[serde(default)]
    pub reserved: Option<ResourceTable>,
    /// What it may use at most.
    #[serde(default)]
    pub limit: Option<ResourceTable>,
}

/// One thing that happens.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum Event {
    /// A caller submits a request.
    Submit(SubmitEvent),
    /// A request that runs ends; one that waits is withdrawn.
    Finish {
        request: StepId,
    },
    /// A host is lost, with what runs there.
    NodeLost {
        node: NodeName,
    },
    /// A host takes work again.
    NodeBack {
        node: NodeName,
    },
    /// A host takes no more work; what runs there runs on.
    Drain {
        node: NodeName,
    },
    Advance {
        seconds: u64,
    },
    /// A caller binds a subject to a pool, or on other terms.
    PutPolicy(PolicyPut),
    /// A caller makes a pool, or gives one other terms.
    PutPool(PoolPut),
}

/// The request that an event submits.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubmitEvent {
    /// The name, unlike any other of the scenario.
    pub request: StepId,
    /// On whose behalf.
    pub subject: Subject,
    /// What it asks of each of its hosts.
    #[serde(default)]
    pub resources: ResourceTable,
    /// Whether it may be preempted; it may where absent.
    #[serde(default = "yes")]
    pub preemptible: bool,
    /// The one pool that it may run in.
    #[serde(default)]
    pub pool: Option<PoolName>,
    /// The platforms that it may run on, the one that it likes best first, with `,` between them; `any` where absent.
    #[serde(default)]
    pub platform: Option<String>,
    /// On how many hosts it runs at once; one where absent.
    #[serde(default = "one")]
    pub nodes: u32,
    /// Order among its subject's own.
    #[serde(default)]
    pub priority: i64,
    /// Number of times it may be tried again.
    #[serde(default)]
    pub retries: u32,
    /// Whether preemptions and lost hosts spend none of these.
    #[serde(default)]
    pub free_preemptions: bool,
    /// What becomes of it when it is preempted.
    #[serde(default)]
    pub on_preempt: OnPreempt,
}

fn yes() -> bool {
    true
}

fn one() -> u32 {
    1
}

/// A name of one of the lists of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum List {
    /// Requests that run.
    Allocated,
    /// Requests that wait.
    Queued,
    /// Requests that was preempted at least once.
    Preempted,
    /// Requests that could never be granted.
    Rejected,
    /// Requests that are frozen.
    Suspended,
    /// Subjects whose policy was kept.
    PolicyAccepted,
    /// Subjects whose policy was refused.
    PolicyRefused,
    /// Where requests were started last.
    Placed,
}

impl List {
    /// As files write it.
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
