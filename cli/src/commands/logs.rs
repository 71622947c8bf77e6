//! `sluice logs`: output of attempts. With both streams, each goes to its own descriptor; a single one goes to stdout, so
//! that it can be piped. Lines of several steps are labelled ([`label`]).

mod label;

use std::collections::VecDeque;
use std::io::Write;
use std::mem::replace;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use sluice_common::api::{StepFilter, StepView};
use sluice_common::state::StepState;
use sluice_common::wire::LogStream;

use super::outage_note;
use crate::args::LogsArgs;
use crate::client::{Client, RetryLimit};
use crate::failure::Failure;
use crate::follow::{FollowEnd, FollowError, FollowEvent, OutputSource, Tail, follow, gap_note};
use crate::out::{Out, Sink};
use crate::render::safe;
use label::{LabelledSink, SharedSinks};

/// Time that one call waits for a step to start.
const POLL: Duration = Duration::from_secs(30);
/// Time that a step may wait before that is said if nobody watches.
const QUIET: Duration = Duration::from_secs(2);
/// Time that an unreachable host is waited for without `--follow`.
const PATIENCE: Duration = Duration::from_secs(15);
/// Most steps that are followed at once, each by two calls.
const MAX_AT_ONCE: usize = 32;

pub(crate) fn run(client: &Client, args: &LogsArgs, out: Out) -> Result<u8, Failure> {
    let mut steps = VecDeque::new();
    let mut is_one = args.steps.len() == 1;
    for text in &args.steps {
        let step = client.keep_trying(RetryLimit::READ, outage_note(out), || {
            client.step_called(text)
        })?;
        is_one &= step.array.is_none();
        steps.extend(with_parts(client, step, args.follow, out)?);
    }
    let reader = LogReader { client, args, out };
    match steps.pop_front() {
        Some(step) if is_one => reader.read(step, None)?,
        first => reader.read_all(first.into_iter().chain(steps).collect())?,
    }
    Ok(0)
}

/// Returns a step, or the parts of an array: those that have started, or all if they are to be `followed`.
fn with_parts(
    client: &Client,
    step: StepView,
    followed: bool,
    out: Out,
) -> Result<Vec<StepView>, Failure> {
    if step.array.is_none() {
        return Ok(vec![step]);
    }
    let filter = StepFilter {
        array: Some(step.id.clone()),
        ..StepFilter::default()
    };
    let mut parts =
        client.keep_trying(RetryLimit::READ, outage_note(out), || client.steps(&filter))?;
    parts.sort_by_key(|part| part.array_index);
    let all = parts.len();
    if !followed {
        parts.retain(|part| part.attempt > 0);
    }
    let waiting = all - parts.len();
    if waiting > 0 {
        let id = safe(&step.id);
        out.aside(&format!(
            "{waiting} of {all} parts of {id} have not started, so they have no output: `sluice explain {id}` says why"
        ));
    }
    Ok(parts)
}

/// Reads the output of steps.
#[derive(Clone, Copy)]
struct LogReader<'a> {
    client: &'a Client,
    args: &'a LogsArgs,
    out: Out,
}

impl LogReader<'_> {
    fn read(self, step: StepView, shared: Option<&SharedSinks>) -> Result<(), Failure> {
        let Self { client, args, out } = self;
        let step = match args.follow && args.attempt.is_none() {
            true => until_started(client, step, out)?,
            false => step,
        };
        let attempt = attempt_of(&step, args.attempt)?;
        let print = LogPrinter {
            tail: args.tail,
            source: OutputSource {
                client: client.clone(),
                step: step.id,
                attempt,
                rank: args.rank,
                stream: LogStream::Stdout,
                follow: args.follow,
                since: args.since.clone(),
                timestamps: args.timestamps,
                continues_line: false,
            },
            shared,
            out,
        };
        match (args.stdout, args.stderr) {
            (true, _) => print.stream(LogStream::Stdout, print.sink(LogStream::Stdout)?),
            (_, true) => print.stream(LogStream::Stderr, print.sink(LogStream::Stdout)?),
            _ => print.both(),
        }
    }

    /// Reads several steps: one after the other, or at the same time while they grow.
    fn read_all(self, steps: VecDeque<StepView>) -> Result<(), Failure> {
        let shared = SharedSinks::new()?;
        let threads = if self.args.follow { MAX_AT_ONCE } else { 1 };
        let threads = threads.min(steps.len());
        let steps = Mutex::new(steps);
        let next = || steps.lock().ok().and_then(|mut steps| steps.pop_front());
        let read = || {
            while let Some(step) = next() {
                if !self.args.follow && step.attempt == 0 {
                    // One that has no output yet does not keep the others from being read.
                    self.out.aside(&not_started(&step));
                    continue;
                }
                self.read(step, Some(&shared)).inspect_err(|error| {
                    if error.is_broken_pipe() {
                        crate::signals::end_like_a_closed_pipe();
                    }
                })?;
            }
            Ok(())
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(read)).collect();
            let ends = threads
                .into_iter()
                .map(|it| it.join().expect("reading does not panic"));
            ends.fold(Ok(()), Result::and)
        })
    }
}

/// Returns the requested attempt, else the latest.
fn attempt_of(step: &StepView, asked: Option<u32>) -> Result<u32, Failure> {
    let id = safe(&step.id);
    match asked {
        Some(number) if number > step.attempt => Err(Failure::Failed(format!(
            "{id} has no attempt {number}: it had {} so far",
            step.attempt
        ))),
        Some(number) => Ok(number),
        None if step.attempt == 0 => Err(Failure::Failed(not_started(step))),
        None => Ok(step.attempt),
    }
}

fn not_started(step: &StepView) -> String {
    format!(
        "{} is `{}` and has not started, so there is no output: {}",
        safe(&step.id),
        step.state,
        safe(&step.reason.message)
    )
}

/// Waits for the first attempt of a waiting step, and says why it waits: at once if somebody watches.
fn until_started(client: &Client, mut step: StepView, out: Out) -> Result<StepView, Failure> {
    let mut said = String::new();
    let since = Instant::now();
    while step.attempt == 0 && !step.state.is_terminal() {
        let is_due = out.is_watched() || since.elapsed() >= QUIET;
        if is_due && step.reason.message != said {
            let (id, message) = (safe(&step.id), safe(&step.reason.message));
            out.aside(&format!("{id} waits: {message}"));
            said.clone_from(&step.reason.message);
        }
        let limit = if said.is_empty() { QUIET } else { POLL };
        let poll = || client.wait(&step.id, Some(StepState::Running), limit);
        step = client.keep_trying(RetryLimit::Endless, outage_note(out), poll)?;
    }
    Ok(step)
}

struct LogPrinter<'a> {
    tail: Option<usize>,
    source: OutputSource,
    /// Set if several steps are printed.
    shared: Option<&'a SharedSinks>,
    out: Out,
}

impl<'a> LogPrinter<'a> {
    /// The descriptor of this name, for this step.
    fn sink(&self, stream: LogStream) -> Result<Box<dyn Write + Send + 'a>, Failure> {
        let label = || safe(&self.source.step);
        Ok(match self.shared {
            Some(shared) => Box::new(LabelledSink::new(&label(), shared.of(stream))),
            None if stream == LogStream::Stderr => Box::new(Sink::stderr()?),
            None => Box::new(Sink::stdout()?),
        })
    }

    /// Prints both streams: at the same time while they grow, else one after the other.
    fn both(&self) -> Result<(), Failure> {
        let (stdout, stderr) = (self.sink(LogStream::Stdout)?, self.sink(LogStream::Stderr)?);
        if !self.source.follow {
            self.stream(LogStream::Stdout, stdout)?;
            return self.stream(LogStream::Stderr, stderr);
        }
        thread::scope(|scope| {
            let beside = scope.spawn(|| self.stream(LogStream::Stderr, stderr));
            let first = self.stream(LogStream::Stdout, stdout);
            if first.as_ref().is_err_and(Failure::is_broken_pipe) {
                // The reader has gone; the other stream may be silent for hours.
                crate::signals::end_like_a_closed_pipe();
            }
            let second = beside.join().expect("following does not panic");
            first.and(second)
        })
    }

    fn stream(
        &self,
        stream: LogStream,
        mut sink: Box<dyn Write + Send + '_>,
    ) -> Result<(), Failure> {
        let mut source = self.source.clone();
        source.stream = stream;
        let mut offset = 0;
        if let Some(lines) = self.tail {
            (offset, source.continues_line) = self.last_lines(&source, lines, &mut *sink)?;
            source.since = None;
        }
        if self.tail.is_none() || source.follow {
            self.copy(&source, offset, &mut *sink)?;
        }
        sink.flush().map_err(Failure::Output)
    }

    /// Writes the last lines of the present output; returns the offset of their end, and whether it is within a line.
    fn last_lines(
        &self,
        source: &OutputSource,
        lines: usize,
        sink: &mut dyn Write,
    ) -> Result<(u64, bool), Failure> {
        let now = OutputSource {
            follow: false,
            ..source.clone()
        };
        let mut tail = Tail::new(lines);
        let end = self.copy(&now, 0, &mut tail)?;
        sink.write_all(tail.bytes()).map_err(Failure::Output)?;
        let is_mid_line = tail.bytes().last().is_some_and(|byte| *byte != b'\n');
        Ok((end, is_mid_line))
    }

    fn copy(
        &self,
        source: &OutputSource,
        offset: u64,
        sink: &mut dyn Write,
    ) -> Result<u64, Failure> {
        let mut away = Duration::ZERO;
        let mut note = outage_note(self.out);
        let (mut refused, mut is_noted) = (None, false);
        let end = follow(source, offset, sink, &mut |news| {
            match news {
                FollowEvent::Bytes => away = Duration::ZERO,
                FollowEvent::Gap(bytes) => self.out.warning(&gap_note(bytes)),
                FollowEvent::NoTime if replace(&mut is_noted, true) => {}
                FollowEvent::NoTime => self.out.notice(&format!(
                    "the host kept no times of a part of the {} of {}: the lines with `-`",
                    source.stream.file_name(),
                    safe(&source.step)
                )),
                FollowEvent::Broken(error, pause) => {
                    note(error);
                    if !source.follow && away >= PATIENCE {
                        refused = Some(error.to_string());
                        return ControlFlow::Break(());
                    }
                    thread::sleep(pause);
                    away += pause;
                }
            }
            ControlFlow::Continue(())
        });
        match (end, refused) {
            (Ok(_), Some(message)) => Err(Failure::Failed(format!(
                "the output is not complete: {message}"
            ))),
            (Ok(FollowEnd::Complete(at) | FollowEnd::Stopped(at)), None) => Ok(at),
            (Err(FollowError::Api(error)), _) => Err(error.into()),
            (Err(FollowError::Sink(error)), _) => Err(Failure::Output(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::step::tests::running;

    #[test]
    fn the_attempt_is_the_latest_or_one_that_was() {
        let mut step = running();
        step.attempt = 3;
        assert_eq!(attempt_of(&step, None).unwrap(), 3);
        assert_eq!(attempt_of(&step, Some(2)).unwrap(), 2);
        let message = attempt_of(&step, Some(4)).unwrap_err().to_string();
        assert_eq!(message, "k3v9 has no attempt 4: it had 3 so far");
        step.attempt = 0;
        step.state = StepState::Queued;
        let message = attempt_of(&step, None).unwrap_err().to_string();
        assert!(message.contains("has not started"), "{message}");
    }
}
