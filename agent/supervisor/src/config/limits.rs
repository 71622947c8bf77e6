//! What each process of a step may have at most, as the file says it.

use nix::sys::resource::{RLIM_INFINITY, Resource, rlim_t};
use serde::Deserialize;
use sluice_common::amount::parse_memory;

use super::Wrong;

/// The most of one thing that each process of a step may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rlimit {
    /// The key in the file.
    pub name: &'static str,
    /// Of what.
    pub resource: Resource,
    /// How much; [`RLIM_INFINITY`] is no limit.
    pub most: rlim_t,
}

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
    pub(super) fn check(self) -> Result<Vec<Rlimit>, Wrong> {
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
        let limits = bounds.into_iter().map(|(name, bound)| {
            let resource = rlimit(name).expect("each key of the file has a resource");
            limit(name, resource, bound, !COUNTED.contains(&name))
        });
        limits.filter_map(Result::transpose).collect()
    }
}

/// Limits that are no bytes.
const COUNTED: [&str; 3] = ["cpu_seconds", "nofile", "nproc"];

/// What a limit of each process is of, by its name.
pub fn rlimit(name: &str) -> Option<Resource> {
    let resource = match name {
        "cpu_seconds" => Resource::RLIMIT_CPU,
        "nofile" => Resource::RLIMIT_NOFILE,
        "nproc" => Resource::RLIMIT_NPROC,
        "address_space" => Resource::RLIMIT_AS,
        "core" => Resource::RLIMIT_CORE,
        "data" => Resource::RLIMIT_DATA,
        "file_size" => Resource::RLIMIT_FSIZE,
        "memlock" => Resource::RLIMIT_MEMLOCK,
        "stack" => Resource::RLIMIT_STACK,
        _ => return None,
    };
    Some(resource)
}

fn limit(
    name: &'static str,
    resource: Resource,
    bound: Option<Bound>,
    in_bytes: bool,
) -> Result<Option<Rlimit>, Wrong> {
    let most = match bound {
        None => return Ok(None),
        Some(Bound::Number(most)) => most,
        Some(Bound::Text(text)) if text == "unlimited" => RLIM_INFINITY,
        Some(Bound::Text(text)) if in_bytes => {
            parse_memory(&text).map_err(|e| (format!("limits.{name}"), e.to_string()))?
        }
        Some(Bound::Text(text)) => {
            let text = text.escape_debug();
            let message =
                format!("`{text}` is no limit: write a number without quotes, or \"unlimited\"");
            return Err((format!("limits.{name}"), message));
        }
    };
    Ok(Some(Rlimit {
        name,
        resource,
        most,
    }))
}
