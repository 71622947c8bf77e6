//! Times of one kind that were measured, and what they amount to.

use std::time::{Duration, Instant};

use serde::Serialize;

/// Times of one kind, in the order of measurement.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples(Vec<Duration>);

impl Samples {
    pub(super) fn push(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    pub(super) fn extend(&mut self, others: Samples) {
        self.0.extend(others.0);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The time that `percent` of the samples do not exceed; `None` without samples.
    pub(super) fn percentile(&self, percent: usize) -> Option<Duration> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let place = (sorted.len() * percent).div_ceil(100).max(1) - 1;
        sorted.get(place).copied()
    }

    pub(super) fn median(&self) -> Option<Duration> {
        self.percentile(50)
    }
}

/// One measurement as it is reported. Times are in microseconds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Measurement {
    /// Name of the measurement.
    pub(super) what: String,
    /// Number of times, or of steps.
    pub(super) count: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) median_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) p99_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) per_second: Option<f64>,
    /// The same measured without Sluice, on this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) floor: Option<Floor>,
}

/// The same without Sluice, with which a measurement is compared.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Floor {
    /// Name of the floor.
    pub(super) what: &'static str,
    /// Median time in microseconds, or number per second, as that of the measurement.
    pub(super) value: f64,
    /// The measurement as a multiple of the floor.
    pub(super) ratio: f64,
}

impl Measurement {
    /// Reports how long something took.
    pub(super) fn of_times(what: impl Into<String>, samples: &Samples) -> Self {
        Self {
            what: what.into(),
            count: samples.len(),
            median_us: samples.median().map(micros),
            p99_us: samples.percentile(99).map(micros),
            per_second: None,
            floor: None,
        }
    }

    /// Reports how many of something were done in a time.
    pub(super) fn of_rate(what: impl Into<String>, count: usize, took: Duration) -> Self {
        Self {
            what: what.into(),
            count,
            median_us: None,
            p99_us: None,
            per_second: Some(per_second(count, took)),
            floor: None,
        }
    }

    /// Adds the rate of samples that overlap.
    pub(super) fn at_rate(mut self, took: Duration) -> Self {
        self.per_second = Some(per_second(self.count, took));
        self
    }

    /// Compares the median time, or else the rate, with a floor.
    pub(super) fn beside(mut self, what: &'static str, value: Option<f64>) -> Self {
        let own = self.median_us.or(self.per_second);
        let both = own.zip(value.filter(|value| *value > 0.0));
        self.floor = both.map(|(own, value)| Floor {
            what,
            value,
            ratio: rounded(own / value, 100.0),
        });
        self
    }
}

/// Runs something and returns how long it took.
pub(super) fn timed<T, E>(work: impl FnOnce() -> Result<T, E>) -> Result<(T, Duration), E> {
    let begin = Instant::now();
    let done = work()?;
    Ok((done, begin.elapsed()))
}

fn micros(time: Duration) -> f64 {
    rounded(time.as_secs_f64() * 1e6, 10.0)
}

/// Rounds to a part of one, so that digits which mean nothing are not printed.
fn rounded(value: f64, parts: f64) -> f64 {
    (value * parts).round() / parts
}

fn per_second(count: usize, took: Duration) -> f64 {
    // Counts are at most 10,000.
    let count = u32::try_from(count).map_or(f64::MAX, f64::from);
    rounded(count / took.as_secs_f64().max(1e-9), 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(millis: impl IntoIterator<Item = u64>) -> Samples {
        Samples(millis.into_iter().map(Duration::from_millis).collect())
    }

    #[test]
    fn a_percentile_is_a_sample_that_no_smaller_part_of_them_exceeds() {
        assert_eq!(samples([]).median(), None);
        assert_eq!(samples([7]).median(), Some(Duration::from_millis(7)));
        let hundred = samples((1..=100).rev());
        for (percent, expected) in [(50, 50), (99, 99), (100, 100), (1, 1)] {
            let found = hundred.percentile(percent);
            assert_eq!(found, Some(Duration::from_millis(expected)), "{percent}");
        }
        assert_eq!(
            samples([1, 2, 3]).percentile(99),
            Some(Duration::from_millis(3))
        );
    }

    #[test]
    fn a_ratio_is_of_the_median_or_of_the_rate() {
        let times = Measurement::of_times("a", &samples([2, 4, 6]));
        let floor = times.beside("b", Some(2_000.0)).floor.unwrap();
        assert!((floor.ratio - 2.0).abs() < 1e-9, "{floor:?}");
        let rate = Measurement::of_rate("a", 50, Duration::from_secs(2));
        let floor = rate.beside("b", Some(100.0)).floor.unwrap();
        assert!((floor.ratio - 0.25).abs() < 1e-9, "{floor:?}");
        let unknown = Measurement::of_times("a", &samples([])).beside("b", Some(1.0));
        assert!(unknown.floor.is_none());
    }
}
