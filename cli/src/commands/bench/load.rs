//! Measures the cluster with steps of `/bin/true`: one after another, in a batch, and from several clients at the same
//! time.

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use sluice_common::api::{BatchItem, StepFilter, StepView};
use sluice_common::request::{ResourceSettings, StepRequest};
use sluice_common::selector::Selector;
use sluice_common::shared::Shared;
use sluice_common::state::StepState;

use super::floors::Floors;
use super::samples::{Measurement, Samples, timed};
use crate::args::BenchArgs;
use crate::client::{ApiError, Client, StepAction};
use crate::failure::Failure;
use crate::render::safe;

/// Label of all steps of one benchmark, with its id as the value.
const LABEL: &str = "sluice-bench";
/// Cores and memory that each step asks for: little, so that many run on a host at the same time.
const CORES: f64 = 0.1;
const MEMORY: &str = "16MiB";
/// Longest time that one call waits for a step.
const WAIT_CALL: Duration = Duration::from_secs(10);
/// Time between two looks at whether all steps have ended.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Steps of several clients together, at most.
const MAX_PARALLEL_STEPS: u32 = 1_000;

/// A benchmark of one cluster.
pub(super) struct Load<'a> {
    pub(super) client: &'a Client,
    pub(super) args: &'a BenchArgs,
    /// Subject of the steps, if it is not the default one.
    pub(super) subject: Option<String>,
    /// Id of this benchmark, with which the ids of its steps begin.
    pub(super) id: String,
    /// Signal by which the user has asked to stop; 0 if there was none.
    pub(super) signal: &'a AtomicI32,
}

impl Load<'_> {
    /// Measures everything, one after another; `tell` is called before each.
    ///
    /// # Errors
    /// If the cluster refuses a step, a step fails, or the user stops it. Steps may be left then: see
    /// [`Load::clean_up`].
    pub(super) fn measure(
        &self,
        floors: &Floors,
        mut tell: impl FnMut(&str),
    ) -> Result<Vec<Measurement>, Failure> {
        let mut rows = Vec::new();
        tell("asking the coordinator");
        rows.push(self.pings(floors)?);
        tell("submitting steps one after another");
        rows.extend(self.one_by_one(floors)?);
        tell("submitting a batch");
        rows.extend(self.batch(floors)?);
        tell("submitting from several clients");
        rows.push(self.in_parallel()?);
        tell("listing steps");
        rows.push(self.lists()?);
        Ok(rows)
    }

    fn pings(&self, floors: &Floors) -> Result<Measurement, Failure> {
        let mut samples = Samples::default();
        for _ in 0..self.args.rounds {
            self.check_stopped()?;
            samples.push(self.client.ping()?.took);
        }
        let row = Measurement::of_times("GET /readyz", &samples);
        Ok(row.beside("a round trip on loopback", floors.round_trip_us))
    }

    fn one_by_one(&self, floors: &Floors) -> Result<[Measurement; 2], Failure> {
        let deadline = Instant::now() + self.args.limit;
        let (mut submits, mut ends) = (Samples::default(), Samples::default());
        for round in 0..self.args.rounds {
            if Instant::now() >= deadline {
                break;
            }
            let request = self.request(&format!("one-{round}"));
            let (step, took) = timed(|| self.client.submit(&request))?;
            accepted(&step)?;
            let (step, waited) = timed(|| self.end_of(&step.id, deadline))?;
            succeeded(&step)?;
            submits.push(took);
            ends.push(took + waited);
        }
        let submit = Measurement::of_times("submit of one step", &submits);
        let end = Measurement::of_times("submit to end of /bin/true", &ends);
        Ok([
            submit.beside("a durable write", floors.write_us),
            end.beside(
                "a durable write, a start and two round trips",
                floors.submit_us(),
            ),
        ])
    }

    fn batch(&self, floors: &Floors) -> Result<[Measurement; 2], Failure> {
        let steps = self.args.steps;
        let requests: Vec<StepRequest> = (0..steps)
            .map(|n| self.request(&format!("batch-{n}")))
            .collect();
        let begin = Instant::now();
        let answer = self.client.submit_batch(requests)?;
        let took = begin.elapsed();
        for item in &answer.results {
            match item {
                BatchItem::Step(step) => accepted(step)?,
                BatchItem::Error(error) => {
                    return Err(Failure::Failed(safe(&error.error.message)));
                }
            }
        }
        let last = format!("{}-batch-{}", self.id, steps - 1);
        self.all_ended(&last, begin + self.args.limit, &format!("{steps} steps"))?;
        let count = answer.results.len();
        let call = Measurement::of_rate(format!("submit of a batch of {steps}"), count, took);
        let ended = format!("the batch until all {steps} have ended");
        let ended = Measurement::of_rate(ended, count, begin.elapsed());
        Ok([
            call,
            ended.beside("starts by all cores", floors.spawns_per_second),
        ])
    }

    /// Each client submits its part of the steps, one after another, while the steps run.
    fn in_parallel(&self) -> Result<Measurement, Failure> {
        let clients = self.args.clients;
        let each = (self.args.steps.min(MAX_PARALLEL_STEPS) / clients).max(1);
        let samples = Mutex::new(Samples::default());
        let begin = Instant::now();
        let deadline = begin + self.args.limit;
        let submit = |client: u32| -> Result<(), Failure> {
            let mut own = Samples::default();
            for n in 0..each {
                self.check_stopped()?;
                let request = self.request(&format!("client-{client}-{n}"));
                let (step, took) = timed(|| self.client.submit(&request))?;
                accepted(&step)?;
                own.push(took);
            }
            let mut all = samples.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend(own);
            Ok(())
        };
        thread::scope(|scope| {
            let running: Vec<_> = (0..clients)
                .map(|client| scope.spawn(move || submit(client)))
                .collect();
            running.into_iter().try_for_each(|thread| {
                let ended = thread.join();
                ended.unwrap_or_else(|_| Err(Failure::Failed("a client has crashed".to_owned())))
            })
        })?;
        let took = begin.elapsed();
        let last = format!("{}-client-{}-{}", self.id, clients - 1, each - 1);
        self.all_ended(&last, deadline, &format!("{} steps", clients * each))?;
        let samples = samples.into_inner().unwrap_or_else(PoisonError::into_inner);
        let what = format!("submits from {clients} clients at once");
        Ok(Measurement::of_times(what, &samples).at_rate(took))
    }

    fn lists(&self) -> Result<Measurement, Failure> {
        let mut samples = Samples::default();
        for _ in 0..self.args.rounds.min(20) {
            self.check_stopped()?;
            samples.push(timed(|| self.client.first_steps(&StepFilter::default(), 100))?.1);
        }
        Ok(Measurement::of_times("list of 100 steps", &samples))
    }

    /// Waits until all steps of this benchmark have ended; `last` is likely to be the last of them.
    fn all_ended(&self, last: &str, deadline: Instant, what: &str) -> Result<(), Failure> {
        let waited = self.end_of(last, deadline);
        let mut left = self.unended()?.len();
        while left > 0 && Instant::now() < deadline {
            self.check_stopped()?;
            thread::sleep(LOOK_AGAIN);
            left = self.unended()?.len();
        }
        if left > 0 {
            return Err(Failure::TimedOut(format!(
                "{left} of {what} had not ended after {:?} and are cancelled: look at `sluice get nodes`, or give them more time with --limit",
                self.args.limit
            )));
        }
        waited.map(drop)
    }

    fn end_of(&self, id: &str, deadline: Instant) -> Result<StepView, Failure> {
        loop {
            self.check_stopped()?;
            let left = deadline.saturating_duration_since(Instant::now());
            let step = self.client.wait(id, None, left.min(WAIT_CALL))?;
            if step.state.is_terminal() {
                return Ok(step);
            }
            if left.is_zero() {
                return Err(Failure::TimedOut(format!(
                    "step {} is {} after {:?} and is cancelled: `sluice explain` says why a step waits; --limit gives it more time",
                    safe(&step.id),
                    step.state,
                    self.args.limit
                )));
            }
        }
    }

    /// Cancels what has not ended; returns how many steps that were.
    pub(super) fn clean_up(&self) -> Result<usize, ApiError> {
        let left = self.unended()?;
        let grace = Some(Duration::ZERO);
        for step in &left {
            self.client
                .act_on_step(&step.id, StepAction::Cancel { grace })?;
        }
        Ok(left.len())
    }

    fn unended(&self) -> Result<Vec<StepView>, ApiError> {
        let states = StepState::ALL.into_iter().filter(|it| !it.is_terminal());
        let states: Vec<&str> = states.map(StepState::as_str).collect();
        let labels: Selector = format!("{LABEL}={}", self.id)
            .parse()
            .expect("the label and its value are well-formed");
        self.client.steps(&StepFilter {
            state: Some(states.join(",")),
            labels: Some(labels.to_string()),
            ..StepFilter::default()
        })
    }

    fn request(&self, name: &str) -> StepRequest {
        StepRequest {
            id: Some(format!("{}-{name}", self.id)),
            name: Some("bench".to_owned()),
            subject: self.subject.clone(),
            pool: self.args.pool.clone(),
            command: vec!["/bin/true".to_owned()],
            resources: Shared::from(ResourceSettings {
                cpu_count: Some(CORES),
                memory: Some(MEMORY.to_owned()),
                ..ResourceSettings::default()
            }),
            labels: [(LABEL.to_owned(), self.id.clone())].into(),
            ..StepRequest::default()
        }
    }

    fn check_stopped(&self) -> Result<(), Failure> {
        match self.signal.load(Ordering::Relaxed) {
            0 => Ok(()),
            _ => Err(Failure::Failed("stopped".to_owned())),
        }
    }
}

/// A step that no host could run, or that may not run, ends the benchmark with its reason.
fn accepted(step: &StepView) -> Result<(), Failure> {
    match step.state {
        StepState::Rejected => Err(Failure::Failed(why(step, "was rejected"))),
        _ => Ok(()),
    }
}

fn succeeded(step: &StepView) -> Result<(), Failure> {
    match step.state {
        StepState::Succeeded => Ok(()),
        state => Err(Failure::Failed(why(step, &format!("ended as {state}")))),
    }
}

fn why(step: &StepView, what: &str) -> String {
    format!(
        "step {} {what}: {}",
        safe(&step.id),
        safe(&step.reason.message)
    )
}
