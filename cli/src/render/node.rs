//! Nodes for people.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sluice_common::amount::{GPU, MCPU, MEMORY_MB};
use sluice_common::api::{HostView, NodeView};
use sluice_common::state::NodeState;

use super::age::age;
use super::listed::Listed;
use super::sections::Sections;
use super::step::moment;
use super::table::{Cell, Column};
use super::{amounts, host, or_dash, safe};
use crate::out::{Out, Tone};

impl Listed for NodeView {
    const KIND: &'static str = "node";
    const COLUMNS: &'static [Column] = &[
        Column::new("NAME", 20).text().room(12),
        Column::new("POOL", 4).text(),
        Column::new("STATE", 19).room(12),
        Column::new("GPUS", 9).room(5),
        Column::new("CPU", 7).room(7),
        Column::new("MEMORY", 6).room(9),
        Column::new("STEPS", 8),
        Column::new("AGE", 5).room(5),
        Column::new("PLATFORM", 3).wide(),
        Column::new("DRIVER", 3).wide(),
        Column::new("CUDA", 3).wide(),
        Column::new("OS", 3).wide(),
        Column::new("KERNEL", 3).wide(),
        Column::new("AGENT", 3).wide(),
        Column::new("HEARD", 3).wide().room(5),
        Column::new("LABELS", 3).wide(),
        Column::new("CAPABILITIES", 3).wide(),
    ];

    fn name(&self) -> String {
        self.name.clone()
    }

    fn cells(&self, now: Timestamp) -> Vec<Cell> {
        let host = &self.inventory;
        let mut cells = short_cells(self, now);
        cells.extend(
            [
                platforms(host),
                or_dash(host.driver.as_deref()),
                or_dash(host.cuda.as_deref()),
                or_dash(Some(&host.os)),
                or_dash(Some(&host.kernel)),
                or_dash(Some(&self.version)),
                self.heard_at.map_or("-".to_owned(), |at| age(at, now)),
                labels(&self.labels),
                capabilities(host),
            ]
            .map(Cell::from),
        );
        cells
    }
}

fn short_cells(node: &NodeView, now: Timestamp) -> Vec<Cell> {
    let of = |key: &str| (node.used.get(key), node.capacity.get(key));
    let ((gpus, all_gpus), (mcpu, all_mcpu)) = (of(GPU), of(MCPU));
    let (memory, all_memory) = of(MEMORY_MB);
    vec![
        safe(&node.name).into(),
        or_dash(Some(&node.pool)).into(),
        state(node),
        format!("{gpus}/{all_gpus}").into(),
        format!("{}/{}", amounts::cores(mcpu), amounts::cores(all_mcpu)).into(),
        amounts::megabytes_of(memory, all_memory).into(),
        node.steps.len().to_string().into(),
        age(node.joined_at, now).into(),
    ]
}

/// How it stands and, where an admin closed it, how far that has come.
fn state(node: &NodeView) -> Cell {
    match &node.cordon {
        None => Cell::toned(tone(node.state), node.state),
        Some(cordon) => {
            let word = match (cordon.drain, node.steps.is_empty()) {
                (false, _) => "cordoned",
                (true, false) => "draining",
                (true, true) => "drained",
            };
            Cell::toned(Tone::Pending, format!("{},{word}", node.state))
        }
    }
}

/// Its GPUs by platform, such as `8xh100`.
fn platforms(host: &HostView) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for gpu in &host.gpus {
        *counts.entry(&gpu.platform).or_default() += 1;
    }
    joined(counts.iter().map(|(platform, count)| {
        let platform = or_dash(Some(platform));
        format!("{count}x{platform}")
    }))
}

fn capabilities(host: &HostView) -> String {
    let word = |(what, how)| format!("{what}:{how}");
    let words: Vec<String> = host.capabilities.iter().map(word).collect();
    or_dash(Some(&words.join(" ")))
}

fn labels(labels: &BTreeMap<String, String>) -> String {
    joined(
        labels
            .iter()
            .map(|(key, value)| format!("{}={}", safe(key), safe(value))),
    )
}

fn joined(words: impl Iterator<Item = String>) -> String {
    let words: Vec<String> = words.collect();
    or_dash(Some(&words.join(",")))
}

fn tone(state: NodeState) -> Tone {
    match state {
        NodeState::Ready => Tone::Good,
        NodeState::Reconciling => Tone::Pending,
        NodeState::Unreachable | NodeState::Lost => Tone::Bad,
    }
}

/// Everything about one node.
pub(crate) fn describe(node: &NodeView, now: Timestamp, out: Out) -> String {
    let labels: Vec<String> = node
        .labels
        .iter()
        .map(|(key, value)| format!("{}={}", safe(key), safe(value)))
        .collect();
    let mut text = Sections::default();
    text.field("Name", safe(&node.name))
        .field("State", out.paint(tone(node.state), node.state))
        .field("Pool", safe(&node.pool))
        .optional("Labels", (!labels.is_empty()).then(|| labels.join(" ")))
        .field("Agent", safe(&node.version))
        .field("Joined", moment(node.joined_at, now))
        .field(
            "Heard",
            node.heard_at.map_or("-".to_owned(), |at| moment(at, now)),
        )
        .field("Capacity", amounts::amounts(&node.capacity))
        .field("Used", amounts::amounts(&node.used));
    text.section("Hardware", |text| host::facts(text, &node.inventory));
    if !node.steps.is_empty() {
        text.section("Steps", |steps| {
            for step in &node.steps {
                steps.line(safe(step));
            }
        });
    }
    text.finish() + &host::gpus(&node.inventory, out)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::listed::table;
    use super::super::step::tests::now;
    use super::*;

    /// A node with one GPU and one step.
    pub(crate) fn node() -> NodeView {
        serde_json::from_value(serde_json::json!({
            "name": "gpu-1", "pool": "default", "state": "ready", "labels": {"zone": "a"}, "version": "0.1.0",
            "capacity": {"gpu": 1, "mcpu": 8000, "memory_mb": 8232, "storage_mb": 100_000},
            "used": {"gpu": 1, "mcpu": 500, "step_run": 1}, "steps": ["k3v9"],
            "inventory": {"kernel": "6.1.0", "os": "Debian GNU/Linux 12 (bookworm)", "cuda": "12.4",
                          "capabilities": {"kill": "cgroup2", "freeze": "cgroup1", "cpu": "none"}, "arch": "x86_64", "cpu_model": "AMD EPYC", "cpus": 8,
                          "memory_bytes": 8_232_000_000u64, "storage_bytes": 100_000_000_000u64, "driver": "550.1",
                          "gpus": [{"index": 0, "uuid": "GPU-a", "model": "NVIDIA L40S", "platform": "l40s", "memory_bytes": 48_305_799_168u64}],
                          "notes": ["no MIG"]},
            "joined_at": "2026-11-20T10:00:00Z", "heard_at": "2026-11-20T10:02:59Z"
        }))
        .unwrap()
    }

    #[test]
    fn nodes_are_listed_with_what_is_used_of_what_there_is() {
        assert_eq!(
            table(&[node()], now(), Out::plain()),
            "NAME   POOL     STATE  GPUS  CPU    MEMORY   STEPS  AGE\n\
             gpu-1  default  ready  1/1   0.5/8  0/8.2GB  1      3m\n"
        );
    }

    #[test]
    fn a_description_tells_all() {
        let expected = "\
Name:             gpu-1
State:            ready
Pool:             default
Labels:           zone=a
Agent:            0.1.0
Joined:           2026-11-20T10:00:00Z (3m ago)
Heard:            2026-11-20T10:02:59Z (1s ago)
Capacity:         gpu=1 cpu=8 memory=8.2GB storage=100GB
Used:             gpu=1 cpu=0.5
Hardware:
  OS:             Debian GNU/Linux 12 (bookworm)
  Kernel:         6.1.0 x86_64
  Processor:      AMD EPYC, 8 usable
  Memory:         7.6GiB
  Storage:        93.1GiB
  NVIDIA driver:  550.1 (CUDA 12.4)
  Capabilities:   kill:cgroup2 freeze:cgroup1 cpu:none
  Note:           no MIG
Steps:
  k3v9

GPU  PLATFORM  MIG  MEMORY   UTIL  TEMP  POWER  ECC  XIDS  PROCESSES  NUMA  NVLINK  PCI  UUID
0    l40s      -    44.9GiB  -     -     -      -    -     -          -     -       -    GPU-a
";
        assert_eq!(describe(&node(), now(), Out::plain()), expected);
    }
}
