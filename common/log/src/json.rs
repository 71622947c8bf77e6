//! Formats events as JSON: `time`, `level`, `message` and `target`, then all fields of the event and its spans.

use serde_json::Value;

use crate::layer::LogEvent;

/// Reserved names; fields of these names are written as `fields.NAME`.
const OURS: [&str; 4] = ["time", "level", "message", "target"];

pub(crate) fn object(entry: &LogEvent) -> String {
    let mut text = String::from("{");
    let own = [
        ("time", format!("{:.3}", entry.time)),
        ("level", entry.level.to_string()),
        ("message", entry.fields.message().to_owned()),
        ("target", entry.target.to_owned()),
    ];
    for (name, value) in own {
        put(&mut text, name, &value.into());
    }
    for (name, value) in entry.fields.named() {
        if OURS.contains(&name) {
            put(&mut text, &format!("fields.{name}"), value);
        } else {
            put(&mut text, name, value);
        }
    }
    text.push('}');
    text
}

/// Appends a member. A map of `serde_json` would not keep the order.
fn put(text: &mut String, name: &str, value: &Value) {
    if text.len() > 1 {
        text.push(',');
    }
    text.push_str(&Value::from(name).to_string());
    text.push(':');
    text.push_str(&value.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_escaped_and_in_order() {
        let mut text = String::from("{");
        put(&mut text, "b\"", &"x\n".into());
        put(&mut text, "a", &1.into());
        assert_eq!(text, r#"{"b\"":"x\n","a":1"#);
    }
}
