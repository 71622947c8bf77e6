//! Renders the topology: its levels, and how many domains and hosts each has.

use jiff::Timestamp;
use sluice_common::api::TopologyView;

use super::document::{self, ApplyDocument};
use super::listed::Listed;
use super::table::{Cell, Column};
use super::{or_dash, safe};

impl Listed for TopologyView {
    const KIND: &'static str = "topology";
    const COLUMNS: &'static [Column] = &[
        Column::new("LEVELS", 9).text(),
        Column::new("DOMAINS", 8).text(),
        Column::new("VERSION", 3).wide(),
    ];

    fn document(&self) -> Option<ApplyDocument> {
        Some(document::topology(self))
    }

    fn name(&self) -> String {
        Self::KIND.to_owned()
    }

    fn cells(&self, _now: Timestamp) -> Vec<Cell> {
        let levels = self.levels.iter();
        let levels = levels.map(|level| format!("{} by {}", level.name, level.label));
        let levels: Vec<String> = levels.map(|level| safe(&level).to_string()).collect();
        let domains = self.domains.iter();
        let narrowest = domains.filter(|domain| {
            let within = format!("{}/", domain.path);
            !self.domains.iter().any(|it| it.path.starts_with(&within))
        });
        let domains = narrowest.map(|domain| {
            let noun = if domain.nodes == 1 { "node" } else { "nodes" };
            format!("{} ({} {noun})", safe(&domain.path), domain.nodes)
        });
        let domains: Vec<String> = domains.collect();
        vec![
            or_dash(Some(&levels.join(", "))).into(),
            or_dash(Some(&domains.join(", "))).into(),
            self.version.to_string().into(),
        ]
    }
}
