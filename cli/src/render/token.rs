//! Renders join tokens.

use jiff::Timestamp;
use sluice_common::api::JoinTokenView;

use super::age::age;
use super::listed::Listed;
use super::table::{Cell, Column};
use super::{or_dash, safe, shortened};

/// Nodes named in a cell.
const NAMED: usize = 4;

impl Listed for JoinTokenView {
    const KIND: &'static str = "token";
    const COLUMNS: &'static [Column] = &[
        Column::new("TOKEN", 9).text(),
        Column::new("STATE", 20).text(),
        Column::new("POOL", 8).text(),
        Column::new("USED", 7),
        Column::new("EXPIRES", 6),
        Column::new("FOR", 5).text(),
        Column::new("LABELS", 3).text(),
        Column::new("NODES", 4).text(),
    ];

    fn name(&self) -> String {
        self.id.clone()
    }

    fn cells(&self, now: Timestamp) -> Vec<Cell> {
        let left = match self.expires_at > now {
            true => format!("in {}", age(now, self.expires_at)),
            false => format!("{} ago", age(self.expires_at, now)),
        };
        let labels = self.labels.iter();
        let labels = labels.map(|(key, value)| safe(&format!("{key}={value}")));
        let nodes = self.nodes.iter().map(|node| safe(node));
        let texts = [
            safe(&self.id),
            self.state.as_str().to_owned(),
            or_dash(self.pool.as_deref()),
            format!("{}/{}", self.nodes.len(), self.uses),
            left,
            or_dash(self.node.as_deref()),
            or_dash(Some(&labels.collect::<Vec<_>>().join(","))),
            or_dash(Some(&shortened(nodes, NAMED))),
        ];
        texts.into_iter().map(Cell::from).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_a_row_without_a_secret() {
        let token: JoinTokenView = serde_json::from_value(serde_json::json!({
            "id": "3fa9c2d107", "state": "open", "pool": "training", "node": null, "labels": {"rack": "7"},
            "uses": 8, "nodes": ["gpu-1", "gpu-2"], "made_at": "2026-11-22T03:00:00Z",
            "expires_at": "2026-11-22T05:00:00Z"
        }))
        .unwrap();
        let out = crate::out::Out::detect(crate::args::Format::Wide);
        let now = "2026-11-22T04:00:00Z".parse().unwrap();
        let table = crate::render::listed::table(&[token], now, out);
        let words: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
        let wanted = [
            "3fa9c2d107",
            "open",
            "training",
            "2/8",
            "in",
            "60m",
            "-",
            "rack=7",
            "gpu-1,",
            "gpu-2",
        ];
        assert_eq!(words, wanted);
    }
}
