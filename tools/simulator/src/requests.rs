//! Simulates a service whose number of replicas follows its requests, second by second: requests come, each replica
//! serves so many per second, the rest waits, and another replica is ready some time after it was asked for. The number
//! is decided by the coordinator's own function.

use coordinator_core::{LoadHistory, ScaleInput};
use sluice_common::service::{ScaleMetric, ScaleSpec};
use sluice_common::time::{Span, Time};

/// A service, as far as its requests matter.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceTerms {
    pub scale: ScaleSpec,
    /// Requests per second that one replica serves.
    pub served: f64,
    /// Time that one request takes, in seconds.
    pub request_secs: f64,
    /// Time from the decision to a replica that is ready, in whole seconds.
    pub start: Span,
}

/// A service at one second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestPoint {
    /// Seconds since the begin.
    pub second: u64,
    /// Requests that came in this second.
    pub offered: f64,
    /// Number of replicas that the service is to have.
    pub replicas: u32,
    /// Replicas that are ready.
    pub ready: u32,
    /// Requests that wait at its end.
    pub waiting: f64,
}

impl ServiceTerms {
    /// Lets requests come: `offered` has those of each second.
    pub fn run(&self, offered: &[f64]) -> Vec<RequestPoint> {
        let mut count = self.scale.count(None);
        let mut history = LoadHistory::new(count, Time::from_unix_millis(0));
        let mut waiting = 0.0_f64;
        // Seconds at which replicas that start are ready.
        let mut starting: Vec<u64> = Vec::new();
        let mut points = Vec::new();
        for (second, offered) in (0..).zip(offered) {
            starting.retain(|at| *at > second);
            let ready = count.saturating_sub(u32::try_from(starting.len()).unwrap_or(u32::MAX));
            let could = f64::from(ready) * self.served;
            let served = could.min(waiting + offered);
            waiting += offered - served;
            points.push(RequestPoint {
                second,
                offered: *offered,
                replicas: count,
                ready,
                waiting,
            });
            let concurrency = served * self.request_secs + waiting;
            let load = match &self.scale.metric {
                Some(ScaleMetric::Rps) => *offered,
                _ => concurrency,
            };
            let input = ScaleInput {
                scale: &self.scale,
                count,
                limit: u32::MAX,
                load_milli: Some((load * 1000.0) as u64),
                has_requests: Some(concurrency > 0.0),
                now: Time::from_unix_millis((second + 1) * 1000),
            };
            let before = count;
            count = history.decide(&input).count;
            let at = second + 1 + self.start.millis() / 1000;
            for _ in before..count {
                starting.push(at);
            }
            // Those that are not ready yet end first.
            for _ in count..before {
                starting.pop();
            }
        }
        points
    }
}

/// A day of a service that people use, in an hour: it rises to noon, falls, and has two bursts. Requests per second.
pub fn busy_hour() -> Vec<f64> {
    let seconds = 0..3600_u32;
    let offered = seconds.map(|second| {
        let day = f64::from(second) / 3600.0 * std::f64::consts::TAU;
        let base = 60.0 - 55.0 * day.cos();
        let burst = match second {
            900..1000 => 120.0,
            2400..2420 => 400.0,
            _ => 0.0,
        };
        if second >= 3300 { 0.0 } else { base + burst }
    });
    offered.collect()
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use super::*;

    fn model(min: u32, down_after: u64) -> ServiceTerms {
        ServiceTerms {
            scale: ScaleSpec {
                min,
                max: 40,
                fixed: false,
                metric: Some(ScaleMetric::Concurrency),
                target_milli: Some(2000),
                down_after: Span::from_secs(down_after),
                ..ScaleSpec::fixed(min)
            },
            served: 10.0,
            request_secs: 0.2,
            start: Span::from_secs(5),
        }
    }

    /// The shortest time from one more replica to one less.
    fn shortest_use(points: &[RequestPoint]) -> u64 {
        let mut rose_at = None;
        let mut shortest = u64::MAX;
        for pair in points.windows(2) {
            match pair[1].replicas.cmp(&pair[0].replicas) {
                Ordering::Greater => rose_at = Some(pair[1].second),
                Ordering::Less => {
                    let since = rose_at.map_or(u64::MAX, |at| pair[1].second - at);
                    shortest = shortest.min(since);
                }
                Ordering::Equal => {}
            }
        }
        shortest
    }

    #[test]
    fn a_day_is_served_within_bounds_and_without_flapping() {
        let points = model(0, 120).run(&busy_hour());
        assert!(points.iter().all(|point| point.replicas <= 40));
        assert!(shortest_use(&points) >= 120, "{}", shortest_use(&points));
        let last = points.last().unwrap();
        assert_eq!((last.replicas, last.waiting), (0, 0.0), "it sleeps at last");
        let offered: f64 = points.iter().map(|point| point.offered).sum();
        let waited: f64 = points.iter().map(|point| point.waiting).sum();
        assert!(
            waited / offered < 2.0,
            "seconds of waiting for each: {}",
            waited / offered
        );
    }

    #[test]
    fn what_a_burst_leaves_waiting_is_gone_after_a_bounded_time() {
        let mut offered = vec![10.0; 30];
        offered.extend([200.0; 300]);
        let points = model(1, 60).run(&offered);
        let served = |point: &&RequestPoint| point.second > 30 && point.waiting < 1.0;
        let settled = points.iter().find(served).unwrap().second;
        // 20 replicas are needed: 1 -> 5 -> 10 -> 20 in three periods of 15 s, then what waits is served.
        assert!(settled <= 30 + 3 * 15 + 5 + 60, "{settled}");
        assert!(
            points[settled as usize..]
                .iter()
                .all(|point| point.waiting < 1.0)
        );
    }

    #[test]
    fn the_first_request_wakes_a_service_that_sleeps() {
        let mut offered = vec![0.0; 400];
        offered.push(1.0);
        offered.extend([0.0; 20]);
        let points = model(0, 60).run(&offered);
        assert_eq!(points[399].replicas, 0);
        let answered = points[401..].iter().find(|point| point.waiting == 0.0);
        assert_eq!(
            answered.unwrap().second,
            406,
            "the start of a replica later"
        );
    }
}
