//! Templates: settings that admins apply to the steps of a pool or a platform. A pool lists named templates in order; a
//! platform's override is applied on top, and the step's own settings last.
//!
//! This file defines the document format. [`merge`] merges layers, [`variable`] handles `{{...}}` variables, [`check`]
//! validates, [`origin`] tracks the origin of values, `field_text` formats them, and [`launch`] derives what is
//! started. The coordinator's core stores templates and selects those of a step.

pub mod check;
mod field_text;
pub mod launch;
pub mod merge;
pub mod origin;
pub mod variable;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::request::ResourceSettings;

pub use merge::{LayeredList, ListItem};

/// One layer of settings. Absent fields are inherited; zero, `false` and empty lists are values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Template {
    /// Free text for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Environment variables. Values may contain `{{...}}`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: Environment,
    /// Program and arguments placed before the step's command, such as `["numactl", "--cpunodebind={{numa}}", "--"]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wrapper: Option<Vec<String>>,
    /// Working directory, an absolute path on the host. May contain `{{...}}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// Limits of each process by the keys of `supervisor.toml`, and `processes`, the number of processes. Numbers, or
    /// bytes such as `8GiB`. The host's config bounds them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, LimitValue>,
    /// Hooks that run before and after the step.
    #[serde(skip_serializing_if = "Hooks::is_empty")]
    pub hooks: Hooks,
    /// Default resources of steps that request none.
    #[serde(skip_serializing_if = "DefaultResources::is_empty")]
    pub resources: DefaultResources,
    /// Default mounts of steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mounts: Option<LayeredList<Mount>>,
    /// Paths that steps may mount, including everything below. None if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_mounts: Option<LayeredList<Mount>>,
    /// Argument that replaces `{{mounts}}`, once per mount, such as `--volume={{source}}:{{target}}:{{mode}}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount_argument: Option<String>,
    /// Whether steps may request `privileged`; `false` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub privileged_allowed: Option<bool>,
    /// Argument that replaces `{{privileged}}` if requested, such as `--privileged`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub privileged_argument: Option<String>,
    /// Whether steps may request `host_network`; `false` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_network_allowed: Option<bool>,
    /// Argument that replaces `{{host_network}}` if requested, such as `--network=host`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_network_argument: Option<String>,
}

/// Value of a limit as written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged, expecting = "expected a number, or bytes such as \"8GiB\"")]
pub enum LimitValue {
    /// A plain number.
    Number(u64),
    /// Amount of memory, such as `8GiB`.
    Text(String),
}

/// Programs run one after the other as the step's user inside its attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Hooks {
    /// Hooks before the step. If one fails, the step fails without starting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<LayeredList<Hook>>,
    /// Hooks after the step's program has ended, whatever its exit. Their own exits are ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<LayeredList<Hook>>,
}

impl Hooks {
    /// Whether there are no hooks.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A program run before or after a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Hook {
    /// Name by which other layers merge the hook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Program and arguments. May contain `{{...}}`.
    pub command: Vec<String>,
    /// Time limit, such as `1m`; `30s` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
}

/// Directory or file of the host that a wrapper makes available to the step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// Name by which other layers merge the mount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Absolute path on the host.
    pub source: String,
    /// Path inside the step's environment; same as `source` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Whether the step may only read; `false` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
}

/// Default resources of steps that request none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct DefaultResources {
    /// Number of whole GPUs per host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_count: Option<u64>,
    /// Number of cores per host; up to three decimals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_count: Option<f64>,
    /// Memory per host, such as `16GiB`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// Disk space per host, such as `100GiB`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
}

/// No value of `cpu_count` is NaN, so equality is total.
impl Eq for DefaultResources {}

impl DefaultResources {
    /// Whether no default is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the step's settings with gaps filled by these defaults.
    #[must_use]
    pub fn fill_unset(&self, step: &ResourceSettings) -> ResourceSettings {
        ResourceSettings {
            gpu_count: (step.gpu_count).or(self.gpu_count.filter(|_| step.mig.is_none())),
            cpu_count: step.cpu_count.or(self.cpu_count),
            memory: step.memory.clone().or_else(|| self.memory.clone()),
            storage: step.storage.clone().or_else(|| self.storage.clone()),
            ..step.clone()
        }
    }
}

impl Mount {
    /// Path inside the step's environment.
    pub fn target(&self) -> &str {
        self.target.as_deref().unwrap_or(&self.source)
    }

    /// Access mode: `ro` or `rw`.
    pub fn mode(&self) -> &'static str {
        match self.read_only {
            Some(true) => "ro",
            Some(false) | None => "rw",
        }
    }
}
