//! Agents come, are heard, fall silent and go. What they hold when they come is settled in `reconcile.rs`.
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

pub(crate) mod changes;
pub(crate) mod namesake;
pub(crate) mod refusal;
pub(crate) mod report;

pub use changes::HELD_BACK;

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::epoch::{MAX_EPOCH, SealedEpoch};
use sluice_common::host_health::SupervisorState;
use sluice_common::id::{AttemptId, Epoch, NodeName, PoolName};
use sluice_common::nearest::nearest;
use sluice_common::proof::Claim;
use sluice_common::state::NodeState;
use sluice_common::supervision::{BootMillis, Exit};
use sluice_common::time::Time;
use sluice_common::wire::{FromNode, Greeting, Heartbeat, Hello, PROTOCOL_VERSION, Welcome};

use crate::admin::forget_if_leaving;
use crate::admission::{check_claim, cut, label_as_joined};
use crate::checkpoint::on_checkpoint;
use crate::contact::Contact;
use crate::contact::hearing::{Hearing, Terms};
use crate::contact::pace::{HostChange, Pace};
use crate::context::Context;
use crate::gpus::take_gpu_states;
use crate::input::{SessionId, TimerKey};
use crate::link::changes::{charge, may_change, on_change};
use crate::link::namesake::check_namesake;
use crate::link::refusal::note_refusal;
use crate::link::report::report_node;
use crate::model::node::Node;
use crate::model::recovery::RecoveryWhy;
use crate::model::step::PartPhase;
use crate::reconcile::{live_on, reconcile, stop_strays, take_status, vanish};
use crate::record::Record;
use crate::recovery::adoption::rule_again;
use crate::recovery::{begin_recovery, know_pool};
use crate::words;

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
            did_you_mean(ctx, pool)
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

/// `, did you mean ...` or, where no name is near, the names there are.
pub(crate) fn did_you_mean(ctx: &Context, pool: &PoolName) -> String {
    let names = ctx.state().pools().keys().map(PoolName::as_str);
    match nearest(pool.as_str(), names.clone()) {
        Some(near) => format!(", did you mean `{near}`?"),
        None => format!(" among `{}`", names.collect::<Vec<_>>().join("`, `")),
    }
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

pub(crate) fn on_from_node(
    ctx: &mut Context,
    session: SessionId,
    node: &NodeName,
    message: FromNode,
) {
    if !on_heard(ctx, session, node) {
        return;
    }
    match message {
        FromNode::Status(status) => {
            take_status(ctx, node, status);
            settle_node(ctx, node);
        }
        FromNode::Inventory(inventory) => on_change(ctx, node, HostChange::Inventory(inventory)),
        FromNode::Labels(labels) => on_change(ctx, node, HostChange::Labels(labels)),
        // Nothing is decided by them: whoever drives the core keeps the last.
        FromNode::Readings(_) => {}
        // It comes as an input of its own, from whoever can tell that it is one of ours.
        FromNode::Warrant { .. } => {}
        FromNode::GpuStates(states) => on_change(ctx, node, HostChange::GpuStates(states)),
        FromNode::Checkpoint { attempt, ago } => on_checkpoint(ctx, node, attempt, ago),
        FromNode::Health(health) => on_change(ctx, node, HostChange::Health(health)),
        FromNode::Supervisor(supervisor) => {
            on_change(ctx, node, HostChange::Supervisor(supervisor));
        }
    }
}

pub(crate) fn on_heartbeat(
    ctx: &mut Context,
    session: SessionId,
    node: &NodeName,
    beat: &Heartbeat,
) {
    let terms = Terms::from(ctx.settings());
    let contact = ctx.contact_mut(node);
    let Some(contact) = contact.filter(|contact| contact.session == Some(session)) else {
        return;
    };
    let void = contact.hearing.on_heartbeat(beat, terms);
    if contact.hearing.is_deaf() {
        call_unreachable(ctx, node);
    }
    on_heard(ctx, session, node);
    for id in void {
        let live = live_on(ctx, node, &id);
        if live.is_some_and(|(_, _, part)| part.phase == PartPhase::Allocated) {
            vanish(
                ctx,
                node,
                &id,
                Exit::NotBegun(words::ORDER_RAN_OUT.to_owned()),
            );
        }
    }
}

/// A sign of life. Whether it came by the connection that counts.
pub(crate) fn on_heard(ctx: &mut Context, session: SessionId, node: &NodeName) -> bool {
    let now = ctx.now();
    let Some(contact) = ctx.contact_mut(node) else {
        return false;
    };
    if contact.session != Some(session) {
        return false;
    }
    contact.heard_at = Some(now);
    contact.silent_since = now;
    let is_deaf = contact.hearing.is_deaf();
    match ctx.state().node(node).map(|node| node.state) {
        // Hearing us again is a change too: it may say with each heartbeat that it does, and that it does not.
        Some(NodeState::Unreachable | NodeState::Lost) if !is_deaf && may_change(ctx, node) => {
            charge(ctx, node);
            stop_strays(ctx, node);
            settle_node(ctx, node);
            watch(ctx, node);
        }
        Some(_) | None => {}
    }
    true
}

/// A linked node that is heard and hears us is ready; or reconciling while it holds what it should not; or unsupervised,
/// where it can neither start nor stop anything.
pub(crate) fn settle_node(ctx: &mut Context, node: &NodeName) {
    let contact = ctx.contact(node);
    if contact.is_some_and(|contact| contact.hearing.is_deaf()) {
        return;
    }
    if let Some(why) = contact.and_then(|contact| contact.supervisor.why_away()) {
        let why = String::from(why);
        return call_unsupervised(ctx, node, why);
    }
    let stray = contact.is_some_and(Contact::holds_unknown);
    let state = ctx.state().node(node).map(|node| node.state);
    let node = node.clone();
    match (stray, state) {
        (true, Some(NodeState::Reconciling)) | (false, Some(NodeState::Ready)) | (_, None) => {}
        (true, Some(_)) => ctx.record(Record::NodeReconciling { node }),
        (false, Some(_)) => ctx.record(Record::NodeReady { node }),
    }
}

fn call_unsupervised(ctx: &mut Context, name: &NodeName, why: String) {
    let said = |node: &Node| node.unsupervised.as_deref() == Some(&why);
    if ctx.state().node(name).is_some_and(|node| !said(node)) {
        let node = name.clone();
        ctx.record(Record::NodeUnsupervised { node, why });
    }
}

fn on_supervisor(ctx: &mut Context, node: &NodeName, supervisor: SupervisorState) {
    if let Some(contact) = ctx.contact_mut(node) {
        contact.supervisor = supervisor;
    }
    settle_node(ctx, node);
}

pub(crate) fn on_node_gone(ctx: &mut Context, session: SessionId, node: &NodeName) {
    let Some(contact) = ctx.contact_mut(node) else {
        return;
    };
    if contact.session == Some(session) {
        contact.session = None;
        contact.strays.clear();
        contact.asked.clear();
        call_unreachable(ctx, node);
    }
}

fn call_unreachable(ctx: &mut Context, node: &NodeName) {
    match ctx.state().node(node).map(|node| node.state) {
        Some(NodeState::Ready | NodeState::Reconciling | NodeState::Unsupervised) => {
            ctx.record(Record::NodeUnreachable { node: node.clone() });
        }
        Some(NodeState::Unreachable | NodeState::Lost) | None => {}
    }
}

/// Wakes us when a node that is heard now has been silent for as long as makes it unreachable.
pub(crate) fn watch(ctx: &mut Context, node: &NodeName) {
    let at = ctx.now() + ctx.settings().unreachable_after;
    ctx.set_timer(TimerKey::NodeSilence(node.clone()), at);
}

/// The timer of a node came due. It is not set anew by every heartbeat, so often the node was heard since: the
/// time of its last word decides.
pub(crate) fn on_silence(ctx: &mut Context, node: &NodeName) {
    let Some(contact) = ctx.contact(node) else {
        return;
    };
    let since = contact.silent_since;
    let known = ctx.state().node(node).map(|node| node.state);
    if known.is_none_or(|state| state == NodeState::Lost) {
        return;
    }
    let unreachable_at = since + ctx.settings().unreachable_after;
    let lost_at = lost_at_after(ctx, since);
    if ctx.now() >= lost_at {
        return lose(ctx, node);
    }
    let next = if ctx.now() >= unreachable_at {
        call_unreachable(ctx, node);
        lost_at
    } else {
        unreachable_at
    };
    ctx.set_timer(TimerKey::NodeSilence(node.clone()), next);
}

/// When a node is given up for lost, if it is not heard before.
pub(crate) fn lost_at(ctx: &Context, node: &NodeName) -> Option<Time> {
    let contact = ctx.contact(node)?;
    Some(lost_at_after(ctx, contact.silent_since))
}

fn lost_at_after(ctx: &Context, silent_since: Time) -> Time {
    (silent_since + ctx.settings().lost_after).max(ctx.state().no_loss_before())
}

fn lose(ctx: &mut Context, node: &NodeName) {
    ctx.record(Record::NodeLost { node: node.clone() });
    // What is still under way on its link is never to arrive: the network may hold it back for minutes.
    cut(
        ctx,
        node,
        "this node was silent for so long that it was given up for lost",
    );
    let held: Vec<AttemptId> = ctx.state().attempts_on(node).cloned().collect();
    for attempt in held {
        vanish(ctx, node, &attempt, Exit::Unknown);
    }
    forget_if_leaving(ctx, node);
}
