//! Renders pools as text.

use jiff::Timestamp;
use sluice_common::amount::{MCPU, MEMORY_MB, MGPU, STORAGE_MB};
use sluice_common::api::{NodeView, PlatformUse, PolicyView, PoolView, StepView};
use sluice_common::pool_rules::PoolStatus;
use sluice_common::quantity::figure;
use sluice_common::time::Span;

use super::age::age;
use super::document::{self, ApplyDocument};
use super::listed::{self, Listed};
use super::sections::{Sections, titled};
use super::table::{Cell, Column, Table};
use super::{amounts, or_dash, safe};
use super::{capacity, declared};
use crate::out::{Out, Tone};

impl Listed for PoolView {
    const KIND: &'static str = "pool";
    const COLUMNS: &'static [Column] = &[
        Column::new("POOL", 20).text(),
        Column::new("STATUS", 9).room(8),
        Column::new("GPU TOTAL", 6),
        Column::new("GPU USED", 7),
        Column::new("GPU FREE", 8),
        Column::new("NODES", 5),
        Column::new("QUEUED", 3).wide(),
        Column::new("RUNNING", 3).wide(),
        Column::new("PLATFORMS", 3).wide(),
        Column::new("FREE", 3).wide(),
        Column::new("DESCRIPTION", 3).wide(),
    ];

    fn document(&self) -> Option<ApplyDocument> {
        Some(document::pool(self))
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn cells(&self, _now: Timestamp) -> Vec<Cell> {
        let (total, used) = (self.capacity.get(MGPU), self.used.get(MGPU));
        let (tone, word) = status(self);
        vec![
            safe(&self.name).into(),
            Cell::toned(tone, word),
            amounts::cores(total).into(),
            amounts::cores(used).into(),
            amounts::cores(total.saturating_sub(used)).into(),
            nodes(self).into(),
            self.queued.to_string().into(),
            self.running.to_string().into(),
            platforms(self).into(),
            amounts::amounts(&self.free).into(),
            or_dash(Some(&self.spec.description)).into(),
        ]
    }
}

/// Formats its GPUs by platform, used of all, such as `h100=3/8`.
fn platforms(pool: &PoolView) -> String {
    let word =
        |(name, all): (&String, &PlatformUse)| format!("{}={}/{}", safe(name), all.used, all.gpus);
    let with_gpus = pool.platforms.iter().filter(|(_, all)| all.gpus > 0);
    let words: Vec<String> = with_gpus.map(word).collect();
    or_dash(Some(&words.join(",")))
}

/// Formats whether it takes work; another column counts its ready nodes.
fn status(pool: &PoolView) -> (Tone, &'static str) {
    let word = pool.status.as_str();
    match pool.status {
        PoolStatus::Maintenance | PoolStatus::Recovering => (Tone::Pending, word),
        PoolStatus::Offline if pool.nodes == 0 => (Tone::Faint, word),
        PoolStatus::Offline => (Tone::Bad, word),
        // More is reserved than there is: since hosts or GPUs are gone, or because no capacity is declared.
        PoolStatus::Online if pool.overcommitted => (Tone::Pending, "overcommitted"),
        PoolStatus::Online if pool.nodes_ready < pool.nodes => (Tone::Pending, word),
        PoolStatus::Online => (Tone::Good, word),
    }
}

/// Formats a default amount, and what none means.
fn default_amount(key: &str, amount: u64) -> String {
    match amount {
        0 => "0 (not counted)".to_owned(),
        _ => figure(key, amount),
    }
}

/// Renders its rules for submitted steps.
fn rules(pool: &PoolView, text: &mut Sections) {
    let message = pool.spec.maintenance.as_deref();
    text.optional("Maintenance", message.map(safe));
    let defaults = &pool.spec.defaults;
    let max = &pool.spec.max;
    let number = |n: Option<u32>| n.map(|n| n.to_string());
    let span = |span: Option<Span>| span.map(|span| span.to_string());
    let said = said([
        ("timeout", span(defaults.timeout)),
        ("queue_timeout", span(defaults.queue_timeout)),
        ("grace_period", span(defaults.grace_period)),
        ("retries", number(defaults.retries)),
        (
            "on_preempt",
            defaults.on_preempt.map(|it| it.as_str().to_owned()),
        ),
        ("cpu_mode", defaults.cpu_mode.map(|it| it.to_string())),
        ("cpu", Some(default_amount(MCPU, defaults.cpu))),
        ("memory", Some(default_amount(MEMORY_MB, defaults.memory))),
        (
            "storage",
            Some(defaults.storage)
                .filter(|it| *it > 0)
                .map(|it| figure(STORAGE_MB, it)),
        ),
    ]);
    let most = self::said([
        ("timeout", span(max.timeout)),
        ("queue_timeout", span(max.queue_timeout)),
        ("grace_period", span(max.grace_period)),
        ("retries", number(max.retries)),
    ]);
    let allowed: Vec<&str> = pool
        .spec
        .on_preempt_allowed
        .iter()
        .map(|it| it.as_str())
        .collect();
    let documents: Vec<String> = pool
        .spec
        .validations
        .iter()
        .map(ToString::to_string)
        .collect();
    text.optional(
        "Validations",
        (!documents.is_empty()).then(|| documents.join(", ")),
    );
    let templates: Vec<String> = pool
        .spec
        .templates
        .iter()
        .map(ToString::to_string)
        .collect();
    text.optional("Defaults", said)
        .optional("At most", most)
        .optional(
            "On preempt",
            (!allowed.is_empty()).then(|| format!("{} alone", allowed.join(", "))),
        )
        .optional(
            "Templates",
            (!templates.is_empty()).then(|| templates.join(", ")),
        );
}

/// Formats settings, such as `timeout=2h retries=1`.
fn said<const N: usize>(settings: [(&str, Option<String>); N]) -> Option<String> {
    let words = settings.into_iter();
    let words = words.filter_map(|(name, value)| Some(format!("{name}={}", safe(&value?))));
    let words: Vec<String> = words.collect();
    (!words.is_empty()).then(|| words.join(" "))
}

fn nodes(pool: &PoolView) -> String {
    if pool.nodes_ready == pool.nodes {
        return pool.nodes.to_string();
    }
    format!("{}/{}", pool.nodes_ready, pool.nodes)
}

const NODES: &[Column] = &[
    Column::new("NODE", 9).text(),
    Column::new("STATE", 8),
    Column::new("GPUS", 6),
    Column::new("STEPS", 4),
    Column::new("LABELS", 2).text(),
];

/// Columns of the steps that hold resources of a pool.
const RUNNING: &[Column] = &[
    Column::new("STEP", 9),
    Column::new("NAME", 5).text(),
    Column::new("SUBJECT", 4).text(),
    Column::new("STATE", 8),
    Column::new("NODE", 7).text(),
    Column::new("ASKS FOR", 6),
    Column::new("AGE", 6),
];

const QUEUE: &[Column] = &[
    Column::new("PLACE", 6),
    Column::new("STEP", 9),
    Column::new("NAME", 5).text(),
    Column::new("SUBJECT", 4).text(),
    Column::new("ASKS FOR", 3).text(),
    Column::new("AGE", 2),
    Column::new("WAITS FOR", 8).text(),
];

/// Renders all details of a pool: its nodes, and the first steps of its queue in order.
pub(crate) fn describe(
    pool: &PoolView,
    nodes: &[NodeView],
    policies: &[PolicyView],
    (running, queue): (&[StepView], &[StepView]),
    now: Timestamp,
    out: Out,
) -> String {
    let (tone, word) = status(pool);
    let mut text = Sections::default();
    text.field("Name", safe(&pool.name))
        .field("Status", out.paint(tone, word))
        .field("Description", safe(&pool.spec.description))
        .field(
            "Nodes",
            format!("{} ready of {}", pool.nodes_ready, pool.nodes),
        )
        .field(
            "Steps",
            format!("{} allocated, {} queued", pool.running, pool.queued),
        );
    let required: Vec<&str> = pool.spec.require.iter().map(|it| it.as_str()).collect();
    text.optional(
        "Requires",
        (!required.is_empty()).then(|| format!("{} of each node", required.join(", "))),
    );
    text.many("Warning", &declared::of_pool(pool));
    rules(pool, &mut text);
    text.finish()
        + &capacity::of_pool(pool, out)
        + &capacity::platforms(&pool.platforms, out)
        + &nodes_of(nodes, out)
        + &policies_of(policies, now, out)
        + &running_of(pool, running, now, out)
        + &queue_of(pool, queue, now, out)
}

fn nodes_of(nodes: &[NodeView], out: Out) -> String {
    if nodes.is_empty() {
        return String::new();
    }
    let row = |node: &NodeView| {
        let (used, all) = (node.used.get(MGPU), node.capacity.get(MGPU));
        vec![
            safe(&node.name).into(),
            super::node::state(node),
            amounts::gpus_of(used, all).into(),
            node.steps.len().to_string().into(),
            super::node::labels(&node.labels).into(),
        ]
    };
    let rows: Vec<Vec<Cell>> = nodes.iter().map(row).collect();
    titled("Nodes", &Table::new(NODES, out).whole(&rows))
}

fn policies_of(policies: &[PolicyView], now: Timestamp, out: Out) -> String {
    if policies.is_empty() {
        return String::new();
    }
    titled("Policies", &listed::table(policies, now, out))
}

fn running_of(pool: &PoolView, running: &[StepView], now: Timestamp, out: Out) -> String {
    if running.is_empty() {
        return String::new();
    }
    let row = |step: &StepView| {
        vec![
            safe(&step.id).into(),
            or_dash(Some(&step.name)).into(),
            or_dash(Some(&step.subject)).into(),
            Cell::toned(super::step::tone(step.state), step.state),
            super::step::node_cell(step).into(),
            amounts::amounts(&step.request).into(),
            age(step.submitted_at, now).into(),
        ]
    };
    let rows: Vec<Vec<Cell>> = running.iter().map(row).collect();
    let table = Table::new(RUNNING, out).whole(&rows);
    let more = pool.running.saturating_sub(running.len() as u64);
    if more == 0 {
        return titled("Running", &table);
    }
    let name = safe(&pool.name);
    let rest = format!("and {more} more: `sluice get steps --state running --pool {name}`\n");
    titled("Running", &(table + &rest))
}

fn queue_of(pool: &PoolView, queue: &[StepView], now: Timestamp, out: Out) -> String {
    if queue.is_empty() {
        return String::new();
    }
    let row = |(place, step): (usize, &StepView)| {
        vec![
            Cell::from((place + 1).to_string()),
            safe(&step.id).into(),
            or_dash(Some(&step.name)).into(),
            or_dash(Some(&step.subject)).into(),
            amounts::amounts(&step.request).into(),
            age(step.submitted_at, now).into(),
            or_dash(Some(&step.reason.message)).into(),
        ]
    };
    let rows: Vec<Vec<Cell>> = queue.iter().enumerate().map(row).collect();
    let table = Table::new(QUEUE, out).whole(&rows);
    let more = pool.queued.saturating_sub(queue.len() as u64);
    if more == 0 {
        return titled("Queue, in order", &table);
    }
    let name = safe(&pool.name);
    let rest = format!("and {more} more: `sluice get steps --state queued --pool {name}`\n");
    titled("Queue, in order", &(table + &rest))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::listed::table;
    use super::super::node::tests::node;
    use super::super::policy::tests::policy;
    use super::super::step::tests::{now, running};
    use super::*;

    /// Returns a pool with GPUs, one of them used.
    pub(crate) fn pool(nodes: u64, nodes_ready: u64) -> PoolView {
        serde_json::from_value(serde_json::json!({
            "name": "default", "description": "", "nodes": nodes, "nodes_ready": nodes_ready,
            "capacity": {"gpu": 4, "mcpu": 8000}, "detected": {"gpu": 4, "mcpu": 8000}, "used": {"gpu": 1, "step_run": 1},
            "free": {"gpu": 3, "mcpu": 8000}, "in_share": {"gpu": 1}, "asked": {"gpu": 2}, "platforms": {"h100": {"nodes": 1, "gpus": 4, "used": 1, "free": 3}}, "queued": 2, "running": 1
        }))
        .unwrap()
    }

    #[test]
    fn pools_are_listed_with_their_gpus() {
        assert_eq!(
            table(&[pool(2, 2), pool(2, 1)], now(), Out::plain()),
            "POOL     STATUS  GPU TOTAL  GPU USED  GPU FREE  NODES\n\
             default  online  4          1         3         2\n\
             default  online  4          1         3         1/2\n"
        );
        let mut closed = pool(2, 2);
        closed.status = PoolStatus::Offline;
        assert_eq!(status(&closed).1, "offline");
        closed.status = PoolStatus::Maintenance;
        assert_eq!(status(&closed).1, "maintenance");
        let mut oversold = pool(2, 2);
        oversold.overcommitted = true;
        assert_eq!(status(&oversold).1, "overcommitted");
    }

    #[test]
    fn the_rules_of_a_pool_are_described() {
        let mut ruled = pool(2, 2);
        let rules = serde_json::json!({"timeout": "1h", "retries": 0});
        ruled.spec.max = serde_json::from_value(rules).unwrap();
        let rules =
            serde_json::json!({"grace_period": "5s", "on_preempt": "fail", "cpu_mode": "weight"});
        ruled.spec.defaults = serde_json::from_value(rules).unwrap();
        ruled.spec.on_preempt_allowed = [sluice_common::step::OnPreempt::Fail].into();
        ruled.spec.maintenance = Some("new racks".to_owned());
        let text = describe(&ruled, &[], &[], (&[], &[]), now(), Out::plain());
        for line in [
            "Maintenance:  new racks\n",
            "Defaults:     grace_period=5s on_preempt=fail cpu_mode=weight cpu=1 memory=2GiB\n",
            "At most:      timeout=1h retries=0\n",
            "On preempt:   fail alone\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }

    #[test]
    fn a_description_tells_all() {
        let mut waiting = running();
        waiting.reason.message = "it is next".to_owned();
        let text = describe(
            &pool(2, 2),
            &[node()],
            &[policy()],
            (&[running()], &[waiting]),
            now(),
            Out::plain(),
        );
        let expected = "\
Name:         default
Status:       online
Description:  -
Nodes:        2 ready of 2
Steps:        1 allocated, 2 queued
Defaults:     cpu=1 memory=2GiB

KEY  DECLARED  DETECTED  USED  IN SHARE  BORROWED  FREE  WAITING
gpu  -         4         1     1         0         3     2
cpu  -         8         0     0         0         8     0

PLATFORM  NODES  GPUS  USED  FREE
h100      1      4     1     3

Nodes:
NODE   STATE  GPUS  STEPS  LABELS
gpu-1  ready  1/1   1      zone=a

Policies:
POOL      SUBJECT  PRIORITY  RESERVED  LIMIT  GPUS  BORROWED  RUNNING  QUEUED
training  prod     10        gpu=4     gpu=8  6     gpu=2     3        1

Running:
STEP  NAME   SUBJECT  STATE    NODE   ASKS FOR                 AGE
k3v9  train  dev      running  gpu-1  gpu=2 cpu=1 memory=2GiB  3m

Queue, in order:
PLACE  STEP  NAME   SUBJECT  ASKS FOR                 AGE  WAITS FOR
1      k3v9  train  dev      gpu=2 cpu=1 memory=2GiB  3m   it is next
and 1 more: `sluice get steps --state queued --pool default`
";
        assert_eq!(text, expected);
    }
}
