//! `sluice wait`: waits until steps have ended or reached a state, and prints each as it does. On a terminal it shows how
//! many have, and of a single array how many of its parts. All steps are watched at the same time, so that one that can
//! never reach the state is reported at once: a few by a call for each, many by the stream of events (`wait/events.rs`).

mod events;
mod progress;

use std::collections::BTreeSet;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use sluice_common::api::StepView;
use sluice_common::array::PartCounts;
use sluice_common::id::StepId;
use sluice_common::state::StepState;

use super::{outage_note, selection};
use crate::args::{StepSelector, WaitArgs};
use crate::client::{ApiError, Client, RetryLimit};
use crate::failure::Failure;
use crate::out::Out;
use crate::render::{safe, step::tone};
use crate::show;
use progress::WaitStatus;

/// Most steps that are watched by a call for each; more are watched by events.
const MAX_WATCHERS: usize = 32;
/// Time that one call waits.
const LONG_POLL: Duration = Duration::from_secs(30);

/// Time between two reads of the progress of an array.
const PARTS_EVERY: Duration = Duration::from_secs(1);

type WaitResult = (String, Result<StepView, Failure>);

/// A report of a watcher.
enum WaitReport {
    /// A step is decided, or cannot be watched.
    Decided(Box<WaitResult>),
    /// Progress of the array that is waited for.
    Parts(PartCounts),
}

impl WaitReport {
    fn decided(id: String, answer: Result<StepView, Failure>) -> Self {
        Self::Decided(Box::new((id, answer)))
    }
}

pub(crate) fn run(client: &Client, args: &WaitArgs, out: Out) -> Result<u8, Failure> {
    let deadline = args.timeout.map(|limit| (limit, Instant::now() + limit));
    let mut waiting = selected(client, &args.selection, out)?;
    let answers = watch(client, &waiting, args.until, out);
    let mut progress = WaitStatus::of(waiting.len(), args.until, out);
    let mut done = Vec::new();
    while !waiting.is_empty() {
        progress.show();
        let next = next(&answers, deadline, &waiting, args.until);
        progress.hide();
        let (id, answer) = match next? {
            Some(WaitReport::Decided(result)) => *result,
            Some(WaitReport::Parts(counts)) => {
                progress.parts = Some(counts);
                continue;
            }
            None => break,
        };
        let step = answer?;
        waiting.remove(&id);
        if let Some(wanted) = args.until.filter(|wanted| *wanted != step.state) {
            return Err(never(&step, wanted));
        }
        progress.count(&step);
        tell(&step, out)?;
        done.push(step);
    }
    if !out.format().is_line_by_line() {
        show::each(&done, out, |step| safe(&step.id))?;
    }
    Ok(0)
}

/// Returns the ids of the selected steps: those that are listed, or all live ones that match the filters.
fn selected(client: &Client, wanted: &StepSelector, out: Out) -> Result<BTreeSet<String>, Failure> {
    if wanted.is_list() {
        let ids = || ids_of(client, &wanted.steps);
        return Ok(client.keep_trying(RetryLimit::Endless, outage_note(out), ids)?);
    }
    let mut filter = wanted.filter(client)?;
    let words = selection::in_words(&filter);
    // All that have not ended by now.
    filter.since = Some("0s".to_owned());
    let found = || client.steps(&filter);
    let found = client.keep_trying(RetryLimit::Endless, outage_note(out), found)?;
    if found.is_empty() {
        out.notice(&format!("no step matches {}", safe(&words)));
    }
    Ok(found.into_iter().map(|step| step.id).collect())
}

/// Returns the ids of steps that are listed by id or name.
fn ids_of(client: &Client, texts: &[String]) -> Result<BTreeSet<String>, ApiError> {
    let ids: Vec<String> = texts
        .iter()
        .filter(|text| StepId::new(text.as_str()).is_ok())
        .cloned()
        .collect();
    let steps = events::read(client, &ids)?;
    let mut known: BTreeSet<String> = steps.into_iter().map(|step| step.id).collect();
    for text in texts {
        if !known.contains(text) {
            known.insert(client.step_called(text)?.id);
        }
    }
    Ok(known)
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

/// Returns the next report; `None` once no watcher is left.
fn next(
    answers: &Receiver<WaitReport>,
    deadline: Option<(Duration, Instant)>,
    waiting: &BTreeSet<String>,
    wanted: Option<StepState>,
) -> Result<Option<WaitReport>, Failure> {
    let Some((limit, deadline)) = deadline else {
        return Ok(answers.recv().ok());
    };
    match answers.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        Ok(answer) => Ok(Some(answer)),
        Err(RecvTimeoutError::Disconnected) => Ok(None),
        Err(RecvTimeoutError::Timeout) => Err(Failure::TimedOut(late(limit, waiting, wanted))),
    }
}

fn late(limit: Duration, waiting: &BTreeSet<String>, wanted: Option<StepState>) -> String {
    let what = wanted.map_or("ended".to_owned(), |state| format!("reached `{state}`"));
    let limit = sluice_common::time::Span::from_millis(
        u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
    );
    let first = waiting.first().map_or_else(String::new, |id| safe(id));
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
    ids: &BTreeSet<String>,
    state: Option<StepState>,
    out: Out,
) -> Receiver<WaitReport> {
    let (send, receive) = mpsc::channel();
    if let Some(id) = ids.first().filter(|_| ids.len() == 1 && out.is_watched()) {
        let (client, id, send) = (client.clone(), id.clone(), send.clone());
        thread::spawn(move || report_parts(&client, &id, &send));
    }
    if ids.len() > MAX_WATCHERS {
        let (client, ids) = (client.clone(), ids.clone());
        thread::spawn(move || events::watch(&client, ids, state, &send, out));
        return receive;
    }
    for id in ids {
        let (client, id, send) = (client.clone(), id.clone(), send.clone());
        thread::spawn(move || watcher(&client, id, state, &send, out));
    }
    receive
}

fn watcher(
    client: &Client,
    id: String,
    state: Option<StepState>,
    send: &Sender<WaitReport>,
    out: Out,
) {
    loop {
        let answer = client.keep_trying(RetryLimit::Endless, outage_note(out), || {
            client.wait(&id, state, LONG_POLL)
        });
        if answer.as_ref().is_ok_and(|step| !is_decided(step, state)) {
            continue;
        }
        // The command may have ended.
        drop(send.send(WaitReport::decided(id, answer.map_err(Failure::from))));
        return;
    }
}

/// Reports the progress of a step again and again, if it is an array. Failed calls are reported by its watcher.
fn report_parts(client: &Client, id: &str, send: &Sender<WaitReport>) {
    loop {
        if let Ok(step) = client.step(id) {
            let Some(array) = step.array else { return };
            if send.send(WaitReport::Parts(array.parts)).is_err() {
                return;
            }
        }
        thread::sleep(PARTS_EVERY);
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
        let ids = ["a", "b"].map(str::to_owned).into();
        let text = late(Duration::from_secs(90), &ids, Some(StepState::Running));
        assert_eq!(
            text,
            "2 steps have not reached `running` within 1m30s, a among them"
        );
        let text = late(Duration::from_secs(1), &["a".to_owned()].into(), None);
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
