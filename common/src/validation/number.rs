//! Exact fractions for rules. All operations are checked and return `None` on overflow.

use core::cmp::Ordering;

/// A fraction in lowest terms with a positive denominator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    numerator: i128,
    denominator: i128,
}

impl Ratio {
    /// Makes a whole number.
    pub const fn whole(n: i128) -> Self {
        Self {
            numerator: n,
            denominator: 1,
        }
    }

    /// Makes `top / bottom`; `None` if undefined or out of range.
    pub fn new(top: i128, bottom: i128) -> Option<Self> {
        let shared = gcd(top.unsigned_abs(), bottom.unsigned_abs());
        let shared = i128::try_from(shared).ok().filter(|shared| *shared > 0)?;
        let (top, bottom) = (top.checked_div(shared)?, bottom.checked_div(shared)?);
        match bottom.signum() {
            1 => Some(Self {
                numerator: top,
                denominator: bottom,
            }),
            -1 => Some(Self {
                numerator: top.checked_neg()?,
                denominator: bottom.checked_neg()?,
            }),
            _ => None,
        }
    }

    /// Parses digits with at most one decimal point, such as `0.9`.
    pub fn decimal(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let pointless = text.contains('.') && fraction.is_empty();
        if whole.is_empty() || pointless || !digits(whole) || !digits(fraction) {
            return None;
        }
        let scale = 10i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let whole: i128 = whole.parse().ok()?;
        let fraction: i128 = match fraction {
            "" => 0,
            digits => digits.parse().ok()?,
        };
        Self::new(whole.checked_mul(scale)?.checked_add(fraction)?, scale)
    }

    pub(super) fn plus(self, other: Self) -> Option<Self> {
        let left = self.numerator.checked_mul(other.denominator)?;
        let right = other.numerator.checked_mul(self.denominator)?;
        Self::new(
            left.checked_add(right)?,
            self.denominator.checked_mul(other.denominator)?,
        )
    }

    pub(super) fn negated(self) -> Option<Self> {
        Self::new(self.numerator.checked_neg()?, self.denominator)
    }

    pub(super) fn minus(self, other: Self) -> Option<Self> {
        self.plus(other.negated()?)
    }

    pub(super) fn times(self, other: Self) -> Option<Self> {
        let top = self.numerator.checked_mul(other.numerator)?;
        Self::new(top, self.denominator.checked_mul(other.denominator)?)
    }

    pub(super) fn over(self, other: Self) -> Option<Self> {
        let top = self.numerator.checked_mul(other.denominator)?;
        Self::new(top, self.denominator.checked_mul(other.numerator)?)
    }

    pub(super) fn compare(self, other: Self) -> Option<Ordering> {
        let left = self.numerator.checked_mul(other.denominator)?;
        Some(left.cmp(&other.numerator.checked_mul(self.denominator)?))
    }

    /// Rounds to the nearest whole number, halves away from zero.
    pub(super) fn rounded(self) -> i128 {
        let half = self.denominator / 2;
        let top = match self.numerator < 0 {
            true => self.numerator.saturating_sub(half),
            false => self.numerator.saturating_add(half),
        };
        top / self.denominator
    }

    /// Difference of two numbers in millionths of the larger; all of it if undefined.
    pub(super) fn gap(self, other: Self) -> u64 {
        let apart = || {
            let difference = self.minus(other)?;
            let larger = self.magnitude()?.max_of(other.magnitude()?)?;
            let part = difference.magnitude()?.over(larger)?;
            u64::try_from(part.times(Ratio::whole(1_000_000))?.rounded()).ok()
        };
        apart().unwrap_or(1_000_000).min(1_000_000)
    }

    fn magnitude(self) -> Option<Self> {
        match self.numerator < 0 {
            true => self.negated(),
            false => Some(self),
        }
    }

    fn max_of(self, other: Self) -> Option<Self> {
        Some(match self.compare(other)? {
            Ordering::Less => other,
            Ordering::Equal | Ordering::Greater => self,
        })
    }
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn decimals_are_exact_and_nonsense_is_none() {
        for (text, top, bottom) in [("0.9", 9, 10), ("8", 8, 1), ("0.50", 1, 2), ("07", 7, 1)] {
            assert_eq!(Ratio::decimal(text), Ratio::new(top, bottom), "{text}");
        }
        for text in [
            "",
            ".5",
            "1.",
            "1.2.3",
            "1e3",
            "-1",
            "9".repeat(60).as_str(),
        ] {
            assert_eq!(Ratio::decimal(text), None, "{text}");
        }
        assert_eq!(Ratio::new(1, 0), None);
        assert_eq!(Ratio::whole(i128::MAX).times(Ratio::whole(2)), None);
        assert_eq!(Ratio::whole(8).gap(Ratio::whole(10)), 200_000);
        assert_eq!(Ratio::whole(0).gap(Ratio::whole(0)), 1_000_000);
    }

    proptest! {
        #[test]
        fn fractions_are_a_field(a in -999i128..999, b in 1i128..99, c in -999i128..999, d in 1i128..99) {
            let (x, y) = (Ratio::new(a, b).unwrap(), Ratio::new(c, d).unwrap());
            prop_assert_eq!(x.plus(y).unwrap().minus(y).unwrap(), x);
            prop_assert_eq!(x.compare(y).unwrap(), (a * d).cmp(&(c * b)));
            if c != 0 {
                prop_assert_eq!(x.times(y).unwrap().over(y).unwrap(), x);
            }
        }
    }
}
