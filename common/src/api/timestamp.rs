//! Times as the API writes them.

use alloc::string::String;

use jiff::Timestamp;

use crate::time::Time;

/// Converts a time to the API's form, RFC 3339 in UTC.
pub fn timestamp(time: Time) -> Timestamp {
    let millis = i64::try_from(time.unix_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX)
}

/// Error for a text that is not a time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a time: write date, time and offset from UTC, such as `2026-12-01T08:00:00Z`"
)]
pub struct TimeError {
    /// The rejected text, escaped.
    pub text: String,
}

/// Parses a time in RFC 3339, in full milliseconds.
///
/// # Errors
/// If it is not RFC 3339, or before 1970.
pub fn parse_timestamp(text: &str) -> Result<Time, TimeError> {
    let time: Option<Timestamp> = text.parse().ok();
    let millis = time.and_then(|time| u64::try_from(time.as_millisecond()).ok());
    let millis = millis.ok_or_else(|| TimeError {
        text: text
            .chars()
            .take(40)
            .flat_map(char::escape_default)
            .collect(),
    })?;
    Ok(Time::from_unix_millis(millis))
}
