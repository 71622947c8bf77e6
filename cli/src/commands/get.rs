//! `sluice get`: lists of steps, nodes, pools and events, or some of them by name.

use jiff::Timestamp;
use serde_json::Value;

use super::outage_note;
use crate::args::{GetArgs, Kind};
use crate::client::{ApiError, Backoff, Client, Patience, StepFilter};
use crate::failure::{FAILED, Failure};
use crate::out::Out;
use crate::render::event::Event;
use crate::render::listed::{self, Listed};
use crate::render::table::Table;
use crate::{render, show};

/// Runs the command.
pub(crate) fn run(client: &Client, args: &GetArgs, out: Out) -> Result<u8, Failure> {
    check(args)?;
    match args.kind {
        Kind::Steps => {
            let all = || client.steps(&filter(args));
            let found = find(client, args, out, all, |id| client.step(id));
            show_found(&found?, args, out)
        }
        Kind::Nodes => {
            let all = || {
                let mut nodes = client.nodes()?;
                nodes.retain(|node| args.pool.as_ref().is_none_or(|pool| *pool == node.pool));
                Ok(nodes)
            };
            let found = find(client, args, out, all, |name| client.node(name));
            show_found(&found?, args, out)
        }
        Kind::Pools => {
            let found = find(
                client,
                args,
                out,
                || client.pools(),
                |name| client.pool(name),
            );
            show_found(&found?, args, out)
        }
        Kind::Events => events(client, args, out),
    }
}

/// Filters that a kind does not have are refused, so that nobody takes the whole for a part.
fn check(args: &GetArgs) -> Result<(), Failure> {
    let (steps, nodes) = (args.kind == Kind::Steps, args.kind == Kind::Nodes);
    let events = args.kind == Kind::Events;
    let misplaced = [
        ("--subject", args.subject.is_some() && !steps, "steps"),
        ("--state", args.state.is_some() && !steps, "steps"),
        ("--node", args.node.is_some() && !steps, "steps"),
        (
            "--pool",
            args.pool.is_some() && !steps && !nodes,
            "steps and nodes",
        ),
        ("--since", args.since.is_some() && !events, "events"),
        ("--watch", args.watch && !events, "events"),
    ];
    for (flag, wrong, kinds) in misplaced {
        if wrong {
            return Err(Failure::Usage(format!(
                "{flag} is for {kinds}: leave it out here"
            )));
        }
    }
    let filtered = args.pool.is_some()
        || args.subject.is_some()
        || args.state.is_some()
        || args.node.is_some();
    match args.names.first() {
        Some(_) if events => Err(Failure::Usage(
            "events have no names: filter what `-o json` prints".into(),
        )),
        Some(name) if filtered => Err(Failure::Usage(format!(
            "`{}` is one by name: leave the filters out",
            render::safe(name)
        ))),
        _ => Ok(()),
    }
}

fn filter(args: &GetArgs) -> StepFilter {
    StepFilter {
        state: args.state,
        subject: args.subject.clone(),
        pool: args.pool.clone(),
        node: args.node.clone(),
    }
}

/// What was found, and whether something that was named was not.
struct Found<T> {
    items: Vec<T>,
    missing: bool,
}

fn find<T>(
    client: &Client,
    args: &GetArgs,
    out: Out,
    all: impl FnOnce() -> Result<Vec<T>, ApiError>,
    one: impl Fn(&str) -> Result<T, ApiError>,
) -> Result<Found<T>, Failure> {
    if args.names.is_empty() {
        return Ok(Found {
            items: all()?,
            missing: false,
        });
    }
    let mut found = Found {
        items: Vec::new(),
        missing: false,
    };
    for name in &args.names {
        match client.keep_trying(Patience::READ, outage_note(out), || one(name)) {
            Ok(item) => found.items.push(item),
            Err(error) if error.status() == Some(404) => {
                found.missing = true;
                out.error(&error.to_string());
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

fn show_found<T: Listed>(found: &Found<T>, args: &GetArgs, out: Out) -> Result<u8, Failure> {
    let named_one = args.names.len() == 1;
    match found.items.as_slice() {
        [only] if named_one => show::row(only, out)?,
        [] if found.missing && (named_one || out.format().is_text()) => {}
        [] if out.format().is_text() => out.progress(nothing(args.kind)),
        items => show::list(items, out)?,
    }
    Ok(if found.missing { FAILED } else { 0 })
}

fn nothing(kind: Kind) -> &'static str {
    match kind {
        Kind::Steps => "no steps",
        Kind::Nodes => "no nodes",
        Kind::Pools => "no pools",
        Kind::Events => "no events",
    }
}

fn events(client: &Client, args: &GetArgs, out: Out) -> Result<u8, Failure> {
    if args.watch {
        return watch_events(client, args.since, out);
    }
    let events = all_events(client, args.since, out)?;
    let found = Found {
        items: events,
        missing: false,
    };
    show_found(&found, args, out)
}

fn all_events(client: &Client, mut since: Option<u64>, out: Out) -> Result<Vec<Event>, ApiError> {
    let mut events: Vec<Event> = Vec::new();
    loop {
        let call = || client.events_page(since);
        let page = client.keep_trying(Patience::READ, outage_note(out), call)?;
        events.extend(page.items);
        let next: Option<u64> = page.next_cursor.and_then(|cursor| cursor.parse().ok());
        if next.is_none() || next <= since {
            return Ok(events);
        }
        since = next;
    }
}

/// Events as they happen, over every lost connection, each once; ends with the process.
fn watch_events(client: &Client, since: Option<u64>, out: Out) -> Result<u8, Failure> {
    let mut table = Table::new(Event::COLUMNS, out);
    table.make_room();
    if out.format().is_text() {
        out.result(&table.header())?;
    }
    let mut last = since;
    let mut backoff = Backoff::for_calls();
    loop {
        let call = || client.follow_events(last);
        let events = client.keep_trying(Patience::Endless, outage_note(out), call)?;
        // A broken stream is opened again after the last event that came whole.
        for event in events.map_while(Result::ok) {
            let value: Value = serde_json::from_str(&event.data)
                .map_err(|e| Failure::Failed(format!("an event is not understood: {e}")))?;
            if event.kind == "error" {
                return Err(stream_error(&value));
            }
            let event = Event(value);
            if Some(event.seq()) <= last {
                continue;
            }
            last = Some(event.seq());
            backoff.reset();
            if out.format().is_text() {
                let rows = listed::rows(&[event], Timestamp::now());
                out.result(&table.rows(&rows))?;
            } else {
                show::next(&event, out)?;
            }
        }
        client.check_alive()?;
        std::thread::sleep(backoff.next());
    }
}

/// The coordinator ends a stream that it cannot go on with by an error.
fn stream_error(value: &Value) -> Failure {
    let message = value
        .get("error")
        .and_then(|error| error.get("message"))
        .and_then(Value::as_str);
    Failure::Failed(render::safe(
        message.unwrap_or("the stream of events was ended"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser;

    fn typed(line: &str) -> GetArgs {
        let words = ["sluice", "get"].into_iter().chain(line.split(' '));
        match Args::try_parse_from(words).unwrap().command {
            Command::Get(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn filters_of_another_kind_are_refused() {
        for line in [
            "nodes --state running",
            "pools --pool a",
            "steps -w",
            "steps --since 3",
            "events x",
            "steps x --pool a",
        ] {
            let error = check(&typed(line)).unwrap_err();
            assert!(matches!(error, Failure::Usage(_)), "{line}");
        }
        for line in [
            "nodes --pool a",
            "steps --state running --node n",
            "events --since 3 -w",
            "steps x y",
        ] {
            check(&typed(line)).unwrap();
        }
    }
}
