//! `sluice move step`: moves queued steps to another pool. Each step is tried even if others fail.

use std::collections::BTreeSet;

use sluice_common::api::{MovedStepView, StepView};

use super::{outage_note, preview};
use crate::args::MoveStepArgs;
use crate::client::{Client, RetryLimit};
use crate::failure::{FAILED, Failure};
use crate::out::Out;
use crate::render::{or_dash, safe};
use crate::show;

pub(crate) fn run(client: &Client, args: &MoveStepArgs, out: Out) -> Result<u8, Failure> {
    if args.dry_run {
        let previews = args.steps.iter().map(|id| {
            let ask = || client.preview_move(id, &args.pool);
            client.keep_trying(RetryLimit::CHANGE, outage_note(out), ask)
        });
        let previews: Vec<_> = previews.collect::<Result<_, _>>()?;
        let names: Vec<_> = args.steps.iter().map(|id| Some(id.as_str())).collect();
        return preview::show(&names, &previews, out);
    }
    let mut steps = Vec::new();
    let mut stayed = BTreeSet::new();
    let mut failed = false;
    for id in &args.steps {
        let call = || client.move_step(id, &args.pool);
        match client.keep_trying(RetryLimit::CHANGE, outage_note(out), call) {
            Ok(MovedStepView { moved, step }) => {
                if !moved {
                    stayed.insert(step.id.clone());
                }
                steps.push(step);
            }
            Err(error) => {
                failed = true;
                out.error(&format!("{}: {error}", safe(id)));
            }
        }
    }
    show::each(&steps, out, |step| told(step, stayed.contains(&step.id)))?;
    Ok(if failed { FAILED } else { 0 })
}

fn told(step: &StepView, stayed: bool) -> String {
    let word = match stayed {
        true => "waits already in",
        false => "moved to",
    };
    let pool = or_dash(step.pool.as_deref());
    format!("{} {word} pool {pool}, {}", safe(&step.id), step.state)
}
