//! A step that cannot move on because its host cannot act: it is silent, or has no supervisor. The sentence names the host,
//! and when the wait ends at the latest.

use alloc::format;
use alloc::string::String;

use sluice_common::reason::Reason;
use sluice_common::state::{NodeState, StepState};

use crate::context::Context;
use crate::hosts::link::lost_at;
use crate::model::node::Node;
use crate::model::step::Step;

/// The reason of a step that holds units, with the host that holds it up where there is one.
pub(crate) fn reason_on_host(ctx: &Context, step: &Step) -> Reason {
    let reason = step.reason.said();
    match held_up(ctx, step) {
        None => reason,
        Some((node, why)) => Reason {
            message: format!("{}; {why}", reason.message),
            ..reason
        }
        .with("waits_for", node.name.as_str()),
    }
}

/// The first host that does not do what the step waits for, and why. What runs waits for nothing.
fn held_up<'a>(ctx: &'a Context, step: &Step) -> Option<(&'a Node, String)> {
    match step.state {
        StepState::Allocated
        | StepState::Starting
        | StepState::Suspending
        | StepState::Resuming
        | StepState::Stopping => {}
        StepState::Queued
        | StepState::Running
        | StepState::Suspended
        | StepState::Succeeded
        | StepState::Failed
        | StepState::Cancelled
        | StepState::Rejected
        | StepState::Preempted => return None,
    }
    let attempt = step.live()?;
    let hosts = attempt
        .unended()
        .filter_map(|part| ctx.state().node(&part.node));
    let mut held_up = hosts.filter_map(|node| Some((node, cannot_act(ctx, node)?)));
    held_up.next()
}

fn cannot_act(ctx: &Context, node: &Node) -> Option<String> {
    let name = &node.name;
    match node.state {
        NodeState::Ready | NodeState::Reconciling | NodeState::Lost => None,
        NodeState::Unsupervised => {
            let why = node.unsupervised.as_deref().unwrap_or_default();
            Some(format!(
                "`{name}` has no supervisor, which alone can tell whether a process of it runs, so this waits until the \
                 supervisor answers: {why}"
            ))
        }
        NodeState::Unreachable => {
            let lost_in = lost_at(ctx, name)?.since(ctx.now());
            Some(format!(
                "`{name}` is silent, so this waits until it is heard again, or is given up for lost in {lost_in}"
            ))
        }
    }
}
