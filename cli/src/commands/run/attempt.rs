//! Follows one attempt for `run`: copies both streams, each on a thread of its own, and notices whether they still
//! move.

use std::io::Write;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use sluice_common::api::StepView;
use sluice_common::wire::LogStream;

use super::RunEvent;
use crate::client::Client;
use crate::commands::outage_note;
use crate::failure::Failure;
use crate::follow::{FollowEnd, FollowError, FollowEvent, OutputSource, Tail, follow, gap_note};
use crate::out::{Out, Sink};

/// Returns the first attempt after `followed` whose process ran.
pub(super) fn next_to_follow(step: &StepView, followed: u32) -> Option<u32> {
    let ran = step
        .attempts
        .iter()
        .filter(|attempt| attempt.started_at.is_some());
    ran.map(|attempt| attempt.number)
        .filter(|number| *number > followed)
        .min()
}

/// State shared by the threads of one attempt and the loop.
#[derive(Debug)]
struct Activity {
    begun: Instant,
    /// Time of the last bytes, in milliseconds since `begun`.
    moved_millis: AtomicU64,
    stop: AtomicBool,
}

impl Activity {
    fn millis(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// An attempt whose output is copied.
#[derive(Debug)]
pub(super) struct FollowedAttempt {
    number: u32,
    /// Streams of which the beginning is not settled.
    unsettled: u8,
    open: u8,
    activity: Arc<Activity>,
    /// Time when it was first seen to be over.
    over: OnceLock<Instant>,
}

impl FollowedAttempt {
    /// Starts to copy both streams, from their last `tail` lines on or from the beginning; each reports its end to
    /// `send`.
    pub(super) fn start(
        client: &Client,
        step: &str,
        number: u32,
        tail: Option<usize>,
        send: &Sender<RunEvent>,
        is_terminal: bool,
        out: Out,
    ) -> Result<Self, Failure> {
        let activity = Arc::new(Activity {
            begun: Instant::now(),
            moved_millis: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        });
        for (stream, sink) in [
            (LogStream::Stdout, Sink::stdout_of(is_terminal)?),
            (LogStream::Stderr, Sink::stderr()?),
        ] {
            let source = OutputSource {
                client: client.clone(),
                step: step.to_owned(),
                attempt: number,
                rank: 0,
                stream,
                follow: true,
                since: None,
                timestamps: false,
                continues_line: false,
            };
            let (activity, send) = (Arc::clone(&activity), send.clone());
            thread::spawn(move || pass_on(&source, tail, sink, &activity, &send, out));
        }
        Ok(Self {
            number,
            unsettled: 2,
            open: 2,
            activity,
            over: OnceLock::new(),
        })
    }

    /// Number of the attempt.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Counts the beginning of one stream; returns whether both have begun.
    pub(super) fn stream_begun(&mut self) -> bool {
        self.unsettled = self.unsettled.saturating_sub(1);
        self.unsettled == 0
    }

    /// Counts the end of one stream; returns whether both have ended.
    pub(super) fn stream_ended(&mut self) -> bool {
        self.open = self.open.saturating_sub(1);
        self.open == 0
    }

    /// Whether no byte has come for `patience`, counted from the first call at the earliest. The first call means that
    /// the attempt is over.
    pub(super) fn is_stalled(&self, patience: Duration) -> bool {
        let over = self.over.get_or_init(Instant::now).elapsed();
        let moved = Duration::from_millis(self.activity.moved_millis.load(Ordering::Relaxed));
        over.min(self.activity.begun.elapsed().saturating_sub(moved)) >= patience
    }

    /// Stops copying at once.
    pub(super) fn stop(&self) {
        self.activity.stop.store(true, Ordering::Relaxed);
    }
}

fn pass_on(
    source: &OutputSource,
    tail: Option<usize>,
    mut sink: Sink,
    activity: &Activity,
    send: &Sender<RunEvent>,
    out: Out,
) {
    let mut note = outage_note(out);
    let mut listen = |news: FollowEvent<'_>| {
        match news {
            FollowEvent::Bytes => activity
                .moved_millis
                .store(activity.millis(), Ordering::Relaxed),
            FollowEvent::Gap(bytes) => out.warning(&gap_note(bytes)),
            FollowEvent::NoTime => {}
            FollowEvent::Broken(error, pause) => {
                note(error);
                thread::sleep(pause);
            }
        }
        if activity.stop.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let begun = match tail {
        Some(lines) => last_lines(source, lines, &mut sink, &mut listen),
        None => Ok(0),
    };
    // The loop may have ended.
    let _ = send.send(RunEvent::StreamBegun(source.attempt));
    let end = begun.and_then(|offset| follow(source, offset, &mut sink, &mut listen));
    let _ = send.send(RunEvent::StreamEnded(source.attempt, end));
}

/// Writes the last lines of the present output; returns the offset of their end.
fn last_lines(
    source: &OutputSource,
    lines: usize,
    sink: &mut Sink,
    listen: &mut dyn FnMut(FollowEvent<'_>) -> ControlFlow<()>,
) -> Result<u64, FollowError> {
    let now = OutputSource {
        follow: false,
        ..source.clone()
    };
    let mut tail = Tail::new(lines);
    let (FollowEnd::Complete(at) | FollowEnd::Stopped(at)) = follow(&now, 0, &mut tail, listen)?;
    sink.write_all(tail.bytes()).map_err(FollowError::Sink)?;
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::step::tests::running;

    #[test]
    fn attempts_that_ran_are_followed_in_turn() {
        let mut step = running();
        let first = step.attempts[0].clone();
        let mut never_ran = first.clone();
        (never_ran.number, never_ran.started_at) = (2, None);
        let mut third = first;
        third.number = 3;
        step.attempts.extend([never_ran, third]);
        assert_eq!(next_to_follow(&step, 0), Some(1));
        assert_eq!(next_to_follow(&step, 1), Some(3));
        assert_eq!(next_to_follow(&step, 3), None);
    }

    #[test]
    fn standing_still_counts_from_the_end_and_from_the_last_byte() {
        let attempt = FollowedAttempt {
            number: 1,
            unsettled: 2,
            open: 2,
            activity: Arc::new(Activity {
                begun: Instant::now() - Duration::from_secs(100),
                moved_millis: AtomicU64::new(0),
                stop: AtomicBool::new(false),
            }),
            over: OnceLock::new(),
        };
        assert!(
            !attempt.is_stalled(Duration::from_secs(5)),
            "it is over only now"
        );
        let long_over = FollowedAttempt {
            over: OnceLock::from(Instant::now() - Duration::from_secs(50)),
            ..attempt
        };
        assert!(long_over.is_stalled(Duration::from_secs(5)));
        long_over
            .activity
            .moved_millis
            .store(99_000, Ordering::Relaxed);
        assert!(
            !long_over.is_stalled(Duration::from_secs(5)),
            "a byte came a second ago"
        );
    }
}
