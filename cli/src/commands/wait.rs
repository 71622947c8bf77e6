//! `sluice wait`: waits until steps have ended or reached a state, and prints each as it does. All are watched at the
//! same time, so that one that can never reach the state is reported at once.

use std::collections::VecDeque;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use sluice_common::api::StepView;
use sluice_common::state::StepState;

use super::outage_note;
use crate::args::WaitArgs;
use crate::client::{ApiError, Client, RetryLimit};
use crate::failure::Failure;
use crate::out::Out;
use crate::render::{safe, step::tone};
use crate::show;

/// Most steps watched at one time; more are watched in turn.
const MAX_WATCHERS: usize = 32;
/// Time that one call waits if each step has a watcher of its own.
const LONG_POLL: Duration = Duration::from_secs(30);
/// Time that one call waits if watchers go from step to step.
const SHORT_POLL: Duration = Duration::from_secs(1);

type WaitResult = (String, Result<StepView, ApiError>);
type StepQueue = Arc<Mutex<VecDeque<String>>>;

pub(crate) fn run(client: &Client, args: WaitArgs, out: Out) -> Result<u8, Failure> {
    let deadline = args.timeout.map(|limit| (limit, Instant::now() + limit));
    let mut waiting: Vec<String> = Vec::new();
    for id in args.steps {
        if !waiting.contains(&id) {
            waiting.push(id);
        }
    }
    let answers = watch(client, &waiting, args.state, out);
    let mut done = Vec::new();
    while !waiting.is_empty() {
        let Some((id, answer)) = next(&answers, deadline, &waiting, args.state)? else {
            break;
        };
        let step = answer?;
        let place = waiting.iter().position(|other| *other == id);
        waiting.remove(place.expect("a watcher answers once for a step that is waited for"));
        if let Some(wanted) = args.state.filter(|wanted| *wanted != step.state) {
            return Err(never(&step, wanted));
        }
        tell(&step, out)?;
        done.push(step);
    }
    if !out.format().is_line_by_line() {
        show::each(&done, out, |step| safe(&step.id))?;
    }
    Ok(0)
}

/// Prints a step that is done at once, if the format has lines.
fn tell(step: &StepView, out: Out) -> Result<(), Failure> {
    if !out.format().is_line_by_line() {
        return Ok(());
    }
    show::one(step, out, |step| {
        let state = out.paint(tone(step.state), step.state);
        format!("{} {state}", safe(&step.id))
    })
}

/// Returns the next answer; `None` once no watcher is left.
fn next(
    answers: &Receiver<WaitResult>,
    deadline: Option<(Duration, Instant)>,
    waiting: &[String],
    wanted: Option<StepState>,
) -> Result<Option<WaitResult>, Failure> {
    let Some((limit, deadline)) = deadline else {
        return Ok(answers.recv().ok());
    };
    match answers.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        Ok(answer) => Ok(Some(answer)),
        Err(RecvTimeoutError::Disconnected) => Ok(None),
        Err(RecvTimeoutError::Timeout) => Err(Failure::TimedOut(late(limit, waiting, wanted))),
    }
}

fn late(limit: Duration, waiting: &[String], wanted: Option<StepState>) -> String {
    let what = wanted.map_or("ended".to_owned(), |state| format!("reached `{state}`"));
    let limit = sluice_common::time::Span::from_millis(
        u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
    );
    let first = safe(&waiting[0]);
    match waiting.len() {
        1 => format!(
            "{first} has not {what} within {limit}: `sluice describe step {first}` says why"
        ),
        n => format!("{n} steps have not {what} within {limit}, {first} among them"),
    }
}

fn never(step: &StepView, wanted: StepState) -> Failure {
    Failure::Failed(format!(
        "{} is `{}` and can no longer reach `{wanted}`: {}",
        safe(&step.id),
        step.state,
        safe(&step.reason.message)
    ))
}

/// Watches every step of `ids` until it reaches the state or never can; answers once for each. The watchers end with
/// the process.
fn watch(
    client: &Client,
    ids: &[String],
    state: Option<StepState>,
    out: Out,
) -> Receiver<WaitResult> {
    let (send, receive) = mpsc::channel();
    let watchers = ids.len().min(MAX_WATCHERS);
    let poll = if ids.len() > watchers {
        SHORT_POLL
    } else {
        LONG_POLL
    };
    let queue: StepQueue = Arc::new(Mutex::new(ids.iter().cloned().collect()));
    for _ in 0..watchers {
        let (client, queue, send) = (client.clone(), Arc::clone(&queue), send.clone());
        thread::spawn(move || watcher(&client, &queue, state, poll, &send, out));
    }
    receive
}

fn watcher(
    client: &Client,
    queue: &StepQueue,
    state: Option<StepState>,
    poll: Duration,
    send: &Sender<WaitResult>,
    out: Out,
) {
    loop {
        // No statement that could panic leaves the queue half-changed.
        let Some(id) = queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_front()
        else {
            return;
        };
        let answer = client.keep_trying(RetryLimit::Endless, outage_note(out), || {
            client.wait(&id, state, poll)
        });
        if answer.as_ref().is_ok_and(|step| !is_decided(step, state)) {
            queue
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push_back(id);
        } else if send.send((id, answer)).is_err() {
            return;
        }
    }
}

/// Whether the step has reached the state, or never can.
fn is_decided(step: &StepView, wanted: Option<StepState>) -> bool {
    step.state.is_terminal() || wanted == Some(step.state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::step::tests::running;

    #[test]
    fn a_step_is_decided_where_it_was_wanted_or_at_its_end() {
        let mut step = running();
        assert!(!is_decided(&step, None));
        assert!(!is_decided(&step, Some(StepState::Succeeded)));
        assert!(is_decided(&step, Some(StepState::Running)));
        step.state = StepState::Failed;
        assert!(is_decided(&step, None));
        assert!(
            is_decided(&step, Some(StepState::Running)),
            "it can never be"
        );
    }

    #[test]
    fn messages_say_what_was_waited_for() {
        let ids = ["a".to_owned(), "b".to_owned()];
        let text = late(Duration::from_secs(90), &ids, Some(StepState::Running));
        assert_eq!(
            text,
            "2 steps have not reached `running` within 1m30s, a among them"
        );
        let text = late(Duration::from_secs(1), &ids[..1], None);
        assert_eq!(
            text,
            "a has not ended within 1s: `sluice describe step a` says why"
        );
        let text = never(&running(), StepState::Rejected).to_string();
        assert_eq!(
            text,
            "k3v9 is `running` and can no longer reach `rejected`: its process runs"
        );
    }
}
