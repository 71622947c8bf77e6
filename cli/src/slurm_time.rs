//! Times as Slurm writes them: minutes, `minutes:seconds`, `hours:minutes:seconds`, `days-hours`, `days-hours:minutes`
//! and `days-hours:minutes:seconds`. Pure.

use jiff::{Timestamp, Zoned};
use sluice_common::time::Span;

use crate::args::parse_moment;

const SECOND: u64 = 1;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Parses a time.
pub(crate) fn parse(text: &str) -> Option<Span> {
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (Some(days), rest),
        None => (None, text),
    };
    let parts: Vec<&str> = rest.split(':').collect();
    let units: &[u64] = match (days, parts.len()) {
        (None, 1) => &[MINUTE],
        (None, 2) => &[MINUTE, SECOND],
        (_, 3) => &[HOUR, MINUTE, SECOND],
        (Some(_), 1) => &[HOUR],
        (Some(_), 2) => &[HOUR, MINUTE],
        _ => return None,
    };
    let days = days.map_or(Some(0), |days| number(days)?.checked_mul(DAY))?;
    let mut parts = parts.iter().zip(units);
    let total = parts.try_fold(days, |total: u64, (part, unit)| {
        total.checked_add(number(part)?.checked_mul(*unit)?)
    })?;
    Some(Span::from_secs(total))
}

/// Parses a point in time: `now`, `now+SECONDS`, `now+N` with a unit from seconds to weeks, or one that the command line
/// takes, such as `16:00` or `2026-12-01T16:00`.
///
/// # Errors
/// The forms that the command line takes.
pub(crate) fn moment(text: &str, now: &Zoned) -> Result<Timestamp, String> {
    let Some(later) = text.strip_prefix("now") else {
        return parse_moment(text, now);
    };
    let later = match later.strip_prefix('+') {
        Some(later) => later,
        None if later.is_empty() => "0",
        None => return parse_moment(text, now),
    };
    let digits = later
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(later.len());
    let (count, unit) = later.split_at(digits);
    let unit = match unit.trim_end_matches('s') {
        "" | "second" => SECOND,
        "minute" => MINUTE,
        "hour" => HOUR,
        "day" => DAY,
        "week" => 7 * DAY,
        _ => return parse_moment(text, now),
    };
    let seconds = number(count).and_then(|count| count.checked_mul(unit));
    let Some(seconds) = seconds.filter(|_| !count.is_empty()) else {
        return parse_moment(text, now);
    };
    parse_moment(&Span::from_secs(seconds).to_string(), now)
}

/// Parses digits alone: a sign is none of Slurm's.
fn number(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_in_time_is_read_from_now_or_as_on_the_command_line() {
        let now: Zoned = "2026-11-26T17:00:00+00:00[+00:00]".parse().unwrap();
        for (text, at) in [
            ("now", "2026-11-26T17:00:00Z"),
            ("now+90", "2026-11-26T17:01:30Z"),
            ("now+1hour", "2026-11-26T18:00:00Z"),
            ("now+2weeks", "2026-12-10T17:00:00Z"),
            ("18:00", "2026-11-26T18:00:00Z"),
            ("2026-12-01T08:00:00", "2026-12-01T08:00:00Z"),
        ] {
            assert_eq!(moment(text, &now).unwrap().to_string(), at, "{text}");
        }
        for text in ["now+", "now-1hour", "now+1fortnight", "tomorrowish"] {
            assert!(moment(text, &now).is_err(), "{text}");
        }
    }

    #[test]
    fn each_of_its_forms_is_read() {
        for (text, span) in [
            ("90", "1h30m"),
            ("90:00", "1h30m"),
            ("90:30", "1h30m30s"),
            ("2:00:00", "2h"),
            ("1-12", "1d12h"),
            ("1-12:30", "1d12h30m"),
            ("1-12:00:05", "1d12h5s"),
        ] {
            assert_eq!(parse(text).unwrap().to_string(), span, "{text}");
        }
        for text in ["", "-1", "1-", "1:", ":1", "1:2:3:4", "+1", "1.5", "1-2-3"] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse("99999999999999999999"), None);
        assert_eq!(parse("18446744073709551615"), None, "no overflow");
    }
}
