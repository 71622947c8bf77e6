//! Formats the values of a template field by field, for display next to their origins. Values of environment variables
//! are hidden.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::merge::ListItem;
use super::{DefaultResources, Hook, LayeredList, LimitValue, Mount, Template};
use crate::environment::HIDDEN;

impl Template {
    /// The value of a field named as in [`Template::set_fields`]; `None` if not set.
    pub fn field_value(&self, field: &str) -> Option<String> {
        if let Some(name) = field.strip_prefix("env.") {
            return self.env.contains_key(name).then(|| HIDDEN.to_string());
        }
        if let Some(name) = field.strip_prefix("limits.") {
            return self.limits.get(name).map(limit);
        }
        if let Some(name) = field.strip_prefix("resources.") {
            return resource(&self.resources, name);
        }
        self.list_value(field).or_else(|| self.scalar_value(field))
    }

    fn list_value(&self, field: &str) -> Option<String> {
        let hooks = &self.hooks;
        listed("hooks.before", field, hooks.before.as_ref(), hook)
            .or_else(|| listed("hooks.after", field, hooks.after.as_ref(), hook))
            .or_else(|| listed("mounts", field, self.mounts.as_ref(), mount))
            .or_else(|| listed("allowed_mounts", field, self.allowed_mounts.as_ref(), mount))
    }

    fn scalar_value(&self, field: &str) -> Option<String> {
        match field {
            "wrapper" => self.wrapper.as_deref().map(words),
            "workdir" => self.workdir.clone(),
            "mount_argument" => self.mount_argument.clone(),
            "privileged_allowed" => self.privileged_allowed.map(|it| it.to_string()),
            "privileged_argument" => self.privileged_argument.clone(),
            "host_network_allowed" => self.host_network_allowed.map(|it| it.to_string()),
            "host_network_argument" => self.host_network_argument.clone(),
            _ => None,
        }
    }
}

/// Formats a whole list or one of its named items.
fn listed<T: ListItem>(
    list: &str,
    field: &str,
    items: Option<&LayeredList<T>>,
    tell: fn(&T) -> String,
) -> Option<String> {
    let items = items?.items();
    let rest = field.strip_prefix(list)?;
    match rest.strip_prefix('.') {
        Some(name) => items.iter().find(|it| it.name() == Some(name)).map(tell),
        None if rest.is_empty() && items.is_empty() => Some("none".to_string()),
        None if rest.is_empty() => {
            let told: Vec<String> = items.iter().map(tell).collect();
            Some(told.join("; "))
        }
        None => None,
    }
}

fn words(words: &[String]) -> String {
    match words.is_empty() {
        true => "none".to_string(),
        false => words.join(" "),
    }
}

fn limit(value: &LimitValue) -> String {
    match value {
        LimitValue::Number(most) => most.to_string(),
        LimitValue::Text(text) => text.clone(),
    }
}

fn resource(resources: &DefaultResources, name: &str) -> Option<String> {
    match name {
        "gpu_count" => resources.gpu_count.map(|it| it.to_string()),
        "cpu_count" => resources.cpu_count.map(|it| it.to_string()),
        "memory" => resources.memory.clone(),
        "storage" => resources.storage.clone(),
        _ => None,
    }
}

fn hook(hook: &Hook) -> String {
    match &hook.timeout {
        Some(timeout) => format!("{} (for {timeout} at most)", words(&hook.command)),
        None => words(&hook.command),
    }
}

fn mount(mount: &Mount) -> String {
    format!("{} at {}, {}", mount.source, mount.target(), mount.mode())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_that_says_something_is_told_and_no_secret_is() {
        let template: Template = serde_json::from_str(
            r#"{"env":{"TOKEN":"secret"},"wrapper":["nice","-n","5"],"workdir":"/w","limits":{"nofile":9,"core":"1GiB"},
                "hooks":{"before":[{"name":"stage","command":["in"],"timeout":"2m"}],"after":[{"command":["out","now"]}]},
                "resources":{"gpu_count":0,"cpu_count":1.5,"memory":"1GiB","storage":"2GB"},
                "mounts":[{"name":"data","source":"/d","target":"/data","read_only":true}],"allowed_mounts":[],
                "mount_argument":"-v","privileged_allowed":false,"privileged_argument":"-p",
                "host_network_allowed":true,"host_network_argument":"-n"}"#,
        )
        .unwrap();
        let told = |field: &str| template.field_value(field);
        for field in template.set_fields() {
            assert!(told(&field).is_some(), "{field}");
        }
        for (field, expected) in [
            ("env.TOKEN", "***"),
            ("wrapper", "nice -n 5"),
            ("limits.core", "1GiB"),
            ("resources.gpu_count", "0"),
            ("hooks.before.stage", "in (for 2m at most)"),
            ("hooks.after", "out now"),
            ("mounts.data", "/d at /data, ro"),
            ("allowed_mounts", "none"),
        ] {
            assert_eq!(told(field).as_deref(), Some(expected), "{field}");
        }
        assert_eq!(told("mounts.other"), None);
        assert_eq!(told("timeout"), None);
    }
}
