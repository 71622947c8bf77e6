//! Storage: how much the processes of a group have read and written, of version 2.

use std::fs;
use std::path::Path;

/// Bytes read and bytes written.
pub(crate) fn used(group: &Path) -> (Option<u64>, Option<u64>) {
    let text = fs::read_to_string(group.join("io.stat")).ok();
    let of = |key| text.as_deref().map(|text| summed(text, key));
    (of("rbytes="), of("wbytes="))
}

/// Over all devices: lines such as `8:0 rbytes=90112 wbytes=0 rios=3`.
fn summed(text: &str, key: &str) -> u64 {
    let words = text.split_whitespace();
    let values = words.filter_map(|word| word.strip_prefix(key)?.parse::<u64>().ok());
    values.fold(0, u64::saturating_add)
}
