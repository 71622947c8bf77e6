//! Formats ages as kubectl does: two units at most, fewer the longer it is.

use jiff::Timestamp;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// Formats the time from `then` to `now`, such as `45s`, `3m`, `2h` or `5d`. A time in the future, by another host's
/// clock, is `0s`.
pub(crate) fn age(then: Timestamp, now: Timestamp) -> String {
    seconds(now.as_second().saturating_sub(then.as_second()))
}

/// Formats a duration in seconds in the same way.
pub(crate) fn seconds(total: i64) -> String {
    let total = total.max(0);
    match total {
        ..120 => format!("{total}s"),
        120..600 => two(total, (MINUTE, 'm'), (1, 's')),
        600..10_800 => one(total, MINUTE, 'm'),
        10_800..28_800 => two(total, (HOUR, 'h'), (MINUTE, 'm')),
        28_800..172_800 => one(total, HOUR, 'h'),
        172_800..691_200 => two(total, (DAY, 'd'), (HOUR, 'h')),
        _ if total < 2 * YEAR => one(total, DAY, 'd'),
        _ => two(total, (YEAR, 'y'), (DAY, 'd')),
    }
}

fn one(total: i64, unit: i64, letter: char) -> String {
    format!("{}{letter}", total / unit)
}

fn two(total: i64, (large, letter): (i64, char), (small, small_letter): (i64, char)) -> String {
    match total % large / small {
        0 => one(total, large, letter),
        rest => format!("{}{letter}{rest}{small_letter}", total / large),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_the_units_that_matter() {
        for (total, text) in [
            (-5, "0s"),
            (0, "0s"),
            (45, "45s"),
            (119, "119s"),
            (180, "3m"),
            (190, "3m10s"),
            (599, "9m59s"),
            (600, "10m"),
            (7200, "120m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + 5 * MINUTE, "3h5m"),
            (8 * HOUR + 59 * MINUTE, "8h"),
            (2 * DAY + 3 * HOUR, "2d3h"),
            (8 * DAY, "8d"),
            (729 * DAY, "729d"),
            (2 * YEAR + 9 * DAY, "2y9d"),
        ] {
            assert_eq!(seconds(total), text);
        }
    }

    #[test]
    fn an_age_is_the_difference() {
        let then: Timestamp = "2026-11-20T10:00:00Z".parse().unwrap();
        let now: Timestamp = "2026-11-20T10:00:45.9Z".parse().unwrap();
        assert_eq!(age(then, now), "45s");
    }
}
