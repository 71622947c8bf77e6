//! Times as Slurm writes them: minutes, `minutes:seconds`, `hours:minutes:seconds`, `days-hours`, `days-hours:minutes`
//! and `days-hours:minutes:seconds`. Pure.

use sluice_common::time::Span;

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

/// Parses digits alone: a sign is none of Slurm's.
fn number(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

#[cfg(test)]
mod tests {
    use super::*;

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
