//! The table `[limits]`: resource limits (setrlimit) of each process of a step.

use serde::Deserialize;
use sluice_common::amount::parse_memory;
use sluice_common::supervisor_config::ConfigFileError;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawLimits {
    address_space: Option<RawLimit>,
    core: Option<RawLimit>,
    cpu_seconds: Option<RawLimit>,
    data: Option<RawLimit>,
    file_size: Option<RawLimit>,
    memlock: Option<RawLimit>,
    nofile: Option<RawLimit>,
    nproc: Option<RawLimit>,
    stack: Option<RawLimit>,
}

#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a number, \"unlimited\", or bytes such as \"8GiB\""
)]
enum RawLimit {
    Number(u64),
    Text(String),
}

impl RawLimits {
    /// The given limits by key; `u64::MAX` means unlimited.
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
            .map(|(name, bound)| Ok((name.to_owned(), parse_limit(name, bound)?)))
            .collect()
    }
}

/// Limits that are plain numbers and not bytes.
const PLAIN_NUMBERS: [&str; 3] = ["cpu_seconds", "nofile", "nproc"];

fn parse_limit(name: &str, bound: RawLimit) -> Result<u64, ConfigFileError> {
    let wrong = |message| ConfigFileError::value(&format!("limits.{name}"), message);
    match bound {
        RawLimit::Number(number) => Ok(number),
        RawLimit::Text(text) if text == "unlimited" => Ok(u64::MAX),
        RawLimit::Text(text) if !PLAIN_NUMBERS.contains(&name) => {
            parse_memory(&text).map_err(|e| wrong(e.to_string()))
        }
        RawLimit::Text(text) => {
            let text = text.escape_debug();
            Err(wrong(format!(
                "`{text}` is not a limit: write a number without quotes, or \"unlimited\""
            )))
        }
    }
}
