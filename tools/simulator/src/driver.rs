//! Runs a trace on a simulated cluster: arrivals, and what falls due between them, in the order of their times, as fast as
//! it goes. It notes what happened; what to make of it is the report's.

use coordinator_core::record;
use std::collections::BTreeMap;

use coordinator_core::{NewStep, Record, Refusal};
use sluice_common::id::{AttemptId, StepId};
use sluice_common::request::{FieldError, ResourceSettings, StepRequest};
use sluice_common::state::StepState;
use sluice_common::time::{Span, Time};
use sluice_common::wire::StopReason;

use crate::trace::TraceJob;
use crate::trace_run::TraceRun;

/// What a refusal to take a job at all is counted under.
const IN_MAINTENANCE: &str = "pool_in_maintenance";
const REFUSED: &str = "refused";
/// What jobs run: nothing runs in a simulation.
const COMMAND: &str = "job";

/// A job as it is submitted: on how many hosts, and what of each.
#[derive(Clone, Debug)]
pub struct JobRequest {
    /// What the trace says of it.
    pub job: TraceJob,
    /// On how many hosts it runs at once.
    pub nodes: u32,
    /// Of each host.
    pub gpus: u64,
    /// Whether it may be preempted.
    pub preemptible: bool,
}

/// Where a job stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum JobStatus {
    /// The job has not come, or was not taken.
    #[default]
    Outside,
    Waits,
    Runs,
    /// The job was preempted frozen.
    Frozen,
    Over,
}

/// What became of a job.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobOutcome {
    pub(crate) status: JobStatus,
    /// Why it was rejected.
    pub(crate) rejected: Option<&'static str>,
    /// Why it failed.
    pub(crate) failed: Option<&'static str>,
    /// When it came.
    pub(crate) came: Option<Time>,
    /// Whether it asked for GPUs within its subject's reserved share then.
    pub(crate) in_share: bool,
    /// When it was started first.
    pub(crate) started: Option<Time>,
    /// Time for which it waited while what it asked for was unused of that share.
    pub(crate) kept_waiting: Span,
    /// Number of times it was preempted.
    pub(crate) preempted: u32,
    /// What that cost, in milliseconds of a GPU.
    pub(crate) lost: u128,
    /// What its attempt had done before it was frozen last.
    done: Span,
    /// Time since which it works.
    works_since: Time,
}

/// How it stood from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UsageSample {
    pub(crate) at: Time,
    pub(crate) gpus: u64,
    /// Jobs that wait.
    pub(crate) waiting: u64,
}

/// What happened to each job of a trace, and when.
#[derive(Clone, Debug, Default)]
pub struct Log {
    pub(crate) outcomes: Vec<JobOutcome>,
    pub(crate) samples: Vec<UsageSample>,
    /// When the last job came that was checked.
    pub(crate) last_arrival: Time,
    pub(crate) end: Time,
    /// Arrivals and ends.
    pub(crate) events: u64,
}

/// Runs jobs on a simulated cluster.
#[derive(Debug)]
pub struct Driver<'a> {
    run: TraceRun,
    jobs: &'a [JobRequest],
    /// The next one to come.
    next: usize,
    level: UsageSample,
    log: Log,
}

impl<'a> Driver<'a> {
    /// `jobs` are in the order of arrival.
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

    /// Runs until nothing more happens, or until a time. Each end and each arrival is answered before the next, as by a
    /// coordinator that hears of them one by one; of one time, ends come first.
    ///
    /// # Errors
    /// The first job that nobody could submit.
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

    /// Nothing changes before `now`.
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

    /// Submits the next job whose time has come; whether there was one.
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

    /// Reads what happened from the records.
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

    /// A job stands elsewhere from now on.
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

    /// What a job's attempt had done is gone: nothing is known of checkpoints.
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
    /// Over all of its hosts, with what is rounded up on each.
    pub(crate) fn gpus_held(&self) -> u64 {
        self.gpus * u64::from(self.nodes)
    }

    /// As a caller would submit it who says no more than the trace does, so that pools fill in the rest.
    fn as_submitted(&self, number: usize) -> Result<NewStep, FieldError> {
        let job = &self.job;
        let said = |amount: u64| Some(amount).filter(|amount| *amount > 0);
        let platforms = job.platforms.join(",");
        let request = StepRequest {
            subject: Some(job.subject.to_string()),
            platform: Some(platforms).filter(|names| !names.is_empty()),
            command: vec![COMMAND.to_owned()],
            nodes: Some(self.nodes),
            resources: ResourceSettings {
                gpu_count: said(self.gpus),
                cpu_count: said(job.mcpu).map(|mcpu| mcpu as f64 / 1000.0),
                memory: said(job.memory_mb).map(|megabytes| format!("{megabytes}MB")),
                preemptible: Some(self.preemptible),
                ..ResourceSettings::default()
            },
            ..StepRequest::default()
        };
        Ok(NewStep::new(name(number), request.check()?))
    }
}

/// Jobs are told apart by their numbers.
fn name(job: usize) -> StepId {
    StepId::new(job.to_string()).expect("digits are a well-formed name")
}

fn number(step: &StepId) -> usize {
    let number = step.as_str().parse();
    number.expect("every step here has a job's number for its name")
}

impl JobOutcome {
    /// Whether it runs.
    pub(crate) fn runs(&self) -> bool {
        self.status == JobStatus::Runs
    }

    /// Whether it did what it was to do.
    pub(crate) fn finished(&self) -> bool {
        self.status == JobStatus::Over && self.failed.is_none()
    }

    /// From its arrival to its first start.
    pub(crate) fn waited(&self) -> Option<Span> {
        Some(self.started?.since(self.came?))
    }
}

impl Log {
    /// Whether any job was preempted.
    pub fn has_preemptions(&self) -> bool {
        self.outcomes.iter().any(|outcome| outcome.preempted > 0)
    }

    /// Number of jobs were rejected, by reason.
    pub(crate) fn rejected(&self) -> BTreeMap<&'static str, usize> {
        counted(self.outcomes.iter().filter_map(|outcome| outcome.rejected))
    }

    /// Number of jobs failed, by reason.
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
