//! `sluice suspend`, `resume`, `requeue` and `cancel` of steps by id or name. Each step is tried even if others fail.
//! `change_many.rs` changes those that patterns and filters select.

use sluice_common::api::StepView;

use super::{change_many, outage_note};
use crate::args::{ChangeFlags, StepSelector};
use crate::client::{Client, RetryLimit, StepAction};
use crate::failure::{FAILED, Failure};
use crate::out::Out;
use crate::{render, show};

pub(crate) fn run(
    client: &Client,
    verb: StepAction,
    selection: &StepSelector,
    flags: ChangeFlags,
    out: Out,
) -> Result<u8, Failure> {
    if flags.dry_run || !selection.is_list() {
        return change_many::run(client, verb, selection, flags, out);
    }
    let mut views = Vec::new();
    let mut failed = false;
    for id in &selection.steps {
        let steer = || client.for_step(id, |id| client.act_on_step(id, verb));
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
