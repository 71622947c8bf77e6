//! Watches many steps by one stream of events: a step is read again when something has happened to it.

use std::collections::BTreeSet;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use sluice_common::api::{StepFilter, StepView};
use sluice_common::state::StepState;

use super::super::changes::{StaleRows, follow};
use super::super::outage_note;
use super::{WaitReport, WaitResult, is_decided};
use crate::client::{ApiError, Client, RetryLimit};
use crate::failure::Failure;
use crate::out::Out;

/// Steps that one call reads.
const IDS_PER_CALL: usize = 100;
/// Least time between two reads: what happens meanwhile is read together.
const REST: Duration = Duration::from_millis(200);

/// Answers once for each of `ids`, in an order of its own. Ends after an error.
pub(super) fn watch(
    client: &Client,
    mut ids: BTreeSet<String>,
    state: Option<StepState>,
    send: &Sender<WaitReport>,
    out: Out,
) {
    let (tell, news) = mpsc::channel();
    let follower = client.clone();
    thread::spawn(move || follow(&follower, &tell, out));
    while !ids.is_empty() {
        let mut touched = StaleRows::default();
        let answers = touched.wait(&news).and_then(|()| {
            // After a lost connection anything may have happened, and a time without events is a good one to check.
            let wanted: Vec<String> = match touched.all || touched.late {
                true => ids.iter().cloned().collect(),
                false => ids.intersection(&touched.steps).cloned().collect(),
            };
            decided(client, &wanted, state, out)
        });
        let answers = answers.unwrap_or_else(|failure| vec![(String::new(), Err(failure))]);
        for (id, answer) in answers {
            ids.remove(&id);
            let failed = answer.is_err();
            if send.send(WaitReport::decided(id, answer)).is_err() || failed {
                return;
            }
        }
        thread::sleep(REST);
    }
}

/// Returns those of `wanted` that have reached the state or never can.
fn decided(
    client: &Client,
    wanted: &[String],
    state: Option<StepState>,
    out: Out,
) -> Result<Vec<WaitResult>, Failure> {
    let call = || read(client, wanted);
    let steps = client.keep_trying(RetryLimit::Endless, outage_note(out), call)?;
    let known: BTreeSet<&str> = steps.iter().map(|step| step.id.as_str()).collect();
    let gone = wanted.iter().find(|id| !known.contains(id.as_str()));
    if let Some(id) = gone {
        // The call for the step itself says why.
        let call = || client.step(id);
        client.keep_trying(RetryLimit::Endless, outage_note(out), call)?;
    }
    let decided = steps.into_iter().filter(|step| is_decided(step, state));
    Ok(decided.map(|step| (step.id.clone(), Ok(step))).collect())
}

/// Reads the steps of these ids, as far as they are known.
pub(super) fn read(client: &Client, ids: &[String]) -> Result<Vec<StepView>, ApiError> {
    let mut steps = Vec::new();
    for ids in ids.chunks(IDS_PER_CALL) {
        let filter = StepFilter {
            id: Some(ids.join(",")),
            ..StepFilter::default()
        };
        steps.extend(client.steps(&filter)?);
    }
    Ok(steps)
}
