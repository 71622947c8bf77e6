//! This coordinator starts to speak for the cluster.

use crate::record;
use alloc::string::String;
use alloc::vec::Vec;
use sluice_common::pool::PoolSpec;

use sluice_common::id::{ClusterId, Epoch};
use sluice_common::pool::PolicySpec;
use sluice_common::state::NodeState;

use crate::attempts::hostless::follow_all_hostless;
use crate::attempts::leases::await_all_renewals;
use crate::attempts::queue_timeout::await_all_units;
use crate::attempts::suspension::await_all_overdue;
use crate::contact::Contact;
use crate::context::Context;
use crate::hosts::drain::await_deadlines;
use crate::hosts::link::watch;
use crate::model::recovery::RecoveryCause;
use crate::model::step::{default_pool, default_subject};
use crate::record::Record;
use crate::recovery::{await_recovery, begin_recovery};

/// Begins an epoch one higher than the last, in a recovery if the store is older than the hosts.
pub(crate) fn on_start(ctx: &mut Context, cluster: ClusterId, recovers: Option<RecoveryCause>) {
    let before = ctx.state().epoch().map_or(0, |epoch| epoch.counter);
    let counter = before.saturating_add(1);
    ctx.record(Record::CoordinatorStarted {
        epoch: Epoch { cluster, counter },
        lost_after: ctx.settings().lost_after,
    });
    if ctx.state().pool(&default_pool()).is_none() {
        ctx.record(Record::PoolPut(record::PoolPut {
            pool: default_pool(),
            spec: PoolSpec {
                description: String::from("nodes and steps that name no other pool"),
                ..PoolSpec::of_new_pool()
            },
        }));
        ctx.record(Record::PolicyPut(record::PolicyPut {
            pool: default_pool(),
            subject: default_subject(),
            policy: PolicySpec::default(),
        }));
    }
    match recovers {
        Some(why) => begin_recovery(ctx, why, ctx.began_at()),
        None => await_recovery(ctx),
    }
    await_nodes(ctx);
    await_deadlines(ctx);
    await_all_overdue(ctx);
    await_all_units(ctx);
    await_all_renewals(ctx);
    follow_all_hostless(ctx);
    ctx.set_all_services_due();
    ctx.set_all_allocations_due();
}

/// Starts the silence of all nodes now, because none is connected yet.
fn await_nodes(ctx: &mut Context) {
    let nodes = ctx.state().nodes().values();
    let nodes: Vec<_> = nodes.map(|node| (node.name.clone(), node.state)).collect();
    for (node, state) in nodes {
        ctx.set_contact(node.clone(), Contact::silent_since(ctx.now()));
        match state {
            NodeState::Ready | NodeState::Reconciling | NodeState::Unsupervised => {
                ctx.record(Record::NodeUnreachable { node: node.clone() });
                watch(ctx, &node);
            }
            NodeState::Unreachable => watch(ctx, &node),
            NodeState::Lost => {}
        }
    }
}
