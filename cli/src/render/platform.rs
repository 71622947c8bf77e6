//! Platforms for people: the hosts and GPUs of each kind that a pool has.

use jiff::Timestamp;
use serde::Serialize;
use sluice_common::api::{PlatformUse, PoolView};

use super::listed::Listed;
use super::safe;
use super::table::{Cell, Column};

/// A platform of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct PoolPlatform {
    pub(crate) name: String,
    pub(crate) pool: String,
    #[serde(flatten)]
    has: PlatformUse,
}

impl PoolPlatform {
    /// Those of a pool, by name.
    pub(crate) fn of(pool: PoolView) -> impl Iterator<Item = Self> {
        let name = pool.name;
        let platforms = pool.platforms.into_iter();
        platforms.map(move |(platform, has)| Self {
            name: platform,
            pool: name.clone(),
            has,
        })
    }
}

impl Listed for PoolPlatform {
    const KIND: &'static str = "platform";
    const COLUMNS: &'static [Column] = &[
        Column::new("POOL", 9).text(),
        Column::new("PLATFORM", 20).text(),
        Column::new("NODES", 5),
        Column::new("GPU TOTAL", 6),
        Column::new("GPU USED", 7),
        Column::new("GPU FREE", 8),
    ];

    fn name(&self) -> String {
        format!("{}/{}", self.pool, self.name)
    }

    fn cells(&self, _now: Timestamp) -> Vec<Cell> {
        let PlatformUse {
            nodes,
            gpus,
            used,
            free,
        } = self.has;
        let names = [&self.pool, &self.name].map(|name| Cell::from(safe(name)));
        let numbers = [nodes, gpus, used, free].map(|n| Cell::from(n.to_string()));
        names.into_iter().chain(numbers).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_has_a_row_for_each_platform() {
        let pool: PoolView = serde_json::from_value(serde_json::json!({
            "name": "p", "description": "", "nodes": 3, "nodes_ready": 3, "capacity": {}, "used": {}, "queued": 0,
            "running": 0, "platforms": {"h100": {"nodes": 2, "gpus": 16, "used": 5, "free": 11}, "cpu": {"nodes": 1,
            "gpus": 0, "used": 0}},
        }))
        .unwrap();
        let rows: Vec<PoolPlatform> = PoolPlatform::of(pool).collect();
        let names: Vec<String> = rows.iter().map(Listed::name).collect();
        assert_eq!(names, ["p/cpu", "p/h100"]);
        assert_eq!(rows[1].cells(Timestamp::UNIX_EPOCH).len(), 6);
        assert_eq!((rows[0].has.free, rows[1].has.free), (0, 11));
    }
}
