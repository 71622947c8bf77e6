//! Words about a config, as they are told to whoever starts the program: what was written stands in them.

/// A message without what a terminal would obey.
pub(super) fn shown(message: &str) -> String {
    let quiet = |c: char| match c.is_control() {
        true => c.escape_debug().to_string(),
        false => c.to_string(),
    };
    message.chars().map(quiet).collect()
}
