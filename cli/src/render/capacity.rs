//! What there is of each key, what is used and what is free, as tables below the description of a node or a pool.

use std::collections::BTreeMap;

use sluice_common::amount::{Amounts, GPU, Key, MCPU, MEMORY_MB, STORAGE_MB};
use sluice_common::api::PlatformUse;

use super::table::{Cell, Column, Table};
use super::{amounts, or_dash, safe};
use crate::out::Out;

/// The keys that hosts report, in the order in which they are shown; declared ones follow.
const HOST_KEYS: [&str; 4] = [GPU, MCPU, MEMORY_MB, STORAGE_MB];

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
];

/// A key by the name that people use.
fn named(key: &str) -> String {
    match key {
        MCPU => "cpu".to_owned(),
        MEMORY_MB => "memory".to_owned(),
        STORAGE_MB => "storage".to_owned(),
        other => safe(other),
    }
}

/// So much of a key, in the unit that people use.
fn much(key: &str, amount: u64) -> String {
    match key {
        MCPU => amounts::cores(amount),
        MEMORY_MB | STORAGE_MB => amounts::megabytes(amount),
        _ => amount.to_string(),
    }
}

/// A table of what a node has.
pub(crate) fn of_node(capacity: &Amounts, used: &Amounts, out: Out) -> String {
    let rows = HOST_KEYS.into_iter().filter_map(|key| {
        let (all, used) = (capacity.get(key), used.get(key));
        let free = all.saturating_sub(used);
        (all > 0 || used > 0).then(|| row(key, &[all, used, free]))
    });
    whole(KEYS, rows.collect(), out)
}

/// What a pool has and uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolUnits<'a> {
    /// What its nodes have, added up.
    pub(crate) detected: &'a Amounts,
    /// What is declared.
    pub(crate) declared: &'a BTreeMap<Key, u64>,
    /// What is granted.
    pub(crate) used: &'a Amounts,
    /// What is free on nodes that take work.
    pub(crate) free: &'a Amounts,
    /// What is held within reserved shares, of keys that count.
    pub(crate) in_share: &'a Amounts,
    /// What is held beyond.
    pub(crate) borrowed: &'a Amounts,
    /// What the steps that wait ask for.
    pub(crate) asked: &'a Amounts,
}

impl PoolUnits<'_> {
    /// Keys that are not hosts' and are declared, then those that are used though they are declared no longer.
    fn keys(self) -> Vec<String> {
        let custom = self.declared.keys().map(Key::as_str);
        let custom = custom.filter(|key| !HOST_KEYS.contains(key));
        let known = |key: &&str| self.detected.get(key) > 0 || self.declared.contains_key(*key);
        let of_hosts = HOST_KEYS.into_iter().filter(known);
        of_hosts.chain(custom).map(str::to_owned).collect()
    }

    /// A line of the table: what does not count, or that nobody counts, is a dash.
    fn row(self, key: &str) -> Vec<Cell> {
        let declared = self.declared.iter().find(|(name, _)| name.as_str() == key);
        let detected = HOST_KEYS.contains(&key).then(|| self.detected.get(key));
        let (in_share, borrowed) = (self.in_share.get(key), self.borrowed.get(key));
        let used = self.used.get(key);
        let counts = in_share + borrowed == used;
        let numbers = [
            declared.map(|(_, amount)| *amount),
            detected,
            Some(used),
            Some(in_share).filter(|_| counts),
            Some(borrowed).filter(|_| counts),
            Some(self.free.get(key)),
            Some(self.asked.get(key)),
        ];
        let number = |amount: Option<u64>| {
            Cell::from(amount.map_or("-".to_owned(), |amount| much(key, amount)))
        };
        std::iter::once(named(key).into())
            .chain(numbers.map(number))
            .collect()
    }
}

/// A table of what a pool has: what is declared beside what its nodes report.
pub(crate) fn of_pool(units: PoolUnits<'_>, out: Out) -> String {
    let rows = units.keys();
    let rows = rows.iter().map(|key| units.row(key));
    whole(POOL_KEYS, rows.collect(), out)
}

fn row(key: &str, numbers: &[u64]) -> Vec<Cell> {
    let numbers = numbers.iter().map(|amount| much(key, *amount).into());
    std::iter::once(named(key).into()).chain(numbers).collect()
}

/// A table of a pool's GPUs by platform; nothing where it has none.
pub(crate) fn platforms(platforms: &BTreeMap<String, PlatformUse>, out: Out) -> String {
    let rows = platforms.iter().map(|(name, all)| {
        let numbers = [all.nodes, all.gpus, all.used];
        let numbers = numbers.into_iter().map(|n| Cell::from(n.to_string()));
        std::iter::once(or_dash(Some(name)).into())
            .chain(numbers)
            .collect()
    });
    whole(PLATFORMS, rows.collect(), out)
}

/// A table below an empty line; nothing where it has no rows.
fn whole(columns: &'static [Column], rows: Vec<Vec<Cell>>, out: Out) -> String {
    if rows.is_empty() {
        return String::new();
    }
    format!("\n{}", Table::new(columns, out).whole(&rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_declared_caps_what_hosts_have_and_stands_beside_it() {
        let key = |name: &str| Key::new(name).unwrap();
        let declared = [(key(GPU), 4), (key("lic"), 3), (key("step_run"), 10)].into();
        let mut used = Amounts::new().with(GPU, 3).with(MCPU, 500);
        used.set(key("lic"), 1);
        let mut free = Amounts::new().with(GPU, 1).with(MCPU, 7500);
        free.set(key("lic"), 2);
        free.set(key("step_run"), 10);
        let mut in_share = Amounts::new().with(GPU, 2);
        in_share.set(key("lic"), 1);
        let units = PoolUnits {
            detected: &Amounts::new().with(GPU, 8).with(MCPU, 8000),
            declared: &declared,
            used: &used,
            free: &free,
            in_share: &in_share,
            borrowed: &Amounts::new().with(GPU, 1),
            asked: &Amounts::new().with(GPU, 6),
        };
        assert_eq!(
            of_pool(units, Out::plain()),
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
        let units = PoolUnits {
            detected: &none,
            declared: &BTreeMap::new(),
            used: &none,
            free: &none,
            in_share: &none,
            borrowed: &none,
            asked: &none,
        };
        assert_eq!(of_pool(units, Out::plain()), "");
        assert_eq!(platforms(&BTreeMap::new(), Out::plain()), "");
        assert_eq!(of_node(&none, &none, Out::plain()), "");
    }
}
