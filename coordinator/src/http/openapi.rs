//! The API's description, OpenAPI 3.1 at `/openapi.json`.
//!
//! Paths are written by hand in `openapi/*.json`, one file for each tag; tests compare them with the router. Schemas
//! are derived from the types that calls read and write, and errors from the list of codes, so neither can drift.

mod schemas;
#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use serde_json::{Map, Value, json};
use sluice_common::error_code::ErrorCode;

/// The document without paths, schemas and errors.
const DOCUMENT: &str = include_str!("openapi/document.json");

const PATHS: [&str; 11] = [
    include_str!("openapi/steps.json"),
    include_str!("openapi/allocations.json"),
    include_str!("openapi/services.json"),
    include_str!("openapi/nodes.json"),
    include_str!("openapi/pools.json"),
    include_str!("openapi/validations.json"),
    include_str!("openapi/join.json"),
    include_str!("openapi/events.json"),
    include_str!("openapi/access.json"),
    include_str!("openapi/recovery.json"),
    include_str!("openapi/service.json"),
];

/// Error statuses that any call may return.
const ANYWHERE: [u16; 6] = [401, 403, 408, 429, 500, 503];

/// Handles `GET /openapi.json`.
pub(super) async fn openapi() -> impl IntoResponse {
    static TEXT: LazyLock<String> = LazyLock::new(|| format!("{:#}\n", document()));
    ([(CONTENT_TYPE, "application/json")], TEXT.as_str())
}

/// Builds the whole document.
fn document() -> Value {
    let mut document = object(DOCUMENT);
    document["info"]["version"] = json!(env!("CARGO_PKG_VERSION"));
    document["paths"] = Value::Object(paths());
    let components = &mut document["components"];
    components["responses"] = Value::Object(errors());
    components["schemas"] = Value::Object(schemas::all());
    Value::Object(document)
}

fn object(text: &str) -> Map<String, Value> {
    serde_json::from_str(text).expect("the pieces of the document are JSON objects")
}

fn paths() -> Map<String, Value> {
    let mut paths: Map<String, Value> = PATHS.into_iter().flat_map(object).collect();
    let calls = paths
        .iter_mut()
        .filter(|(path, _)| path.starts_with("/v1/"));
    let calls = calls.filter_map(|(_, item)| item.as_object_mut());
    let methods = calls.flat_map(|item| item.iter_mut().filter(|(key, _)| *key != "parameters"));
    for (_, call) in methods {
        for status in ANYWHERE {
            let error = format!("#/components/responses/{}", name(status));
            call["responses"][status.to_string()] = json!({ "$ref": error });
        }
    }
    paths
}

/// Lists every described call, by method and path.
#[cfg(test)]
pub(super) fn described() -> Vec<(String, String)> {
    let paths = paths();
    let calls = paths.iter().flat_map(|(path, item)| {
        let methods = item.as_object().expect("a path has calls").keys();
        let methods = methods.filter(|key| *key != "parameters");
        methods.map(|method| (method.to_uppercase(), path.clone()))
    });
    calls.collect()
}

/// Lists the described calls that answer with more than one JSON value: streams and upgraded connections.
#[cfg(test)]
pub(super) fn described_streams() -> std::collections::BTreeSet<(String, String)> {
    let goes_on = |call: &Value| {
        let answers = call["responses"].as_object().expect("a call has responses");
        let content = answers.values().filter_map(|it| it["content"].as_object());
        let mut kinds = content.flat_map(Map::keys);
        answers.contains_key("101") || kinds.any(|kind| kind != "application/json")
    };
    let paths = paths();
    let calls = described().into_iter().filter(|(method, path)| {
        path.starts_with("/v1/") && goes_on(&paths[path][method.to_lowercase()])
    });
    calls.collect()
}

fn name(status: u16) -> String {
    format!("Error{status}")
}

/// Returns one response for each status of an error, with its codes.
fn errors() -> Map<String, Value> {
    let mut errors = Map::new();
    for code in ErrorCode::ALL {
        let sentence = format!("`{code}`: {}", code.meaning());
        let error = errors.entry(name(code.status()));
        let error = error.or_insert_with(|| {
            let schema = json!({ "$ref": "#/components/schemas/Error" });
            let mut error = json!({ "content": { "application/json": { "schema": schema } } });
            if let Some((header, about)) = headers(code.status()) {
                let about = json!({ "description": about, "schema": { "type": "string" } });
                error["headers"] = json!({ header: about });
            }
            error
        });
        let present = error["description"].as_str();
        let all = present.map_or_else(
            || sentence.clone(),
            |present| format!("{present}\n\n{sentence}"),
        );
        error["description"] = json!(all);
    }
    errors
}

/// Returns the header that comes with an error of this status.
fn headers(status: u16) -> Option<(&'static str, &'static str)> {
    match status {
        401 => Some(("WWW-Authenticate", "`Bearer`.")),
        405 => Some(("Allow", "The methods that the path takes.")),
        429 => Some(("Retry-After", "Seconds to wait before the next try.")),
        _ => None,
    }
}
