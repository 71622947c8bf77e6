//! Tables of capacity, use and free amounts by key, in descriptions of nodes and pools.

use std::collections::BTreeMap;

use sluice_common::amount::{Amounts, MCPU, MEMORY_MB, MGPU, ResourceKey, STORAGE_MB};
use sluice_common::api::{PlatformUse, PoolView};

use super::table::{Cell, Column, Table};
use super::{amounts, or_dash, safe};
use crate::out::Out;

/// Keys that hosts report, in display order; declared ones follow.
const HOST_KEYS: [&str; 4] = [MGPU, MCPU, MEMORY_MB, STORAGE_MB];

const KEYS: &[Column] = &[
    Column::new("KEY", 4),
    Column::new("CAPACITY", 3),
    Column::new("USED", 2),
    Column::new("FREE", 1),
];

const POOL_KEYS: &[Column] = &[
    Column::new("KEY", 9),
    Column::new("DECLARED", 5),
    Column::new("DETECTED", 6),
    Column::new("USED", 7),
    Column::new("IN SHARE", 3),
    Column::new("BORROWED", 4),
    Column::new("FREE", 8),
    Column::new("WAITING", 2),
];

const PLATFORMS: &[Column] = &[
    Column::new("PLATFORM", 4),
    Column::new("NODES", 1),
    Column::new("GPUS", 3),
    Column::new("USED", 2),
    Column::new("FREE", 2),
];

/// Returns the display name of a key.
pub(super) fn named(key: &str) -> String {
    match key {
        MCPU => "cpu".to_owned(),
        MGPU => "gpu".to_owned(),
        MEMORY_MB => "memory".to_owned(),
        STORAGE_MB => "storage".to_owned(),
        other => safe(other),
    }
}

/// Formats an amount in the display unit of its key.
pub(super) fn much(key: &str, amount: u64) -> String {
    match key {
        MCPU | MGPU => amounts::cores(amount),
        MEMORY_MB | STORAGE_MB => amounts::megabytes(amount),
        _ => amount.to_string(),
    }
}

/// Renders the table of a node.
pub(crate) fn of_node(capacity: &Amounts, used: &Amounts, out: Out) -> String {
    let rows = HOST_KEYS.into_iter().filter_map(|key| {
        let (all, used) = (capacity.get(key), used.get(key));
        let free = all.saturating_sub(used);
        (all > 0 || used > 0).then(|| row(key, &[all, used, free]))
    });
    whole(KEYS, rows.collect(), out)
}

/// Returns the keys that hosts report, then the declared ones.
fn keys(pool: &PoolView) -> Vec<String> {
    let custom = pool.declared.keys().map(ResourceKey::as_str);
    let custom = custom.filter(|key| !HOST_KEYS.contains(key));
    let known = |key: &&str| pool.detected.get(key) > 0 || pool.declared.contains_key(*key);
    let of_hosts = HOST_KEYS.into_iter().filter(known);
    of_hosts.chain(custom).map(str::to_owned).collect()
}

/// Renders a row of a pool's table; unknown amounts are dashes.
fn pool_row(pool: &PoolView, key: &str) -> Vec<Cell> {
    let is_detected = HOST_KEYS.contains(&key) && pool.spec.hosts.are_joined();
    let detected = is_detected.then(|| pool.detected.get(key));
    let (in_share, borrowed) = (pool.in_share.get(key), pool.borrowed.get(key));
    let used = pool.used.get(key);
    let counts = in_share + borrowed == used;
    let numbers = [
        pool.declared.get(key).copied(),
        detected,
        Some(used),
        Some(in_share).filter(|_| counts),
        Some(borrowed).filter(|_| counts),
        Some(pool.free.get(key)),
        Some(pool.asked.get(key)),
    ];
    let number =
        |amount: Option<u64>| Cell::from(amount.map_or("-".to_owned(), |amount| much(key, amount)));
    std::iter::once(named(key).into())
        .chain(numbers.map(number))
        .collect()
}

/// Renders the table of a pool: declared and reported amounts.
pub(crate) fn of_pool(pool: &PoolView, out: Out) -> String {
    let rows = keys(pool);
    let rows = rows.iter().map(|key| pool_row(pool, key));
    whole(POOL_KEYS, rows.collect(), out)
}

fn row(key: &str, numbers: &[u64]) -> Vec<Cell> {
    let numbers = numbers.iter().map(|amount| much(key, *amount).into());
    std::iter::once(named(key).into()).chain(numbers).collect()
}

/// Renders a table of a pool's hosts and GPUs by platform; empty if there are none.
pub(crate) fn platforms(platforms: &BTreeMap<String, PlatformUse>, out: Out) -> String {
    let rows = platforms.iter().map(|(name, all)| {
        let numbers = [all.nodes, all.gpus, all.used, all.free];
        let numbers = numbers.into_iter().map(|n| Cell::from(n.to_string()));
        std::iter::once(or_dash(Some(name)).into())
            .chain(numbers)
            .collect()
    });
    whole(PLATFORMS, rows.collect(), out)
}

/// Renders a table below an empty line; empty without rows.
fn whole(columns: &'static [Column], rows: Vec<Vec<Cell>>, out: Out) -> String {
    if rows.is_empty() {
        return String::new();
    }
    format!("\n{}", Table::new(columns, out).whole(&rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a pool without hosts and declared amounts.
    fn empty() -> PoolView {
        serde_json::from_value(serde_json::json!({
            "name": "p", "description": "", "nodes": 0, "nodes_ready": 0, "capacity": {}, "used": {}, "queued": 0,
            "running": 0
        }))
        .unwrap()
    }

    fn amounts(all: &[(&str, u64)]) -> Amounts {
        let all = all.iter();
        all.map(|(key, n)| (ResourceKey::new(*key).unwrap(), *n))
            .collect()
    }

    #[test]
    fn what_is_declared_caps_what_hosts_have_and_stands_beside_it() {
        let pool = PoolView {
            detected: amounts(&[(MGPU, 8000), (MCPU, 8000)]),
            declared: [(MGPU, 4000), ("lic", 3), ("step_run", 10)]
                .map(|(name, n)| (ResourceKey::new(name).unwrap(), n))
                .into(),
            used: amounts(&[(MGPU, 3000), (MCPU, 500), ("lic", 1)]),
            free: amounts(&[(MGPU, 1000), (MCPU, 7500), ("lic", 2), ("step_run", 10)]),
            in_share: amounts(&[(MGPU, 2000), ("lic", 1)]),
            borrowed: amounts(&[(MGPU, 1000)]),
            asked: amounts(&[(MGPU, 6000)]),
            ..empty()
        };
        assert_eq!(
            of_pool(&pool, Out::plain()),
            "\nKEY       DECLARED  DETECTED  USED  IN SHARE  BORROWED  FREE  WAITING\n\
             gpu       4         8         3     2         1         1     6\n\
             cpu       -         8         0.5   -         -         7.5   0\n\
             lic       3         -         1     1         0         2     0\n\
             step_run  10        -         0     0         0         10    0\n"
        );
    }

    #[test]
    fn an_empty_pool_has_no_tables() {
        let none = Amounts::new();
        assert_eq!(of_pool(&empty(), Out::plain()), "");
        assert_eq!(platforms(&BTreeMap::new(), Out::plain()), "");
        assert_eq!(of_node(&none, &none, Out::plain()), "");
    }
}
