//! `sluice drain`: drains nodes. Reports what is stopped and what is waited for; with `--wait` it waits until the nodes
//! are empty.

use std::thread;
use std::time::{Duration, Instant};

use sluice_common::api::{DrainRequest, NodeView, StepView};
use sluice_common::state::StepState;

use super::cordon::{change, line};
use super::describe::steps_on;
use super::outage_note;
use crate::args::DrainArgs;
use crate::client::{Client, RetryLimit};
use crate::failure::Failure;
use crate::out::Out;
use crate::render::{safe, shortened, step::rounded};
use crate::show;

/// Interval of looks at a node: steps take seconds to end, and a look is cheap.
const LOOK: Duration = Duration::from_secs(1);

/// Steps named in one line.
const NAMED: usize = 10;

pub(crate) fn run(client: &Client, args: &DrainArgs, out: Out) -> Result<u8, Failure> {
    let request = DrainRequest {
        reason: args.reason.clone(),
        deadline: args.deadline.map(|span| span.to_string()),
    };
    let (mut views, code) = change(client, &args.nodes, out, |node| {
        client.drain(node, &request)
    });
    let until = args.timeout.map(|limit| Instant::now() + limit);
    for view in &mut views {
        tell(client, view, out)?;
        if args.wait {
            *view = wait(client, view, until, out)?;
        }
    }
    show::each(&views, out, |node| line(node, out))?;
    Ok(code)
}

/// Reports what is stopped on a node, and what is waited for.
pub(super) fn tell(client: &Client, node: &NodeView, out: Out) -> Result<(), Failure> {
    let steps = steps_on(client, node, out)?;
    for text in words(node, &steps) {
        out.aside(&text);
    }
    Ok(())
}

fn words(node: &NodeView, steps: &[StepView]) -> Vec<String> {
    let (stopped, rest): (Vec<&StepView>, Vec<&StepView>) = steps
        .iter()
        .partition(|step| step.state == StepState::Stopping);
    let (gone, stay): (Vec<&StepView>, Vec<&StepView>) = rest
        .into_iter()
        .partition(|step| step.state.is_terminal() || step.state == StepState::Queued);
    let deadline = node.cordon.as_ref().and_then(|cordon| cordon.deadline);
    let until = match deadline {
        Some(at) => format!("until {}, when it is stopped: ", rounded(at)),
        None => "running to its end: ".to_owned(),
    };
    [
        ("stopping: ".to_owned(), stopped),
        (
            "ended, and its resources are being freed: ".to_owned(),
            gone,
        ),
        (format!("waiting for what is not preemptible {until}"), stay),
    ]
    .into_iter()
    .filter(|(_, steps)| !steps.is_empty())
    .map(|(what, steps)| format!("{}: {what}{}", safe(&node.name), names(&steps)))
    .chain(left(node, steps))
    .collect()
}

/// Reports what was on the node when it was drained, and is gone by now.
fn left(node: &NodeView, steps: &[StepView]) -> Option<String> {
    let here = |id: &&String| steps.iter().any(|step| step.id == **id);
    let gone: Vec<String> = node
        .steps
        .iter()
        .filter(|id| !here(id))
        .map(|id| safe(id))
        .collect();
    let text = || {
        format!(
            "{}: stopped: {}",
            safe(&node.name),
            shortened(gone.iter().cloned(), NAMED)
        )
    };
    (!gone.is_empty()).then(text)
}

/// Formats steps by id and name, such as `k3v9 (train)`.
fn names(steps: &[&StepView]) -> String {
    let names = steps.iter().map(|step| match step.name.as_str() {
        "" => safe(&step.id),
        name => format!("{} ({})", safe(&step.id), safe(name)),
    });
    shortened(names, NAMED)
}

/// Whether the node is empty, or has moved to its new pool.
fn is_done(asked: &NodeView, node: &NodeView) -> bool {
    let to = asked
        .cordon
        .as_ref()
        .and_then(|cordon| cordon.moves_to.as_ref());
    match to {
        Some(pool) => node.pool == *pool,
        None => node.steps.is_empty(),
    }
}

/// Waits until nothing holds resources of a node, and it has moved if it was to.
pub(super) fn wait(
    client: &Client,
    drained: &NodeView,
    until: Option<Instant>,
    out: Out,
) -> Result<NodeView, Failure> {
    let mut left = drained.steps.len();
    loop {
        let look = || client.node(&drained.name);
        let node = client.keep_trying(RetryLimit::Endless, outage_note(out), look)?;
        let name = safe(&node.name);
        if is_done(drained, &node) {
            return Ok(node);
        }
        if !node.cordon.as_ref().is_some_and(|cordon| cordon.drain) {
            return Err(Failure::Failed(format!(
                "{name} was uncordoned meanwhile and is no longer being drained"
            )));
        }
        if node.steps.len() != left {
            left = node.steps.len();
            out.aside(&format!("{name}: {left} left"));
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            let steps = shortened(node.steps.iter().map(|step| safe(step)), NAMED);
            return Err(Failure::TimedOut(format!(
                "{name} is not empty yet, and its drain goes on: {steps}"
            )));
        }
        thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::node::tests::node;
    use crate::render::step::tests::running;

    #[test]
    fn what_is_stopped_and_what_is_waited_for_are_told_apart() {
        let mut node = node();
        node.cordon = serde_json::from_value(serde_json::json!({
            "reason": "", "since": "2026-11-20T10:00:00Z", "drain": true, "deadline": null
        }))
        .unwrap();
        let (stays, mut stops, mut over) = (running(), running(), running());
        stops.id = "a".to_owned();
        stops.state = StepState::Stopping;
        over.id = "b".to_owned();
        over.name = String::new();
        over.state = StepState::Queued;
        assert_eq!(
            words(&node, &[stays, stops, over]),
            [
                "gpu-1: stopping: a (train)",
                "gpu-1: ended, and its resources are being freed: b",
                "gpu-1: waiting for what is not preemptible running to its end: k3v9 (train)",
            ]
        );
    }
}
