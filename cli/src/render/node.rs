//! Renders nodes as text.

pub(crate) mod isolation;
mod totals;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use sluice_common::amount::{Amounts, MCPU, MEMORY_MB, MGPU, STORAGE_MB};
use sluice_common::api::{
    CarvingView, CordonView, HostView, MigUse, NodeView, StepView, UnfitGpuView,
};
use sluice_common::mig::MigProfile;
use sluice_common::platform::CPU;
use sluice_common::state::{NodeState, StepState};

use super::age::age;
use super::listed::Listed;
use super::sections::{Sections, titled};
use super::step::{moment, rounded};
use super::table::{Cell, Column, Table};
use super::{amounts, capacity, declared, host, or_dash, safe};
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
        Column::new("STORAGE", 3).wide().room(9),
        Column::new("STEPS", 8),
        Column::new("AGE", 5).room(5),
        Column::new("PLATFORM", 3).wide(),
        Column::new("DRIVER", 3).wide(),
        Column::new("CUDA", 3).wide(),
        Column::new("OS", 3).wide(),
        Column::new("KERNEL", 3).wide(),
        Column::new("AGENT", 3).wide(),
        Column::new("HEARD", 3).wide().room(5),
        Column::new("ISOLATION", 3).wide(),
        Column::new("LABELS", 10).text().labels(),
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
                platform_of(host),
                or_dash(host.driver.as_deref()),
                or_dash(host.cuda.as_deref()),
                or_dash(Some(&host.os)),
                or_dash(Some(&host.kernel)),
                or_dash(Some(&self.version)),
                self.heard_at.map_or("-".to_owned(), |at| age(at, now)),
                isolation::word(&host.capabilities).to_owned(),
                labels(&self.labels),
                capabilities(host),
            ]
            .map(Cell::from),
        );
        cells
    }

    fn sum(nodes: &[Self]) -> Option<Vec<(&'static str, Cell)>> {
        totals::of(nodes)
    }
}

fn short_cells(node: &NodeView, now: Timestamp) -> Vec<Cell> {
    let of = |key: &str| (node.used.get(key), node.capacity.get(key));
    let ((gpus, all_gpus), (mcpu, all_mcpu)) = (of(MGPU), of(MCPU));
    let (memory, all_memory) = of(MEMORY_MB);
    let (storage, all_storage) = of(STORAGE_MB);
    vec![
        safe(&node.name).into(),
        or_dash(Some(&node.pool)).into(),
        state(node),
        gpus_of(node, gpus, all_gpus),
        format!("{}/{}", amounts::cores(mcpu), amounts::cores(all_mcpu)).into(),
        amounts::megabytes_of(memory, all_memory).into(),
        amounts::megabytes_of(storage, all_storage).into(),
        node.steps.len().to_string().into(),
        age(node.joined_at, now).into(),
    ]
}

/// Formats used and total GPUs, the slices of each profile, how many are unfit, and how many an admin must see to before
/// they are cut into slices, such as `3/6,1/2 3g.40gb,1 unfit,1 not cut`.
fn gpus_of(node: &NodeView, used: u64, all: u64) -> Cell {
    let sum = |number: fn(&MigUse) -> u64| {
        let slices = node.slices.iter();
        let mgpu = slices.map(|(name, slices)| MigProfile::detected(name).mgpu() * number(slices));
        mgpu.sum::<u64>()
    };
    let used = used.saturating_sub(sum(|slices| slices.used));
    let all = all.saturating_sub(sum(|slices| slices.count));
    let is_shown = all > 0 || node.slices.is_empty();
    let whole = is_shown.then(|| amounts::gpus_of(used, all));
    let slices = node
        .slices
        .iter()
        .map(|(profile, slices)| format!("{}/{} {}", slices.used, slices.count, safe(profile)));
    let gpus: Vec<String> = whole.into_iter().chain(slices).collect();
    let gpus = gpus.join(",");
    let uncut = node.carvings.iter().filter(|it| it.needs_admin).count();
    let more = [(node.unfit_gpus.len(), "unfit"), (uncut, "not cut")];
    let more = more.iter().filter(|(count, _)| *count > 0);
    let more: String = more
        .map(|(count, word)| format!(",{count} {word}"))
        .collect();
    match more.as_str() {
        _ if node.inventory.gpus_unknown => Cell::toned(Tone::Pending, "unknown".to_owned()),
        "" => gpus.into(),
        more => Cell::toned(Tone::Pending, gpus + more),
    }
}

/// Returns how far an admin's closing has come: `cordoned`, `draining` or `drained`.
pub(crate) fn closed(node: &NodeView) -> Option<&'static str> {
    let cordon = node.cordon.as_ref()?;
    Some(match (cordon.drain, node.steps.is_empty()) {
        (false, _) => "cordoned",
        (true, false) => "draining",
        (true, true) => "drained",
    })
}

/// Formats the node's state, and how far an admin's closing has come.
pub(crate) fn state(node: &NodeView) -> Cell {
    let lacks = (!node.lacks.is_empty()).then(|| format!("lacks:{}", lacking(node, "+")));
    let closed = closed(node).map(str::to_owned);
    let to = node
        .cordon
        .as_ref()
        .and_then(|cordon| cordon.moves_to.as_ref());
    let to = to.map(|pool| format!("moves:{}", safe(pool)));
    let words = [
        closed,
        to,
        lacks,
        node.leaving.then(|| "leaving".to_owned()),
    ];
    let words: Vec<String> = words.into_iter().flatten().collect();
    if words.is_empty() {
        return Cell::toned(tone(node.state), node.state);
    }
    Cell::toned(Tone::Pending, format!("{},{}", node.state, words.join(",")))
}

/// Formats what its pool requires and it lacks.
fn lacking(node: &NodeView, between: &str) -> String {
    let names: Vec<&str> = node.lacks.iter().map(|it| it.as_str()).collect();
    names.join(between)
}

/// Formats the state as a coloured word.
pub(crate) fn standing(node: &NodeView, out: Out) -> String {
    state(node).painted(out)
}

/// Returns its platform: that of its GPUs, or the one of hosts without any.
fn platform_of(host: &HostView) -> String {
    match (host.gpus.is_empty(), host.gpus_unknown) {
        (_, true) => "unknown".to_owned(),
        (true, false) => CPU.to_owned(),
        (false, false) => platforms(host),
    }
}

/// Formats its GPUs by platform, such as `8xh100`, and slices by theirs, such as `2xh100-3g.40gb`.
fn platforms(host: &HostView) -> String {
    if host.gpus_unknown {
        return host::GPUS_UNKNOWN.to_owned();
    }
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for gpu in &host.gpus {
        let mig = gpu.mig.as_ref();
        let of_slices = mig.map(|mig| format!("{}-{}", gpu.platform, mig.profile));
        let platform = of_slices.unwrap_or_else(|| gpu.platform.clone());
        *counts.entry(platform).or_default() += 1;
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

/// Formats labels as one word, such as `rack=7,zone=a`.
pub(crate) fn labels(labels: &BTreeMap<String, String>) -> String {
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
        NodeState::Unsupervised | NodeState::Unreachable | NodeState::Lost => Tone::Bad,
    }
}

const STEPS: &[Column] = &[
    Column::new("STEP", 9),
    Column::new("NAME", 7).text(),
    Column::new("STATE", 8),
    Column::new("SUBJECT", 4).text(),
    Column::new("USES", 3).text(),
    Column::new("AGE", 5),
];

/// Renders all details of a node; `steps` are the remembered ones on it.
pub(crate) fn describe(node: &NodeView, steps: &[StepView], now: Timestamp, out: Out) -> String {
    let labels: Vec<String> = node
        .labels
        .iter()
        .map(|(key, value)| format!("{}={}", safe(key), safe(value)))
        .collect();
    let mut text = Sections::default();
    text.field("Name", safe(&node.name))
        .field("State", standing(node, out));
    text.optional("No supervisor", node.unsupervised.as_deref().map(safe));
    if let Some(cordon) = &node.cordon {
        text.section("Closed", |text| why_closed(text, cordon, now));
    }
    let lacks = (!node.lacks.is_empty()).then(|| {
        let (names, pool) = (lacking(node, ", "), safe(&node.pool));
        format!("{names}: pool {pool} requires this, so it gets no new work")
    });
    text.optional("Lacks", lacks)
        .field("Pool", in_pool(node))
        .optional("Labels", (!labels.is_empty()).then(|| labels.join(" ")))
        .optional("Platforms", said(&node.platforms))
        .optional("Facts", facts(node))
        .many("Warning", &declared::of_node(node))
        .many(
            "Warning",
            &isolation::not_limited(&node.inventory.capabilities),
        )
        .field("Agent", safe(&node.version))
        .field("Joined", moment(node.joined_at, now))
        .field(
            "Heard",
            node.heard_at.map_or("-".to_owned(), |at| moment(at, now)),
        )
        .field("GPUs", platforms(&node.inventory));
    if !node.unfit_gpus.is_empty() {
        text.section("Unfit GPUs", |text| why_unfit(text, &node.unfit_gpus));
    }
    if !node.carvings.is_empty() {
        text.section("GPUs to cut", |text| to_cut(text, &node.carvings));
    }
    text.section("Hardware", |text| host::facts(text, &node.inventory));
    text.finish()
        + &capacity::of_node(&node.capacity, &node.used, out)
        + &steps_of(node, steps, now, out)
        + &host::gpus(&node.inventory, out)
}

/// Formats its pool, and that of its config or certificate if different.
fn in_pool(node: &NodeView) -> String {
    let pool = safe(&node.pool);
    match &node.pool_of_config {
        Some(config) => format!("{pool} (its config or certificate says {})", safe(config)),
        None => pool,
    }
}

fn said(names: &BTreeSet<String>) -> Option<String> {
    let names: Vec<String> = names.iter().map(|name| safe(name)).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Formats detected facts as labels: those of all its GPUs, then those of each kind.
pub(crate) fn facts(node: &NodeView) -> Option<String> {
    let all = node.facts.first()?;
    let common = |key: &String, value: &String| {
        let mut each = node.facts.iter();
        each.all(|facts| facts.get(key) == Some(value))
    };
    let shared = all.iter().filter(|(key, value)| common(key, value));
    let own = node.facts.iter().flat_map(|facts| facts.iter());
    let mut own: Vec<_> = own.filter(|(key, value)| !common(key, value)).collect();
    own.sort_unstable();
    own.dedup();
    let words = shared.chain(own);
    let words: Vec<String> = words
        .map(|(key, value)| format!("{}={}", safe(key), safe(value)))
        .collect();
    Some(words.join(" "))
}

fn why_closed(text: &mut Sections, cordon: &CordonView, now: Timestamp) {
    text.field("Reason", safe(&cordon.reason))
        .field("Since", moment(cordon.since, now))
        .optional("Deadline", cordon.deadline.map(|at| due(at, now)))
        .optional("Moves to", cordon.moves_to.as_deref().map(safe))
        .optional("Empty", cordon.empty_since.map(|at| moment(at, now)));
}

fn why_unfit(text: &mut Sections, gpus: &[UnfitGpuView]) {
    for gpu in gpus {
        let index = gpu.index.map_or("-".to_owned(), |index| index.to_string());
        let why = format!("{}: {}", safe(&gpu.uuid), safe(&gpu.message));
        text.field(&format!("GPU {index}"), why);
    }
}

fn to_cut(text: &mut Sections, gpus: &[CarvingView]) {
    for gpu in gpus {
        let index = gpu.index.map_or("-".to_owned(), |index| index.to_string());
        let what = format!("{}: {}", safe(&gpu.uuid), safe(&gpu.message));
        text.field(&format!("GPU {index}"), what);
    }
}

/// Formats a future time with the remaining duration.
fn due(at: Timestamp, now: Timestamp) -> String {
    if at <= now {
        return moment(at, now);
    }
    format!("{} (in {})", rounded(at), age(now, at))
}

/// Renders a table of the steps that hold its resources; of forgotten ones only the id.
fn steps_of(node: &NodeView, steps: &[StepView], now: Timestamp, out: Out) -> String {
    if node.steps.is_empty() {
        return String::new();
    }
    let rows = node.steps.iter().map(|id| {
        let known = steps.iter().find(|step| step.id == *id);
        let dash = || Cell::from("-".to_owned());
        let mut row = vec![Cell::from(safe(id))];
        match known {
            Some(step) => row.extend([
                or_dash(Some(&step.name)).into(),
                Cell::toned(super::step::tone(step.state), step.state),
                or_dash(Some(&step.subject)).into(),
                uses(step).into(),
                age(step.submitted_at, now).into(),
            ]),
            None => row.resize_with(STEPS.len(), dash),
        }
        row
    });
    let rows: Vec<Vec<Cell>> = rows.collect();
    titled("Steps", &Table::new(STEPS, out).whole(&rows))
}

/// Formats what a step uses of the node: all that it was granted, or its memory alone while it is suspended.
fn uses(step: &StepView) -> String {
    if step.state != StepState::Suspended {
        return amounts::amounts(&step.request);
    }
    let memory = step.request.get(MEMORY_MB);
    amounts::amounts(&Amounts::default().with(MEMORY_MB, memory))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::listed::table;
    use super::super::step::tests::{now, running};
    use super::*;
    use sluice_common::inventory::Capability;

    /// Returns a node with one GPU and one step.
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
            "NAME   POOL     STATE  GPUS  CPU    MEMORY    STEPS  AGE\n\
             gpu-1  default  ready  1/1   0.5/8  0/7.6GiB  1      3m\n"
        );
    }

    #[test]
    fn slices_are_counted_beside_whole_gpus() {
        let mut node = node();
        let slices = |count, used| MigUse { count, used };
        node.slices.insert("3g.40gb".to_owned(), slices(2, 1));
        node.capacity = Amounts::default().with(MGPU, 3856);
        node.used = Amounts::default().with(MGPU, 2428);
        let shown = |node: &NodeView| table(std::slice::from_ref(node), now(), Out::plain());
        let found = shown(&node);
        assert!(found.contains(" 2/3,1/2 3g.40gb "), "{found}");
        node.capacity = Amounts::default().with(MGPU, 856);
        node.used = Amounts::default().with(MGPU, 428);
        let found = shown(&node);
        assert!(found.contains(" 1/2 3g.40gb "), "{found}");
    }

    #[test]
    fn labels_are_shown_where_they_are_asked_for_and_cut_where_there_is_no_room() {
        let mut node = node();
        node.labels.insert("rack".to_owned(), "r7".repeat(20));
        let shown = |out: Out| table(&[node.clone()], now(), out.with_labels(true));
        assert!(shown(Out::plain()).contains("AGE  LABELS\n"));
        assert_eq!(
            shown(Out::sized(60)),
            "NAME   STATE  GPUS  CPU    MEMORY    STEPS  LABELS\n\
             gpu-1  ready  1/1   0.5/8  0/7.6GiB  1      rack=r7r7r7r7r7…\n"
        );
    }

    #[test]
    fn a_description_tells_all() {
        let expected = "\
Name:             gpu-1
State:            ready
Pool:             default
Labels:           zone=a
Warning:          memory is not limited here: a step may use more than it asks for; a pool with `require: [memory]` gives this host no new work
Warning:          processor time is not limited here: a step may use more than it asks for; a pool with `require: [cpu]` gives this host no new work
Agent:            0.1.0
Joined:           2026-11-20T10:00:00Z (3m ago)
Heard:            2026-11-20T10:02:59Z (1s ago)
GPUs:             1xl40s
Hardware:
  OS:             Debian GNU/Linux 12 (bookworm)
  Kernel:         6.1.0 x86_64
  Processor:      AMD EPYC, 8 usable
  Memory:         7.6GiB
  Storage:        93.1GiB
  NVIDIA driver:  550.1 (CUDA 12.4)
  Capabilities:   kill:cgroup2 freeze:cgroup1 cpu:none
  Note:           no MIG

KEY      CAPACITY  USED  FREE
gpu      1         1     0
cpu      8         0.5   7.5
memory   7.6GiB    0MiB  7.6GiB
storage  93.1GiB   0MiB  93.1GiB

Steps:
STEP  NAME   STATE    SUBJECT  USES                     AGE
k3v9  train  running  dev      gpu=2 cpu=1 memory=2GiB  3m

GPU  PLATFORM  MIG  MEMORY   UTIL  TEMP  POWER  ECC  XIDS  PROCESSES  NUMA  NVLINK  PCI  UUID
0    l40s      -    44.9GiB  -     -     -      -    -     -          -     -       -    GPU-a
";
        let steps = [running()];
        assert_eq!(describe(&node(), &steps, now(), Out::plain()), expected);
    }

    #[test]
    fn a_frozen_step_uses_memory_alone() {
        let mut frozen = running();
        frozen.state = StepState::Suspended;
        let said = describe(&node(), &[frozen], now(), Out::plain());
        let row = said.lines().find(|line| line.starts_with("k3v9")).unwrap();
        assert_eq!(row, "k3v9  train  suspended  dev      memory=2GiB  3m");
    }

    #[test]
    fn a_host_without_gpus_is_of_a_platform_too() {
        let mut node = node();
        assert_eq!(platform_of(&node.inventory), "1xl40s");
        node.inventory.gpus.clear();
        assert_eq!(platform_of(&node.inventory), "cpu");
    }

    #[test]
    fn a_closed_node_says_how_why_and_until_when() {
        let mut node = node();
        node.cordon = serde_json::from_value(serde_json::json!({
            "reason": "new fans", "since": "2026-11-20T10:01:00Z", "drain": true, "deadline": "2026-11-20T10:13:00Z"
        }))
        .unwrap();
        let text = describe(&node, &[], now(), Out::plain());
        let expected = "\
State:            ready,draining
Closed:
  Reason:         new fans
  Since:          2026-11-20T10:01:00Z (2m ago)
  Deadline:       2026-11-20T10:13:00Z (in 10m)
";
        assert!(text.contains(expected), "{text}");
        assert!(
            text.contains("k3v9  -     -      -        -     -\n"),
            "{text}"
        );
        node.steps.clear();
        node.leaving = true;
        assert_eq!(standing(&node, Out::plain()), "ready,drained,leaving");
    }

    #[test]
    fn a_node_that_lacks_what_its_pool_requires_says_what() {
        let mut node = node();
        node.lacks = [Capability::Devices, Capability::Pids].into();
        assert_eq!(standing(&node, Out::plain()), "ready,lacks:devices+pids");
        let text = describe(&node, &[], now(), Out::plain());
        let expected = "
State:            ready,lacks:devices+pids
Lacks:            devices, pids: pool default requires this, so it gets no new work
";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn gpus_that_are_granted_to_nobody_are_counted_and_explained() {
        let mut node = node();
        node.unfit_gpus = serde_json::from_value(serde_json::json!([{
            "index": 0, "uuid": "GPU-a", "cordon": null, "fault": {"quarantined": {"why": "it is still held by pid 7", "pids": [7]}},
            "message": "quarantined: it is still held by pid 7"
        }]))
        .unwrap();
        let text = describe(&node, &[], now(), Out::plain());
        let expected = "\
Unfit GPUs:
  GPU 0:          GPU-a: quarantined: it is still held by pid 7
";
        assert!(text.contains(expected), "{text}");
        let list = table(&[node], now(), Out::plain());
        assert!(list.contains("1/1,1 unfit"), "{list}");
    }
}
