//! Pools for people.

use jiff::Timestamp;
use sluice_common::amount::GPU;
use sluice_common::api::{PlatformUse, PoolView};

use super::listed::Listed;
use super::sections::Sections;
use super::table::{Cell, Column};
use super::{amounts, or_dash, safe};
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

    fn name(&self) -> String {
        self.name.clone()
    }

    fn cells(&self, _now: Timestamp) -> Vec<Cell> {
        let (total, used) = (self.capacity.get(GPU), self.used.get(GPU));
        let (tone, word) = status(self);
        vec![
            safe(&self.name).into(),
            Cell::toned(tone, word),
            total.to_string().into(),
            used.to_string().into(),
            total.saturating_sub(used).to_string().into(),
            nodes(self).into(),
            self.queued.to_string().into(),
            self.running.to_string().into(),
            platforms(self).into(),
            amounts::amounts(&self.free).into(),
            or_dash(Some(&self.description)).into(),
        ]
    }
}

/// Its GPUs by platform, used of all, such as `h100=3/8`.
fn platforms(pool: &PoolView) -> String {
    let word =
        |(name, all): (&String, &PlatformUse)| format!("{}={}/{}", safe(name), all.used, all.gpus);
    let words: Vec<String> = pool.platforms.iter().map(word).collect();
    or_dash(Some(&words.join(",")))
}

/// Whether it can take work: with all of its nodes, some, or none; `empty` where none ever joined.
fn status(pool: &PoolView) -> (Tone, &'static str) {
    match (pool.nodes, pool.nodes_ready) {
        (0, _) => (Tone::Faint, "empty"),
        (_, 0) => (Tone::Bad, "down"),
        (all, ready) if ready < all => (Tone::Pending, "degraded"),
        _ => (Tone::Good, "ready"),
    }
}

fn nodes(pool: &PoolView) -> String {
    if pool.nodes_ready == pool.nodes {
        return pool.nodes.to_string();
    }
    format!("{}/{}", pool.nodes_ready, pool.nodes)
}

/// Everything about one pool.
pub(crate) fn describe(pool: &PoolView, out: Out) -> String {
    let (tone, word) = status(pool);
    let mut text = Sections::default();
    text.field("Name", safe(&pool.name))
        .field("Status", out.paint(tone, word))
        .field("Description", safe(&pool.description))
        .field(
            "Nodes",
            format!("{} ready of {}", pool.nodes_ready, pool.nodes),
        )
        .field("Capacity", amounts::amounts(&pool.capacity))
        .field("Used", amounts::amounts(&pool.used))
        .field(
            "Steps",
            format!("{} hold units, {} wait", pool.running, pool.queued),
        );
    text.finish()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::listed::table;
    use super::super::step::tests::now;
    use super::*;

    /// A pool with GPUs, one of them used.
    pub(crate) fn pool(nodes: u64, nodes_ready: u64) -> PoolView {
        serde_json::from_value(serde_json::json!({
            "name": "default", "description": "", "nodes": nodes, "nodes_ready": nodes_ready,
            "capacity": {"gpu": 4, "mcpu": 8000}, "used": {"gpu": 1, "step_run": 1},
            "free": {"gpu": 3, "mcpu": 8000}, "platforms": {"h100": {"nodes": 1, "gpus": 4, "used": 1}}, "queued": 2, "running": 1
        }))
        .unwrap()
    }

    #[test]
    fn pools_are_listed_with_their_gpus() {
        assert_eq!(
            table(&[pool(2, 2), pool(2, 1)], now(), Out::plain()),
            "POOL     STATUS    GPU TOTAL  GPU USED  GPU FREE  NODES\n\
             default  ready     4          1         3         2\n\
             default  degraded  4          1         3         1/2\n"
        );
        assert_eq!(status(&pool(0, 0)).1, "empty");
        assert_eq!(status(&pool(2, 0)).1, "down");
    }

    #[test]
    fn a_description_tells_all() {
        let expected = "\
Name:         default
Status:       ready
Description:  -
Nodes:        2 ready of 2
Capacity:     gpu=4 cpu=8
Used:         gpu=1
Steps:        1 hold units, 2 wait
";
        assert_eq!(describe(&pool(2, 2), Out::plain()), expected);
    }
}
