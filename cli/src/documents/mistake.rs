//! Finds the field at fault in a value of the wrong shape, and explains it.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use sluice_common::nearest::unknown_field;
use sluice_common::request::FieldError;

/// Explains why a value cannot be parsed, if it cannot.
pub(crate) fn mistake<T: DeserializeOwned>(value: &Value) -> Option<String> {
    let error = serde_path_to_error::deserialize::<_, T>(value).err()?;
    let path = error.path().to_string();
    let error = error.into_inner().to_string();
    let field = value
        .as_object()
        .and_then(|fields| field_at_fault::<T>(fields, &error));
    if let Some(wrong) = FieldError::from_serde(&error) {
        // The path is empty in a value whose type a tag tells.
        let path = field.filter(|_| path == ".").unwrap_or(path);
        return Some(wrong.below(&path).to_string());
    }
    if let Some((field, Some(near))) = unknown_field(&error) {
        return Some(format!(
            "there is no field `{field}`: did you mean `{near}`?"
        ));
    }
    let words = error
        .replace("expected u64", "expected a whole number from 0")
        .replace("expected u32", "expected a whole number from 0")
        .replace("expected a nonzero u32", "expected a whole number from 1")
        .replace("expected i64", "expected a whole number");
    Some(match field {
        // serde's message repeats the value, which may be a secret.
        Some(field) if field == "env" => {
            "env: write variables as a map of names and texts".to_owned()
        }
        Some(field) => format!("{field}: {words}"),
        None => words,
    })
}

/// Returns the field without which the error differs. An event without its `op` is invalid anyway, so that is tried
/// last.
fn field_at_fault<T: DeserializeOwned>(fields: &Map<String, Value>, error: &str) -> Option<String> {
    let names_its_field = error.starts_with("missing field") || error.starts_with("unknown field");
    if names_its_field {
        return None;
    }
    let (ops, others): (Vec<_>, Vec<_>) = fields.keys().partition(|name| *name == "op");
    let mut names = others.into_iter().chain(ops);
    let found = names.find(|name| {
        let mut rest = fields.clone();
        rest.remove(*name);
        let without = T::deserialize(Value::Object(rest)).err();
        without.is_none_or(|without| without.to_string() != error)
    });
    found.cloned()
}
