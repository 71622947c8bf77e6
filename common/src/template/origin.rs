//! Tracks the origin of each value in a merged template.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use super::Template;
use super::merge::{LayeredList, ListItem};
use crate::id::{PlatformName, PoolName, TemplateName};

/// Origin of a value, highest precedence first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "layer", rename_all = "snake_case")]
pub enum Origin {
    /// Set by the step itself.
    Step,
    /// Inherited from the step's `defaults`.
    Pipeline,
    /// Default of the step's kind of work.
    Work,
    /// Override of a platform.
    Override {
        /// Name of the pool.
        pool: PoolName,
        /// Name of the platform.
        platform: PlatformName,
    },
    /// Template of a pool.
    Template {
        /// Name of the pool.
        pool: PoolName,
        /// Name of the template.
        template: TemplateName,
    },
    /// Defaults of a pool.
    Pool {
        /// Name of the pool.
        pool: PoolName,
    },
    /// A built-in default.
    BuiltIn,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Origin::Step => String::from("step"),
            Origin::Pipeline => String::from("pipeline"),
            Origin::Work => String::from("work"),
            Origin::Override { pool, platform } => {
                format!("platform {platform} of pool {pool}, override")
            }
            Origin::Template { pool, template } => format!("template {template} of pool {pool}"),
            Origin::Pool { pool } => format!("pool {pool}, defaults"),
            Origin::BuiltIn => String::from("built in"),
        };
        f.pad(&text)
    }
}

/// Origin of each field's value.
pub type Origins = BTreeMap<String, Origin>;

/// A merged template with the origin of each value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Layers")
)]
#[serde(default)]
pub struct MergedTemplate {
    /// Result of the merge.
    #[serde(skip_serializing_if = "Template::is_empty")]
    pub template: Template,
    /// Origin by field.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub origins: Origins,
}

impl MergedTemplate {
    /// Merges a layer over the current template.
    pub fn put(&mut self, layer: &Template, origin: &Origin) {
        for list in layer.lists() {
            if list.replaces {
                let below = format!("{}.", list.field);
                self.origins
                    .retain(|field, _| *field != list.field && !field.starts_with(&below));
            }
        }
        for field in layer.set_fields() {
            self.origins.insert(field, origin.clone());
        }
        let below = core::mem::take(&mut self.template);
        self.template = layer.clone().over(below);
    }
}

/// Fields set by one list.
struct ListFields {
    field: String,
    replaces: bool,
    fields: Vec<String>,
}

fn list_fields_of<T: ListItem>(field: &str, list: Option<&LayeredList<T>>) -> Option<ListFields> {
    let list = list?;
    Some(ListFields {
        field: String::from(field),
        replaces: list.replaces(),
        fields: list_fields(field, Some(list)),
    })
}

/// Names of the fields that a list sets: one per item if the items merge by name, else the list as a whole.
pub fn list_fields<T: ListItem>(field: &str, list: Option<&LayeredList<T>>) -> Vec<String> {
    let Some(list) = list else { return Vec::new() };
    if list.replaces() {
        return Vec::from([String::from(field)]);
    }
    let names = list.items().iter().filter_map(ListItem::name);
    names.map(|name| format!("{field}.{name}")).collect()
}

impl Template {
    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn lists(&self) -> impl Iterator<Item = ListFields> {
        let lists = [
            list_fields_of("hooks.before", self.hooks.before.as_ref()),
            list_fields_of("hooks.after", self.hooks.after.as_ref()),
            list_fields_of("mounts", self.mounts.as_ref()),
            list_fields_of("allowed_mounts", self.allowed_mounts.as_ref()),
        ];
        lists.into_iter().flatten()
    }

    /// Names of all fields that are set, except `description`: maps by key, lists by item name.
    pub fn set_fields(&self) -> Vec<String> {
        let resources = &self.resources;
        let own = [
            ("wrapper", self.wrapper.is_some()),
            ("workdir", self.workdir.is_some()),
            ("resources.gpu_count", resources.gpu_count.is_some()),
            ("resources.cpu_count", resources.cpu_count.is_some()),
            ("resources.memory", resources.memory.is_some()),
            ("resources.storage", resources.storage.is_some()),
            ("mount_argument", self.mount_argument.is_some()),
            ("privileged_allowed", self.privileged_allowed.is_some()),
            ("privileged_argument", self.privileged_argument.is_some()),
            ("host_network_allowed", self.host_network_allowed.is_some()),
            (
                "host_network_argument",
                self.host_network_argument.is_some(),
            ),
        ];
        let own = own.into_iter().filter(|(_, said)| *said);
        let own = own.map(|(field, _)| String::from(field));
        let env = self.env.keys().map(|name| format!("env.{name}"));
        let limits = self.limits.keys().map(|name| format!("limits.{name}"));
        let lists = self.lists().flat_map(|list| list.fields);
        own.chain(env).chain(limits).chain(lists).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn put(merged: &mut MergedTemplate, name: &str, json: &str) {
        let origin = Origin::Template {
            pool: "p".parse().unwrap(),
            template: name.parse().unwrap(),
        };
        merged.put(&serde_json::from_str(json).unwrap(), &origin);
    }

    #[test]
    fn each_value_tells_the_layer_that_it_came_from() {
        let mut merged = MergedTemplate::default();
        put(
            &mut merged,
            "a",
            r#"{"env":{"A":"1","B":"1"},"wrapper":["nice"],"mounts":[{"name":"d","source":"/d"},{"name":"e","source":"/e"}]}"#,
        );
        put(
            &mut merged,
            "b",
            r#"{"env":{"B":"2"},"mounts":[{"name":"d","source":"/x"}]}"#,
        );
        let told = |merged: &MergedTemplate| -> Vec<String> {
            let origins = merged.origins.iter();
            origins
                .map(|(field, from)| format!("{field}: {from}"))
                .collect()
        };
        let expected = [
            "env.A: template a of pool p",
            "env.B: template b of pool p",
            "mounts.d: template b of pool p",
            "mounts.e: template a of pool p",
            "wrapper: template a of pool p",
        ];
        assert_eq!(told(&merged), expected);
        put(&mut merged, "c", r#"{"mounts":[]}"#);
        assert!(told(&merged).contains(&"mounts: template c of pool p".to_string()));
        assert!(!told(&merged).iter().any(|line| line.starts_with("mounts.")));
        assert_eq!(merged.template.mounts.unwrap().items(), []);
    }
}
