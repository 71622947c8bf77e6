//! Facts that rules may mention: a fixed list of facts of steps and of hosts (`node.`), and their lookup.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::error::RuleProblem;
use super::number::Ratio;
use super::value::{FactValue, ValueKind};
use crate::amount::{MCPU, MEMORY_MB, MGPU, ResourceKey, STORAGE_MB, megabytes_up, parse_memory};
use crate::label::LabelKey;
use crate::nearest::nearest;
use crate::step::StepSpec;

/// Explanation why a fact has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingFact(pub String);

/// A fact that a rule mentions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// Number of GPUs per host.
    GpuCount,
    /// Number of cores per host.
    CpuCount,
    /// Memory per host.
    Memory,
    /// Disk space per host.
    Storage,
    /// Number of hosts.
    Nodes,
    /// Number of retries.
    Retries,
    /// Priority among the steps of the same subject.
    Priority,
    /// Whether the step may be preempted.
    Preemptible,
    /// Whether the step may wait for hosts that do not exist yet.
    AllowPending,
    /// Longest run time.
    Timeout,
    /// Longest time in the queue.
    QueueTimeout,
    /// Time between the stop signal and the kill.
    GracePeriod,
    /// Subject of the step.
    Subject,
    /// Display name of the step.
    Name,
    /// Requested platforms as written.
    Platform,
    /// Kind of work.
    Work,
    /// Priority class given in the request.
    PriorityClass,
    /// Action taken on preemption.
    OnPreempt,
    /// Label of the step, by key.
    Label(LabelKey),
    /// Amount of a custom resource key.
    PoolResource(ResourceKey),
    /// Fact of a host.
    Node(NodeFact),
}

/// Fact of a host that a rule mentions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeFact {
    /// Name of the node.
    Name,
    /// Memory available to steps.
    Memory,
    /// Disk space available to steps.
    Storage,
    /// Cores available to steps.
    CpuCount,
    /// Number of GPUs of the requested platform.
    GpuCount,
    /// Memory of the smallest such GPU.
    GpuMemory,
    /// Platform derived from the GPUs' model.
    GpuModel,
    /// Processor architecture of the host.
    Arch,
    /// Label of the host, by key.
    Label(LabelKey),
}

/// Fact names that take a key.
pub(super) const KEYED: [&str; 2] = ["labels", "pool_resources"];

const STEP: [(&str, Fact); 18] = [
    ("gpu_count", Fact::GpuCount),
    ("cpu_count", Fact::CpuCount),
    ("memory", Fact::Memory),
    ("storage", Fact::Storage),
    ("nodes", Fact::Nodes),
    ("retries", Fact::Retries),
    ("priority", Fact::Priority),
    ("preemptible", Fact::Preemptible),
    ("allow_pending", Fact::AllowPending),
    ("timeout", Fact::Timeout),
    ("queue_timeout", Fact::QueueTimeout),
    ("grace_period", Fact::GracePeriod),
    ("subject", Fact::Subject),
    ("name", Fact::Name),
    ("platform", Fact::Platform),
    ("work", Fact::Work),
    ("priority_class", Fact::PriorityClass),
    ("on_preempt", Fact::OnPreempt),
];

const NODE: [(&str, NodeFact); 8] = [
    ("name", NodeFact::Name),
    ("memory", NodeFact::Memory),
    ("storage", NodeFact::Storage),
    ("cpu_count", NodeFact::CpuCount),
    ("gpu_count", NodeFact::GpuCount),
    ("gpu_memory", NodeFact::GpuMemory),
    ("gpu_model", NodeFact::GpuModel),
    ("arch", NodeFact::Arch),
];

impl Fact {
    /// Looks up a fact by name and, if it takes one, key.
    pub(super) fn find(of_node: bool, name: &str, key: Option<&str>) -> Result<Self, RuleProblem> {
        match (of_node, name, key) {
            (false, "labels", Some(key)) => Ok(Fact::Label(label(key)?)),
            (true, "labels", Some(key)) => Ok(Fact::Node(NodeFact::Label(label(key)?))),
            (false, _, Some(key)) => {
                let key = ResourceKey::new(key).map_err(|e| RuleProblem::Key(e.to_string()))?;
                Ok(Fact::PoolResource(key))
            }
            (true, _, _) => of_host(name),
            (false, _, None) => of_step(name),
        }
    }

    /// Kind of the fact's value.
    pub fn kind(&self) -> ValueKind {
        match self {
            Fact::GpuCount
            | Fact::CpuCount
            | Fact::Nodes
            | Fact::Retries
            | Fact::Priority
            | Fact::PoolResource(_)
            | Fact::Node(NodeFact::CpuCount | NodeFact::GpuCount) => ValueKind::Number,
            Fact::Memory
            | Fact::Storage
            | Fact::Node(NodeFact::Memory | NodeFact::Storage | NodeFact::GpuMemory) => {
                ValueKind::Bytes
            }
            Fact::Timeout | Fact::QueueTimeout | Fact::GracePeriod => ValueKind::Time,
            Fact::Preemptible | Fact::AllowPending => ValueKind::Bool,
            Fact::Subject
            | Fact::Name
            | Fact::Platform
            | Fact::Work
            | Fact::PriorityClass
            | Fact::OnPreempt
            | Fact::Label(_)
            | Fact::Node(
                NodeFact::Name | NodeFact::GpuModel | NodeFact::Arch | NodeFact::Label(_),
            ) => ValueKind::Text,
        }
    }
}

fn label(key: &str) -> Result<LabelKey, RuleProblem> {
    LabelKey::new(key).map_err(|e| RuleProblem::Key(e.to_string()))
}

fn of_step(name: &str) -> Result<Fact, RuleProblem> {
    let mut known = STEP.into_iter();
    if let Some((_, fact)) = known.find(|(word, _)| *word == name) {
        return Ok(fact);
    }
    let mut names: Vec<&str> = STEP.iter().map(|(word, _)| *word).collect();
    names.extend(["labels.KEY", "pool_resources.KEY", "node.FACT"]);
    Err(unknown(name.to_owned(), &names))
}

fn of_host(name: &str) -> Result<Fact, RuleProblem> {
    let mut known = NODE.into_iter();
    if let Some((_, fact)) = known.find(|(word, _)| *word == name) {
        return Ok(Fact::Node(fact));
    }
    let names: Vec<String> = NODE
        .iter()
        .map(|(word, _)| format!("node.{word}"))
        .collect();
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.push("node.labels.KEY");
    Err(unknown(format!("node.{name}"), &names))
}

fn unknown(name: String, known: &[&str]) -> RuleProblem {
    let hint = match nearest(&name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("there are {}", known.join(", ")),
    };
    RuleProblem::Unknown { name, hint }
}

/// Facts of a validated step.
#[derive(Clone, Copy, Debug)]
pub struct StepFacts<'a>(pub &'a StepSpec);

impl StepFacts<'_> {
    /// Looks up the value of a fact.
    ///
    /// # Errors
    /// If the step has no such value.
    pub fn value(&self, fact: &Fact) -> Result<FactValue, MissingFact> {
        let spec = self.0;
        let amount = |key: &str| FactValue::number(spec.request.get(key));
        let text = |text: &str| FactValue::Text(text.to_owned());
        let lack = |what: &str| MissingFact(format!("the step says no `{what}`"));
        Ok(match fact {
            Fact::GpuCount => thousandths(spec.request.get(MGPU)),
            Fact::CpuCount => thousandths(spec.request.get(MCPU)),
            Fact::Memory => self.memory(),
            Fact::Storage => megabytes(spec.request.get(STORAGE_MB)),
            Fact::Nodes => FactValue::number(spec.nodes.into()),
            Fact::Retries => FactValue::number(spec.retries.into()),
            Fact::Priority => FactValue::Number(Ratio::whole(spec.priority.into())),
            Fact::Preemptible => FactValue::Bool(spec.preemptible),
            Fact::AllowPending => FactValue::Bool(spec.allow_pending),
            Fact::Timeout => FactValue::time(spec.timeout),
            Fact::QueueTimeout => FactValue::time(spec.queue_timeout),
            Fact::GracePeriod => FactValue::time(Some(spec.grace)),
            Fact::Subject => text(spec.subject.as_str()),
            Fact::Name => text(&spec.name),
            Fact::Platform => text(spec.platform.as_deref().unwrap_or(crate::platform::ANY)),
            Fact::Work => text(spec.work.ok_or_else(|| lack("work"))?.as_str()),
            Fact::PriorityClass => {
                let class = spec.priority_class.ok_or_else(|| lack("priority_class"))?;
                FactValue::Text(class.to_string())
            }
            Fact::OnPreempt => text(spec.on_preempt.as_str()),
            Fact::Label(key) => {
                let value = spec.labels.get(key);
                let lack = || MissingFact(format!("the step has no label `{key}`"));
                text(value.ok_or_else(lack)?.as_str())
            }
            Fact::PoolResource(key) => amount(key.as_str()),
            Fact::Node(_) => return Err(MissingFact("no host is being checked".to_owned())),
        })
    }

    /// Exact bytes if memory was written in the request, else the rounded amount.
    fn memory(&self) -> FactValue {
        let counted = self.0.request.get(MEMORY_MB);
        let written = self.0.resources.memory.as_deref().map(parse_memory);
        match written {
            Some(Ok(bytes)) if megabytes_up(bytes) == counted => FactValue::bytes(bytes),
            _ => megabytes(counted),
        }
    }
}

fn thousandths(n: u64) -> FactValue {
    let exact = Ratio::new(n.into(), 1000);
    exact.map_or(FactValue::number(0), FactValue::Number)
}

fn megabytes(n: u64) -> FactValue {
    FactValue::Bytes(Ratio::whole(i128::from(n) * 1_000_000))
}

/// Facts of a candidate host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// Name of the node.
    pub name: String,
    /// Memory available to steps, in bytes.
    pub memory: u64,
    /// Disk space available to steps, in bytes.
    pub storage: u64,
    /// Cores available to steps, in thousandths.
    pub mcpu: u64,
    /// Number of GPUs of the requested platform.
    pub gpus: u64,
    /// Memory of the smallest such GPU, in bytes; `None` if there is none.
    pub gpu_memory: Option<u64>,
    /// Platforms derived from their models.
    pub gpu_models: Vec<String>,
    /// Processor architecture of the host.
    pub arch: String,
    /// Effective labels of the node.
    pub labels: BTreeMap<String, String>,
}

impl NodeFacts {
    /// Looks up the value of a fact.
    ///
    /// # Errors
    /// If the host has no such value.
    pub fn value(&self, fact: &NodeFact) -> Result<FactValue, MissingFact> {
        let text = |text: &str| FactValue::Text(text.to_owned());
        let no_gpu = || MissingFact("it has no GPU".to_owned());
        Ok(match fact {
            NodeFact::Name => text(&self.name),
            NodeFact::Memory => FactValue::bytes(self.memory),
            NodeFact::Storage => FactValue::bytes(self.storage),
            NodeFact::CpuCount => thousandths(self.mcpu),
            NodeFact::GpuCount => FactValue::number(self.gpus),
            NodeFact::GpuMemory => FactValue::bytes(self.gpu_memory.ok_or_else(no_gpu)?),
            NodeFact::GpuModel => match &self.gpu_models[..] {
                [] => return Err(no_gpu()),
                [model] => text(model),
                several => {
                    let several = several.join("` and `");
                    return Err(MissingFact(format!("it has GPUs of `{several}`")));
                }
            },
            NodeFact::Arch => text(&self.arch),
            NodeFact::Label(key) => {
                let value = self.labels.get(key.as_str());
                let lack = || MissingFact(format!("it has no label `{key}`"));
                text(value.ok_or_else(lack)?)
            }
        })
    }
}
