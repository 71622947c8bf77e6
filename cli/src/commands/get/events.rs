//! Lists kept events, or follows new ones.

use jiff::Timestamp;

use super::super::outage_note;
use super::{GetResult, kinds, show_found};
use crate::args::{GetArgs, GetSince};
use crate::client::{ApiError, Client, EventFilter, EventStream, RetryLimit, Since};
use crate::failure::Failure;
use crate::out::Out;
use crate::render::event::Event;
use crate::render::listed::{self, Listed};
use crate::render::table::Table;
use crate::show;

/// Lists events, or follows them.
pub(super) fn run(client: &Client, args: &GetArgs, out: Out) -> Result<u8, Failure> {
    let filter = EventFilter {
        step: args.step.as_deref(),
        node: args.node.as_deref(),
        types: args.types.as_deref(),
    };
    let since = match args.since {
        Some(GetSince::Event(since)) => since,
        Some(GetSince::Time(_)) | None => Since::default(),
    };
    if args.watch {
        return watch(client, since, filter, out);
    }
    let found = GetResult {
        items: kinds::last(all(client, since, filter, out)?, args.limit),
        missing: false,
    };
    show_found(&found, args, out)
}

fn all(
    client: &Client,
    mut since: Since,
    filter: EventFilter<'_>,
    out: Out,
) -> Result<Vec<Event>, ApiError> {
    let mut events: Vec<Event> = Vec::new();
    loop {
        let call = || client.events_page(since, filter);
        let page = client.keep_trying(RetryLimit::READ, outage_note(out), call)?;
        events.extend(page.items);
        let cursor = page.next_cursor.and_then(|cursor| cursor.parse().ok());
        let before = since;
        since.pass(cursor);
        if since == before {
            return Ok(events);
        }
    }
}

/// Prints events as they happen, over every lost connection, each once; ends with the process.
fn watch(client: &Client, since: Since, filter: EventFilter<'_>, out: Out) -> Result<u8, Failure> {
    let mut table = Table::new(Event::COLUMNS, out);
    table.make_room();
    if out.format().is_text() {
        out.result(&table.header())?;
    }
    let mut stream = EventStream::new(client, since, filter);
    loop {
        let event = Event(stream.next(outage_note(out))?);
        if out.format().is_text() {
            let rows = listed::rows(&[event], Timestamp::now());
            out.result(&table.rows(&rows))?;
        } else {
            show::next(&event, out)?;
        }
    }
}
