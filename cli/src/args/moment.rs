//! Points in time on the command line.

use jiff::civil::{DateTime, Time};
use jiff::{Timestamp, ToSpan, Zoned};
use sluice_common::time::Span;

const WAY_OUT: &str = "write a duration from now such as `2h`, a time such as `18:30`, a date such as `2026-12-01`, or both \
                       such as `2026-12-01T18:30` or `2026-12-01T18:30:00Z`";

/// Parses a point in time: a duration from now, a time of day (the next one), a date, or a date with a time of day. Without
/// an offset from UTC it is in this machine's time zone.
///
/// # Errors
/// The forms, if it has none of them.
pub(crate) fn parse_moment(text: &str, now: &Zoned) -> Result<Timestamp, String> {
    let in_zone = |at: DateTime| {
        let zoned = at.to_zoned(now.time_zone().clone());
        zoned
            .map(|zoned| zoned.timestamp())
            .map_err(|e| e.to_string())
    };
    if let Ok(span) = text.parse::<Span>() {
        let millis = i64::try_from(span.millis()).unwrap_or(i64::MAX);
        let at = now.timestamp().checked_add(millis.milliseconds());
        return at.map_err(|_| format!("`{text}` from now is beyond the year 9999"));
    }
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at);
    }
    if let Ok(at) = text.parse::<DateTime>() {
        return in_zone(at);
    }
    let time: Time = text.parse().map_err(|_| WAY_OUT.to_owned())?;
    let today = in_zone(now.date().to_datetime(time))?;
    if today > now.timestamp() {
        return Ok(today);
    }
    let tomorrow = now.date().tomorrow().map_err(|e| e.to_string())?;
    in_zone(tomorrow.to_datetime(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_in_time_has_several_forms() {
        let now: Zoned = "2026-11-26T17:00:00+01:00[+01:00]".parse().unwrap();
        for (text, expected) in [
            ("2h", "2026-11-26T18:00:00Z"),
            ("1d12h", "2026-11-28T04:00:00Z"),
            ("18:30", "2026-11-26T17:30:00Z"),
            ("16:30", "2026-11-27T15:30:00Z"),
            ("17:00", "2026-11-27T16:00:00Z"),
            ("2026-12-01", "2026-11-30T23:00:00Z"),
            ("2026-12-01T08:00", "2026-12-01T07:00:00Z"),
            ("2026-12-01 08:00:30", "2026-12-01T07:00:30Z"),
            ("2026-12-01T08:00:00Z", "2026-12-01T08:00:00Z"),
            ("2026-12-01T08:00:00-05:00", "2026-12-01T13:00:00Z"),
        ] {
            let at = parse_moment(text, &now).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(at.to_string(), expected, "{text}");
        }
        for text in [
            "",
            "soon",
            "25:00",
            "2026-13-01",
            "-2h",
            "2026-12-01T08:00:00+99:00",
        ] {
            assert!(parse_moment(text, &now).is_err(), "{text}");
        }
    }
}
