//! Reads the cluster's answers as documents that can be applied again: `get -o json` in the field names of the API,
//! `get -o yaml` as a document with a `status`. Known read-only fields are dropped; an unknown field is a mistake, as
//! in any document.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use sluice_common::amount::{MCPU, MEMORY_MB, MGPU, STORAGE_MB};
use sluice_common::api::{
    BindingView, ClusterView, PolicyView, PoolView, RoleView, StepView, TemplateView, TopologyView,
    ValidationView,
};

use crate::render::listed::Listed;
use crate::render::platform::PoolPlatform;

/// Fields of a document.
type JsonFields = Map<String, Value>;

/// The writable part of an answer.
#[derive(Debug, PartialEq)]
pub(super) enum FromView {
    Document(JsonFields),
    /// Nothing is writable; the sentence says why.
    Nothing(String),
}

/// Returns the document in what `get` printed of a thing of this kind; the fields themselves if a user wrote them.
///
/// # Errors
/// If a read-only field was edited.
pub(super) fn read(kind: &str, mut fields: JsonFields) -> Result<FromView, String> {
    let status = match fields.get("status") {
        Some(Value::Object(_)) => fields.remove("status"),
        Some(_) | None => None,
    };
    let told = status.as_ref().and_then(Value::as_object);
    if let Some(why) = read_only_reason(kind, told.unwrap_or(&fields)) {
        return Ok(FromView::Nothing(why));
    }
    let told = match kind {
        "pool" => {
            reject_capacity_edit(&fields)?;
            of::<PoolView>(&fields)
        }
        "policy" => of::<PolicyView>(&fields),
        "platform" => of::<PoolPlatform>(&fields),
        "template" => of::<TemplateView>(&fields),
        "cluster" => of::<ClusterView>(&fields),
        "topology" => of::<TopologyView>(&fields),
        "validation" => of::<ValidationView>(&fields),
        "role" => of::<RoleView>(&fields),
        "binding" => of::<BindingView>(&fields),
        _ => None,
    };
    Ok(FromView::Document(told.unwrap_or(fields)))
}

/// Reads a step in the same way; returns whether it came from the cluster.
pub(super) fn step(mut fields: JsonFields) -> (JsonFields, bool) {
    fields.remove("kind");
    match of::<StepView>(&fields) {
        Some(document) => (document, true),
        None => (fields, false),
    }
}

/// Parses a complete answer: with every field that it always has, and no unknown one.
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

/// Explains why a thing that exists without a document cannot be applied.
fn read_only_reason(kind: &str, told: &JsonFields) -> Option<String> {
    let is = |name: &str, value: bool| told.get(name) == Some(&Value::Bool(value));
    let why = match kind {
        "platform" if is("declared", false) => {
            "it comes from the pool's hosts, not from a document"
        }
        "role" if is("built_in", true) => "it is built in",
        _ => return None,
    };
    Some(format!(
        "left as it is: {why}; to apply it as your own, remove `status` and the other fields that the cluster sets"
    ))
}

/// Rejects an edited `capacity` of an answer, which is the detected one; a document's capacity is `declared` there.
fn reject_capacity_edit(fields: &JsonFields) -> Result<(), String> {
    let Some(view) = whole::<PoolView>(fields) else {
        return Ok(());
    };
    let mut there = view.detected.clone();
    for (key, declared) in &view.declared {
        let most = match [MGPU, MCPU, MEMORY_MB, STORAGE_MB].contains(&key.as_str()) {
            true => view.detected.get(key.as_str()).min(*declared),
            false => *declared,
        };
        there.set(key.clone(), most);
    }
    if there == view.capacity {
        return Ok(());
    }
    Err(
        "capacity: only `declared` can be changed, the rest is what the cluster reports: change `declared`, or start from the output of `get -o yaml`"
            .to_owned(),
    )
}
