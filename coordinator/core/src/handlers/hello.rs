//! Handles the hello of an agent. The attempts that it reports are settled in `hosts/statuses.rs`.
//!
//! ```text
//!            hello, nothing stray             hello with strays
//! (unknown) ----------------------> ready <---------------------- reconciling
//!                                     |  \___ a stray turns up ____/   ^
//!        silent or link down          v                               | heard again, strays left
//!                                unreachable ---- silent for long ---> lost
//! ```
//! `ready` means that an assignment can be sent now. A node whose agent says that the supervisor does not answer is
//! `unsupervised` instead of `ready` or `reconciling`.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use sluice_common::credential::NodeClaim;
use sluice_common::epoch::{MAX_EPOCH, SealedEpoch};
use sluice_common::host_health::SupervisorState;
use sluice_common::id::{Epoch, NodeName, PoolName};
use sluice_common::supervision::BootMillis;
use sluice_common::wire::{Hello, HelloReply, PROTOCOL_VERSION, Welcome};
use sluice_reasons::{HelloRefusal, SimilarPools};

use crate::contact::Contact;
use crate::contact::change_rate::ChangeRate;
use crate::contact::delivery::{DeliveryTerms, OrderDelivery};
use crate::context::Context;
use crate::handlers::join::is_hostless;
use crate::hosts::access::check_claim;
use crate::hosts::carving::repeat_carvings;
use crate::hosts::gpus::take_gpu_states;
use crate::hosts::labels::label_as_joined;
use crate::hosts::link::{charge, cut, settle_node, watch};
use crate::hosts::name_conflict::check_name_conflict;
use crate::hosts::refusal::note_refusal;
use crate::hosts::report::report_node;
use crate::hosts::statuses::reconcile;
use crate::input::SessionId;
use crate::model::recovery::RecoveryCause;
use crate::record::Record;
use crate::recovery::adoption::decide_again;
use crate::recovery::{begin_recovery, know_pool};

/// `epoch_is_proven` tells whether the epoch in the hello bears the cluster's seal for this node.
pub(crate) fn on_node_hello(
    ctx: &mut Context,
    session: SessionId,
    hello: Hello,
    claim: &NodeClaim,
    proven: bool,
) {
    let checked = check_claim(ctx, &hello, claim);
    if let Err(why) = checked.and_then(|()| check_hello(ctx, &hello, claim, proven)) {
        let message = why.to_string();
        note_refusal(ctx, &hello.node, &message);
        return ctx.greet(session, HelloReply::Refused { message });
    }
    let pool = pool_of(ctx, &hello, claim).clone();
    go_above(ctx, &hello);
    let known = ctx.state().node(&hello.node);
    let rebooted = known.is_some_and(|node| node.boot_id != hello.boot_id);
    let unheard = matches!(hello.supervisor, SupervisorState::NeverSeen(_));
    let node = hello.node.clone();
    let state_dir = hello.state_dir.clone();
    link(
        ctx,
        session,
        &node,
        hello.sent_at,
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
    ctx.greet(session, HelloReply::Welcome(welcome(ctx)));
    // The hello cannot list what the host does not know yet, and attempts of an earlier boot are over.
    if rebooted || !unheard {
        reconcile(ctx, &node, attempts, rebooted);
    }
    settle_node(ctx, &node);
    repeat_carvings(ctx, &node);
    charge(ctx, &node);
    decide_again(ctx);
    watch(ctx, &node);
}

/// The pool of a host: its current pool if it is known, or else the one of its certificate. The pool of its config
/// counts only for a new host whose certificate names none.
fn pool_of<'a>(ctx: &'a Context, hello: &'a Hello, claim: &'a NodeClaim) -> &'a PoolName {
    let known = ctx.state().node(&hello.node).map(|node| &node.pool);
    known.or(claim.pool.as_ref()).unwrap_or(&hello.pool)
}

fn check_hello(
    ctx: &Context,
    hello: &Hello,
    claim: &NodeClaim,
    proven: bool,
) -> Result<(), HelloRefusal> {
    if hello.protocol != PROTOCOL_VERSION {
        return Err(HelloRefusal::OtherProtocol {
            protocol: hello.protocol,
            version: hello.version.clone(),
        });
    }
    let pool = pool_of(ctx, hello, claim);
    let recovers = ctx.state().recovery().is_some();
    if !recovers && ctx.state().pool(pool).is_none() {
        return Err(HelloRefusal::NoPool {
            pool: pool.clone(),
            near: SimilarPools::to(pool, ctx.state().pools().keys()),
            by_certificate: claim.pool.is_some(),
        });
    }
    if hello.node.is_of_pool() {
        let node = hello.node.clone();
        return Err(HelloRefusal::ReservedName { node });
    }
    if is_hostless(ctx, pool) {
        return Err(HelloRefusal::PoolWithoutHosts {
            pool: pool.clone(),
            by_certificate: claim.pool.is_some(),
        });
    }
    if let Some(highest) = &hello.highest_epoch {
        check_epoch(ctx, &hello.node, &highest.epoch, proven)?;
    }
    check_name_conflict(ctx, hello)
}

/// Checks the epoch that a host claims. A claim of a later epoch stops the whole cluster for a recovery, so it is
/// believed only with the cluster's seal. Any other claim keeps out the one host that makes it.
fn check_epoch(
    ctx: &Context,
    node: &NodeName,
    highest: &Epoch,
    proven: bool,
) -> Result<(), HelloRefusal> {
    let Epoch { cluster, counter } = ctx.epoch();
    if highest.cluster != *cluster {
        return Err(HelloRefusal::OtherCluster {
            theirs: highest.cluster.clone(),
            ours: cluster.clone(),
        });
    }
    if !is_later(ctx, node, highest) {
        return Ok(());
    }
    let claimed = highest.counter;
    if claimed >= MAX_EPOCH {
        return Err(HelloRefusal::ImpossibleEpoch { claimed });
    }
    if !proven {
        let ours = *counter;
        return Err(HelloRefusal::UnprovenEpoch { claimed, ours });
    }
    Ok(())
}

/// Whether a host has obeyed a later epoch than ours, or ours from another coordinator.
fn is_later(ctx: &Context, node: &NodeName, highest: &Epoch) -> bool {
    let ours = ctx.epoch().counter;
    let contact = ctx.contact(node);
    let addressed = contact.is_some_and(|contact| contact.addressed);
    highest.counter > ours || (highest.counter == ours && !addressed)
}

/// Raises the epoch above the one that a host has obeyed. A coordinator after the point from which this one was
/// restored must have started it, and hosts obey the later one. Connected nodes are welcomed again, because a welcome
/// carries the proof of the new epoch.
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
        begin_recovery(ctx, RecoveryCause::LaterEpoch, ctx.began_at());
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

/// Makes this connection the one in use for its node.
fn link(
    ctx: &mut Context,
    session: SessionId,
    node: &NodeName,
    said_at: BootMillis,
    supervisor: SupervisorState,
    state_dir: String,
) {
    let before = ctx.contact_mut(node);
    let mut change_rate = before.map_or_else(ChangeRate::default, |it| {
        core::mem::take(&mut it.change_rate)
    });
    change_rate.drop_all();
    let contact = Contact {
        change_rate,
        session: Some(session),
        heard_at: Some(ctx.now()),
        silent_since: ctx.now(),
        supervisor,
        addressed: true,
        state_dir,
        refused: false,
        strays: BTreeSet::new(),
        thawing: BTreeSet::new(),
        held_back: BTreeMap::new(),
        asked: BTreeMap::new(),
        delivery: OrderDelivery::since(said_at),
    };
    ctx.set_contact(node.clone(), contact);
}

fn welcome(ctx: &Context) -> Welcome {
    Welcome {
        epoch: ctx.epoch().clone().into(),
        lease: ctx.settings().lease,
        stop_limit: ctx.settings().stop_limit,
        heartbeat: ctx.settings().heartbeat,
        order_limit: DeliveryTerms::from(ctx.settings()).order_limit,
        seal: None,
    }
}
