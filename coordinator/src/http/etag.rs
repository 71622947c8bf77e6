//! Versions of things in HTTP headers: sent as `ETag`, expected by `If-Match` and `If-None-Match`.

use axum::http::header::{ETAG, HeaderName, IF_MATCH, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};

use super::error::ApiError;
use super::params;

/// Returns the version that a caller expects: `If-Match: "7"`, or `If-None-Match: *` if the thing must not exist.
pub(super) fn expected(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let text = |name: HeaderName| {
        let value = headers.get(name)?;
        Some(value.to_str().unwrap_or("").trim())
    };
    if let Some(text) = text(IF_NONE_MATCH) {
        return match text {
            "*" => Ok(Some(0)),
            _ => Err(params::invalid(
                "If-None-Match",
                "write `*`, for what must not be there",
            )),
        };
    }
    let Some(text) = text(IF_MATCH).filter(|text| *text != "*") else {
        return Ok(None);
    };
    let number = text.trim_matches('"').parse();
    number.map(Some).map_err(|_| {
        params::invalid(
            "If-Match",
            format!(
                "`{}` is not a version: write it as the `ETag` has it",
                text.escape_debug()
            ),
        )
    })
}

/// Adds the version to an answer.
pub(super) fn tagged(version: u64, body: impl IntoResponse) -> Response {
    let tag = HeaderValue::from_str(&format!("\"{version}\""));
    let tag = tag.expect("digits between quotes are a header's value");
    ([(ETAG, tag)], body).into_response()
}
