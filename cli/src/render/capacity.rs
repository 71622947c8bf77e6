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

const DECLARED_KEYS: &[Column] = &[
    Column::new("KEY", 4),
    Column::new("DECLARED", 1),
    Column::new("CAPACITY", 3),
    Column::new("USED", 2),
    Column::new("FREE", 1),
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

    /// What there is of a key, and what is free of it: declared at most, and what hosts have of what they count.
    fn of(self, key: &str) -> (Option<u64>, u64, u64, u64) {
        let declared = self.declared.iter().find(|(name, _)| name.as_str() == key);
        let declared = declared.map(|(_, amount)| *amount);
        let used = self.used.get(key);
        let left = |all: u64| all.saturating_sub(used);
        if !HOST_KEYS.contains(&key) {
            let all = declared.unwrap_or(0);
            return (declared, all, used, left(all));
        }
        let (detected, free) = (self.detected.get(key), self.free.get(key));
        match declared {
            None => (None, detected, used, free),
            Some(most) => (declared, detected.min(most), used, free.min(left(most))),
        }
    }
}

/// A table of what a pool has; what is declared stands beside it where anything is.
pub(crate) fn of_pool(units: PoolUnits<'_>, out: Out) -> String {
    let keys = units.keys();
    let row = |key: &String| {
        let (declared, all, used, free) = units.of(key);
        if units.declared.is_empty() {
            return row(key, &[all, used, free]);
        }
        let declared = declared.map_or("-".to_owned(), |amount| much(key, amount));
        let mut row = row(key, &[all, used, free]);
        row.insert(1, declared.into());
        row
    };
    let columns = if units.declared.is_empty() {
        KEYS
    } else {
        DECLARED_KEYS
    };
    whole(columns, keys.iter().map(row).collect(), out)
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
        let units = PoolUnits {
            detected: &Amounts::new().with(GPU, 8).with(MCPU, 8000),
            declared: &declared,
            used: &used,
            free: &Amounts::new().with(GPU, 5).with(MCPU, 7500),
        };
        assert_eq!(
            of_pool(units, Out::plain()),
            "\nKEY       DECLARED  CAPACITY  USED  FREE\n\
             gpu       4         4         3     1\n\
             cpu       -         8         0.5   7.5\n\
             lic       3         3         1     2\n\
             step_run  10        10        0     10\n"
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
        };
        assert_eq!(of_pool(units, Out::plain()), "");
        assert_eq!(platforms(&BTreeMap::new(), Out::plain()), "");
        assert_eq!(of_node(&none, &none, Out::plain()), "");
    }
}
