//! Parses the name in a call's path, and its query parameters.

use std::str::FromStr;
use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use coordinator_core::Step;
use serde::de::DeserializeOwned;
use sluice_common::error_code::ErrorCode;
use sluice_common::id::StepId;
use sluice_common::nearest::{nearest, unknown_field};
use sluice_common::request::FieldError;
use sluice_common::state::StepState;
use sluice_common::time::Span;

use super::error::{ApiError, known_fields};

/// Default number of items of a page.
const DEFAULT_LIMIT: usize = 100;
/// Most items of a page: bounds the engine's time for a read.
const MAX_LIMIT: usize = 1000;

/// The one variable segment of a path.
pub(super) struct Segment(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path: Result<Path<String>, PathRejection> =
            Path::from_request_parts(parts, state).await;
        match path {
            Ok(Path(segment)) => Ok(Self(segment)),
            // A path that is not UTF-8 names nothing.
            Err(_) => Err(ApiError::UnknownRoute {
                path: parts.uri.path().to_owned(),
            }),
        }
    }
}

/// Query parameters; unknown ones are rejected.
pub(super) struct Params<T>(pub(super) T);

/// Parameters of a call that takes none.
pub(super) type NoParams = Params<NoQuery>;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoQuery {}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(params)) => Ok(Self(params)),
            Err(rejection) => Err(refusal(&rejection.body_text())),
        }
    }
}

fn refusal(text: &str) -> ApiError {
    match unknown_field(text) {
        Some((name, nearest)) => ApiError::UnknownParameter {
            name: name.to_owned(),
            nearest: nearest.map(str::to_owned),
            known: known_fields(text),
        },
        None => ApiError::InvalidParameter {
            name: "query",
            message: text.to_owned(),
        },
    }
}

/// Parses a parameter whose type explains its errors.
pub(super) fn read<T: FromStr>(
    name: &'static str,
    text: Option<&str>,
) -> Result<Option<T>, ApiError>
where
    T::Err: ToString,
{
    text.map(T::from_str)
        .transpose()
        .map_err(|error| invalid(name, error))
}

/// Parses a number.
pub(super) fn number(name: &'static str, text: Option<&str>) -> Result<Option<u64>, ApiError> {
    let refused = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let why = match digits {
            true => format!("is too large: the maximum is {}", u64::MAX),
            false => "is not a whole number: write digits only".to_owned(),
        };
        invalid(name, format!("`{}` {why}", text.escape_debug()))
    };
    let parsed = text.map(|text| text.parse().map_err(|_| refused(text)));
    parsed.transpose()
}

/// Parses `true` or `false`; absent is false.
pub(super) fn flag(name: &'static str, text: Option<&str>) -> Result<bool, ApiError> {
    match text {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(text) => Err(invalid(
            name,
            format!("`{}` is neither `true` nor `false`", text.escape_debug()),
        )),
    }
}

/// Parses the number of items of a page.
pub(super) fn limit(text: Option<&str>) -> Result<usize, ApiError> {
    let limit = number("limit", text)?.unwrap_or(DEFAULT_LIMIT as u64);
    usize::try_from(limit)
        .ok()
        .filter(|limit| (1..=MAX_LIMIT).contains(limit))
        .ok_or_else(|| invalid("limit", format!("{limit}: write 1 to {MAX_LIMIT}")))
}

/// Parses states separated by commas.
pub(super) fn states(
    name: &'static str,
    text: Option<&str>,
) -> Result<Option<Vec<StepState>>, ApiError> {
    let parsed = text.map(|text| text.split(',').map(|word| state(name, word)).collect());
    parsed.transpose()
}

/// Parses a state.
pub(super) fn state(name: &'static str, word: &str) -> Result<StepState, ApiError> {
    let known = StepState::ALL.into_iter();
    if let Some(state) = known.clone().find(|state| state.as_str() == word) {
        return Ok(state);
    }
    let hint = hint(word, known.map(StepState::as_str), |all| {
        format!("write one of {}", all.join(", "))
    });
    Err(invalid(
        name,
        format!("`{}` is not a state: {hint}", word.escape_debug()),
    ))
}

/// The way out after an unknown word: the nearest known one, or what `all` says of all of them if none is near.
pub(super) fn hint<'a>(
    word: &str,
    known: impl Iterator<Item = &'a str> + Clone,
    all: impl FnOnce(Vec<&'a str>) -> String,
) -> String {
    match nearest(word, known.clone()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => all(known.collect()),
    }
}

/// Parses a duration, limited to `most`.
pub(super) fn time(
    name: &'static str,
    text: Option<&str>,
    default: Span,
    most: Span,
) -> Result<Duration, ApiError> {
    let span = read(name, text)?.unwrap_or(default).min(most);
    Ok(Duration::from_millis(span.millis()))
}

/// Parses a step id of a path.
pub(super) fn step_id(text: &str) -> Result<StepId, ApiError> {
    StepId::new(text).map_err(|error| {
        ApiError::Field(FieldError {
            code: ErrorCode::InvalidId,
            field: "id".to_owned(),
            message: error.to_string(),
        })
    })
}

/// A text of the caller for a message: cut, and escaped.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(80).flat_map(char::escape_debug).collect()
}

/// Refuses a whole array, whose parts have something each.
pub(super) fn no_whole_array(step: &Step, each: &str) -> Result<(), ApiError> {
    let Some(array) = step.spec.array.as_ref() else {
        return Ok(());
    };
    let (id, first) = (&step.id, array.indexes.first().unwrap_or_default());
    let message = format!(
        "`{id}` is an array, whose parts have {each} each: name one of them, such as `{id}.{first}`"
    );
    Err(invalid("step", message))
}

pub(super) fn invalid(name: &'static str, message: impl ToString) -> ApiError {
    ApiError::InvalidParameter {
        name,
        message: message.to_string(),
    }
}
