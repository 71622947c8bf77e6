//! Evaluates a run of a trace: allocation over time, waiting times by subject, cost of preemptions, and starts within
//! reserved shares. Returns data; the caller formats it.

mod series;

use std::collections::BTreeMap;

use serde::Serialize;
use sluice_common::time::{Span, Time};

use crate::driver::{JobOutcome, JobRequest, Log, UsageSample};

pub use series::Point;

const MILLIS_PER_HOUR: f64 = 3_600_000.0;

/// The figures of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub cluster: ClusterFigures,
    pub jobs: JobFigures,
    pub allocation: Allocation,
    /// Waiting times of all subjects together.
    pub waiting: Waiting,
    pub waiting_by_subject: BTreeMap<String, Waiting>,
    /// Waiting times by the number of GPUs that jobs ask for, the smallest first.
    pub waiting_by_gpus: Vec<WaitingOfSize>,
    pub preemptions: Preemptions,
    pub in_share: InShareFigures,
    /// Assumptions behind the figures.
    pub notes: Vec<String>,
    pub run: Run,
}

/// The size of the simulated cluster.
#[derive(Clone, Debug, Serialize)]
pub struct ClusterFigures {
    pub hosts: usize,
    pub gpus: u64,
}

/// Number of jobs by their status at the end.
#[derive(Clone, Debug, Serialize)]
pub struct JobFigures {
    pub arrived: usize,
    pub finished: usize,
    pub running: usize,
    pub waiting: usize,
    pub rejected: BTreeMap<&'static str, usize>,
    /// Jobs that ran or waited for too long, by reason.
    pub failed: BTreeMap<&'static str, usize>,
    /// Time between the first arrival and the last.
    pub arrivals_s: f64,
    /// Time until nothing more happened, or until the requested end.
    pub simulated_s: f64,
}

/// The part of the GPUs that was granted.
#[derive(Clone, Debug, Serialize)]
pub struct Allocation {
    /// Mean between the first arrival and the last.
    pub mean_pct: f64,
    pub peak_pct: f64,
    pub peak_gpus: u64,
    /// Value at the arrival of the last job.
    pub at_last_arrival_pct: f64,
    pub series: Vec<Point>,
}

/// Times from arrival to first start, of the jobs that were started.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Waiting {
    pub jobs: usize,
    pub started: usize,
    /// Jobs that started at the time of their arrival.
    pub at_once: usize,
    pub p50_s: f64,
    pub p95_s: f64,
    pub p99_s: f64,
    pub longest_s: f64,
}

/// Waiting times of the jobs that ask for similar numbers of GPUs: above one power of two, and up to the next.
#[derive(Clone, Debug, Serialize)]
pub struct WaitingOfSize {
    /// The largest number of GPUs in the class; 0, or a power of two.
    pub gpus_at_most: u64,
    #[serde(flatten)]
    pub waiting: Waiting,
}

/// Number and cost of preemptions.
#[derive(Clone, Debug, Serialize)]
pub struct Preemptions {
    pub count: u64,
    /// Jobs that were preempted at least once.
    pub jobs: usize,
    /// GPU hours of work that was lost, if no job has checkpoints.
    pub gpu_hours_lost: f64,
    /// The same as a part of all granted GPU hours.
    pub lost_pct: f64,
}

/// Jobs that were within their subject's reserved share on arrival.
#[derive(Clone, Debug, Serialize)]
pub struct InShareFigures {
    pub jobs: usize,
    /// Of these, jobs that did not start at once.
    pub late: usize,
    /// Of these, jobs that never started.
    pub never: usize,
    /// Time from arrival to start of the late jobs.
    pub late_p50_s: f64,
    pub late_p95_s: f64,
    pub late_longest_s: f64,
    /// Part of that time in which enough of the share was unused. In the rest, their subject used it for other jobs.
    pub kept_p50_s: f64,
    pub kept_p95_s: f64,
    pub kept_longest_s: f64,
}

/// Duration of the simulation itself.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    pub seconds: f64,
    pub events: u64,
    pub events_per_second: f64,
}

impl Report {
    /// Evaluates a log.
    pub fn new(
        cluster: ClusterFigures,
        asked: &[JobRequest],
        log: &Log,
        notes: Vec<String>,
        took: std::time::Duration,
    ) -> Self {
        let came: Vec<(&JobRequest, &JobOutcome)> = asked
            .iter()
            .zip(&log.outcomes)
            .filter(|(_, outcome)| outcome.came.is_some())
            .collect();
        let allocation = allocation(log, cluster.gpus);
        let granted = gpu_hours(&log.samples, log.end);
        Self {
            jobs: jobs(&came, log),
            waiting: waiting(came.iter().map(|(_, outcome)| *outcome)),
            waiting_by_subject: by_subject(&came),
            waiting_by_gpus: by_gpus(&came),
            preemptions: preemptions(&came, granted),
            in_share: promises(came.iter().map(|(_, outcome)| *outcome)),
            allocation,
            notes,
            run: Run {
                seconds: took.as_secs_f64(),
                events: log.events,
                events_per_second: log.events as f64 / took.as_secs_f64().max(1e-9),
            },
            cluster,
        }
    }
}

fn jobs(came: &[(&JobRequest, &JobOutcome)], log: &Log) -> JobFigures {
    let count =
        |is: &dyn Fn(&JobOutcome) -> bool| came.iter().filter(|(_, outcome)| is(outcome)).count();
    let (rejected, failed) = (log.rejected(), log.failed());
    let finished = count(&JobOutcome::finished);
    let running = count(&JobOutcome::runs);
    let over: usize = rejected.values().chain(failed.values()).sum();
    JobFigures {
        arrived: came.len(),
        finished,
        running,
        waiting: came.len() - finished - running - over,
        rejected,
        failed,
        arrivals_s: seconds(log.last_arrival.since(Time::default())),
        simulated_s: seconds(log.end.since(Time::default())),
    }
}

fn allocation(log: &Log, gpus: u64) -> Allocation {
    let all = gpus.max(1) as f64;
    let until = log.last_arrival;
    let hours = until.since(Time::default()).millis() as f64 / MILLIS_PER_HOUR;
    let mean = gpu_hours(&log.samples, until) / hours.max(f64::MIN_POSITIVE);
    let last = log.samples.iter().rfind(|level| level.at <= until);
    let last = last.map_or(0, |level| level.gpus);
    let peak = log
        .samples
        .iter()
        .map(|level| level.gpus)
        .max()
        .unwrap_or(0);
    Allocation {
        mean_pct: if hours > 0.0 {
            100.0 * mean / all
        } else {
            100.0 * last as f64 / all
        },
        peak_pct: 100.0 * peak as f64 / all,
        peak_gpus: peak,
        at_last_arrival_pct: 100.0 * last as f64 / all,
        series: series::series(log, gpus),
    }
}

/// GPU hours that were granted until a time.
fn gpu_hours(samples: &[UsageSample], until: Time) -> f64 {
    let ends = samples.iter().skip(1).map(|level| level.at).chain([until]);
    let pieces = samples.iter().zip(ends).map(|(level, end)| {
        let held = end.min(until).since(level.at).millis();
        level.gpus as f64 * held as f64
    });
    pieces.sum::<f64>() / MILLIS_PER_HOUR
}

fn by_subject(came: &[(&JobRequest, &JobOutcome)]) -> BTreeMap<String, Waiting> {
    let waits = grouped(came, |asked| asked.job.subject.to_string()).into_iter();
    waits
        .map(|(subject, outcomes)| (subject, waiting(outcomes.into_iter())))
        .collect()
}

fn by_gpus(came: &[(&JobRequest, &JobOutcome)]) -> Vec<WaitingOfSize> {
    let class = |asked: &JobRequest| match asked.job.gpus {
        0 => 0,
        gpus => gpus.checked_next_power_of_two().unwrap_or(u64::MAX),
    };
    let waits = grouped(came, class).into_iter();
    waits
        .map(|(gpus_at_most, outcomes)| WaitingOfSize {
            gpus_at_most,
            waiting: waiting(outcomes.into_iter()),
        })
        .collect()
}

fn grouped<'a, K: Ord>(
    came: &[(&JobRequest, &'a JobOutcome)],
    key: impl Fn(&JobRequest) -> K,
) -> BTreeMap<K, Vec<&'a JobOutcome>> {
    let mut groups: BTreeMap<K, Vec<&JobOutcome>> = BTreeMap::new();
    for (asked, outcome) in came {
        groups.entry(key(asked)).or_default().push(outcome);
    }
    groups
}

fn waiting<'a>(outcomes: impl Iterator<Item = &'a JobOutcome>) -> Waiting {
    let outcomes: Vec<&JobOutcome> = outcomes
        .filter(|outcome| outcome.rejected.is_none())
        .collect();
    let waits = sorted(outcomes.iter().filter_map(|outcome| outcome.waited()));
    Waiting {
        jobs: outcomes.len(),
        started: waits.len(),
        at_once: waits.partition_point(|wait| *wait == Span::ZERO),
        p50_s: percentile(&waits, 50),
        p95_s: percentile(&waits, 95),
        p99_s: percentile(&waits, 99),
        longest_s: percentile(&waits, 100),
    }
}

fn preemptions(came: &[(&JobRequest, &JobOutcome)], granted: f64) -> Preemptions {
    let lost: u128 = came.iter().map(|(_, outcome)| outcome.lost).sum();
    let lost = lost as f64 / MILLIS_PER_HOUR;
    Preemptions {
        count: came
            .iter()
            .map(|(_, outcome)| u64::from(outcome.preempted))
            .sum(),
        jobs: came
            .iter()
            .filter(|(_, outcome)| outcome.preempted > 0)
            .count(),
        gpu_hours_lost: lost,
        lost_pct: if granted > 0.0 {
            100.0 * lost / granted
        } else {
            0.0
        },
    }
}

fn promises<'a>(outcomes: impl Iterator<Item = &'a JobOutcome>) -> InShareFigures {
    let promised: Vec<&JobOutcome> = outcomes.filter(|outcome| outcome.in_share).collect();
    let waits = sorted(promised.iter().filter_map(|outcome| outcome.waited()));
    let late = &waits[waits.partition_point(|wait| *wait == Span::ZERO)..];
    let never = promised.len() - waits.len();
    let is_late = |outcome: &&&JobOutcome| outcome.waited() != Some(Span::ZERO);
    let kept_waiting = sorted(
        promised
            .iter()
            .filter(is_late)
            .map(|outcome| outcome.kept_waiting),
    );
    InShareFigures {
        jobs: promised.len(),
        late: late.len() + never,
        never,
        late_p50_s: percentile(late, 50),
        late_p95_s: percentile(late, 95),
        late_longest_s: percentile(late, 100),
        kept_p50_s: percentile(&kept_waiting, 50),
        kept_p95_s: percentile(&kept_waiting, 95),
        kept_longest_s: percentile(&kept_waiting, 100),
    }
}

fn sorted(spans: impl Iterator<Item = Span>) -> Vec<Span> {
    let mut spans: Vec<Span> = spans.collect();
    spans.sort_unstable();
    spans
}

/// The smallest time that so many percent do not exceed, in seconds; 0 if there is none.
fn percentile(sorted: &[Span], of_hundred: usize) -> f64 {
    let rank = (sorted.len() * of_hundred).div_ceil(100);
    let at = rank.checked_sub(1).and_then(|at| sorted.get(at));
    at.map_or(0.0, |span| seconds(*span))
}

fn seconds(span: Span) -> f64 {
    span.millis() as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use crate::trace::TraceJob;

    use super::*;

    fn level(at: u64, gpus: u64) -> UsageSample {
        let at = Time::from_unix_millis(at * 3_600_000);
        UsageSample {
            at,
            gpus,
            waiting: 0,
        }
    }

    #[test]
    fn percentiles_are_values_that_were_there() {
        let spans: Vec<Span> = (1..=10).map(Span::from_secs).collect();
        for (of_hundred, value) in [(50, 5.0), (95, 10.0), (99, 10.0), (100, 10.0), (10, 1.0)] {
            assert_eq!(percentile(&spans, of_hundred), value);
        }
        assert_eq!(percentile(&[], 50), 0.0);
    }

    #[test]
    fn jobs_are_grouped_by_the_next_power_of_two() {
        let mut asked = Vec::new();
        for gpus in [0, 1, 3, 4, 5, u64::MAX] {
            asked.push(JobRequest {
                job: TraceJob {
                    at: Span::ZERO,
                    lasts: None,
                    time_limit: None,
                    subject: "s".parse().unwrap(),
                    gpus,
                    mcpu: 0,
                    memory_mb: 0,
                    platforms: Vec::new(),
                },
                nodes: 1,
                gpus,
                preemptible: true,
            });
        }
        let outcome = JobOutcome::default();
        let came: Vec<_> = asked.iter().map(|asked| (asked, &outcome)).collect();
        let classes = by_gpus(&came).into_iter();
        let classes: Vec<_> = classes
            .map(|it| (it.gpus_at_most, it.waiting.jobs))
            .collect();
        assert_eq!(classes, [(0, 1), (1, 1), (4, 2), (8, 1), (u64::MAX, 1)]);
    }

    #[test]
    fn gpu_hours_are_levels_times_their_lengths() {
        let samples = [level(0, 2), level(1, 4), level(3, 0)];
        assert_eq!(gpu_hours(&samples, level(4, 0).at), 10.0);
        assert_eq!(gpu_hours(&samples, level(2, 0).at), 6.0);
    }
}
