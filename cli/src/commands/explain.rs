//! `sluice explain`: why a step is in its state, and what would let it start.

use jiff::Timestamp;
use sluice_common::api::StepView;

use super::get::explained;
use super::outage_note;
use crate::args::{ExplainArgs, Format};
use crate::client::{Client, RetryLimit};
use crate::failure::Failure;
use crate::out::Out;
use crate::render::{self, safe};
use crate::show;

pub(crate) fn run(client: &Client, args: &ExplainArgs, out: Out) -> Result<u8, Failure> {
    let read = || client.for_step(&args.step, |id| client.explain(id));
    let found = client.keep_trying(RetryLimit::READ, outage_note(out), read);
    let view = found.map_err(|error| match error.status() {
        Some(404) => Failure::Failed(explained::<StepView>(client, &args.step, &error)),
        _ => error.into(),
    })?;
    match out.format() {
        Format::Table | Format::Wide => {
            out.result(&render::explain::explain(&view, Timestamp::now(), out))?;
        }
        Format::Json | Format::Yaml => show::value(&view, out)?,
        Format::Name => out.result(&format!("step/{}", safe(&view.id)))?,
    }
    Ok(0)
}
