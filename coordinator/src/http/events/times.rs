//! Writes the times of events as all other calls write theirs: the log has them as milliseconds since 1970.

use std::sync::LazyLock;

use coordinator_core::LogEntry;
use serde_json::{Value, json};
use sluice_common::api::timestamp;
use sluice_common::time::Time;

/// The schema of events, which tells where their times are.
pub(super) static SCHEMA: LazyLock<Value> =
    LazyLock::new(|| schemars::schema_for!(LogEntry).to_value());

/// The type of times in the schema.
const TIME: &str = "#/$defs/Time";

/// Returns the JSON of an event with its times in RFC 3339.
pub(super) fn with_times(mut event: Value) -> String {
    write(&mut event, &SCHEMA);
    event.to_string()
}

/// Writes the times in a value of this schema.
fn write(value: &mut Value, schema: &Value) {
    if schema["$ref"] == TIME {
        if let Some(millis) = value.as_u64() {
            *value = json!(timestamp(Time::from_unix_millis(millis)));
        }
        return;
    }
    let name = schema["$ref"].as_str();
    if let Some(name) = name.and_then(|path| path.strip_prefix("#/$defs/")) {
        write(value, &SCHEMA["$defs"][name]);
    }
    for key in ["oneOf", "anyOf", "allOf"] {
        let kinds = schema[key].as_array().into_iter().flatten();
        for kind in kinds.filter(|kind| may_be(value, kind)).collect::<Vec<_>>() {
            write(value, kind);
        }
    }
    match value {
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| write(item, &schema["items"])),
        Value::Object(fields) => {
            for (name, field) in fields {
                let known = &schema["properties"][name];
                match known.is_null() {
                    true => write(field, &schema["additionalProperties"]),
                    false => write(field, known),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Whether the `type` of a value is not that of another kind.
fn may_be(value: &Value, kind: &Value) -> bool {
    let wanted = &kind["properties"]["type"]["const"];
    wanted.is_null() || value["type"] == *wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(event: Value) -> Value {
        serde_json::from_str(&with_times(event)).unwrap()
    }

    #[test]
    fn times_are_written_wherever_they_are_and_nothing_else_is_changed() {
        let spec = |time: Value| {
            json!({ "begin": time, "deadline": time, "request": { "at": 5, "begin": 6 }, "priority": 7,
                    "labels": { "begin": "8" }, "grace": 30_000 })
        };
        let millis = json!(1_790_000_000_123_u64);
        let text = json!("2026-09-21T14:13:20.123Z");
        let event = |time: &Value| {
            json!({ "seq": 1_790_000_000_123_u64, "at": time, "type": "step_queued", "step": "a",
                    "not_before": time, "spec": spec(time.clone()) })
        };
        assert_eq!(written(event(&millis)), event(&text));
        let ended = |time: &Value| {
            json!({ "seq": 2, "at": time, "type": "ended", "attempt": "a.1", "node": "n",
                    "end": { "started": { "pid": 7, "start_ticks": 8, "at": time }, "at": time,
                             "exit": { "code": 0 }, "usage": { "cpu_us": 9 } } })
        };
        assert_eq!(written(ended(&millis)), ended(&text));
        let missed = |time: &Value| json!({ "seq": 3, "at": time, "type": "renewed", "step": "a", "until": time });
        assert_eq!(written(missed(&millis)), missed(&text));
    }
}
