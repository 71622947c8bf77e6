//! Files of several YAML documents, each of which says by `kind` what it is. Whoever reads one gets all of its documents
//! checked, or every mistake at once with file, document and field.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use sluice_common::api::{PolicyRequest, PoolRequest};
use sluice_common::id::{PoolName, Subject};
use sluice_common::nearest::{nearest, unknown_field};
use sluice_common::request::StepRequest;

use crate::dev::HostRequest;
use crate::failure::Failure;

/// What a document may be.
const KINDS: [&str; 4] = ["host", "pool", "policy", "step"];

/// One document.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Document {
    /// A host that is made for a trial.
    Host(Box<HostRequest>),
    /// A pool's terms.
    Pool(PoolName, PoolRequest),
    /// A subject's policy in a pool.
    Policy(PoolName, Subject, PolicyRequest),
    /// A step to be submitted.
    Step(Box<StepRequest>),
}

/// Reads the documents of a file, in order.
pub(crate) fn read(text: &str, file: &str) -> Result<Vec<Document>, Failure> {
    let values: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|e| Failure::Failed(format!("{file}: {e}")))?;
    let values: Vec<Value> = values
        .into_iter()
        .filter(|value| !value.is_null())
        .collect();
    if values.is_empty() {
        let kinds = KINDS.join(", ");
        return Err(Failure::Failed(format!(
            "{file}: nothing is in it: write documents of kind {kinds}"
        )));
    }
    let several = values.len() > 1;
    let mut documents = Vec::new();
    let mut mistakes = Vec::new();
    for (i, value) in values.into_iter().enumerate() {
        match document(value) {
            Ok(document) => documents.push(document),
            Err(mistake) if several => {
                mistakes.push(format!("{file}, document {}: {mistake}", i + 1))
            }
            Err(mistake) => mistakes.push(format!("{file}: {mistake}")),
        }
    }
    if mistakes.is_empty() {
        return Ok(documents);
    }
    Err(Failure::Failed(mistakes.join("\n")))
}

fn document(value: Value) -> Result<Document, String> {
    let Value::Object(mut fields) = value else {
        return Err("it is no mapping: write `kind: ...` and what belongs to it".to_owned());
    };
    let kind = text(&mut fields, "kind")?;
    match kind.as_str() {
        "host" => Ok(Document::Host(Box::new(parse(fields)?))),
        "pool" => {
            let name =
                PoolName::new(text(&mut fields, "name")?).map_err(|e| format!("name: {e}"))?;
            Ok(Document::Pool(name, parse(fields)?))
        }
        "policy" => {
            let pool =
                PoolName::new(text(&mut fields, "pool")?).map_err(|e| format!("pool: {e}"))?;
            let subject =
                Subject::new(text(&mut fields, "subject")?).map_err(|e| format!("subject: {e}"))?;
            Ok(Document::Policy(pool, subject, parse(fields)?))
        }
        "step" => Ok(Document::Step(Box::new(parse(fields)?))),
        other => Err(match nearest(other, KINDS) {
            Some(near) => format!(
                "kind: there is no `{}`: did you mean `{near}`?",
                other.escape_debug()
            ),
            None => format!(
                "kind: there is no `{}`: write one of {}",
                other.escape_debug(),
                KINDS.join(", ")
            ),
        }),
    }
}

fn text(fields: &mut Map<String, Value>, name: &str) -> Result<String, String> {
    match fields.remove(name) {
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(format!("{name}: `{other}` is no text")),
        None => Err(format!("{name}: it is missing")),
    }
}

fn parse<T: DeserializeOwned>(fields: Map<String, Value>) -> Result<T, String> {
    serde_json::from_value(Value::Object(fields)).map_err(|error| {
        let message = error.to_string();
        match unknown_field(&message) {
            Some((field, Some(near))) => {
                format!("there is no field `{field}`: did you mean `{near}`?")
            }
            Some(_) | None => message,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read() {
        let text = "kind: pool\nname: training\ncapacity: {gpu: 16}\n---\nkind: policy\npool: training\n\
                    subject: prod\npriority: 10\nreserved: {gpu: 4}\n---\nkind: host\nname: h1\ngpus: 8\n---\n\
                    kind: step\ncommand: [python, train.py]\n";
        let documents = read(text, "f.yaml").unwrap();
        assert!(matches!(
            &documents[..],
            [
                Document::Pool(..),
                Document::Policy(..),
                Document::Host(_),
                Document::Step(_)
            ]
        ));
    }

    #[test]
    fn every_mistake_is_told_at_once_with_its_document_and_the_way_out() {
        let text = "kind: hosts\n---\nkind: host\nname: h1\ngpu: 8\n---\nkind: policy\nsubject: s\n---\n- 1\n---\n\
                    kind: host\nname: h2\ngpus: -1\n---\nname: x\n";
        let Err(Failure::Failed(message)) = read(text, "f.yaml") else {
            panic!("it was read");
        };
        let lines: Vec<&str> = message.lines().collect();
        for (line, words) in lines.iter().zip([
            "f.yaml, document 1: kind: there is no `hosts`: did you mean `host`?",
            "f.yaml, document 2: there is no field `gpu`: did you mean `gpus`?",
            "f.yaml, document 3: pool: it is missing",
            "f.yaml, document 4: it is no mapping",
            "f.yaml, document 5: invalid value: integer `-1`",
            "f.yaml, document 6: kind: it is missing",
        ]) {
            assert!(line.starts_with(words), "{line}");
        }
        assert_eq!(lines.len(), 6);
    }
}
