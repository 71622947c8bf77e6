//! Renders labels of nodes.

use jiff::Timestamp;
use serde::Serialize;

use super::listed::Listed;
use super::safe;
use super::table::{Cell, Column};

/// One label of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct NodeLabel {
    pub(crate) node: String,
    pub(crate) key: String,
    pub(crate) value: String,
}

impl Listed for NodeLabel {
    const KIND: &'static str = "label";
    const COLUMNS: &'static [Column] = &[
        Column::new("NODE", 9).text(),
        Column::new("KEY", 8).text(),
        Column::new("VALUE", 7).text(),
    ];

    fn name(&self) -> String {
        format!("{}/{}", self.node, self.key)
    }

    fn cells(&self, _now: Timestamp) -> Vec<Cell> {
        let texts = [&self.node, &self.key, &self.value];
        texts.map(|text| Cell::from(safe(text))).into()
    }
}
