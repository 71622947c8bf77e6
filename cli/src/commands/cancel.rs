//! `sluice cancel`: tells steps to stop. Each is tried, whatever becomes of the others.

use sluice_common::api::StepView;

use super::outage_note;
use crate::args::CancelArgs;
use crate::client::{Client, Patience};
use crate::failure::{FAILED, Failure};
use crate::out::Out;
use crate::{render, show};

/// Runs the command.
pub(crate) fn run(client: &Client, args: &CancelArgs, out: Out) -> Result<u8, Failure> {
    let mut views = Vec::new();
    let mut failed = false;
    for id in &args.steps {
        match client.keep_trying(Patience::CHANGE, outage_note(out), || client.cancel(id)) {
            Ok(view) => views.push(view),
            Err(error) => {
                failed = true;
                out.error(&format!("{}: {error}", render::safe(id)));
            }
        }
    }
    show::each(&views, out, |step| line(step, out))?;
    Ok(if failed { FAILED } else { 0 })
}

fn line(step: &StepView, out: Out) -> String {
    format!(
        "{} {}",
        render::safe(&step.id),
        out.paint(render::step::tone(step.state), step.state)
    )
}
