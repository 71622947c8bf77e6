//! Reads the `agent.yaml` of a Determined agent for `join --from`: the name of the host and its pool. What has no
//! counterpart is refused by its name, before the host joins.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use sluice_common::config::escape_controls;

/// Largest file, far above any config.
const MAX_BYTES: u64 = 256 * 1024;

/// Fields that take no effect here, each with the reason.
const NEEDLESS: [(&str, &str); 10] = [
    (
        "container_runtime",
        "the agent finds the container runtimes of the host",
    ),
    ("master_host", "the join line names the coordinator"),
    ("master_port", "the join line names the coordinator"),
    (
        "container_master_host",
        "steps do not talk to the coordinator",
    ),
    (
        "container_master_port",
        "steps do not talk to the coordinator",
    ),
    (
        "security",
        "the join line proves the coordinator, and the host gets a certificate",
    ),
    (
        "log",
        "`log_format` and `log_filter` are keys of agent.toml",
    ),
    ("debug", "`log_filter` is a key of agent.toml"),
    (
        "agent_reconnect_attempts",
        "the agent dials until it is stopped",
    ),
    (
        "agent_reconnect_backoff",
        "the agent dials until it is stopped",
    ),
];

/// Fields that have no counterpart, each with the way out.
const REFUSED: [(&str, &str); 8] = [
    (
        "visible_gpus",
        "all GPUs of the host join: remove it, and keep one out by `sluice cordon NODE --gpu INDEX`",
    ),
    (
        "artificial_slots",
        "a host has the GPUs that it has: remove it; `sluice dev --file` declares hosts for trials",
    ),
    (
        "http_proxy",
        "the agent uses QUIC and no proxy: remove it, and let the host reach the coordinator",
    ),
    (
        "https_proxy",
        "the agent uses QUIC and no proxy: remove it, and let the host reach the coordinator",
    ),
    ("ftp_proxy", "the agent uses no proxy: remove it"),
    ("no_proxy", "the agent uses no proxy: remove it"),
    (
        "hooks",
        "a host keeps its steps while the link is down: remove it",
    ),
    (
        "image_root",
        "the container runtime of the host keeps images: remove it",
    ),
];

/// The kinds of slot for which Sluice has GPUs.
const SLOT_TYPES: [&str; 3] = ["auto", "gpu", "cuda"];

/// Name and pool of a host in an `agent.yaml`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ForeignAgent {
    pub(crate) node: Option<String>,
    pub(crate) pool: Option<String>,
    /// Fields that take no effect, with the reason.
    pub(crate) notes: Vec<String>,
}

/// Why an `agent.yaml` cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ForeignAgentError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}: {message}", path.display())]
    Wrong { path: PathBuf, message: String },
}

/// Reads a file.
pub(crate) fn read(path: &Path) -> Result<ForeignAgent, ForeignAgentError> {
    let unread = |source| ForeignAgentError::Read {
        path: path.to_owned(),
        source,
    };
    let wrong = |message| ForeignAgentError::Wrong {
        path: path.to_owned(),
        message,
    };
    let mut text = String::new();
    let file = File::open(path).map_err(unread)?;
    let mut file = file.take(MAX_BYTES + 1);
    file.read_to_string(&mut text).map_err(unread)?;
    match text.len() as u64 > MAX_BYTES {
        true => Err(wrong("it is larger than 256 KiB".to_owned())),
        false => parse(&text).map_err(wrong),
    }
}

/// Whether a value changes anything: an empty text or map does not, nor a count of 0. A number of `visible_gpus` is an
/// index.
fn says_something(name: &str, value: &Value) -> bool {
    match value {
        Value::String(text) => !text.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Number(number) => name == "visible_gpus" || number.as_u64() != Some(0),
        _ => true,
    }
}

fn parse(text: &str) -> Result<ForeignAgent, String> {
    // The lines around a mistake may hold a secret.
    let options = serde_saphyr::options! { with_snippet: false };
    let read = serde_saphyr::from_str_with_options(text, options);
    let mut fields: Map<String, Value> = read.map_err(|e| escape_controls(&e.to_string()))?;
    fields.retain(|_, value| !value.is_null());
    let mut agent = ForeignAgent {
        node: text_of(&mut fields, "agent_id")?,
        pool: text_of(&mut fields, "resource_pool")?,
        notes: Vec::new(),
    };
    let kind = text_of(&mut fields, "slot_type")?;
    if let Some(kind) = kind.filter(|kind| !SLOT_TYPES.contains(&kind.as_str())) {
        let kind = escape_controls(&kind);
        return Err(format!(
            "slot_type: `{kind}`: a host offers its GPUs and its cores: remove it"
        ));
    }
    for (name, why) in NEEDLESS {
        if fields.remove(name).is_some() {
            agent.notes.push(format!("{name} takes no effect: {why}"));
        }
    }
    for (name, way) in REFUSED {
        if let Some(value) = fields.remove(name).filter(|it| says_something(name, it)) {
            // A proxy's address or a hook may hold a secret.
            let value = match value {
                Value::String(text) if !name.ends_with("proxy") => {
                    format!("`{}`: ", escape_controls(&text))
                }
                Value::Number(number) => format!("`{number}`: "),
                _ => String::new(),
            };
            return Err(format!("{name}: {value}{way}"));
        }
    }
    match fields.keys().next() {
        None => Ok(agent),
        Some(name) => Err(format!(
            "{}: no counterpart of this field is known: remove it, or write agent.toml",
            escape_controls(name)
        )),
    }
}

fn text_of(fields: &mut Map<String, Value>, name: &str) -> Result<Option<String>, String> {
    match fields.remove(name) {
        None => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("{name}: write a text")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_and_pool_are_taken_and_the_rest_is_told() {
        let agent = parse("master_host: 10.0.0.1\nmaster_port: 8080\nagent_id: gpu-7\nresource_pool: training\nslot_type: auto\nvisible_gpus: \"\"\nartificial_slots: 0\n").unwrap();
        assert_eq!(agent.node.as_deref(), Some("gpu-7"));
        assert_eq!(agent.pool.as_deref(), Some("training"));
        assert_eq!(agent.notes.len(), 2, "{:?}", agent.notes);
        assert_eq!(parse("master_host: a\n").unwrap().pool, None);
    }

    #[test]
    fn what_has_no_counterpart_is_refused_by_name() {
        for (text, told) in [
            (
                "visible_gpus: \"0,1\"",
                "visible_gpus: `0,1`: all GPUs of the host join",
            ),
            ("visible_gpus: 0", "visible_gpus: `0`: all GPUs"),
            ("slot_type: none", "slot_type: `none`"),
            ("hooks: {on_connection_lost: [reboot]}", "hooks: "),
            ("agent_id: [a]", "agent_id: write a text"),
            (
                "fluent: {port: 1}",
                "fluent: no counterpart of this field is known",
            ),
            ("[1", "line"),
            ("\"a\\u001b\": 1", "a\\u{1b}: no counterpart"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}
