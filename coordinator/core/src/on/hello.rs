//! Agents come, are heard, fall silent and go. What they hold when they come is settled in `hosts/statuses.rs`.
//!
//! ```text
//!            hello, nothing stray             hello with strays
//! (unknown) ----------------------> ready <---------------------- reconciling
//!                                     |  \___ a stray turns up ____/   ^
//!        silent or link down          v                               | heard again, strays left
//!                                unreachable ---- silent for long ---> lost
//! ```
//! `ready` means that there is a link on which an assignment can go out now. Whether it would be `ready` or
//! `reconciling`, a node whose agent says that the supervisor does not answer is `unsupervised` instead.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::epoch::{MAX_EPOCH, SealedEpoch};
use sluice_common::host_health::SupervisorState;
use sluice_common::id::{Epoch, NodeName, PoolName};
use sluice_common::proof::Claim;
use sluice_common::supervision::BootMillis;
use sluice_common::wire::{Greeting, Hello, PROTOCOL_VERSION, Welcome};

use crate::contact::Contact;
use crate::contact::hearing::{Hearing, Terms};
use crate::contact::pace::Pace;
use crate::context::Context;
use crate::hosts::access::check_claim;
use crate::hosts::gpus::take_gpu_states;
use crate::hosts::labels::label_as_joined;
use crate::hosts::link::{charge, cut, settle_node, watch};
use crate::hosts::namesake::check_namesake;
use crate::hosts::refusal::note_refusal;
use crate::hosts::report::report_node;
use crate::hosts::statuses::reconcile;
use crate::input::SessionId;
use crate::model::recovery::RecoveryWhy;
use crate::record::Record;
use crate::recovery::adoption::rule_again;
use crate::recovery::{begin_recovery, know_pool};
use crate::words::did_you_mean;

/// `proven` tells whether the epoch that the hello shows bears the cluster's seal for this node.
pub(crate) fn on_node_hello(
    ctx: &mut Context,
    session: SessionId,
    hello: Hello,
    claim: &Claim,
    proven: bool,
) {
    let checked = check_claim(ctx, &hello, claim);
    if let Err(message) = checked.and_then(|()| check_hello(ctx, &hello, claim, proven)) {
        note_refusal(ctx, &hello.node, &message);
        return ctx.greet(session, Greeting::Refused { message });
    }
    let pool = pool_of(ctx, &hello, claim).clone();
    go_above(ctx, &hello);
    let known = ctx.state().node(&hello.node);
    let rebooted = known.is_some_and(|node| node.boot_id != hello.boot_id);
    let unheard = matches!(hello.supervisor, SupervisorState::Unheard(_));
    let node = hello.node.clone();
    let state_dir = hello.state_dir.clone();
    link(
        ctx,
        session,
        &node,
        hello.said_at,
        hello.supervisor.clone(),
        state_dir,
    );
    let is_new = ctx.state().node(&node).is_none();
    know_pool(ctx, &pool, &node);
    let (attempts, gpu_states) = report_node(ctx, hello, pool);
    if is_new {
        label_as_joined(ctx, &node);
    }
    take_gpu_states(ctx, &node, gpu_states);
    ctx.greet(session, Greeting::Welcome(welcome(ctx)));
    // What a host does not know yet it cannot list, and what it had in an earlier boot is over.
    if rebooted || !unheard {
        reconcile(ctx, &node, attempts, rebooted);
    }
    settle_node(ctx, &node);
    charge(ctx, &node);
    rule_again(ctx);
    watch(ctx, &node);
}

/// The pool of a host: where it is once it is known, and else where its certificate lets it in. What its config names
/// is the wish of a host that comes for the first time with a certificate that names none.
fn pool_of<'a>(ctx: &'a Context, hello: &'a Hello, claim: &'a Claim) -> &'a PoolName {
    let known = ctx.state().node(&hello.node).map(|node| &node.pool);
    known.or(claim.pool.as_ref()).unwrap_or(&hello.pool)
}

fn check_hello(ctx: &Context, hello: &Hello, claim: &Claim, proven: bool) -> Result<(), String> {
    if hello.protocol != PROTOCOL_VERSION {
        return Err(format!(
            "protocol {} of agent {} is not protocol {PROTOCOL_VERSION} of this coordinator: \
             install the same release on both",
            hello.protocol, hello.version
        ));
    }
    let pool = pool_of(ctx, hello, claim);
    let recovers = ctx.state().recovery().is_some();
    if !recovers && ctx.state().pool(pool).is_none() {
        let way_out = match &claim.pool {
            Some(_) => "have it join anew by a line of `sluice token create --pool POOL`",
            None => "set `pool` in agent.toml",
        };
        return Err(format!(
            "there is no pool `{pool}`{}: {way_out}",
            did_you_mean(ctx.state().pools(), pool)
        ));
    }
    if let Some(highest) = &hello.highest_epoch {
        check_epoch(ctx, &hello.node, &highest.epoch, proven)?;
    }
    check_namesake(ctx, hello)
}

/// A claim of a later epoch stops the whole cluster for a recovery, so it is believed only with the cluster's seal. Any
/// other claim keeps out the one host that makes it.
fn check_epoch(
    ctx: &Context,
    node: &NodeName,
    highest: &Epoch,
    proven: bool,
) -> Result<(), String> {
    let Epoch { cluster, counter } = ctx.epoch();
    if highest.cluster != *cluster {
        return Err(format!(
            "this host belongs to cluster `{}` and this coordinator to `{cluster}`: point the agent at its own \
             cluster, or move it here by emptying its `state_dir` while nothing runs on it",
            highest.cluster
        ));
    }
    if !is_later(ctx, node, highest) {
        return Ok(());
    }
    let claimed = highest.counter;
    if claimed >= MAX_EPOCH {
        return Err(format!(
            "this host claims to have obeyed epoch {claimed}, which no coordinator can have reached: stop its agent, \
             run `sluice-agent forget-epoch` there, and start it again"
        ));
    }
    if !proven {
        return Err(format!(
            "this host claims to have obeyed epoch {claimed} without a proof, and this coordinator speaks with epoch \
             {counter}: a later epoch counts only with the seal of this cluster's `warrants.key`. If the claim is wrong, \
             stop the agent, run `sluice-agent forget-epoch` there, and start it again. If the coordinator has lost its \
             store, stop it and put `warrants.key` of the cluster back, or, if that is lost as well, run \
             `sluice-coordinator repair-epoch --above {claimed}`"
        ));
    }
    Ok(())
}

/// Whether a host has obeyed a later epoch than ours, or ours from another's mouth.
fn is_later(ctx: &Context, node: &NodeName, highest: &Epoch) -> bool {
    let ours = ctx.epoch().counter;
    let contact = ctx.contact(node);
    let addressed = contact.is_some_and(|contact| contact.addressed);
    highest.counter > ours || (highest.counter == ours && !addressed)
}

/// A host that has obeyed a later epoch is a sign of a coordinator that spoke after the point from which we were brought
/// back. Hosts obey the later one, so we become it. Nodes that are linked are welcomed anew, because the proof of the
/// new epoch comes with a welcome.
fn go_above(ctx: &mut Context, hello: &Hello) {
    let Some(SealedEpoch { epoch, .. }) = &hello.highest_epoch else {
        return;
    };
    if !is_later(ctx, &hello.node, epoch) {
        return;
    }
    ctx.record(Record::CoordinatorStarted {
        epoch: Epoch {
            cluster: epoch.cluster.clone(),
            counter: epoch.counter + 1,
        },
        lost_after: ctx.settings().lost_after,
    });
    if ctx.state().recovery().is_none() {
        begin_recovery(ctx, RecoveryWhy::LaterEpoch, ctx.began_at());
    }
    let linked = ctx.contacts().keys().filter(|node| **node != hello.node);
    for node in linked.cloned().collect::<Vec<_>>() {
        cut(
            ctx,
            &node,
            "the coordinator speaks with a later epoch from now on",
        );
    }
}

/// From now on this connection counts, and no other of that node.
fn link(
    ctx: &mut Context,
    session: SessionId,
    node: &NodeName,
    said_at: BootMillis,
    supervisor: SupervisorState,
    state_dir: String,
) {
    let before = ctx.contact_mut(node);
    let mut pace = before.map_or_else(Pace::default, |it| core::mem::take(&mut it.pace));
    pace.drop_all();
    let contact = Contact {
        pace,
        session: Some(session),
        heard_at: Some(ctx.now()),
        silent_since: ctx.now(),
        supervisor,
        addressed: true,
        state_dir,
        refused: false,
        strays: BTreeSet::new(),
        thawing: BTreeSet::new(),
        asked: BTreeMap::new(),
        hearing: Hearing::since(said_at),
    };
    ctx.set_contact(node.clone(), contact);
}

fn welcome(ctx: &Context) -> Welcome {
    Welcome {
        epoch: ctx.epoch().clone().into(),
        lease: ctx.settings().lease,
        stop_limit: ctx.settings().stop_limit,
        heartbeat: ctx.settings().heartbeat,
        order_limit: Terms::from(ctx.settings()).order_limit,
        seal: None,
    }
}
