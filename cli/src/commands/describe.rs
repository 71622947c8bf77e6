//! `sluice describe`: everything about one thing.

use jiff::Timestamp;
use sluice_common::api::{NodeView, PoolView, StepView};

use super::get::{Readable, explained};
use super::outage_note;
use crate::args::{DescribeArgs, Described};
use crate::client::{Client, Patience};
use crate::failure::Failure;
use crate::out::Out;
use crate::{render, show};

/// Runs the command.
pub(crate) fn run(client: &Client, args: &DescribeArgs, out: Out) -> Result<u8, Failure> {
    let now = Timestamp::now();
    let kind = args.kind.name();
    let prefix = format!("{kind}/");
    let name = args.name.strip_prefix(&prefix).unwrap_or(&args.name);
    match args.kind {
        Described::Step => show::<StepView>(client, name, out, |step| {
            render::step::describe(step, now, out)
        }),
        Described::Node => show::<NodeView>(client, name, out, |node| {
            render::node::describe(node, now, out)
        }),
        Described::Pool => {
            show::<PoolView>(client, name, out, |pool| render::pool::describe(pool, out))
        }
    }
}

fn show<T: Readable>(
    client: &Client,
    name: &str,
    out: Out,
    text: impl FnOnce(&T) -> String,
) -> Result<u8, Failure> {
    let fetch = || T::one(client, name);
    match client.keep_trying(Patience::READ, outage_note(out), fetch) {
        Ok(view) => show::one(&view, out, text)?,
        Err(error) if error.status() == Some(404) => {
            return Err(Failure::Failed(explained::<T>(client, name, &error)));
        }
        Err(error) => return Err(error.into()),
    }
    Ok(0)
}
