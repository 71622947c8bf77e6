//! Renders policies as text.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sluice_common::amount::{Amounts, MGPU, ResourceKey};
use sluice_common::api::PolicyView;

use super::amounts;
use super::document::{self, ApplyDocument};
use super::listed::Listed;
use super::safe;
use super::table::{Cell, Column};

impl Listed for PolicyView {
    const KIND: &'static str = "policy";
    const COLUMNS: &'static [Column] = &[
        Column::new("POOL", 9).text(),
        Column::new("SUBJECT", 20).text(),
        Column::new("PRIORITY", 6),
        Column::new("RESERVED", 8).text(),
        Column::new("LIMIT", 5).text(),
        Column::new("GPUS", 7),
        Column::new("BORROWED", 7).text(),
        Column::new("RUNNING", 4),
        Column::new("QUEUED", 4),
        Column::new("USED", 3).wide(),
        Column::new("VERSION", 3).wide(),
    ];

    fn document(&self) -> Option<ApplyDocument> {
        Some(document::policy(self))
    }

    fn name(&self) -> String {
        format!("{}/{}", self.pool, self.subject)
    }

    fn cells(&self, _now: Timestamp) -> Vec<Cell> {
        vec![
            safe(&self.pool).into(),
            safe(&self.subject).into(),
            self.spec.priority.to_string().into(),
            table(&self.spec.reserved).into(),
            table(&self.spec.limit).into(),
            amounts::cores(self.used.get(MGPU)).into(),
            amounts::amounts(&self.borrowed).into(),
            self.running.to_string().into(),
            self.queued.to_string().into(),
            amounts::amounts(&self.used).into(),
            self.version.to_string().into(),
        ]
    }
}

/// Formats amounts by key, in display units.
fn table(table: &BTreeMap<ResourceKey, u64>) -> String {
    let amounts: Amounts = table.iter().map(|(key, n)| (key.clone(), *n)).collect();
    amounts::amounts(&amounts)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn policy() -> PolicyView {
        serde_json::from_value(serde_json::json!({
            "pool": "training", "subject": "prod", "priority": 10, "reserved": {"gpu": 4}, "limit": {"gpu": 8},
            "used": {"gpu": 6, "mcpu": 2000, "step_run": 3}, "in_share": {"gpu": 4}, "borrowed": {"gpu": 2},
            "queued": 1, "running": 3, "version": 17
        }))
        .unwrap()
    }
}
