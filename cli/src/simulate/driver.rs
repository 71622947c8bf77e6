//! Runs a trace on a cluster on paper: arrivals and ends in the order of their times, as fast as it goes. It notes what
//! happened; what to make of it is the report's.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use coordinator_core::simulation::{Happening, Job, Simulation};
use sluice_common::amount::{Amounts, GPU, MCPU, MEMORY_MB};
use sluice_common::id::StepId;
use sluice_common::reason::ReasonCode;
use sluice_common::step::OnPreempt;
use sluice_common::time::{Span, Time};

use super::trace::TraceJob;

/// A job as it is submitted: on how many hosts, and what of each.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) job: TraceJob,
    pub(super) nodes: u32,
    /// Of each host.
    pub(super) gpus: u64,
    pub(super) preemptible: bool,
}

/// What became of a job.
#[derive(Clone, Debug, Default)]
pub(super) struct Fate {
    /// Why it was rejected.
    pub(super) rejected: Option<ReasonCode>,
    /// When it came.
    pub(super) came: Option<Time>,
    /// Whether it asked for GPUs within its subject's reserved share then.
    pub(super) in_share: bool,
    /// When it was started first.
    pub(super) started: Option<Time>,
    /// How often it gave way.
    pub(super) preempted: u32,
    /// What that cost, in milliseconds of a GPU.
    pub(super) lost: u128,
    /// When it ended.
    pub(super) ended: Option<Time>,
    /// When it was started last, while it runs.
    runs_since: Option<Time>,
    attempts: u32,
}

/// How it stood from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Level {
    pub(super) at: Time,
    /// GPUs granted.
    pub(super) gpus: u64,
    /// Jobs that wait.
    pub(super) waiting: u64,
}

/// What happened.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    pub(super) fates: Vec<Fate>,
    pub(super) levels: Vec<Level>,
    /// When the last job came that was looked at.
    pub(super) last_arrival: Time,
    pub(super) end: Time,
    /// Arrivals and ends.
    pub(super) events: u64,
}

/// The end of one attempt at a job.
type End = Reverse<(Time, usize, u32)>;

pub(super) struct Driver<'a> {
    simulation: Simulation,
    jobs: &'a [Asked],
    /// The next one to come.
    next: usize,
    ends: BinaryHeap<End>,
    level: Level,
    log: Log,
}

impl<'a> Driver<'a> {
    /// `jobs` are in the order of arrival.
    pub(super) fn new(simulation: Simulation, jobs: &'a [Asked]) -> Self {
        let level = Level {
            at: simulation.now(),
            gpus: 0,
            waiting: 0,
        };
        Self {
            simulation,
            jobs,
            next: 0,
            ends: BinaryHeap::new(),
            level,
            log: Log {
                fates: vec![Fate::default(); jobs.len()],
                ..Log::default()
            },
        }
    }

    /// Runs until nothing more happens, or until a time. Each end and each arrival is answered before the next, as by a
    /// coordinator that hears of them one by one; of one time, ends come first.
    pub(super) fn run(mut self, until: Option<Time>) -> Log {
        while let Some(now) = self.next_time() {
            if until.is_some_and(|until| now > until) {
                break;
            }
            self.simulation.advance(now);
            self.settle(now);
            while self.end_next(now) || self.submit_next(now) {
                self.log.events += 1;
                self.settle(now);
            }
        }
        self.log.end = self.simulation.now();
        self.log
    }

    fn next_time(&self) -> Option<Time> {
        let arrival = self.jobs.get(self.next).map(arrival);
        let end = self.ends.peek().map(|Reverse((at, ..))| *at);
        // Who is spared no longer may have to give way though nothing else happens.
        let wake = self.simulation.wakes_at();
        arrival.into_iter().chain(end).chain(wake).min()
    }

    /// Ends the next attempt whose time has come; whether there was one.
    fn end_next(&mut self, now: Time) -> bool {
        while let Some(Reverse((at, job, attempt))) = self.ends.peek().copied() {
            if at > now {
                return false;
            }
            self.ends.pop();
            let fate = &mut self.log.fates[job];
            // An attempt that gave way meanwhile does not end.
            if fate.runs() && fate.attempts == attempt {
                fate.runs_since = None;
                fate.ended = Some(now);
                self.level.gpus -= self.jobs[job].gpus_held();
                let finished = self.simulation.finish(&name(job));
                finished.expect("it was submitted");
                return true;
            }
        }
        false
    }

    /// Submits the next job whose time has come; whether there was one.
    fn submit_next(&mut self, now: Time) -> bool {
        let at = self.next;
        let Some(job) = self.jobs.get(at).filter(|job| arrival(job) <= now) else {
            return false;
        };
        self.next += 1;
        self.log.last_arrival = now;
        let step = name(at);
        let submitted = self.simulation.submit(job.as_submitted(step.clone()));
        let submitted = submitted.expect("each job has its own number");
        let fate = &mut self.log.fates[at];
        fate.came = Some(now);
        match submitted {
            Ok(()) => {
                fate.in_share = job.job.gpus > 0 && self.simulation.is_in_share(&step);
                self.level.waiting += 1;
            }
            Err(code) => fate.rejected = Some(code),
        }
        true
    }

    fn settle(&mut self, now: Time) {
        self.simulation.settle();
        self.note(now);
    }

    fn note(&mut self, now: Time) {
        for happening in self.simulation.happened() {
            match happening {
                Happening::Started { step, .. } => self.on_started(number(&step), now),
                // Jobs of traces are never frozen.
                Happening::Suspended { .. } | Happening::Resumed { .. } => {}
                Happening::Preempted { step, again, .. } | Happening::HostLost { step, again } => {
                    self.on_stopped(number(&step), now, again)
                }
            }
        }
        self.level.at = now;
        let before = self.log.levels.last();
        if before.is_none_or(|before| {
            (before.gpus, before.waiting) != (self.level.gpus, self.level.waiting)
        }) {
            self.log.levels.push(self.level);
        }
    }

    fn on_started(&mut self, at: usize, now: Time) {
        let fate = &mut self.log.fates[at];
        fate.started.get_or_insert(now);
        fate.runs_since = Some(now);
        fate.attempts += 1;
        let asked = &self.jobs[at];
        self.level.gpus += asked.gpus_held();
        self.level.waiting -= 1;
        if let Some(lasts) = asked.job.lasts {
            self.ends.push(Reverse((now + lasts, at, fate.attempts)));
        }
    }

    /// It starts over when it is started again: nothing is known of checkpoints.
    fn on_stopped(&mut self, at: usize, now: Time, again: bool) {
        let fate = &mut self.log.fates[at];
        let ran = fate
            .runs_since
            .take()
            .map_or(Span::ZERO, |since| now.since(since));
        let gpus = self.jobs[at].gpus_held();
        fate.preempted += 1;
        fate.lost += u128::from(ran.millis()) * u128::from(gpus);
        self.level.gpus -= gpus;
        if again {
            self.level.waiting += 1;
        } else {
            fate.ended = Some(now);
        }
    }
}

fn arrival(asked: &Asked) -> Time {
    Time::default() + asked.job.at
}

impl Asked {
    /// Over all of its hosts, with what is rounded up on each.
    pub(super) fn gpus_held(&self) -> u64 {
        self.gpus * u64::from(self.nodes)
    }

    fn as_submitted(&self, step: StepId) -> Job {
        let resources = Amounts::new()
            .with(GPU, self.gpus)
            .with(MCPU, self.job.mcpu)
            .with(MEMORY_MB, self.job.memory_mb);
        Job {
            step,
            subject: self.job.subject.clone(),
            resources,
            nodes: self.nodes,
            priority: 0,
            preemptible: self.preemptible,
            pool: None,
            platforms: Vec::new(),
            retries: 0,
            free_preemptions: true,
            on_preempt: OnPreempt::Requeue,
        }
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

impl Fate {
    /// Whether it runs.
    pub(super) fn runs(&self) -> bool {
        self.runs_since.is_some()
    }

    /// From its arrival to its first start.
    pub(super) fn waited(&self) -> Option<Span> {
        Some(self.started?.since(self.came?))
    }
}

impl Log {
    /// How many jobs were rejected, by reason.
    pub(super) fn rejected(&self) -> BTreeMap<ReasonCode, usize> {
        let mut counts = BTreeMap::new();
        for code in self.fates.iter().filter_map(|fate| fate.rejected) {
            *counts.entry(code).or_default() += 1;
        }
        counts
    }
}
