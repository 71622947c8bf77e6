//! Renders templates, and the effective spec of a step.

use jiff::Timestamp;
use serde_json::Value;
use sluice_common::api::{EffectiveSpecView, TemplateView};
use sluice_common::environment::HIDDEN;

use super::data::{self, DataError};
use super::document::{self, ApplyDocument};
use super::listed::Listed;
use super::sections::Sections;
use super::table::{Cell, Column};
use super::{or_dash, safe, shell_words};

impl Listed for TemplateView {
    const KIND: &'static str = "template";
    const COLUMNS: &'static [Column] = &[
        Column::new("NAME", 9).text(),
        Column::new("POOLS", 8).text(),
        Column::new("SAYS", 7).text(),
        Column::new("DESCRIPTION", 3).text(),
        Column::new("VERSION", 3).wide(),
    ];

    fn document(&self) -> Option<ApplyDocument> {
        Some(document::template(self))
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn cells(&self, _now: Timestamp) -> Vec<Cell> {
        vec![
            safe(&self.name).into(),
            or_dash(Some(&self.pools.join(","))).into(),
            or_dash(Some(&said(self))).into(),
            or_dash(Some(&self.template.description)).into(),
            self.version.to_string().into(),
        ]
    }
}

/// Lists the first words of its fields.
fn said(template: &TemplateView) -> String {
    let mut words: Vec<String> = Vec::new();
    for field in template.template.set_fields() {
        let word = field.split('.').next().unwrap_or_default().to_owned();
        if !words.contains(&word) {
            words.push(word);
        }
    }
    words.join(",")
}

/// Renders all details of a template: who uses it, and the document.
pub(crate) fn describe(template: &TemplateView) -> Result<String, DataError> {
    let mut text = Sections::default();
    text.field("Name", safe(&template.name))
        .field("Pools", or_dash(Some(&template.pools.join(", "))))
        .field("Version", template.version.to_string());
    let document = data::yaml(&template.template)?;
    let document: String = document.lines().map(|line| format!("  {line}\n")).collect();
    Ok(format!("{}Says:\n{document}", text.finish()))
}

/// Renders a step's effective spec, each value with its origin. Values of variables may be secrets and are hidden.
pub(crate) fn merged(text: &mut Sections, merged: &EffectiveSpecView) {
    let lies_under = |from: &String| !matches!(from.as_str(), "step" | "built in");
    if !merged.from.values().any(lies_under) {
        return;
    }
    let result = serde_json::to_value(&merged.result).unwrap_or_default();
    text.section("Merged", |text| {
        for (field, from) in &merged.from {
            let value = match field.starts_with("env.") {
                true => Some(HIDDEN.to_owned()),
                false => value_of(&result, field),
            };
            let told = match value {
                Some(value) => format!("{value}  ({})", safe(from)),
                None => format!("({})", safe(from)),
            };
            text.field(&safe(field), told);
        }
    });
}

/// Returns the value of a field such as `limits.nofile` or `mounts.data`; `None` for fields shown elsewhere.
fn value_of(result: &Value, field: &str) -> Option<String> {
    let mut at = result;
    for part in field.split('.') {
        at = match at {
            Value::Object(fields) => fields.get(part)?,
            Value::Array(items) => items.iter().find(|item| item["name"] == part)?,
            _ => return None,
        };
    }
    Some(words(at))
}

fn words(value: &Value) -> String {
    match value {
        Value::String(text) => safe(text),
        // Whole cores have no decimal point.
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() => float.to_string(),
            Some(_) | None => number.to_string(),
        },
        Value::Array(items) if items.iter().all(Value::is_string) => {
            let items: Vec<String> = items
                .iter()
                .filter_map(|item| item.as_str().map(str::to_owned))
                .collect();
            match items.is_empty() {
                true => "none".to_owned(),
                false => shell_words(&items),
            }
        }
        Value::Array(items) => items.iter().map(words).collect::<Vec<_>>().join(", "),
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(key, _)| *key != "name");
            let fields = fields.map(|(key, value)| format!("{}={}", safe(key), words(value)));
            fields.collect::<Vec<_>>().join(" ")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::listed::table;
    use super::super::step::tests::now;
    use super::*;
    use crate::out::Out;

    fn template() -> TemplateView {
        serde_json::from_value(serde_json::json!({
            "name": "numa", "pools": ["desk", "training"], "version": 7,
            "template": {"description": "close to its GPUs", "wrapper": ["numactl", "--cpunodebind={{numa}}", "--"],
                         "env": {"A": "1", "B": "2"}}
        }))
        .unwrap()
    }

    #[test]
    fn templates_are_listed_and_described() {
        assert_eq!(
            table(&[template()], now(), Out::plain()),
            "NAME  POOLS          SAYS         DESCRIPTION\n\
             numa  desk,training  wrapper,env  close to its GPUs\n"
        );
        let text = describe(&template()).unwrap();
        assert!(
            text.starts_with("Name:     numa\nPools:    desk, training\nVersion:  7\nSays:\n"),
            "{text}"
        );
        assert!(text.contains("cpunodebind={{numa}}"), "{text}");
    }

    #[test]
    fn a_merge_tells_each_value_and_where_it_came_from() {
        let view: EffectiveSpecView = serde_json::from_value(serde_json::json!({
            "pool": "training", "platform": "h100",
            "result": {"env": {"A": "secret"}, "wrapper": ["nice", "-n", "{{rank}} x"], "limits": {"nofile": 9}, "resources": {"cpu_count": 8.0},
                       "mounts": [{"name": "data", "source": "/data", "read_only": true}], "hooks": {"after": []}},
            "from": {"env.A": "step", "wrapper": "template numa of pool training", "limits.nofile": "pipeline",
                     "mounts.data": "step", "timeout": "pool training, defaults", "hooks.after": "step",
                     "resources.cpu_count": "step"}
        }))
        .unwrap();
        let mut text = Sections::default();
        merged(&mut text, &view);
        let expected = "\
Merged:
  env.A:                ***  (step)
  hooks.after:          none  (step)
  limits.nofile:        9  (pipeline)
  mounts.data:          read_only=true source=/data  (step)
  resources.cpu_count:  8  (step)
  timeout:              (pool training, defaults)
  wrapper:              nice -n '{{rank}} x'  (template numa of pool training)
";
        assert_eq!(text.finish(), expected);
    }
}
