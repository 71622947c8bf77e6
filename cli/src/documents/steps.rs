//! Reads a file of steps to be submitted, as users write it or as `get` prints it.

use serde_json::{Map, Value};
use sluice_common::environment::HIDDEN;
use sluice_common::nearest::{nearest, unknown_field};
use sluice_common::request::StepRequest;

use super::{
    Document, DocumentLocation, LocatedDocument, from_view, items, mistake, parse, placed, values,
};
use crate::elsewhere;
use crate::failure::Failure;
use crate::render::safe;

/// The steps of a file with their locations, and advice on what the file says.
pub(crate) type LocatedSteps = (Vec<(StepRequest, DocumentLocation)>, Vec<String>);

/// Reads the steps of a file, in order, and the services of a file of another tool, whose users submit them as they submit
/// steps. A document needs no `kind`.
///
/// # Errors
/// If a document is neither; every mistake is reported at once.
pub(crate) fn steps(
    text: &str,
    file: &str,
) -> Result<(LocatedSteps, Vec<LocatedDocument>), Failure> {
    let found: Vec<Value> = values(text, file).unwrap_or_default();
    let mut objects = found.iter().filter_map(Value::as_object);
    if objects.any(elsewhere::is_foreign) {
        let is_service = |it: &LocatedDocument| matches!(it.document, Document::Service(_));
        let (services, rest) = placed(text, file)?.into_iter().partition(is_service);
        return Ok((of_documents(rest)?, services));
    }
    Ok((steps_of_ours(found, text, file)?, Vec::new()))
}

fn steps_of_ours(found: Vec<Value>, text: &str, file: &str) -> Result<LocatedSteps, Failure> {
    let requests = match listed(found, file) {
        Some(listed) => listed?,
        // YAML reads `10` as a text where one is expected, which a value does not.
        None => values(text, file).map_err(|e| mistakes(text, file).unwrap_or(e))?,
    };
    if requests.is_empty() {
        return Err(Failure::Failed(format!(
            "{file}: there is no step in it: write `kind: step` and a `command`"
        )));
    }
    let places = DocumentLocation::all(file, text, requests.len());
    Ok((requests.into_iter().zip(places).collect(), Vec::new()))
}

/// Takes the steps of documents, all of which must be steps.
pub(crate) fn of_documents(documents: Vec<LocatedDocument>) -> Result<LocatedSteps, Failure> {
    let (mut steps, mut notes) = (Vec::new(), Vec::new());
    for LocatedDocument {
        document,
        place,
        notes: own,
    } in documents
    {
        notes.extend(own.iter().map(|note| place.noted(note)));
        match document {
            Document::Step(step) => steps.push((*step, place)),
            Document::Host(_)
            | Document::Put(_)
            | Document::Foreign(_)
            | Document::Service(_)
            | Document::ReadOnly(_) => {
                return Err(Failure::Failed(format!(
                    "{place}: it is no step: hand it to `sluice apply -f`, or the whole file to `sluice create -f`"
                )));
            }
        }
    }
    Ok((steps, notes))
}

/// Reads the steps in the output of `get`, to be submitted again; `None` if the values are something else.
fn listed(values: Vec<Value>, file: &str) -> Option<Result<Vec<StepRequest>, Failure>> {
    let steps = values
        .into_iter()
        .flat_map(items)
        .filter_map(|value| match value {
            Value::Object(fields) => Some(from_view::step(fields)),
            _ => None,
        });
    let steps: Vec<_> = steps.collect();
    let told = !steps.is_empty() && steps.iter().all(|(_, told)| *told);
    told.then(|| {
        let requests = steps.into_iter().map(|(fields, _)| told_step(fields));
        let requests: Result<_, String> = requests.collect();
        requests.map_err(|e| Failure::Failed(format!("{file}: {e}")))
    })
}

fn told_step(fields: Map<String, Value>) -> Result<StepRequest, String> {
    let request: StepRequest = parse(fields)?;
    let mut variables = request.env.iter();
    match variables.find(|(_, value)| *value == HIDDEN) {
        None => Ok(request),
        Some((name, _)) => Err(format!(
            "env.{}: its value is hidden from you: in your document, replace `{HIDDEN}` by the value",
            safe(name)
        )),
    }
}

/// Names every field at fault in a text that cannot be parsed as steps.
fn mistakes(text: &str, file: &str) -> Option<Failure> {
    let values: Vec<Value> = values(text, file).ok()?;
    let places = DocumentLocation::all(file, text, values.len());
    let both = values.into_iter().zip(places);
    let found = both.filter_map(|(mut value, place)| {
        if let Value::Object(fields) = &mut value {
            fields.iter_mut().for_each(|(_, field)| as_texts(field));
        }
        let mistake = mistake::<StepRequest>(&value).map(in_resources)?;
        Some(format!("{}: {mistake}", place.of(None, &mistake)))
    });
    let found: Vec<String> = found.collect();
    (!found.is_empty()).then(|| Failure::Failed(found.join("\n")))
}

/// Fields of `resources` that users also look for beside it.
const RESOURCES: [&str; 5] = ["gpu_count", "cpu_count", "memory", "storage", "mig"];

/// Error of a step with tolerations.
const TOLERATIONS: &str = "tolerations: a step tolerates the taint of a platform by its name: write `platform: NAME` \
     (`sluice get platforms` lists them), and leave out `tolerations`";

/// Says that an unknown field of a step is one of its `resources`, if it is.
fn in_resources(mistake: String) -> String {
    match unknown_field(&mistake) {
        Some(("tolerations", _)) => TOLERATIONS.to_owned(),
        Some((field, None)) => match nearest(field, RESOURCES) {
            Some(near) => {
                format!("there is no field `{field}`: did you mean `{near}` in `resources`?")
            }
            None => mistake,
        },
        _ => mistake,
    }
}

/// Writes the numbers of a list of texts, such as `command`, as texts.
fn as_texts(field: &mut Value) {
    let items: Vec<&mut Value> = match field {
        Value::Array(items) => items.iter_mut().collect(),
        _ => Vec::new(),
    };
    for item in items
        .into_iter()
        .filter(|item| item.is_number() || item.is_boolean())
    {
        *item = Value::String(item.to_string());
    }
}
