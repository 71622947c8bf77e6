//! Reads files of several YAML documents, each with a `kind`. All are checked, and every mistake is reported at once
//! with file, document and field.

mod from_view;
mod location;
mod mistake;
#[cfg(test)]
mod reference;
mod spelling;
mod steps;

use std::fmt::Display;
use std::io::Read;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use sluice_common::api::PutDocument;
use sluice_common::id::{
    BindingName, PlatformName, PoolName, RoleName, ServiceName, Subject, TemplateName,
    ValidationName,
};
use sluice_common::nearest::nearest;
use sluice_common::request::StepRequest;
use sluice_common::step::WorkKind;
use sluice_common::template::Template;
use sluice_common::validation::ValidationSpec;

use crate::dev::HostDocument;
use crate::elsewhere::{self, ForeignDocument, TranslationItem};
use crate::failure::Failure;
use crate::render::safe;
use from_view::FromView;
pub(crate) use location::DocumentLocation;
pub(crate) use mistake::mistake;
pub(crate) use steps::{LocatedSteps, of_documents, steps};

/// Largest file: a full batch.
const MAX_FILE_BYTES: u64 = sluice_common::limit::MAX_BATCH_BODY_BYTES as u64;

/// Most documents of a file: a full batch of steps, or as many policies, and some more.
const MAX_DOCUMENTS: usize = 20_000;

/// Known kinds of documents.
const KINDS: [&str; 12] = [
    "binding",
    "cluster",
    "host",
    "platform",
    "pool",
    "policy",
    "role",
    "service",
    "step",
    "template",
    "topology",
    "validation",
];

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Document {
    /// A declared host for `dev` or a simulation.
    Host(Box<HostDocument>),
    /// A document for `apply`.
    Put(Box<PutDocument>),
    /// A step to be submitted.
    Step(Box<StepRequest>),
    /// A document of another tool that has none of ours.
    Foreign(ForeignDocument),
    /// A service to be applied: a step that is kept running.
    Service(Box<StepRequest>),
    /// A read-only answer of the cluster, described by the sentence.
    ReadOnly(String),
}

/// A document that `apply` does not send.
#[derive(Debug)]
pub(crate) enum SkippedDocument {
    Host(Box<HostDocument>),
    Step,
    /// A document of another tool, which `apply` carries out by itself.
    Foreign(ForeignDocument),
    /// A service, which has a call of its own.
    Service(Box<StepRequest>),
    /// A read-only object, left as it is.
    ReadOnly(String),
}

impl Document {
    /// Returns the document for `apply`, or else its kind.
    pub(crate) fn put(self) -> Result<PutDocument, SkippedDocument> {
        match self {
            Document::Put(document) => Ok(*document),
            Document::Step(_) => Err(SkippedDocument::Step),
            Document::Service(service) => Err(SkippedDocument::Service(service)),
            Document::Host(host) => Err(SkippedDocument::Host(host)),
            Document::Foreign(document) => Err(SkippedDocument::Foreign(document)),
            Document::ReadOnly(what) => Err(SkippedDocument::ReadOnly(what)),
        }
    }
}

/// Reads a file, or standard input if `-`.
pub(crate) fn read_file(path: &Path) -> Result<String, Failure> {
    let text = if path == Path::new("-") {
        bounded(std::io::stdin().lock())
    } else {
        std::fs::File::open(path).and_then(bounded)
    };
    text.map_err(|e| Failure::Failed(format!("cannot read {}: {e}", shown(path))))
}

fn bounded(from: impl Read) -> std::io::Result<String> {
    let mut text = String::new();
    from.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(std::io::Error::other("it is larger than 16 MiB: split it"));
    }
    Ok(text)
}

/// Formats a file's path for messages.
pub(crate) fn shown(path: &Path) -> String {
    if path == Path::new("-") {
        "stdin".to_owned()
    } else {
        safe(&path.to_string_lossy())
    }
}

/// A document with its location.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LocatedDocument {
    pub(crate) document: Document,
    pub(crate) place: DocumentLocation,
    /// Advice on what the document says, each beginning with the field.
    pub(crate) notes: Vec<String>,
}

/// Reads the documents of a file, in order.
pub(crate) fn read(text: &str, file: &str) -> Result<Vec<Document>, Failure> {
    let placed = placed(text, file)?.into_iter();
    Ok(placed.map(|placed| placed.document).collect())
}

/// Reads the documents of a file, in order, each with its location.
pub(crate) fn placed(text: &str, file: &str) -> Result<Vec<LocatedDocument>, Failure> {
    let values: Vec<Value> = values(text, file)?;
    let places = DocumentLocation::all(file, text, values.len());
    let mut documents = Vec::new();
    let mut mistakes = Vec::new();
    let both = values.into_iter().zip(places);
    let each = both.flat_map(|(value, place)| items(value).map(move |it| (it, place.clone())));
    for (value, place) in each.filter(|(value, _)| !value.is_null()) {
        let read = match value.as_object().and_then(elsewhere::translate) {
            Some(translated) => translated.and_then(foreign),
            None => {
                let note = value.as_object().and_then(spelling::note);
                document(value).map(|document| (vec![document], note.into_iter().collect()))
            }
        };
        match read {
            Ok((read, notes)) => documents.extend(located(read, notes, &place)),
            Err(mistake) => mistakes.push(format!("{}: {mistake}", place.of(None, &mistake))),
        }
    }
    if documents.is_empty() && mistakes.is_empty() {
        let kinds = KINDS.join(", ");
        return Err(Failure::Failed(format!(
            "{file}: it is empty: write documents of kind {kinds}"
        )));
    }
    if mistakes.is_empty() {
        return Ok(documents);
    }
    Err(Failure::Failed(mistakes.join("\n")))
}

/// Returns the items of a list, as `get` prints several things, or else the thing itself.
fn items(value: Value) -> impl Iterator<Item = Value> {
    let all = match value {
        Value::Object(fields) if fields.len() == 1 => match fields.get("items") {
            Some(Value::Array(items)) => items.clone(),
            Some(_) | None => vec![Value::Object(fields)],
        },
        value => vec![value],
    };
    all.into_iter()
}

/// Parses every document of a text.
///
/// # Errors
/// If it is not YAML, has the wrong type, or has too many documents.
pub(crate) fn values<T: DeserializeOwned>(text: &str, file: &str) -> Result<Vec<T>, Failure> {
    // The size of the file, 16 MiB, is the bound.
    let most = usize::try_from(MAX_FILE_BYTES).unwrap_or(usize::MAX);
    let budget = serde_saphyr::budget! {
        max_documents: MAX_DOCUMENTS,
        max_nodes: most,
        max_events: most,
    };
    // The lines around a mistake may contain secrets.
    let options = serde_saphyr::options! { budget: budget, with_snippet: false };
    let read = serde_saphyr::from_multiple_with_options(text, options);
    read.map_err(|e| Failure::Failed(unread(file, text, &e)))
}

/// Returns the parser's message without its advice to programmers.
fn unread(file: &str, text: &str, error: &impl ToString) -> String {
    let words = error.to_string();
    if words.contains("budget breached: Documents") {
        return format!("{file}: there are more than {MAX_DOCUMENTS} documents in it: split it");
    }
    let words = words.replace(", set DuplicateKeyPolicy in Options if acceptable", "");
    let told = words.rsplit_once(" at line ").and_then(|(why, at)| {
        let (line, column) = at.split_once(", column ")?;
        let place = DocumentLocation::of_line(file, text, line.parse().ok()?);
        Some(format!("{place}: column {column}: {why}"))
    });
    told.unwrap_or_else(|| format!("{file}: {words}"))
}

/// Reads the documents of a value of another tool, which was read from a file.
pub(crate) fn of_translation(
    translation: Result<elsewhere::Translation, String>,
    text: &str,
    file: &str,
) -> Result<Vec<LocatedDocument>, Failure> {
    let place = DocumentLocation::of_line(file, text, 1);
    let read = translation.and_then(foreign);
    let (documents, notes) = read
        .map_err(|mistake| Failure::Failed(format!("{}: {mistake}", place.of(None, &mistake))))?;
    Ok(located(documents, notes, &place).collect())
}

/// Locates the documents of one place of a file; the first of them has the notes.
fn located(
    documents: Vec<Document>,
    mut notes: Vec<String>,
    place: &DocumentLocation,
) -> impl Iterator<Item = LocatedDocument> {
    documents.into_iter().map(move |document| LocatedDocument {
        document,
        place: place.clone(),
        notes: std::mem::take(&mut notes),
    })
}

/// Reads what a document of another tool comes to, with notes.
fn foreign(translation: elsewhere::Translation) -> Result<(Vec<Document>, Vec<String>), String> {
    let documents = translation.documents.into_iter().map(|it| match it {
        TranslationItem::Document(fields) => document(Value::Object(fields)),
        TranslationItem::Foreign(document) => Ok(Document::Foreign(document)),
    });
    let mut documents: Vec<Document> = documents.collect::<Result<_, _>>()?;
    if documents.is_empty() {
        let what = "nothing of this document has a counterpart";
        documents.push(Document::ReadOnly(what.to_owned()));
    }
    Ok((documents, translation.notes))
}

fn document(value: Value) -> Result<Document, String> {
    let Value::Object(mut fields) = value else {
        return Err("it is not a mapping: write `kind: ...` and what belongs to it".to_owned());
    };
    let kind = text(&mut fields, "kind")?;
    let named = |fields: &Map<String, Value>, name| fields.get(name)?.as_str().map(safe);
    let name = [named(&fields, "pool"), named(&fields, "name")];
    let name = name.into_iter().flatten().collect::<Vec<_>>().join("/");
    let mut fields = match from_view::read(&kind, fields)? {
        FromView::Document(fields) => fields,
        FromView::Nothing(why) => return Ok(Document::ReadOnly(format!("{kind}/{name}: {why}"))),
    };
    let put = match kind.as_str() {
        "cluster" => PutDocument::cluster(parse(fields)?),
        "topology" => PutDocument::topology(parse(fields)?),
        "pool" => PutDocument::pool(name_of::<PoolName>(&mut fields, "name")?, parse(fields)?),
        "platform" => {
            let pool: PoolName = name_of(&mut fields, "pool")?;
            let name: PlatformName = name_of(&mut fields, "name")?;
            PutDocument::platform(pool, name, parse(fields)?)
        }
        "policy" => {
            let pool: PoolName = name_of(&mut fields, "pool")?;
            let subject: Subject = name_of(&mut fields, "subject")?;
            PutDocument::policy(pool, subject, parse(fields)?)
        }
        "validation" => validation(fields)?,
        "template" => {
            let name: TemplateName = name_of(&mut fields, "name")?;
            let template: Template = parse(fields)?;
            template.check().map_err(|e| e.to_string())?;
            PutDocument::template(name, template)
        }
        "role" => PutDocument::role(name_of::<RoleName>(&mut fields, "name")?, parse(fields)?),
        "binding" => {
            let name: BindingName = name_of(&mut fields, "name")?;
            PutDocument::binding(name, parse(fields)?)
        }
        _ => return apart(kind, fields),
    };
    Ok(Document::Put(Box::new(put)))
}

/// Reads a document that `apply` does not send.
fn apart(kind: String, mut fields: Map<String, Value>) -> Result<Document, String> {
    match kind.as_str() {
        "host" => {
            spelling::host(&mut fields)?;
            Ok(Document::Host(Box::new(parse(fields)?)))
        }
        "step" => Ok(Document::Step(Box::new(parse(from_view::step(fields).0)?))),
        "service" => {
            name_of::<ServiceName>(&mut fields.clone(), "name")?;
            Ok(Document::Service(Box::new(parse(fields)?)))
        }
        work if work.parse::<WorkKind>().is_ok() => {
            fields.insert("kind".to_owned(), Value::String(kind));
            Ok(Document::Step(Box::new(parse(fields)?)))
        }
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

/// Reads a validation; every assertion is parsed here, so that a mistake is reported with its line.
fn validation(mut fields: Map<String, Value>) -> Result<PutDocument, String> {
    let name: ValidationName = name_of(&mut fields, "name")?;
    elsewhere::osmo::translate_assertions(&mut fields)?;
    let terms: ValidationSpec = parse(fields)?;
    match terms.read() {
        Ok(_) => Ok(PutDocument::validation(name, terms)),
        Err(error) => Err(format!("{error} (validation `{name}`)")),
    }
}

/// Removes the name of the thing from a field.
fn name_of<T>(fields: &mut Map<String, Value>, field: &str) -> Result<T, String>
where
    T: TryFrom<String, Error: Display>,
{
    let name = T::try_from(text(fields, field)?);
    name.map_err(|error| format!("{field}: {error}"))
}

fn text(fields: &mut Map<String, Value>, name: &str) -> Result<String, String> {
    match fields.remove(name) {
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(format!("{name}: `{other}` is not a text")),
        None => Err(format!("{name}: it is missing")),
    }
}

fn parse<T: DeserializeOwned>(fields: Map<String, Value>) -> Result<T, String> {
    let value = Value::Object(fields);
    match mistake::<T>(&value) {
        Some(mistake) => Err(mistake),
        None => serde_json::from_value(value).map_err(|e| e.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read() {
        let text = "kind: pool\nname: training\ncapacity: {gpu: 16}\n---\nkind: policy\npool: training\n\
                    subject: prod\npriority: 10\nreserved: {gpu: 4}\n---\nkind: host\nname: h1\ngpus: 8\n---\n\
                    kind: step\ncommand: [python, train.py]\n---\nkind: cluster\ndefault_pool: {gpu: training}\n---\n\
                    kind: template\nname: t\nworkdir: /scratch/{{subject}}\n";
        let documents = read(text, "f.yaml").unwrap().into_iter();
        let kinds: Vec<Result<PutDocument, SkippedDocument>> =
            documents.map(Document::put).collect();
        assert!(matches!(
            &kinds[..],
            [
                Ok(PutDocument::Pool(_)),
                Ok(PutDocument::Policy(_)),
                Err(SkippedDocument::Host(_)),
                Err(SkippedDocument::Step),
                Ok(PutDocument::Cluster(_)),
                Ok(PutDocument::Template { .. })
            ]
        ));
    }

    #[test]
    fn what_is_no_yaml_is_told_with_its_document_and_line() {
        let text = "kind: pool\nname: p\n---\nkind: pool\nname: q\ncapacity: {gpu: 1}\ncapacity: {gpu: 2}\n";
        let Err(Failure::Failed(message)) = read(text, "f.yaml") else {
            panic!("it was read");
        };
        let words = "f.yaml:7, document 2: column 1: duplicate mapping key: capacity";
        assert!(message.starts_with(words), "{message}");
    }

    #[test]
    fn a_template_is_checked_where_it_is_written() {
        let text = "kind: pool\nname: p\n---\nkind: template\nname: t\nenv:\n  A: a\nwrapper:\n- nice\n- --node={{nuna}}\n";
        let Err(Failure::Failed(message)) = read(text, "f.yaml") else {
            panic!("it was read");
        };
        assert_eq!(
            message,
            "f.yaml:10, document 2: wrapper[1]: there is no variable `nuna`: did you mean `numa`?"
        );
    }

    #[test]
    fn a_file_of_a_full_batch_is_read_and_one_of_too_many_documents_says_so() {
        let policy = |n: usize| format!("kind: policy\npool: p\nsubject: s{n}\n---\n");
        let text: String = (0..10_000).map(policy).collect();
        assert_eq!(read(&text, "f.yaml").unwrap().len(), 10_000);
        let text: String = (0..=MAX_DOCUMENTS).map(policy).collect();
        let Err(Failure::Failed(message)) = read(&text, "f.yaml") else {
            panic!("it was read");
        };
        assert_eq!(
            message,
            "f.yaml: there are more than 20000 documents in it: split it"
        );
    }

    #[test]
    fn what_is_wrong_in_an_assertion_is_told_with_its_line_and_column() {
        let text = "kind: pool\nname: p\n---\nkind: validation\nname: v\nassertions:\n\
                    - {assert: nodes <= 2, message: m}\n- assert: memory <= 0.9 * node.memry\n  message: m\n";
        let Err(Failure::Failed(message)) = read(text, "f.yaml") else {
            panic!("it was read");
        };
        assert_eq!(
            message,
            "f.yaml:8, document 2: assertions[1].assert: `memory <= 0.9 * node.memry`: column 17: there is no \
             `node.memry`: did you mean `node.memory`? (validation `v`)"
        );
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
            "f.yaml:1, document 1: kind: there is no `hosts`: did you mean `host`?",
            "f.yaml:5, document 2: there is no field `gpu`: did you mean `gpus`?",
            "f.yaml:7, document 3: pool: it is missing",
            "f.yaml:10, document 4: it is not a mapping",
            "f.yaml:14, document 5: gpus: invalid value: integer `-1`, expected a whole number from 0",
            "f.yaml:16, document 6: kind: it is missing",
        ]) {
            assert!(line.starts_with(words), "{line}");
        }
        assert_eq!(lines.len(), 6);
    }
}
