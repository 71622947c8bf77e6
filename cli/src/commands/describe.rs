//! `sluice describe`: everything about one thing.

use jiff::Timestamp;

use super::outage_note;
use crate::args::{DescribeArgs, Described};
use crate::client::{ApiError, Client, Patience};
use crate::failure::Failure;
use crate::out::Out;
use crate::render::{self, listed::Listed};
use crate::show;

/// Runs the command.
pub(crate) fn run(client: &Client, args: &DescribeArgs, out: Out) -> Result<u8, Failure> {
    let (name, now) = (&args.name, Timestamp::now());
    match args.kind {
        Described::Step => show(
            client,
            out,
            || client.step(name),
            |step| render::step::describe(step, now, out),
        ),
        Described::Node => show(
            client,
            out,
            || client.node(name),
            |node| render::node::describe(node, now, out),
        ),
        Described::Pool => show(
            client,
            out,
            || client.pool(name),
            |pool| render::pool::describe(pool, out),
        ),
    }
}

fn show<T: Listed>(
    client: &Client,
    out: Out,
    fetch: impl FnMut() -> Result<T, ApiError>,
    text: impl FnOnce(&T) -> String,
) -> Result<u8, Failure> {
    let view = client.keep_trying(Patience::READ, outage_note(out), fetch)?;
    show::one(&view, out, text)?;
    Ok(0)
}
