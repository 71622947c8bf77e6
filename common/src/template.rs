//! Templates: what an admin lays under the steps of a pool or a platform. Named documents of the cluster, applied in the
//! order in which a pool names them; what a platform overrides goes over them, and the step's own over all.
//!
//! This file is what is written. How layers become one is in [`merge`], what `{{...}}` may name in [`variable`], what is
//! refused in [`check`], where a value came from in [`origin`], how one is told in `told`, and what is started of all
//! that in [`launch`]. The coordinator's core stores templates and says which of them a step stands on.

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

/// One layer. What is absent says nothing; zero, `false` and an empty list are values like any other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Template {
    /// For people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Variables of the step's environment. Values may hold `{{...}}`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: Environment,
    /// Program and arguments that the step's own command is put behind, such as `["numactl",
    /// "--cpunodebind={{numa}}", "--"]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wrapper: Option<Vec<String>>,
    /// Absolute path on the host. May hold `{{...}}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// Limits of each process by the names of `supervisor.toml`, and `processes`, how many there may be at once. Numbers,
    /// or bytes such as `8GiB`. What the host's own file says bounds them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, LimitValue>,
    /// Programs that run around the step.
    #[serde(skip_serializing_if = "Hooks::is_empty")]
    pub hooks: Hooks,
    /// How much a step takes that does not say.
    #[serde(skip_serializing_if = "DefaultResources::is_empty")]
    pub resources: DefaultResources,
    /// What is mounted where the step says nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mounts: Option<LayeredList<Mount>>,
    /// What a step may mount: what lies at or below one of these. Nothing where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_mounts: Option<LayeredList<Mount>>,
    /// What `{{mounts}}` becomes for each mount, such as `--volume={{source}}:{{target}}:{{mode}}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount_argument: Option<String>,
    /// Whether a step may ask for `privileged`; not where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub privileged_allowed: Option<bool>,
    /// What `{{privileged}}` becomes for a step that asks for it, such as `--privileged`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub privileged_argument: Option<String>,
    /// Whether a step may ask for `host_network`; not where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_network_allowed: Option<bool>,
    /// What `{{host_network}}` becomes for a step that asks for it, such as `--network=host`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_network_argument: Option<String>,
}

/// A limit as it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged, expecting = "expected a number, or bytes such as \"8GiB\"")]
pub enum LimitValue {
    /// So many.
    Number(u64),
    /// So much memory.
    Text(String),
}

/// Programs that run around a step, as its user and inside its attempt, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Hooks {
    /// Before the step. Where one fails, the step does not start and has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<LayeredList<Hook>>,
    /// After the step's program has ended, however it did. What becomes of them changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<LayeredList<Hook>>,
}

impl Hooks {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// One program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Hook {
    /// By which layers above find it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Program and arguments. May hold `{{...}}`.
    pub command: Vec<String>,
    /// How long it may take, such as `30s`, which it is where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
}

/// A directory or file of the host that a wrapper is to show to the step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// By which layers above find it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Absolute path on the host.
    pub source: String,
    /// Where the step sees it; where it is on the host, where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Whether the step may not write to it; it may where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
}

/// How much a step takes that does not say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct DefaultResources {
    /// Whole GPUs on each host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_count: Option<u64>,
    /// Cores on each host; thousandths count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_count: Option<f64>,
    /// Such as `16GiB`, on each host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// Such as `100GiB`, on each host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
}

/// `cpu_count` is a number that was written: no value of it is unequal to itself.
impl Eq for DefaultResources {}

impl DefaultResources {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What a step says, and this where it says nothing.
    #[must_use]
    pub fn fill_unset(&self, step: &ResourceSettings) -> ResourceSettings {
        ResourceSettings {
            gpu_count: step.gpu_count.or(self.gpu_count),
            cpu_count: step.cpu_count.or(self.cpu_count),
            memory: step.memory.clone().or_else(|| self.memory.clone()),
            storage: step.storage.clone().or_else(|| self.storage.clone()),
            ..step.clone()
        }
    }
}

impl Mount {
    /// Where the step sees it.
    pub fn target(&self) -> &str {
        self.target.as_deref().unwrap_or(&self.source)
    }

    /// `ro` or `rw`.
    pub fn mode(&self) -> &'static str {
        match self.read_only {
            Some(true) => "ro",
            Some(false) | None => "rw",
        }
    }
}
