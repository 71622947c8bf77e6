//! Explains a config that is malformed. `config.rs` finds the line.

use sluice_common::config::{escape_controls, line_without_token, parse_error_text};
use sluice_common::nearest::unknown_field;

/// Returns serde's sentence, with the nearest known key if a key is unknown, else with the text of the line.
pub(super) fn explain(message: &str, line: Option<&str>) -> String {
    match unknown_field(message) {
        Some((key, None)) => escape_controls(&format!("unknown key `{key}`: {message}")),
        Some(_) | None => parse_error_text(message, line.and_then(line_without_token)),
    }
}
