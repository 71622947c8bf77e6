//! Real calls over loopback: each status and code, and the guarantees of streams.

mod admin;
mod calls;
mod cluster;
mod connections;
mod explain;
mod follow;
mod join_tokens;
mod lists;
mod logs;
mod long_calls;
mod many;
mod platforms;
mod pools;
mod preview;
mod refused;
mod rules;
mod terms;
mod unread;
mod validations;

use serde_json::{Value, json};

use crate::fixture::{Answer, Harness};

/// Returns the code of an error, whose status must be `status`.
fn code(answer: Answer, status: u16) -> String {
    assert_eq!(answer.0, status, "{}", answer.1);
    let error = &answer.1["error"];
    assert!(
        error["message"]
            .as_str()
            .is_some_and(|text| !text.is_empty()),
        "{error}"
    );
    error["code"].as_str().unwrap().to_owned()
}

fn ids(page: &Value) -> Vec<&str> {
    let items = page["items"].as_array().unwrap().iter();
    items.map(|item| item["id"].as_str().unwrap()).collect()
}
