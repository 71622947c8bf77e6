//! `sluice logs`: output of an attempt. With both streams, each goes to its own descriptor; a single one goes to
//! stdout, so that it can be piped.

use std::io::Write;
use std::ops::ControlFlow;
use std::thread;
use std::time::Duration;

use sluice_common::api::StepView;
use sluice_common::state::StepState;
use sluice_common::wire::LogStream;

use super::outage_note;
use crate::args::LogsArgs;
use crate::client::{Client, RetryLimit};
use crate::failure::Failure;
use crate::follow::{FollowEnd, FollowError, FollowEvent, OutputSource, Tail, follow, gap_note};
use crate::out::{Out, Sink};
use crate::render::safe;

/// Time that one call waits for a step to start.
const POLL: Duration = Duration::from_secs(30);
/// Time that an unreachable host is waited for without `--follow`.
const PATIENCE: Duration = Duration::from_secs(15);

pub(crate) fn run(client: &Client, args: &LogsArgs, out: Out) -> Result<u8, Failure> {
    let step = client.keep_trying(RetryLimit::READ, outage_note(out), || {
        client.step_called(&args.step)
    })?;
    if let Some(array) = &step.array {
        let (id, first) = (
            safe(&step.id),
            array.indexes.indexes.first().unwrap_or_default(),
        );
        return Err(Failure::Usage(format!(
            "{id} is an array, whose parts have an output each: name one of them, such as `{id}.{first}`"
        )));
    }
    let step = if args.follow && args.attempt.is_none() {
        until_started(client, step, out)?
    } else {
        step
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
        },
        out,
    };
    match (args.stdout, args.stderr) {
        (true, _) => print.stream(LogStream::Stdout, Sink::stdout()?)?,
        (_, true) => print.stream(LogStream::Stderr, Sink::stdout()?)?,
        _ => print.both()?,
    }
    Ok(0)
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
        None if step.attempt == 0 => Err(Failure::Failed(format!(
            "{id} is `{}` and has not started, so there is no output: {}",
            step.state,
            safe(&step.reason.message)
        ))),
        None => Ok(step.attempt),
    }
}

/// Waits for the first attempt of a waiting step.
fn until_started(client: &Client, mut step: StepView, out: Out) -> Result<StepView, Failure> {
    let mut said = String::new();
    while step.attempt == 0 && !step.state.is_terminal() {
        if step.reason.message != said {
            out.progress(&format!(
                "{} waits: {}",
                safe(&step.id),
                safe(&step.reason.message)
            ));
            said.clone_from(&step.reason.message);
        }
        let poll = || client.wait(&step.id, Some(StepState::Running), POLL);
        step = client.keep_trying(RetryLimit::Endless, outage_note(out), poll)?;
    }
    Ok(step)
}

#[derive(Clone)]
struct LogPrinter {
    tail: Option<usize>,
    source: OutputSource,
    out: Out,
}

impl LogPrinter {
    /// Prints both streams: at the same time while they grow, else one after the other.
    fn both(&self) -> Result<(), Failure> {
        let (stdout, stderr) = (Sink::stdout()?, Sink::stderr()?);
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

    fn stream(&self, stream: LogStream, mut sink: Sink) -> Result<(), Failure> {
        let mut source = self.source.clone();
        source.stream = stream;
        let mut offset = 0;
        if let Some(lines) = self.tail {
            offset = self.last_lines(&source, lines, &mut sink)?;
            if !source.follow {
                return Ok(());
            }
        }
        self.copy(&source, offset, &mut sink).map(drop)
    }

    /// Writes the last lines of the present output; returns the offset of their end.
    fn last_lines(
        &self,
        source: &OutputSource,
        lines: usize,
        sink: &mut Sink,
    ) -> Result<u64, Failure> {
        let now = OutputSource {
            follow: false,
            ..source.clone()
        };
        let mut tail = Tail::new(lines);
        let end = self.copy(&now, 0, &mut tail)?;
        sink.write_all(tail.bytes()).map_err(Failure::Output)?;
        Ok(end)
    }

    fn copy(
        &self,
        source: &OutputSource,
        offset: u64,
        sink: &mut dyn Write,
    ) -> Result<u64, Failure> {
        let mut away = Duration::ZERO;
        let mut note = outage_note(self.out);
        let mut refused = None;
        let end = follow(source, offset, sink, &mut |news| {
            match news {
                FollowEvent::Bytes => away = Duration::ZERO,
                FollowEvent::Gap(bytes) => self.out.warning(&gap_note(bytes)),
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
