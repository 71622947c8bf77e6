//! What is said of a config that is no config. `config.rs` finds the line.

use sluice_common::config::{shown, way_out, without_token};
use sluice_common::nearest::unknown_field;

/// serde's sentence, with the nearest known key where a key is unknown, else with what stands there.
pub(super) fn explain(message: &str, line: Option<&str>) -> String {
    match unknown_field(message) {
        Some((key, None)) => shown(&format!("unknown key `{key}`: {message}")),
        Some(_) | None => way_out(message, line.and_then(without_token)),
    }
}
