//! Formats amounts for people: GPUs and cores instead of thousandths, memory in units of 1024. Used in messages and tables;
//! values for programs keep the unit of their key.

use alloc::format;
use alloc::string::{String, ToString};

use crate::amount::{BYTES_PER_MEGABYTE, MCPU, MEMORY_MB, MGPU, STORAGE_MB};

/// Bytes in a mebibyte.
const MEBIBYTE: u128 = 1 << 20;

/// Fraction digits that distinguish amounts of memory one unit apart.
const DIGITS: u32 = 3;

/// Formats an amount with its resource: `4 gpu`, `2.5 cores`, `16GiB of memory`.
pub fn quantity(key: &str, amount: u64) -> String {
    let figure = figure(key, amount);
    match key {
        MCPU if amount == 1000 => format!("{figure} core"),
        MCPU => format!("{figure} cores"),
        MEMORY_MB => format!("{figure} of memory"),
        STORAGE_MB => format!("{figure} of storage"),
        MGPU => format!("{figure} gpu"),
        _ => format!("{figure} {key}"),
    }
}

/// Formats a missing amount: `2.5 more cores`, `16GiB more of memory`.
pub fn additional(key: &str, amount: u64) -> String {
    let figure = figure(key, amount);
    match key {
        MCPU if amount == 1000 => format!("{figure} more core"),
        MCPU => format!("{figure} more cores"),
        MEMORY_MB => format!("{figure} more of memory"),
        STORAGE_MB => format!("{figure} more of storage"),
        MGPU => format!("{figure} more gpu"),
        _ => format!("{figure} more {key}"),
    }
}

/// Formats only the amount: `2.5`, `16GiB`.
pub fn figure(key: &str, amount: u64) -> String {
    match key {
        MCPU | MGPU => cores(amount),
        MEMORY_MB | STORAGE_MB => megabytes(amount, DIGITS),
        _ => amount.to_string(),
    }
}

/// Name of the resource: `cores`, `memory`, or the key itself.
pub fn resource_noun(key: &str) -> &str {
    match key {
        MCPU => "cores",
        MEMORY_MB => "memory",
        STORAGE_MB => "storage",
        MGPU => "gpu",
        other => other,
    }
}

/// Formats thousandths of a core or of a GPU: `500` is `0.5`.
pub fn cores(thousandths: u64) -> String {
    decimal(u128::from(thousandths), 1000, 3)
}

/// Formats units of 10^6 bytes in units of 1024, with at most `digits` fraction digits.
pub fn megabytes(mb: u64, digits: u32) -> String {
    let (unit, name) = unit(mb);
    format!("{}{name}", in_unit(mb, unit, digits))
}

/// Formats `used/total`, both in the unit of the total.
pub fn megabytes_of(used: u64, total: u64, digits: u32) -> String {
    let (unit, name) = unit(total);
    let (used, total) = (in_unit(used, unit, digits), in_unit(total, unit, digits));
    format!("{used}/{total}{name}")
}

/// Largest unit that is not larger than the amount.
fn unit(mb: u64) -> (u128, &'static str) {
    let bytes = u128::from(mb) * u128::from(BYTES_PER_MEGABYTE);
    let units = [(1 << 40, "TiB"), (1 << 30, "GiB")];
    let large = units.into_iter().find(|(unit, _)| bytes >= *unit);
    large.unwrap_or((MEBIBYTE, "MiB"))
}

fn in_unit(mb: u64, unit: u128, digits: u32) -> String {
    let digits = if unit == MEBIBYTE { 0 } else { digits };
    decimal(
        u128::from(mb) * u128::from(BYTES_PER_MEGABYTE),
        unit,
        digits,
    )
}

/// Formats `number / unit` with at most `digits` fraction digits and without trailing zeros. Truncates instead of
/// rounding, so that an amount never appears sufficient when it is not.
fn decimal(number: u128, unit: u128, digits: u32) -> String {
    let rest = number % unit * 10_u128.pow(digits) / unit;
    let whole = number / unit;
    if rest == 0 {
        return whole.to_string();
    }
    let width = digits as usize;
    let text = format!("{whole}.{rest:0width$}");
    text.trim_end_matches('0').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_in_units_that_people_use() {
        let said = [
            (MCPU, 64_000, "64 cores"),
            (MCPU, 1000, "1 core"),
            (MCPU, 500, "0.5 cores"),
            // Amounts of 16GiB and 512MiB, rounded up.
            (MEMORY_MB, 17_180, "16GiB of memory"),
            (MEMORY_MB, 17_179, "15.999GiB of memory"),
            (MEMORY_MB, 537, "512MiB of memory"),
            (STORAGE_MB, 2_000_000, "1.818TiB of storage"),
            (MGPU, 4000, "4 gpu"),
            (MGPU, 428, "0.428 gpu"),
            ("seats", 0, "0 seats"),
        ];
        for (key, amount, words) in said {
            assert_eq!(quantity(key, amount), words);
        }
        assert_eq!(additional(MCPU, 2500), "2.5 more cores");
        assert_eq!(additional(MEMORY_MB, 1074), "1GiB more of memory");
        assert_eq!(additional(MGPU, 1000), "1 more gpu");
        assert_eq!(figure(MEMORY_MB, u64::MAX), "16777215999999.999TiB");
    }

    #[test]
    fn tables_have_fewer_digits() {
        assert_eq!(megabytes(8232, 1), "7.6GiB");
        assert_eq!(megabytes_of(500, 8232, 1), "0.4/7.6GiB");
        assert_eq!(megabytes_of(0, 0, 1), "0/0MiB");
        assert_eq!(megabytes(0, 1), "0MiB");
    }
}
