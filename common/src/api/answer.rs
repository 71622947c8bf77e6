//! Generic response bodies: pages of a list, errors and batch results.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use super::StepView;
use crate::reason::Detail;
use crate::request::StepRequest;

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "{T}Page")
)]
pub struct Page<T> {
    /// Items of this page.
    pub items: Vec<T>,
    /// Opaque cursor of the next page; pass it as `cursor`. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// Number of steps that match all filters but `since`, among those that this page has gone past. Only lists of steps
    /// with `since` have it; the sum over all pages is what `since` leaves out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<u64>,
}

impl<T> Page<T> {
    /// Makes a page of items, and the cursor of the next.
    pub fn of(items: Vec<T>, next_cursor: Option<String>) -> Self {
        Self {
            items,
            next_cursor,
            left_out: None,
        }
    }
}

/// Response body of a failed call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Error")
)]
pub struct ErrorBody {
    /// Code, message and details.
    pub error: ErrorView,
}

/// A failed call: what happened and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "ErrorInfo")
)]
pub struct ErrorView {
    /// Stable code. A newer coordinator may return codes not listed here.
    #[cfg_attr(feature = "schema", schemars(with = "crate::error_code::ErrorCode"))]
    pub code: String,
    /// Explanation with field and value, and what to do next.
    pub message: String,
    /// Names and numbers used in the message.
    #[serde(default)]
    pub detail: BTreeMap<String, Detail>,
}

/// Request body of a batch of submits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct BatchRequest {
    /// Settings for steps that do not set them themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defaults: Option<alloc::boxed::Box<StepRequest>>,
    /// The steps to submit, in order.
    pub steps: Vec<StepRequest>,
}

/// Response to a batch: one result per step, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "BatchResult")
)]
pub struct BatchView {
    /// One result per step, in order.
    pub results: Vec<BatchItem>,
}

/// One result of a batch: a step or an error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum BatchItem {
    /// The step was accepted, or rejected by policy, as its state says.
    Step(alloc::boxed::Box<StepView>),
    /// The request was malformed.
    Error(ErrorBody),
}
