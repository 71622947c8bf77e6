//! Runs a trace on a simulated cluster: arrivals, and the events between them, in the order of their times, as fast
//! as possible. The driver notes what happened, and the report evaluates it.

use coordinator_core::record;
use std::collections::BTreeMap;

use coordinator_core::{NewStep, Record, Refusal};
use sluice_common::id::{AttemptId, StepId};
use sluice_common::request::{FieldError, ResourceSettings, StepRequest};
use sluice_common::shared::Shared;
use sluice_common::state::StepState;
use sluice_common::time::{Span, Time};
use sluice_common::wire::StopReason;

use crate::trace::TraceJob;
use crate::trace_run::TraceRun;

/// Reason under which refused jobs are counted.
const IN_MAINTENANCE: &str = "pool_in_maintenance";
const REFUSED: &str = "refused";
/// Command of the jobs, which no simulated host executes.
const COMMAND: &str = "job";

/// A job as it is submitted: number of hosts, and resources of each.
#[derive(Clone, Debug)]
pub struct JobRequest {
    /// The job in the trace.
    pub job: TraceJob,
    /// Number of hosts that it runs on at once.
    pub nodes: u32,
    /// GPUs of each host.
    pub gpus: u64,
    pub preemptible: bool,
}

/// The status of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum JobStatus {
    /// The job has not arrived, or was refused.
    #[default]
    Outside,
    Waits,
    Runs,
    /// The job was preempted and is frozen.
    Frozen,
    Over,
}

/// The history of a job.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobOutcome {
    pub(crate) status: JobStatus,
    /// Reason of its rejection.
    pub(crate) rejected: Option<&'static str>,
    /// Reason of its failure.
    pub(crate) failed: Option<&'static str>,
    /// Time of its arrival.
    pub(crate) came: Option<Time>,
    /// Whether its GPUs were within its subject's reserved share on arrival.
    pub(crate) in_share: bool,
    /// Time of its first start.
    pub(crate) started: Option<Time>,
    /// Time for which it waited while enough of that share was unused.
    pub(crate) kept_waiting: Span,
    pub(crate) preempted: u32,
    /// Cost of its preemptions, in milliseconds of a GPU.
    pub(crate) lost: u128,
    /// Work that its attempt had done before it was frozen last.
    done: Span,
    /// Start of its current work.
    works_since: Time,
}

/// The usage of the cluster from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UsageSample {
    pub(crate) at: Time,
    pub(crate) gpus: u64,
    /// Number of queued jobs.
    pub(crate) waiting: u64,
}

/// The history of each job of a trace.
#[derive(Clone, Debug, Default)]
pub struct Log {
    pub(crate) outcomes: Vec<JobOutcome>,
    pub(crate) samples: Vec<UsageSample>,
    /// Time of the last arrival that was checked.
    pub(crate) last_arrival: Time,
    pub(crate) end: Time,
    /// Number of arrivals and ends.
    pub(crate) events: u64,
}

/// Runs jobs on a simulated cluster.
#[derive(Debug)]
pub struct Driver<'a> {
    run: TraceRun,
    jobs: &'a [JobRequest],
    /// Index of the next job to arrive.
    next: usize,
    level: UsageSample,
    log: Log,
}

impl<'a> Driver<'a> {
    /// Makes a driver; `jobs` are in the order of arrival.
    pub fn new(run: TraceRun, jobs: &'a [JobRequest]) -> Self {
        let level = UsageSample {
            at: run.now(),
            gpus: 0,
            waiting: 0,
        };
        Self {
            run,
            jobs,
            next: 0,
            level,
            log: Log {
                outcomes: vec![JobOutcome::default(); jobs.len()],
                ..Log::default()
            },
        }
    }

    /// Runs until nothing more happens, or until a time. Each end and each arrival is handled before the next, as by
    /// a coordinator that hears of them one by one. At the same time, ends come first.
    ///
    /// # Errors
    /// The first job that cannot be submitted.
    pub fn run(mut self, until: Option<Time>) -> Result<Log, FieldError> {
        while let Some(now) = self.next_time() {
            if until.is_some_and(|until| now > until) {
                break;
            }
            self.count_kept_waiting(now);
            while self.run.pass(now) || self.submit_next(now)? {
                self.log.events += 1;
                self.note();
            }
        }
        self.log.end = self.run.now();
        Ok(self.log)
    }

    /// Counts waiting times until `now`, before which nothing changes.
    fn count_kept_waiting(&mut self, now: Time) {
        let more = now.since(self.run.now());
        for step in self.run.kept_waiting() {
            let outcome = self.outcome(&step);
            outcome.kept_waiting = outcome.kept_waiting + more;
        }
    }

    fn next_time(&self) -> Option<Time> {
        let arrival = self.jobs.get(self.next).map(arrival);
        let due = self.run.next_at();
        arrival.into_iter().chain(due).min()
    }

    /// Submits the next job if its time has come. Returns whether there was one.
    fn submit_next(&mut self, now: Time) -> Result<bool, FieldError> {
        let at = self.next;
        let Some(job) = self.jobs.get(at).filter(|job| arrival(job) <= now) else {
            return Ok(false);
        };
        self.next += 1;
        self.log.last_arrival = now;
        self.log.outcomes[at].came = Some(now);
        let submitted = self.run.submit(job.as_submitted(at)?, job.job.lasts);
        let outcome = &mut self.log.outcomes[at];
        match submitted {
            Ok(in_share) => outcome.in_share = in_share && job.job.gpus > 0,
            Err(Refusal::PoolInMaintenance { .. }) => outcome.rejected = Some(IN_MAINTENANCE),
            Err(_) => outcome.rejected = Some(REFUSED),
        }
        Ok(true)
    }

    /// Notes what happened from the records.
    fn note(&mut self) {
        for stamped in self.run.records() {
            self.take(&stamped.record, stamped.at);
        }
        self.level.at = self.run.now();
        let before = self.log.samples.last();
        if before.is_none_or(|before| {
            (before.gpus, before.waiting) != (self.level.gpus, self.level.waiting)
        }) {
            self.log.samples.push(self.level);
        }
    }

    fn take(&mut self, record: &Record, now: Time) {
        match record {
            Record::StepQueued(record::StepQueued { step, .. }) => {
                self.stand(step, JobStatus::Waits)
            }
            Record::StepRejected(record::StepRejected { step, reason, .. }) => {
                let outcome = self.outcome(step);
                outcome.rejected = Some(reason.code().as_str());
                outcome.in_share = false;
            }
            Record::Allocated(record::Allocated { attempt, .. }) => {
                self.stand(&attempt.step, JobStatus::Runs);
                let outcome = self.outcome(&attempt.step);
                outcome.started.get_or_insert(now);
                outcome.done = Span::ZERO;
                outcome.works_since = now;
            }
            Record::Stopping(record::Stopping { attempt, why, .. }) => {
                let gives_way = *why == StopReason::Preempted;
                self.outcome(&attempt.step).preempted += u32::from(gives_way);
            }
            Record::Suspending(record::Suspending { attempt, .. }) => {
                self.outcome(&attempt.step).preempted += 1
            }
            Record::Suspended(record::Suspended { attempt, .. }) => self.on_frozen(attempt, now),
            Record::Resuming { attempt, .. } => {
                self.stand(&attempt.step, JobStatus::Runs);
                self.outcome(&attempt.step).works_since = now;
            }
            Record::Requeued { step, .. } => {
                self.lose_work(step, now);
                self.stand(step, JobStatus::Waits);
            }
            Record::StepEnded(record::StepEnded {
                step,
                state,
                reason,
            }) => {
                if *state != StepState::Succeeded {
                    self.lose_work(step, now);
                    self.outcome(step).failed = Some(reason.code().as_str());
                }
                self.stand(step, JobStatus::Over);
            }
            _ => {}
        }
    }

    fn outcome(&mut self, step: &StepId) -> &mut JobOutcome {
        &mut self.log.outcomes[number(step)]
    }

    /// Changes the status of a job.
    fn stand(&mut self, step: &StepId, status: JobStatus) {
        let at = number(step);
        let before = std::mem::replace(&mut self.log.outcomes[at].status, status);
        let gpus = self.jobs[at].gpus_held();
        let waits = |status| matches!(status, JobStatus::Waits | JobStatus::Frozen);
        self.level.gpus += if status == JobStatus::Runs { gpus } else { 0 };
        self.level.gpus -= if before == JobStatus::Runs { gpus } else { 0 };
        self.level.waiting += u64::from(waits(status));
        self.level.waiting -= u64::from(waits(before));
    }

    fn on_frozen(&mut self, attempt: &AttemptId, now: Time) {
        let outcome = self.outcome(&attempt.step);
        outcome.done = outcome.done + now.since(outcome.works_since);
        self.stand(&attempt.step, JobStatus::Frozen);
    }

    /// Counts the work of a job's attempt as lost, because traces have no checkpoints.
    fn lose_work(&mut self, step: &StepId, now: Time) {
        let at = number(step);
        let gpus = self.jobs[at].gpus_held();
        let outcome = &mut self.log.outcomes[at];
        let ran = match outcome.status {
            JobStatus::Runs => now.since(outcome.works_since),
            JobStatus::Outside | JobStatus::Waits | JobStatus::Frozen | JobStatus::Over => {
                Span::ZERO
            }
        };
        let done = std::mem::replace(&mut outcome.done, Span::ZERO) + ran;
        outcome.lost += u128::from(done.millis()) * u128::from(gpus);
    }
}

fn arrival(asked: &JobRequest) -> Time {
    Time::default() + asked.job.at
}

impl JobRequest {
    /// GPUs on all of its hosts, rounded up on each.
    pub(crate) fn gpus_held(&self) -> u64 {
        self.gpus * u64::from(self.nodes)
    }

    /// Makes the submit of a job. Only fields of the trace are set, so that pools fill in the others.
    fn as_submitted(&self, number: usize) -> Result<NewStep, FieldError> {
        let job = &self.job;
        let if_any = |amount: u64| Some(amount).filter(|amount| *amount > 0);
        let platforms = job.platforms.join(",");
        let request = StepRequest {
            subject: Some(job.subject.to_string()),
            platform: Some(platforms).filter(|names| !names.is_empty()),
            command: vec![COMMAND.to_owned()],
            nodes: Some(self.nodes),
            timeout: job.time_limit.map(|limit| limit.to_string()),
            resources: Shared::from(ResourceSettings {
                gpu_count: if_any(self.gpus),
                cpu_count: if_any(job.mcpu).map(|mcpu| mcpu as f64 / 1000.0),
                memory: if_any(job.memory_mb).map(|megabytes| format!("{megabytes}MB")),
                preemptible: Some(self.preemptible),
                ..ResourceSettings::default()
            }),
            ..StepRequest::default()
        };
        Ok(NewStep::new(name(number), request.check()?))
    }
}

/// The id of a job, made from its number.
fn name(job: usize) -> StepId {
    StepId::new(job.to_string()).expect("digits are a well-formed name")
}

fn number(step: &StepId) -> usize {
    let number = step.as_str().parse();
    number.expect("every step here has a job's number for its name")
}

impl JobOutcome {
    /// Whether the job is running.
    pub(crate) fn runs(&self) -> bool {
        self.status == JobStatus::Runs
    }

    /// Whether the job has succeeded.
    pub(crate) fn finished(&self) -> bool {
        self.status == JobStatus::Over && self.failed.is_none()
    }

    /// The time from its arrival to its first start.
    pub(crate) fn waited(&self) -> Option<Span> {
        Some(self.started?.since(self.came?))
    }
}

impl Log {
    /// Whether any job was preempted.
    pub fn has_preemptions(&self) -> bool {
        self.outcomes.iter().any(|outcome| outcome.preempted > 0)
    }

    /// Number of rejected jobs by reason.
    pub(crate) fn rejected(&self) -> BTreeMap<&'static str, usize> {
        counted(self.outcomes.iter().filter_map(|outcome| outcome.rejected))
    }

    /// Number of failed jobs by reason.
    pub(crate) fn failed(&self) -> BTreeMap<&'static str, usize> {
        counted(self.outcomes.iter().filter_map(|outcome| outcome.failed))
    }
}

fn counted(codes: impl Iterator<Item = &'static str>) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for code in codes {
        *counts.entry(code).or_default() += 1;
    }
    counts
}
