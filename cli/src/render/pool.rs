//! Pools for people.

use sluice_common::amount::GPU;
use sluice_common::api::PoolView;

use super::sections::Sections;
use super::table::table;
use super::{amounts, safe};
use crate::out::{Out, Tone};

const HEADER: [&str; 6] = [
    "POOL",
    "STATUS",
    "GPU TOTAL",
    "GPU USED",
    "GPU FREE",
    "NODES",
];

/// A list of pools.
pub(crate) fn list(pools: &[PoolView], out: Out) -> String {
    let rows: Vec<Vec<String>> = pools.iter().map(|pool| row(pool, out)).collect();
    table(&HEADER, &rows)
}

fn row(pool: &PoolView, out: Out) -> Vec<String> {
    let (total, used) = (pool.capacity.get(GPU), pool.used.get(GPU));
    let (tone, word) = status(pool);
    vec![
        safe(&pool.name),
        out.paint(tone, word),
        total.to_string(),
        used.to_string(),
        total.saturating_sub(used).to_string(),
        nodes(pool),
    ]
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
mod tests {
    use super::*;

    fn pool(nodes: u64, nodes_ready: u64) -> PoolView {
        serde_json::from_value(serde_json::json!({
            "name": "default", "description": "", "nodes": nodes, "nodes_ready": nodes_ready,
            "capacity": {"gpu": 4, "mcpu": 8000}, "used": {"gpu": 1, "step_run": 1}, "queued": 2, "running": 1
        }))
        .unwrap()
    }

    #[test]
    fn pools_are_listed_with_their_gpus() {
        assert_eq!(
            list(&[pool(2, 2), pool(2, 1)], Out::plain()),
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
