//! Explains a step that makes no progress because its host is silent or has no supervisor.

use sluice_common::state::{NodeState, StepState};
use sluice_reasons::standing::{HostBlock, HostBlockCause};

use crate::context::Context;
use crate::hosts::link::lost_at;
use crate::model::node::Node;
use crate::model::step::Step;

/// The first host that does not do what the step waits for, and the reason. A running step waits for no host.
pub(crate) fn host_block(ctx: &Context, step: &Step) -> Option<HostBlock> {
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
    let mut host_block = hosts.filter_map(|node| {
        Some(HostBlock {
            cause: block_cause(ctx, node)?,
            node: node.name.clone(),
        })
    });
    host_block.next()
}

fn block_cause(ctx: &Context, node: &Node) -> Option<HostBlockCause> {
    match node.state {
        NodeState::Ready | NodeState::Reconciling | NodeState::Lost => None,
        NodeState::Unsupervised => {
            let why = node.unsupervised.clone().unwrap_or_default();
            Some(HostBlockCause::Unsupervised(why))
        }
        NodeState::Unreachable => {
            let lost_at = lost_at(ctx, &node.name)?;
            Some(HostBlockCause::Silent(lost_at.since(ctx.now())))
        }
    }
}
