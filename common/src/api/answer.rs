//! The forms of answers: a stretch of a list, an error, one result for each of many.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use super::StepView;
use crate::reason::Detail;
use crate::request::StepRequest;

/// A stretch of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "{T}Page")
)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Pass this as `cursor` for what follows; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// The body of an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Error")
)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorView,
}

/// An error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "ErrorInfo")
)]
pub struct ErrorView {
    /// Stable code. A newer coordinator may know more of them.
    #[cfg_attr(feature = "schema", schemars(with = "crate::error_code::ErrorCode"))]
    pub code: String,
    /// What happened, with field and value, and the way out.
    pub message: String,
    /// Names and numbers in the message.
    #[serde(default)]
    pub detail: BTreeMap<String, Detail>,
}

/// The body of a batch of submits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct BatchRequest {
    /// Settings that every step has where its own say nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defaults: Option<alloc::boxed::Box<StepRequest>>,
    /// The steps, in order.
    pub steps: Vec<StepRequest>,
}

/// The answer to a batch: one result for each step, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "BatchResult")
)]
pub struct BatchView {
    /// The results.
    pub results: Vec<BatchItem>,
}

/// One result of a batch: a step or an error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum BatchItem {
    /// It was accepted (or rejected by policy, which its state says).
    Step(alloc::boxed::Box<StepView>),
    /// It was malformed.
    Error(ErrorBody),
}
