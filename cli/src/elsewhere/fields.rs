//! Fields of a document of another tool, which are taken one by one: what nobody took is refused at the end.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use sluice_common::nearest::nearest;

use crate::render::safe;

/// Longest part of a value in a message, in characters.
const SHOWN_CHARS: usize = 60;

/// The fields of one object, with its path in the document.
#[derive(Debug)]
pub(super) struct ForeignFields {
    tool: &'static str,
    path: String,
    fields: Map<String, Value>,
    /// Whether the values below may be secrets, which messages do not show.
    is_secret: bool,
    /// Names that were asked for, to suggest one for a wrong name.
    asked: Vec<&'static str>,
}

/// A field that has no counterpart, with the reason and the way out.
pub(super) type Refusal = (&'static str, &'static str);

impl ForeignFields {
    pub(super) fn new(tool: &'static str, fields: Map<String, Value>) -> Self {
        Self::below(tool, String::new(), fields)
    }

    pub(super) fn below(tool: &'static str, path: String, fields: Map<String, Value>) -> Self {
        Self {
            tool,
            path,
            fields,
            is_secret: false,
            asked: Vec::new(),
        }
    }

    /// Returns the fields of a value in the field `name`.
    fn inside(&self, name: &str, path: String, fields: Map<String, Value>) -> Self {
        Self {
            is_secret: self.hides(name),
            ..Self::below(self.tool, path, fields)
        }
    }

    /// Whether messages do not show the value of a field.
    fn hides(&self, name: &str) -> bool {
        self.is_secret || may_be_secret(name)
    }

    /// Returns the path of a field in the document.
    pub(super) fn path(&self, name: &str) -> String {
        match self.path.as_str() {
            "" => safe(name),
            path => format!("{path}.{}", safe(name)),
        }
    }

    /// Returns the path of the object itself.
    pub(super) fn path_of_all(&self) -> String {
        self.path.clone()
    }

    /// Takes a field; one that is null counts as absent.
    pub(super) fn take(&mut self, name: &'static str) -> Option<Value> {
        self.asked.push(name);
        self.fields.remove(name).filter(|value| !value.is_null())
    }

    /// Takes a field that has several spellings, of which the first is suggested.
    ///
    /// # Errors
    /// If it is there twice.
    pub(super) fn take_spelled(&mut self, names: &[&'static str]) -> Result<Option<Value>, String> {
        let mut found = None;
        for name in names {
            let Some(value) = self.take(name) else {
                continue;
            };
            if found.is_some() {
                return Err(format!(
                    "{}: it is there twice: write it once",
                    self.path(name)
                ));
            }
            found = Some(value);
        }
        Ok(found)
    }

    pub(super) fn text(&mut self, name: &'static str) -> Result<Option<String>, String> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(name, &other, "write a text")),
        }
    }

    /// Takes a text that must be there.
    pub(super) fn needed(&mut self, name: &'static str) -> Result<String, String> {
        let text = self.text(name)?.filter(|text| !text.is_empty());
        text.ok_or_else(|| format!("{}: it is missing", self.path(name)))
    }

    /// Takes a whole number, also one that is written as a text.
    pub(super) fn count(&mut self, name: &'static str) -> Result<Option<u64>, String> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let written = value.as_str().and_then(|text| text.parse().ok());
        let count = value.as_u64().or(written);
        let wrong = || self.wrong(name, &value, "write a whole number from 0");
        count.map(Some).ok_or_else(wrong)
    }

    pub(super) fn flag(&mut self, name: &'static str) -> Result<Option<bool>, String> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(other) => Err(self.wrong(name, &other, "write `true` or `false`")),
        }
    }

    /// Takes a list of texts; numbers in it are read as texts.
    pub(super) fn texts(&mut self, name: &'static str) -> Result<Vec<String>, String> {
        let items = self.items(name)?;
        let texts = items.into_iter().map(|item| match item {
            Value::String(text) => Ok(text),
            Value::Number(number) => Ok(number.to_string()),
            other => Err(self.wrong(name, &other, "write a list of texts")),
        });
        texts.collect()
    }

    pub(super) fn items(&mut self, name: &'static str) -> Result<Vec<Value>, String> {
        match self.take(name) {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => Ok(items),
            Some(other) => Err(self.wrong(name, &other, "write a list")),
        }
    }

    /// Takes a list of objects.
    pub(super) fn objects(&mut self, name: &'static str) -> Result<Vec<Self>, String> {
        let items = self.items(name)?.into_iter().enumerate();
        let path = self.path(name);
        let objects = items.map(|(at, item)| match item {
            Value::Object(fields) => Ok(self.inside(name, format!("{path}[{at}]"), fields)),
            other => Err(self.wrong(name, &other, "write a list of mappings")),
        });
        objects.collect()
    }

    pub(super) fn object(&mut self, name: &'static str) -> Result<Option<Self>, String> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Object(fields)) => Ok(Some(self.inside(name, self.path(name), fields))),
            Some(other) => Err(self.wrong(name, &other, "write a mapping")),
        }
    }

    /// Takes a map of objects by name.
    pub(super) fn map(&mut self, name: &'static str) -> Result<Vec<(String, Self)>, String> {
        match self.object(name)? {
            None => Ok(Vec::new()),
            Some(fields) => fields.into_map(),
        }
    }

    /// Takes a map of values by name.
    pub(super) fn take_map(&mut self, name: &'static str) -> Result<Vec<(String, Value)>, String> {
        let fields = self.object(name)?.map(|object| object.fields);
        Ok(fields.into_iter().flatten().collect())
    }

    /// Takes a map of texts by name; numbers and `true` or `false` in it are read as texts.
    pub(super) fn text_map(
        &mut self,
        name: &'static str,
    ) -> Result<BTreeMap<String, String>, String> {
        let Some(object) = self.object(name)? else {
            return Ok(BTreeMap::new());
        };
        let fields = object.fields.clone().into_iter();
        let texts = fields.map(|(name, value)| match value {
            Value::String(text) => Ok((name, text)),
            Value::Number(_) | Value::Bool(_) => Ok((name, value.to_string())),
            other => Err(object.wrong(&name, &other, "write a text")),
        });
        texts.collect()
    }

    /// Reads all fields as objects by name; one that is null is empty.
    pub(super) fn into_map(self) -> Result<Vec<(String, Self)>, String> {
        let fields = self.fields.clone().into_iter();
        let each = fields.map(|(name, value)| {
            let path = self.path(&name);
            match value {
                Value::Object(fields) => {
                    let inner = self.inside(&name, path, fields);
                    Ok((name, inner))
                }
                Value::Null => Ok((name, Self::below(self.tool, path, Map::new()))),
                other => Err(self.wrong(&name, &other, "write a mapping")),
            }
        });
        each.collect()
    }

    /// Reads a list of lines `NAME=VALUE`, of which `at` is the path.
    pub(super) fn variables(lines: Value, at: &str) -> Result<Map<String, Value>, String> {
        let lines = match lines {
            Value::Null => Vec::new(),
            Value::Array(lines) => lines,
            _ => return Err(format!("{at}: write a list of `NAME=VALUE`")),
        };
        let mut variables = Map::new();
        for line in lines {
            let variable = line.as_str().and_then(|line| line.split_once('='));
            let (name, value) =
                variable.ok_or_else(|| format!("{at}: write a list of `NAME=VALUE`"))?;
            if variables.insert(name.to_owned(), value.into()).is_some() {
                let name = safe(name);
                return Err(format!("{at}: `{name}` is there twice: write it once"));
            }
        }
        Ok(variables)
    }

    /// Returns the fields that nobody took.
    pub(super) fn rest(self) -> Map<String, Value> {
        self.fields
    }

    /// Explains a wrong value of a field. A value that may be a secret is not shown.
    pub(super) fn wrong(&self, name: &str, value: &Value, way: &str) -> String {
        let path = self.path(name);
        match self.hides(name) {
            true => format!("{path}: {way}"),
            false => format!("{path}: `{}`: {way}", shown(value)),
        }
    }

    /// Explains that a field says what another one says too.
    pub(super) fn twice(&self, name: &str, other: &str) -> String {
        let path = self.path(name);
        format!(
            "{path}: it is there as `{}` too: write it once",
            safe(other)
        )
    }

    /// Refuses the first field that is there and has no counterpart.
    pub(super) fn refuse(&mut self, refusals: &[Refusal]) -> Result<(), String> {
        for (name, why) in refusals {
            if let Some(value) = self.take(name) {
                return Err(self.wrong(name, &value, why));
            }
        }
        Ok(())
    }

    /// Refuses the first field that says something and has no counterpart.
    pub(super) fn refuse_unless_empty(&mut self, refusals: &[Refusal]) -> Result<(), String> {
        for (name, why) in refusals {
            let is_empty = |value: &Value| match value {
                Value::Object(fields) => fields.values().all(Value::is_null),
                Value::Array(items) => items.is_empty(),
                _ => false,
            };
            if let Some(value) = self.take(name).filter(|value| !is_empty(value)) {
                return Err(self.wrong(name, &value, why));
            }
        }
        Ok(())
    }

    /// Refuses whatever nobody took.
    pub(super) fn end(self) -> Result<(), String> {
        let Some((name, value)) = self.fields.iter().find(|(_, value)| !value.is_null()) else {
            return Ok(());
        };
        let near = nearest(name, self.asked.iter().copied());
        let near = near.map(|near| format!(": did you mean `{near}`?"));
        let way = near.unwrap_or_else(|| ": remove it".to_owned());
        let why = format!("no field of {} is known by this name{way}", self.tool);
        Err(self.wrong(name, value, &why))
    }
}

/// Parts of the names of fields whose values may be secrets, beside those that begin with `env`.
const SECRETS: [&str; 6] = [
    "variable",
    "secret",
    "password",
    "token",
    "auth",
    "credential",
];

/// Whether the value of a field of this name may be a secret: a variable, a password or the like, misspelled too.
fn may_be_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_env = name.starts_with("env") && name != "environment";
    is_env || SECRETS.iter().any(|part| name.contains(part))
}

/// Formats a value for a message, shortened. What is inside of a list or a mapping may be a secret.
fn shown(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Array(items) if !items.is_empty() => "[...]".to_owned(),
        Value::Object(fields) if !fields.is_empty() => "{...}".to_owned(),
        other => other.to_string(),
    };
    let text = safe(&text).replace('`', "'");
    match text.char_indices().nth(SHOWN_CHARS) {
        None => text,
        Some((at, _)) => format!("{}...", &text[..at]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(value: Value) -> ForeignFields {
        ForeignFields::new("tool", value.as_object().cloned().unwrap())
    }

    #[test]
    fn what_nobody_took_is_refused_with_what_may_have_been_meant() {
        let mut all = fields(json!({"inner": {"images": "a"}, "gone": null}));
        let mut inner = all.object("inner").unwrap().unwrap();
        assert_eq!(inner.text("image").unwrap(), None);
        assert_eq!(
            inner.end().unwrap_err(),
            "inner.images: `a`: no field of tool is known by this name: did you mean `image`?"
        );
        all.end().unwrap();
    }

    #[test]
    fn a_wrong_value_is_told_with_its_path_and_without_harm() {
        let mut all = fields(json!({"n": "\u{1b}[1m", "list": [{"a": 1}, 2], "m": {"x": 3}}));
        let error = all.count("n").unwrap_err();
        assert_eq!(error, "n: `\\u{1b}[1m`: write a whole number from 0");
        let error = all.objects("list").unwrap_err();
        assert_eq!(error, "list: `2`: write a list of mappings");
        assert_eq!(all.map("m").unwrap_err(), "m.x: `3`: write a mapping");
        let long = shown(&json!("x".repeat(100)));
        assert_eq!(long.len(), SHOWN_CHARS + 3);
    }

    #[test]
    fn values_of_variables_and_passwords_are_not_told() {
        let secret = "hunter2";
        let value = json!({"env": secret, "envs": secret, "registry_auth": secret, "Password": secret,
            "environment": {"env": [{"name": "A", "values": secret}], "environment_variables": secret}});
        for name in ["env", "envs", "registry_auth", "Password"] {
            let wrong = fields(value.clone()).texts(name).unwrap_err();
            assert_eq!(wrong, format!("{name}: write a list"));
        }
        let mut inner = fields(value.clone())
            .object("environment")
            .unwrap()
            .unwrap();
        let wrong = inner.texts("environment_variables").unwrap_err();
        assert_eq!(wrong, "environment.environment_variables: write a list");
        let mut variable = inner.objects("env").unwrap().remove(0);
        variable.needed("name").unwrap();
        assert_eq!(variable.text("value").unwrap(), None);
        assert_eq!(
            variable.end().unwrap_err(),
            "environment.env[0].values: no field of tool is known by this name: did you mean `value`?"
        );
        let left = fields(json!({"enviroment_variables": secret}));
        assert!(!left.end().unwrap_err().contains(secret));
    }

    #[test]
    fn a_field_with_two_spellings_is_taken_once() {
        let mut all = fields(json!({"gpu-type": "a", "gpuType": "b"}));
        let error = all.take_spelled(&["gpu-type", "gpuType"]).unwrap_err();
        assert_eq!(error, "gpuType: it is there twice: write it once");
    }
}
