//! What the cluster told, read as the document by which it is applied again: `get -o json` in the field names of the API,
//! `get -o yaml` as a document with a `status`. What is told and not written is left out by name; a field that nobody
//! tells is a mistake, as in any document.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use sluice_common::amount::{GPU, MCPU, MEMORY_MB, STORAGE_MB};
use sluice_common::api::{
    BindingView, ClusterView, PolicyView, PoolView, RoleView, StepView, TemplateView,
    ValidationView,
};

use crate::render::listed::Listed;
use crate::render::platform::PoolPlatform;

/// The fields of a document.
type JsonFields = Map<String, Value>;

/// What somebody may write of what the cluster told.
#[derive(Debug, PartialEq)]
pub(super) enum FromView {
    Document(JsonFields),
    /// Nothing: the sentence says why.
    Nothing(String),
}

/// The document in what `get` printed of a thing of this kind; the fields themselves where they are somebody's own.
///
/// # Errors
/// Where a field was edited that only tells.
pub(super) fn read(kind: &str, mut fields: JsonFields) -> Result<FromView, String> {
    let status = match fields.get("status") {
        Some(Value::Object(_)) => fields.remove("status"),
        Some(_) | None => None,
    };
    let told = status.as_ref().and_then(Value::as_object);
    if let Some(why) = unwritten(kind, told.unwrap_or(&fields)) {
        return Ok(FromView::Nothing(why));
    }
    let told = match kind {
        "pool" => {
            told_capacity(&fields)?;
            of::<PoolView>(&fields)
        }
        "policy" => of::<PolicyView>(&fields),
        "platform" => of::<PoolPlatform>(&fields),
        "template" => of::<TemplateView>(&fields),
        "cluster" => of::<ClusterView>(&fields),
        "validation" => of::<ValidationView>(&fields),
        "role" => of::<RoleView>(&fields),
        "binding" => of::<BindingView>(&fields),
        _ => None,
    };
    Ok(FromView::Document(told.unwrap_or(fields)))
}

/// The same of a step, with whether it was told by the cluster.
pub(super) fn step(mut fields: JsonFields) -> (JsonFields, bool) {
    fields.remove("kind");
    match of::<StepView>(&fields) {
        Some(document) => (document, true),
        None => (fields, false),
    }
}

/// Reads a whole answer: every field that it always has is there, and none that it does not have.
fn whole<T: Serialize + DeserializeOwned>(fields: &JsonFields) -> Option<T> {
    let view: T = serde_json::from_value(Value::Object(fields.clone())).ok()?;
    let again = serde_json::to_value(&view).ok()?;
    let known = again.as_object()?;
    let all = fields.keys().all(|name| known.contains_key(name));
    all.then_some(view)
}

fn of<T: Listed + DeserializeOwned>(fields: &JsonFields) -> Option<JsonFields> {
    let view: T = whole(fields)?;
    Some(view.document()?.fields)
}

/// Why there is nothing to apply of a thing that is there without anybody having written it.
fn unwritten(kind: &str, told: &JsonFields) -> Option<String> {
    let is = |name: &str, value: bool| told.get(name) == Some(&Value::Bool(value));
    let why = match kind {
        "platform" if is("declared", false) => "the pool's hosts make it, and no document does",
        "role" if is("built_in", true) => "it is built in",
        _ => return None,
    };
    Some(format!(
        "left as it is: {why}; to apply it as your own, remove `status` and what the cluster tells"
    ))
}

/// In an answer `capacity` tells what there is, and `declared` what a document calls so: who edits the first is told.
fn told_capacity(fields: &JsonFields) -> Result<(), String> {
    let Some(view) = whole::<PoolView>(fields) else {
        return Ok(());
    };
    let mut there = view.detected.clone();
    for (key, declared) in &view.declared {
        let most = match [GPU, MCPU, MEMORY_MB, STORAGE_MB].contains(&key.as_str()) {
            true => view.detected.get(key.as_str()).min(*declared),
            false => *declared,
        };
        there.set(key.clone(), most);
    }
    if there == view.capacity {
        return Ok(());
    }
    Err(
        "capacity: beside `declared` it tells what there is, and it was edited: change `declared`, or take \
         the document of `get -o yaml`"
            .to_owned(),
    )
}
