//! Reads scenario files. Errors are reported with file, case, position and field, all of them at once.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::Value;
use sluice_common::nearest::nearest;
use sluice_simulator::scenario::{Case, Event, Expected, NodePut, PolicyPut, PoolPut};

use crate::documents::mistake;
use crate::failure::Failure;

/// Most reported errors.
const MOST_MISTAKES: usize = 20;

/// Errors of a file, one line each.
type FileErrors = Vec<String>;

/// Reads the cases of files, in order: all, or those with one of the ids in `only`.
pub(super) fn files(paths: &[PathBuf], only: &[String]) -> Result<Vec<Case>, Failure> {
    let mut read = ParsedCases::default();
    for path in paths {
        let name = path.display().to_string();
        let text = text(path);
        let text = text.map_err(|e| Failure::Usage(format!("{name}: cannot be read: {e}")))?;
        read.take(&name, &text, only)?;
    }
    read.finish(only)
}

/// Parses the cases of a text as if it were a file of this name.
#[cfg(test)]
pub(crate) fn of_text(name: &str, text: &str) -> Result<Vec<Case>, Failure> {
    let mut read = ParsedCases::default();
    read.take(name, text, &[])?;
    read.finish(&[])
}

/// Cases read so far.
#[derive(Default)]
struct ParsedCases {
    cases: Vec<Case>,
    mistakes: FileErrors,
    /// Ids of all cases, unselected ones included.
    ids: Vec<String>,
}

impl ParsedCases {
    fn take(&mut self, name: &str, text: &str, only: &[String]) -> Result<(), Failure> {
        for (nth, value) in (1..).zip(values(name, text)?) {
            let id = value["id"].as_str().map(str::to_owned);
            self.ids.extend(id.clone());
            if !only.is_empty() && !id.as_ref().is_some_and(|id| only.contains(id)) {
                continue;
            }
            match case(value) {
                Ok(case) => self.cases.push(case),
                Err(found) => {
                    let label = id.map_or(format!("case {nth}"), |id| format!("case `{id}`"));
                    let found = found.into_iter();
                    let told = found.map(|mistake| format!("{name}, {label}, {mistake}"));
                    self.mistakes.extend(told);
                }
            }
        }
        Ok(())
    }

    fn finish(self, only: &[String]) -> Result<Vec<Case>, Failure> {
        if !self.mistakes.is_empty() {
            return Err(Failure::Usage(told(self.mistakes)));
        }
        match only.iter().find(|id| !self.ids.contains(id)) {
            Some(id) => Err(no_case(id, &self.ids)),
            None => Ok(self.cases),
        }
    }
}

fn told(mut mistakes: FileErrors) -> String {
    let more = mistakes.len().saturating_sub(MOST_MISTAKES);
    mistakes.truncate(MOST_MISTAKES);
    if more > 0 {
        mistakes.push(format!("and {more} more"));
    }
    mistakes.join("\n")
}

fn no_case(id: &str, ids: &[String]) -> Failure {
    let known = ids.iter().map(String::as_str);
    let hint = nearest(id, known).map_or(String::new(), |near| {
        format!(": did you mean `{}`?", near.escape_debug())
    });
    Failure::Usage(format!(
        "--case: there is no case `{}`{hint}",
        id.escape_debug()
    ))
}

/// Parses a file's cases: a list of them, or one alone.
fn values(name: &str, text: &str) -> Result<Vec<Value>, Failure> {
    let value = serde_json::from_str(text)
        .map_err(|e| Failure::Usage(format!("{name}: it is not JSON: {e}")))?;
    match value {
        Value::Array(cases) if !cases.is_empty() => Ok(cases),
        Value::Object(_) => Ok(vec![value]),
        _ => Err(Failure::Usage(format!(
            "{name}: there is no case in it: write a list of cases, such as \
             [{{\"id\": \"first\", \"pools\": [...], \"policies\": [...], \"events\": [...]}}]"
        ))),
    }
}

fn text(path: &Path) -> io::Result<String> {
    if path.as_os_str() == "-" {
        let mut text = String::new();
        io::Read::read_to_string(&mut io::stdin(), &mut text)?;
        return Ok(text);
    }
    fs::read_to_string(path)
}

/// Parses each part by itself first, so that an error has a position.
fn case(value: Value) -> Result<Case, FileErrors> {
    let mut mistakes = FileErrors::new();
    mistakes.extend(items::<PoolPut>(&value, "pools", "pool"));
    mistakes.extend(items::<NodePut>(&value, "nodes", "node"));
    mistakes.extend(items::<PolicyPut>(&value, "policies", "policy"));
    mistakes.extend(items::<Event>(&value, "events", "event"));
    mistakes.extend(items::<Expected>(
        &value,
        "expected_any_of",
        "expected_any_of",
    ));
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    match mistake::<Case>(&value) {
        Some(mistake) => Err(vec![mistake]),
        None => serde_json::from_value(value).map_err(|e| vec![e.to_string()]),
    }
}

/// Returns the errors of each item of a list.
fn items<T: DeserializeOwned>(case: &Value, list: &str, word: &str) -> FileErrors {
    let items = case[list].as_array().into_iter().flatten();
    let wrong = (1..).zip(items).filter_map(|(nth, item)| {
        let mistake = mistake::<T>(item)?;
        let op = item["op"].as_str();
        let op = op.map_or(String::new(), |op| format!(" ({})", op.escape_debug()));
        Some(format!("{word} {nth}{op}: {mistake}"))
    });
    wrong.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Returns the error of a case whose one event, or another part, is `part`.
    fn told_of(part: &str, value: Value) -> String {
        let mut whole = json!({"id": "c", "pools": [{"name": "p", "capacity": {"gpu": 1}}], "policies": [], "events": []});
        whole[part] = value;
        case(whole).expect_err("it is wrong").join("\n")
    }

    #[test]
    fn what_is_wrong_in_an_event_is_told_with_its_number_and_field() {
        for (event, words) in [
            (
                json!({"op": "sumbit"}),
                "event 2 (sumbit): op: unknown variant `sumbit`, expected one of `submit`",
            ),
            (json!({"request": "a"}), "event 2: missing field `op`"),
            (
                json!({"op": "finish"}),
                "event 2 (finish): missing field `request`",
            ),
            (
                json!({"op": "submit", "request": "a"}),
                "event 2 (submit): missing field `subject`",
            ),
            (
                json!({"op": "submit", "request": "a", "subject": "s", "preemptable": true}),
                "event 2 (submit): there is no field `preemptable`: did you mean `preemptible`?",
            ),
            (
                json!({"op": "submit", "request": "a", "subject": "s", "resources": {"gpu": "four"}}),
                "event 2 (submit): resources.gpu: write a number up to 1000000000",
            ),
            (
                json!({"op": "submit", "request": "a", "subject": "s", "retries": -1}),
                "event 2 (submit): retries: invalid value: integer `-1`, expected a whole number from 0",
            ),
            (
                json!({"op": "advance", "seconds": 1.5}),
                "event 2 (advance): seconds: invalid type: floating point",
            ),
            (
                json!({"op": "node_lost", "node": "a b"}),
                "event 2 (node_lost): node: `a b` is not a valid node name",
            ),
            (json!(7), "event 2: invalid type: integer `7`"),
        ] {
            let told = told_of("events", json!([{"op": "advance", "seconds": 1}, event]));
            assert!(told.starts_with(words), "{told}");
        }
    }

    #[test]
    fn the_other_parts_are_told_as_well() {
        for (part, value, words) in [
            (
                "pools",
                json!([{"name": "p", "capacity": "guessed"}]),
                "pool 1: capacity: invalid value: string \"guessed\", expected amounts by key",
            ),
            (
                "pools",
                json!({}),
                "pools: invalid type: map, expected a sequence",
            ),
            (
                "nodes",
                json!([{"name": "n"}]),
                "node 1: missing field `pool`",
            ),
            (
                "policies",
                json!([{"pool": "p", "subject": "s", "limits": {}}]),
                "policy 1: there is no field `limits`: did you mean `limit`?",
            ),
            (
                "expected",
                json!({"alocated": []}),
                "there is no field `alocated`: did you mean `allocated`?",
            ),
            (
                "expected_any_of",
                json!([{"queued": "a"}]),
                "expected_any_of 1: queued: invalid type: string",
            ),
            (
                "event",
                json!([]),
                "there is no field `event`: did you mean `events`?",
            ),
        ] {
            let told = told_of(part, value);
            assert!(told.starts_with(words), "{told}");
        }
    }

    #[test]
    fn mistakes_come_together_and_not_without_end() {
        let events: Vec<Value> = (0..30).map(|_| json!({"op": "x"})).collect();
        let mistakes = case(json!({"id": "c", "pools": [], "events": events})).unwrap_err();
        assert_eq!(mistakes.len(), 30);
        let told = told(mistakes);
        assert_eq!(told.lines().count(), MOST_MISTAKES + 1);
        assert!(told.ends_with("and 10 more"), "{told}");
    }
}
