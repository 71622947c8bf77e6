//! Renders validation documents.

use jiff::Timestamp;
use sluice_common::api::ValidationView;

use super::document::{self, ApplyDocument};
use super::listed::Listed;
use super::sections::Sections;
use super::table::{Cell, Column};
use super::{or_dash, safe};

impl Listed for ValidationView {
    const KIND: &'static str = "validation";
    const COLUMNS: &'static [Column] = &[
        Column::new("NAME", 9).text(),
        Column::new("ASSERTIONS", 8),
        Column::new("POOLS", 7).text(),
        Column::new("DESCRIPTION", 3).text(),
        Column::new("VERSION", 2).wide(),
    ];

    fn document(&self) -> Option<ApplyDocument> {
        Some(document::validation(self))
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn cells(&self, _now: Timestamp) -> Vec<Cell> {
        vec![
            safe(&self.name).into(),
            self.assertions.len().to_string().into(),
            or_dash(Some(&named_by(self).join(","))).into(),
            or_dash(Some(&self.description)).into(),
            self.version.to_string().into(),
        ]
    }
}

/// Returns the pools that name it, and the platforms with their pools.
fn named_by(document: &ValidationView) -> Vec<String> {
    let mut all = document.pools.clone();
    all.extend(document.platforms.iter().cloned());
    all
}

/// Renders all details of a document.
pub(crate) fn describe(document: &ValidationView) -> String {
    let mut text = Sections::default();
    text.field("Name", safe(&document.name))
        .field("Description", safe(&document.description))
        .field("Pools", or_dash(Some(&named_by(document).join(", "))));
    text.section("Assertions", |text| {
        for (number, it) in (1..).zip(&document.assertions) {
            text.section(&format!("{number}"), |one| {
                one.field("Assert", safe(&it.assert))
                    .optional("When", it.when.as_deref().map(safe))
                    .field("Message", safe(&it.message));
            });
        }
    });
    text.finish()
}

#[cfg(test)]
mod tests {
    use super::super::listed::table;
    use super::super::step::tests::now;
    use super::*;
    use crate::out::Out;

    fn document() -> ValidationView {
        serde_json::from_value(serde_json::json!({
            "name": "fits", "description": "", "pools": ["a", "b"], "platforms": ["c/h100"], "version": 7, "assertions": [
                {"assert": "memory <= 0.9 * node.memory", "message": "leave a tenth"},
                {"assert": "nodes == 1", "when": "work == \"notebook\"", "message": "one\u{1b} host"},
            ]
        }))
        .unwrap()
    }

    #[test]
    fn documents_are_listed_and_told_assertion_by_assertion() {
        assert_eq!(
            table(&[document()], now(), Out::plain()),
            "NAME  ASSERTIONS  POOLS       DESCRIPTION\nfits  2           a,b,c/h100  -\n"
        );
        let expected = "\
Name:         fits
Description:  -
Pools:        a, b, c/h100
Assertions:
  1:
    Assert:   memory <= 0.9 * node.memory
    Message:  leave a tenth
  2:
    Assert:   nodes == 1
    When:     work == \"notebook\"
    Message:  one\\u{1b} host
";
        assert_eq!(describe(&document()), expected);
    }
}
