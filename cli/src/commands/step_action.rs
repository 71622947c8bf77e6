//! `sluice suspend`, `resume`, `requeue` and `cancel`. Each step is tried even if others fail.

use sluice_common::api::StepView;

use super::outage_note;
use crate::client::{Client, RetryLimit, StepAction};
use crate::failure::{FAILED, Failure};
use crate::out::Out;
use crate::{render, show};

pub(crate) fn run(
    client: &Client,
    verb: StepAction,
    steps: &[String],
    out: Out,
) -> Result<u8, Failure> {
    let mut views = Vec::new();
    let mut failed = false;
    for id in steps {
        let steer = || client.act_on_step(id, verb);
        match client.keep_trying(RetryLimit::CHANGE, outage_note(out), steer) {
            Ok(view) => views.push(view),
            Err(error) => {
                failed = true;
                out.error(&format!("{}: {error}", render::safe(id)));
            }
        }
    }
    show::each(&views, out, |step| line(step, verb, out))?;
    Ok(if failed { FAILED } else { 0 })
}

fn line(step: &StepView, verb: StepAction, out: Out) -> String {
    // A cancelled step is no longer held.
    let held = step.held && !matches!(verb, StepAction::Cancel { .. });
    format!(
        "{} {}{}",
        render::safe(&step.id),
        out.paint(render::step::tone(step.state), step.state),
        if held { " (held)" } else { "" }
    )
}
