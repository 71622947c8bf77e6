//! Storage I/O: bytes that the processes of a group of version 2 have read and written.

use std::path::Path;

use crate::file;

/// Bytes read, and bytes written.
pub(crate) fn used(group: &Path) -> (Option<u64>, Option<u64>) {
    let text = file::read_text(&group.join("io.stat")).ok();
    let of = |key| text.as_deref().map(|text| sum_over_devices(text, key));
    (of("rbytes="), of("wbytes="))
}

/// The sum over all devices, from lines such as `8:0 rbytes=90112 wbytes=0 rios=3`.
fn sum_over_devices(text: &str, key: &str) -> u64 {
    let words = text.split_whitespace();
    let values = words.filter_map(|word| word.strip_prefix(key)?.parse::<u64>().ok());
    values.fold(0, u64::saturating_add)
}
