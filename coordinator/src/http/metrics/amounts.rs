//! Metrics of amounts of resources, each in its base unit.

use sluice_common::amount::{Amounts, MCPU, MEMORY_MB, MGPU, STORAGE_MB};

use super::PoolSnapshot;
use super::page::{MetricsPage, Sample};

/// Keys whose amounts have a unit: the end of the metric's name, and the unit in terms of the amounts' own.
const KEYS_WITH_UNITS: [(&str, &str, f64); 3] = [
    (MCPU, "cpu_cores", 0.001),
    (MEMORY_MB, "memory_bytes", 1e6),
    (STORAGE_MB, "storage_bytes", 1e6),
];

/// Writes amounts of pools: a family for each key with a unit, and one for all that are counted.
pub(super) fn of_pools(
    page: &mut MetricsPage,
    pools: &[PoolSnapshot],
    (name, what): (&str, &str),
    amounts: fn(&PoolSnapshot) -> &Amounts,
) {
    let counted = pools.iter().flat_map(|pool| {
        let labels = |key| [("pool", pool.name.as_str()), ("key", key)];
        let keys = amounts(pool).iter();
        let keys = keys.filter(|(key, _)| KEYS_WITH_UNITS.iter().all(|it| it.0 != key.as_str()));
        keys.map(move |(key, amount)| match key.as_str() {
            MGPU => Sample::new(&labels("gpu"), amount as f64 / 1000.0),
            key => Sample::new(&labels(key), amount),
        })
    });
    page.family(
        &format!("sluice_pool_{name}"),
        &format!("{what} of the pool that are counted, such as GPUs, by key."),
        counted,
    );
    for (key, unit, scale) in KEYS_WITH_UNITS {
        let of_pool = |pool: &PoolSnapshot| {
            let amount = amounts(pool).get(key) as f64 * scale;
            Sample::new(&[("pool", pool.name.as_str())], amount)
        };
        page.family(
            &format!("sluice_pool_{name}_{unit}"),
            &format!("{what} of the pool."),
            pools.iter().map(of_pool),
        );
    }
}
