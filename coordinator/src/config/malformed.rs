//! What is said of a config that is no config. `config.rs` finds the line.

use sluice_common::nearest::unknown_field;

use super::words::shown;

/// Of a line of the file that cannot be read, in a message.
const MAX_SHOWN_BYTES: usize = 120;

/// serde's sentence, with the nearest known key where a key is unknown, else with what stands there.
pub(super) fn explain(message: &str, line: Option<&str>) -> String {
    match unknown_field(message) {
        Some((key, Some(near))) => format!("unknown key `{key}`: did you mean `{near}`?"),
        Some((key, None)) => format!("unknown key `{key}`: {message}"),
        None => match line.map(str::trim).filter(|line| !line.is_empty()) {
            // Somebody may have written the token itself where its file belongs.
            Some(line) if line.contains("token") => message.to_owned(),
            Some(line) => {
                let line = &line[..line.floor_char_boundary(MAX_SHOWN_BYTES)];
                format!("`{}`: {message}", shown(line))
            }
            None => message.to_owned(),
        },
    }
}
