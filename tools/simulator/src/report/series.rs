//! Allocation and queue over time, in enough points for a smooth plot and few enough for a small file.

use serde::Serialize;
use sluice_common::time::Time;

use super::MILLIS_PER_HOUR;
use crate::driver::Log;

/// Number of intervals of the run.
const POINTS: u64 = 240;

/// Means over one interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Start of the interval, after the first arrival.
    pub hours: f64,
    pub gpus: f64,
    pub pct: f64,
    /// Number of queued jobs.
    pub waiting: f64,
}

/// The points from the first arrival to the end.
pub(super) fn series(log: &Log, gpus: u64) -> Vec<Point> {
    let total = log.end.since(Time::default()).millis();
    if total == 0 {
        return Vec::new();
    }
    let mut sums = vec![(0.0, 0.0); usize::try_from(POINTS).unwrap_or(0)];
    let piece = total as f64 / POINTS as f64;
    let ends = log.samples.iter().skip(1).map(|level| level.at);
    for (level, end) in log.samples.iter().zip(ends.chain([log.end])) {
        let (mut from, until) = (level.at.unix_millis() as f64, end.unix_millis() as f64);
        while from < until {
            // The last interval takes the rest of the rounding.
            let nth = ((from / piece) as usize).min(sums.len() - 1);
            let edge = (nth + 1) as f64 * piece;
            let to = if nth + 1 == sums.len() || edge <= from {
                until
            } else {
                edge.min(until)
            };
            sums[nth].0 += level.gpus as f64 * (to - from);
            sums[nth].1 += level.waiting as f64 * (to - from);
            from = to;
        }
    }
    let all = gpus.max(1) as f64;
    let points = sums.into_iter().enumerate();
    points
        .map(|(nth, (gpus, waiting))| Point {
            hours: nth as f64 * piece / MILLIS_PER_HOUR,
            gpus: gpus / piece,
            pct: 100.0 * gpus / piece / all,
            waiting: waiting / piece,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::UsageSample;

    #[test]
    fn points_are_means_over_their_pieces() {
        let at = |secs: u64| Time::from_unix_millis(secs * 1000);
        let level = |secs, gpus, waiting| UsageSample {
            at: at(secs),
            gpus,
            waiting,
        };
        let log = Log {
            samples: vec![level(0, 4, 0), level(120, 8, 3), level(180, 0, 0)],
            end: at(240),
            ..Log::default()
        };
        let points = series(&log, 8);
        assert_eq!(points.len(), 240);
        assert_eq!(
            (points[0].pct, points[119].pct, points[120].pct),
            (50.0, 50.0, 100.0)
        );
        assert_eq!((points[150].waiting, points[200].waiting), (3.0, 0.0));
        let mean = points.iter().map(|point| point.gpus).sum::<f64>() / 240.0;
        assert!((mean - 4.0).abs() < 1e-6, "{mean}");
    }
}
