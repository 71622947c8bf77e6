//! What each process of a step may have at most, as the file says it.

use serde::Deserialize;
use sluice_common::amount::parse_memory;
use sluice_common::supervisor_config::ConfigFileError;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawLimits {
    address_space: Option<Bound>,
    core: Option<Bound>,
    cpu_seconds: Option<Bound>,
    data: Option<Bound>,
    file_size: Option<Bound>,
    memlock: Option<Bound>,
    nofile: Option<Bound>,
    nproc: Option<Bound>,
    stack: Option<Bound>,
}

#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a number, \"unlimited\", or bytes such as \"8GiB\""
)]
enum Bound {
    Number(u64),
    Text(String),
}

impl RawLimits {
    /// The limits that are given, by key; `u64::MAX` is no limit.
    pub(super) fn check(self) -> Result<Vec<(String, u64)>, ConfigFileError> {
        let bounds = [
            ("cpu_seconds", self.cpu_seconds),
            ("nofile", self.nofile),
            ("nproc", self.nproc),
            ("address_space", self.address_space),
            ("core", self.core),
            ("data", self.data),
            ("file_size", self.file_size),
            ("memlock", self.memlock),
            ("stack", self.stack),
        ];
        let given = bounds
            .into_iter()
            .filter_map(|(name, bound)| Some((name, bound?)));
        given
            .map(|(name, bound)| Ok((name.to_owned(), most(name, bound)?)))
            .collect()
    }
}

/// Limits that are no bytes.
const COUNTED: [&str; 3] = ["cpu_seconds", "nofile", "nproc"];

fn most(name: &str, bound: Bound) -> Result<u64, ConfigFileError> {
    let wrong = |message| ConfigFileError::value(&format!("limits.{name}"), message);
    match bound {
        Bound::Number(most) => Ok(most),
        Bound::Text(text) if text == "unlimited" => Ok(u64::MAX),
        Bound::Text(text) if !COUNTED.contains(&name) => {
            parse_memory(&text).map_err(|e| wrong(e.to_string()))
        }
        Bound::Text(text) => {
            let text = text.escape_debug();
            Err(wrong(format!(
                "`{text}` is no limit: write a number without quotes, or \"unlimited\""
            )))
        }
    }
}
