//! Reads and parses bodies of calls: bounded before they are parsed, and rejected with the name of the wrong field.

use std::time::{Duration, Instant};

use axum::body::BodyDataStream;
use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, EXPECT};
use futures_util::StreamExt;
use serde::Deserialize;
use serde_json::error::Category;
use sluice_common::nearest::unknown_field;
use sluice_common::request::FieldError;
use tokio::time::timeout;

use super::access::AccessWatch;
use super::error::{ApiError, known_fields};

/// Part of a too large body that is read and discarded, as a multiple of the limit, and the time for it: a caller who is
/// still writing would otherwise see a broken connection instead of the answer.
const DISCARD_TIMES: usize = 8;
const DISCARD_LIMIT: Duration = Duration::from_secs(5);

/// Longest silence within a body, and fewest bytes per second over all of it.
const SILENCE_LIMIT: Duration = Duration::from_secs(20);
const LEAST_BYTES_PER_SECOND: usize = 16 * 1024;

fn least_time(bytes: usize) -> Duration {
    Duration::from_secs((bytes / LEAST_BYTES_PER_SECOND) as u64)
}

fn too_slow() -> ApiError {
    ApiError::BodyTooSlow {
        limit_s: SILENCE_LIMIT.as_secs(),
    }
}

/// The mistake in malformed variables, without the text that was written.
const NO_ENVIRONMENT: &str =
    "write variables as a map of names and texts, such as `{\"EPOCHS\": \"3\"}`";

/// Reads a body of at most `limit` bytes, with or without an announced length.
pub(super) async fn read(request: Request, limit: usize) -> Result<Vec<u8>, ApiError> {
    let watch = request.extensions().get::<AccessWatch>().cloned();
    let bytes = collect(request, limit).await?;
    // The body may have taken long to arrive, so the caller's rights are checked again.
    watch.map_or(Ok(()), AccessWatch::check_body)?;
    Ok(bytes)
}

/// Passes the pieces of a body of at most `limit` bytes on as they arrive.
pub(super) async fn read_into(
    request: Request,
    limit: usize,
    take: impl FnMut(&[u8]) -> Result<(), ApiError>,
) -> Result<(), ApiError> {
    let watch = request.extensions().get::<AccessWatch>().cloned();
    receive(request, limit, take).await?;
    watch.map_or(Ok(()), AccessWatch::check_body)
}

async fn collect(request: Request, limit: usize) -> Result<Vec<u8>, ApiError> {
    let mut bytes = Vec::new();
    let take = |chunk: &[u8]| {
        bytes.extend_from_slice(chunk);
        Ok(())
    };
    receive(request, limit, take).await?;
    Ok(bytes)
}

async fn receive(
    request: Request,
    limit: usize,
    mut take: impl FnMut(&[u8]) -> Result<(), ApiError>,
) -> Result<(), ApiError> {
    let announced = announced(&request).unwrap_or(0);
    if announced > limit as u64 && request.headers().contains_key(EXPECT) {
        // Reading it would ask the caller to send it.
        return Err(ApiError::BodyTooLarge { limit });
    }
    let mut chunks = request.into_body().into_data_stream();
    let mut bytes = 0;
    let mut large = announced > limit as u64;
    let began = Instant::now();
    while !large {
        let Ok(chunk) = timeout(SILENCE_LIMIT, chunks.next()).await else {
            return Err(too_slow());
        };
        let Some(chunk) = chunk else {
            return Ok(());
        };
        if began.elapsed() > SILENCE_LIMIT + least_time(bytes) {
            return Err(too_slow());
        }
        let chunk = chunk.map_err(|error| ApiError::InvalidBody {
            message: error.to_string(),
            field: String::new(),
        })?;
        bytes += chunk.len();
        large = bytes > limit;
        if !large {
            take(&chunk)?;
        }
    }
    discard(chunks, limit).await;
    Err(ApiError::BodyTooLarge { limit })
}

fn announced(request: &Request) -> Option<u64> {
    let length = request.headers().get(CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}

async fn discard(mut chunks: BodyDataStream, limit: usize) {
    let throw_away = async {
        let mut left = limit.saturating_mul(DISCARD_TIMES);
        while let Some(Ok(chunk)) = chunks.next().await {
            left = left.saturating_sub(chunk.len());
            if left == 0 {
                break;
            }
        }
    };
    let _the_answer_goes_out_anyway = tokio::time::timeout(DISCARD_LIMIT, throw_away).await;
}

/// Parses the value in `json`. `place` is the path above its fields, such as `steps[3]`; empty for the body itself.
pub(super) fn parse<'a, T: Deserialize<'a>>(json: &'a [u8], place: &str) -> Result<T, ApiError> {
    // serde would read a list in place of an object field by field, in an unspecified order.
    if json
        .trim_ascii_start()
        .first()
        .is_some_and(|first| *first != b'{')
    {
        return Err(ApiError::InvalidBody {
            message: "write a JSON object, `{...}`".to_owned(),
            field: place.to_owned(),
        });
    }
    let mut reader = serde_json::Deserializer::from_slice(json);
    let value = serde_path_to_error::deserialize(&mut reader)
        .map_err(|error| explain(place, &error.path().to_string(), error.inner()))?;
    reader.end().map_err(|error| explain(place, ".", &error))?;
    Ok(value)
}

fn explain(place: &str, path: &str, error: &serde_json::Error) -> ApiError {
    let text = error.to_string();
    if let Some(wrong) = FieldError::from_serde(&text) {
        let wrong = wrong.below(path);
        let field = join(place, &wrong.field, "");
        return ApiError::Field(FieldError { field, ..wrong });
    }
    if let Some((name, nearest)) = unknown_field(&text) {
        return ApiError::UnknownField {
            field: join(place, parent(path, name), name),
            nearest: nearest.map(str::to_owned),
            known: known_fields(&text),
        };
    }
    // For broken JSON the path is only the field read last.
    let field = match error.classify() {
        Category::Data => join(place, path, ""),
        Category::Io | Category::Syntax | Category::Eof => place.to_owned(),
    };
    let message = match field.as_str() {
        "" => text,
        // serde's message repeats the value, which is a secret or next to one.
        field if is_of_environment(field) => format!("{field}: {NO_ENVIRONMENT}"),
        field => format!("{field}: {text}"),
    };
    ApiError::InvalidBody { message, field }
}

/// Whether a field is a step's variables or one of them.
fn is_of_environment(field: &str) -> bool {
    field.split('.').any(|part| part == "env")
}

/// Returns the path above an unknown field, whether or not `path` ends with the field.
fn parent<'a>(path: &'a str, name: &str) -> &'a str {
    match path.strip_suffix(name) {
        Some("") => "",
        Some(above) => above.strip_suffix('.').unwrap_or(path),
        None => path,
    }
}

fn join(place: &str, path: &str, name: &str) -> String {
    let path = if path == "." { "" } else { path };
    let parts = [place, path, name]
        .into_iter()
        .filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_common::request::StepRequest;

    fn refusal(json: &str, place: &str) -> ApiError {
        parse::<StepRequest>(json.as_bytes(), place).unwrap_err()
    }

    #[test]
    fn an_unknown_field_is_named_with_its_path_and_the_nearest() {
        for (json, place, expected, near) in [
            (r#"{"comand":["a"]}"#, "", "comand", Some("command")),
            (
                r#"{"command":["a"],"resources":{"gpu_cuont":1}}"#,
                "",
                "resources.gpu_cuont",
                Some("gpu_count"),
            ),
            (
                r#"{"resources":{"memori":"1GB"}}"#,
                "steps[3]",
                "steps[3].resources.memori",
                Some("memory"),
            ),
            (r#"{"colour":1}"#, "", "colour", None),
        ] {
            let error = refusal(json, place);
            let ApiError::UnknownField { field, nearest, .. } = &error else {
                panic!("{json}: {error}");
            };
            assert_eq!(
                (field.as_str(), nearest.as_deref()),
                (expected, near),
                "{json}"
            );
        }
    }

    #[test]
    fn where_no_field_is_near_all_are_listed() {
        let text = refusal(r#"{"resources":{"colour":1}}"#, "").to_string();
        assert!(
            text.starts_with("there is no field `resources.colour`: expected one of `gpu_count`, "),
            "{text}"
        );
        assert!(text.ends_with("`initialization_lease_seconds`"), "{text}");
    }

    #[test]
    fn what_stands_in_the_place_of_variables_is_not_repeated() {
        for (json, field) in [
            (r#"{"env":"A=hunter2"}"#, "env"),
            (r#"{"env":["hunter2"]}"#, "env"),
            (r#"{"env":{"PIN":918273}}"#, "env.PIN"),
            (r#"{"env":{"A":{"hunter2":1}}}"#, "env.A"),
            (r#"{"defaults":{"env":918273}}"#, "steps[1].defaults.env"),
        ] {
            let place = if json.contains("defaults") {
                "steps[1]"
            } else {
                ""
            };
            let text = refusal(json, place).to_string();
            let words = format!("the body cannot be read: {field}: write variables as a map");
            assert!(text.starts_with(&words), "{text}");
            assert!(
                !text.contains("hunter2") && !text.contains("918273"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_wrong_type_is_named_with_path_and_place() {
        for (json, parts) in [
            (
                r#"{"resources":{"gpu_count":"two"}}"#,
                &["resources.gpu_count", "line 1 column"][..],
            ),
            (r#"{"command":["a",7]}"#, &["command[1]", "integer `7`"]),
            (r#"{"command":["a"]"#, &["line 1 column"]),
            (r#"{"command":["a"]} x"#, &["trailing characters"]),
            ("[]", &["a JSON object"]),
            ("", &["line 1 column 0"]),
        ] {
            let error = refusal(json, "");
            assert!(
                matches!(error, ApiError::InvalidBody { .. }),
                "{json}: {error}"
            );
            for part in parts {
                assert!(error.to_string().contains(part), "{part}: {error}");
            }
        }
    }
}
