//! Documents as fields with printable values, so that changes can be shown field by field in the notation of documents.

use std::collections::BTreeMap;

use crate::client::Fields;
use crate::render::safe;
use serde_json::{Map, Value};

/// Returns every field that is set.
pub(super) fn of(terms: Option<&Fields>) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    for (name, value) in terms.into_iter().flatten() {
        match (name.as_str(), value) {
            // The fields of a template are its own; of a role or a binding there is nothing else.
            ("template" | "role" | "binding", Value::Object(said)) => {
                said.iter().for_each(|(key, it)| put(&mut fields, key, it));
            }
            ("override", Value::Object(said)) => {
                let each = said.iter();
                each.for_each(|(key, it)| put(&mut fields, &format!("override.{key}"), it));
            }
            ("assertions", Value::Array(all)) => fields.extend(all.iter().map(assertion)),
            (_, value) => put(&mut fields, name, value),
        }
    }
    fields
}

/// Adds a field, or each entry of a table; empty ones are left out.
fn put(fields: &mut BTreeMap<String, String>, name: &str, value: &Value) {
    match value {
        Value::Object(table) => {
            let each = table.iter();
            fields
                .extend(each.map(|(key, it)| (format!("{}.{}", safe(name), safe(key)), words(it))));
        }
        Value::Array(all) if all.is_empty() => {}
        Value::String(text) if text.is_empty() || text == "0s" => {}
        other => {
            fields.insert(safe(name), words(other));
        }
    }
}

/// Returns an assertion's name by its content, so that inserting one does not change the others.
fn assertion(value: &Value) -> (String, String) {
    let said = |name: &str| value[name].as_str().map(safe);
    let message = said("message").unwrap_or_default();
    let name = format!("assertion `{}`", said("assert").unwrap_or_default());
    let told = match said("when") {
        Some(when) => format!("when `{when}`: \"{message}\""),
        None => format!("\"{message}\""),
    };
    (name, told)
}

/// Formats a value within a field: texts without quotes, lists with spaces, tables as `key=value`.
fn words(value: &Value) -> String {
    let all = |words: Vec<String>, between: &str| words.join(between);
    match value {
        Value::String(text) => safe(text),
        Value::Array(items) if items.iter().any(Value::is_object) => {
            all(items.iter().map(words).collect(), " and ")
        }
        Value::Array(items) => all(items.iter().map(words).collect(), " "),
        Value::Object(table) => table_words(table),
        other => other.to_string(),
    }
}

fn table_words(table: &Map<String, Value>) -> String {
    let each = table.iter();
    let each = each.map(|(key, value)| match value {
        Value::Object(inner) => format!("{}=({})", safe(key), table_words(inner)),
        value => format!("{}={}", safe(key), words(value)),
    });
    each.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn told(terms: Value) -> Vec<String> {
        let terms = serde_json::from_value(terms).unwrap();
        let fields = of(Some(&terms)).into_iter();
        fields
            .map(|(name, value)| format!("{name} {value}"))
            .collect()
    }

    #[test]
    fn documents_of_assertions_are_told_assertion_by_assertion() {
        let terms = json!({"description": "", "assertions": [
            {"assert": "gpu_count >= 1", "message": "take GPUs"},
            {"assert": "nodes == 1", "when": "work == \"notebook\"", "message": "one\u{1b} host"},
        ]});
        assert_eq!(
            told(terms),
            [
                "assertion `gpu_count >= 1` \"take GPUs\"",
                "assertion `nodes == 1` when `work == \"notebook\"`: \"one\\u{1b} host\"",
            ]
        );
    }

    #[test]
    fn lists_and_tables_are_told_as_people_write_them() {
        let terms = json!({"require": ["freeze", "cpuset"], "validations": [], "min_runtime": "0s",
            "capacity": {"gpu": 8}, "platforms": {"a100": {"selector": {"gpu_model": "a100"}, "description": "x"}},
            "template": {"wrapper": ["nice", "--"], "hooks": {"before": [{"name": "in", "command": ["stage", "1"]}]}},
            "override": {"env": {"A": "1"}, "resources": {"cpu_count": 2.5}}});
        assert_eq!(
            told(terms),
            [
                "capacity.gpu 8",
                "hooks.before command=stage 1 name=in",
                "override.env.A 1",
                "override.resources.cpu_count 2.5",
                "platforms.a100 description=x selector=(gpu_model=a100)",
                "require freeze cpuset",
                "wrapper nice --",
            ]
        );
    }
}
