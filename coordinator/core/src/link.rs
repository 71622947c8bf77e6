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

mod changes;
mod namesake;
pub(crate) mod pace;
mod refusal;
mod report;

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

use self::pace::HostChange;
use crate::core::{Contact, Core};
use crate::hearing::{Hearing, Terms};
use crate::input::{SessionId, TimerKey};
use crate::record::Record;
use crate::state::recovery::RecoveryWhy;
use crate::state::{Node, PartPhase};
use crate::words;

impl Core {
    /// `proven` tells whether the epoch that the hello shows bears the cluster's seal for this node.
    pub(crate) fn on_node_hello(
        &mut self,
        session: SessionId,
        hello: Hello,
        claim: &Claim,
        proven: bool,
    ) {
        let checked = self.check_claim(&hello, claim);
        if let Err(message) = checked.and_then(|()| self.check_hello(&hello, claim, proven)) {
            self.note_refusal(&hello.node, &message);
            return self.greet(session, Greeting::Refused { message });
        }
        let pool = self.pool_of(&hello, claim).clone();
        self.go_above(&hello);
        let known = self.state.node(&hello.node);
        let rebooted = known.is_some_and(|node| node.boot_id != hello.boot_id);
        let unheard = matches!(hello.supervisor, SupervisorState::Unheard(_));
        let node = hello.node.clone();
        let state_dir = hello.state_dir.clone();
        self.link(
            session,
            &node,
            hello.said_at,
            hello.supervisor.clone(),
            state_dir,
        );
        let is_new = self.state.node(&node).is_none();
        self.know_pool(&pool, &node);
        let (attempts, gpu_states) = self.report_node(hello, pool);
        if is_new {
            self.label_as_joined(&node);
        }
        self.take_gpu_states(&node, gpu_states);
        self.greet(session, Greeting::Welcome(self.welcome()));
        // What a host does not know yet it cannot list, and what it had in an earlier boot is over.
        if rebooted || !unheard {
            self.reconcile(&node, attempts, rebooted);
        }
        self.settle_node(&node);
        self.charge(&node);
        self.rule_again();
        self.watch(&node);
    }

    /// The pool of a host: where it is once it is known, and else where its certificate lets it in. What its config names
    /// is the wish of a host that comes for the first time with a certificate that names none.
    fn pool_of<'a>(&'a self, hello: &'a Hello, claim: &'a Claim) -> &'a PoolName {
        let known = self.state.node(&hello.node).map(|node| &node.pool);
        known.or(claim.pool.as_ref()).unwrap_or(&hello.pool)
    }

    fn check_hello(&self, hello: &Hello, claim: &Claim, proven: bool) -> Result<(), String> {
        if hello.protocol != PROTOCOL_VERSION {
            return Err(format!(
                "protocol {} of agent {} is not protocol {PROTOCOL_VERSION} of this coordinator: \
                 install the same release on both",
                hello.protocol, hello.version
            ));
        }
        let pool = self.pool_of(hello, claim);
        let recovers = self.state.recovery().is_some();
        if !recovers && self.state.pool(pool).is_none() {
            let way_out = match &claim.pool {
                Some(_) => "have it join anew by a line of `sluice token create --pool POOL`",
                None => "set `pool` in agent.toml",
            };
            return Err(format!(
                "there is no pool `{pool}`{}: {way_out}",
                self.did_you_mean(pool)
            ));
        }
        if let Some(highest) = &hello.highest_epoch {
            self.check_epoch(&hello.node, &highest.epoch, proven)?;
        }
        self.check_namesake(hello)
    }

    /// A claim of a later epoch stops the whole cluster for a recovery, so it is believed only with the cluster's seal. Any
    /// other claim keeps out the one host that makes it.
    fn check_epoch(&self, node: &NodeName, highest: &Epoch, proven: bool) -> Result<(), String> {
        let Epoch { cluster, counter } = self.epoch();
        if highest.cluster != *cluster {
            return Err(format!(
                "this host belongs to cluster `{}` and this coordinator to `{cluster}`: point the agent at its own \
                 cluster, or move it here by emptying its `state_dir` while nothing runs on it",
                highest.cluster
            ));
        }
        if !self.is_later(node, highest) {
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
    fn is_later(&self, node: &NodeName, highest: &Epoch) -> bool {
        let ours = self.epoch().counter;
        let contact = self.contacts.get(node);
        let addressed = contact.is_some_and(|contact| contact.addressed);
        highest.counter > ours || (highest.counter == ours && !addressed)
    }

    /// `, did you mean ...` or, where no name is near, the names there are.
    pub(crate) fn did_you_mean(&self, pool: &PoolName) -> String {
        let names = self.state.pools().keys().map(PoolName::as_str);
        match nearest(pool.as_str(), names.clone()) {
            Some(near) => format!(", did you mean `{near}`?"),
            None => format!(" among `{}`", names.collect::<Vec<_>>().join("`, `")),
        }
    }

    /// A host that has obeyed a later epoch is a sign of a coordinator that spoke after the point from which we were brought
    /// back. Hosts obey the later one, so we become it. Nodes that are linked are welcomed anew, because the proof of the
    /// new epoch comes with a welcome.
    fn go_above(&mut self, hello: &Hello) {
        let Some(SealedEpoch { epoch, .. }) = &hello.highest_epoch else {
            return;
        };
        if !self.is_later(&hello.node, epoch) {
            return;
        }
        self.record(Record::CoordinatorStarted {
            epoch: Epoch {
                cluster: epoch.cluster.clone(),
                counter: epoch.counter + 1,
            },
            lost_after: self.settings.lost_after,
        });
        if self.state.recovery().is_none() {
            self.begin_recovery(RecoveryWhy::LaterEpoch, self.began_at);
        }
        let linked = self.contacts.keys().filter(|node| **node != hello.node);
        for node in linked.cloned().collect::<Vec<_>>() {
            self.cut(
                &node,
                "the coordinator speaks with a later epoch from now on",
            );
        }
    }

    /// From now on this connection counts, and no other of that node.
    fn link(
        &mut self,
        session: SessionId,
        node: &NodeName,
        said_at: BootMillis,
        supervisor: SupervisorState,
        state_dir: String,
    ) {
        let before = self.contacts.remove(node);
        let mut pace = before.map(|before| before.pace).unwrap_or_default();
        pace.drop_all();
        let contact = Contact {
            pace,
            session: Some(session),
            heard_at: Some(self.now),
            silent_since: self.now,
            supervisor,
            addressed: true,
            state_dir,
            refused: false,
            strays: BTreeSet::new(),
            thawing: BTreeSet::new(),
            asked: BTreeMap::new(),
            hearing: Hearing::since(said_at),
        };
        self.contacts.insert(node.clone(), contact);
    }

    fn welcome(&self) -> Welcome {
        Welcome {
            epoch: self.epoch().clone().into(),
            lease: self.settings.lease,
            stop_limit: self.settings.stop_limit,
            heartbeat: self.settings.heartbeat,
            order_limit: Terms::from(&self.settings).order_limit,
            seal: None,
        }
    }

    pub(crate) fn on_from_node(&mut self, session: SessionId, node: &NodeName, message: FromNode) {
        if !self.on_heard(session, node) {
            return;
        }
        match message {
            FromNode::Status(status) => {
                self.take_status(node, status);
                self.settle_node(node);
            }
            FromNode::Inventory(inventory) => {
                self.on_change(node, HostChange::Inventory(inventory))
            }
            FromNode::Labels(labels) => self.on_change(node, HostChange::Labels(labels)),
            // Nothing is decided by them: whoever drives the core keeps the last.
            FromNode::Readings(_) => {}
            // It comes as an input of its own, from whoever can tell that it is one of ours.
            FromNode::Warrant { .. } => {}
            FromNode::GpuStates(states) => self.on_change(node, HostChange::GpuStates(states)),
            FromNode::Checkpoint { attempt, ago } => self.on_checkpoint(node, attempt, ago),
            FromNode::Health(health) => self.on_change(node, HostChange::Health(health)),
            FromNode::Supervisor(supervisor) => {
                self.on_change(node, HostChange::Supervisor(supervisor));
            }
        }
    }

    pub(crate) fn on_heartbeat(&mut self, session: SessionId, node: &NodeName, beat: &Heartbeat) {
        let terms = Terms::from(&self.settings);
        let contact = self.contacts.get_mut(node);
        let Some(contact) = contact.filter(|contact| contact.session == Some(session)) else {
            return;
        };
        let void = contact.hearing.on_heartbeat(beat, terms);
        if contact.hearing.is_deaf() {
            self.call_unreachable(node);
        }
        self.on_heard(session, node);
        for id in void {
            let live = self.live_on(node, &id);
            if live.is_some_and(|(_, _, part)| part.phase == PartPhase::Allocated) {
                self.vanish(node, &id, Exit::NotBegun(words::ORDER_RAN_OUT.to_owned()));
            }
        }
    }

    /// A sign of life. Whether it came by the connection that counts.
    pub(crate) fn on_heard(&mut self, session: SessionId, node: &NodeName) -> bool {
        let now = self.now;
        let Some(contact) = self.contacts.get_mut(node) else {
            return false;
        };
        if contact.session != Some(session) {
            return false;
        }
        contact.heard_at = Some(now);
        contact.silent_since = now;
        let is_deaf = contact.hearing.is_deaf();
        match self.state.node(node).map(|node| node.state) {
            // Hearing us again is a change too: it may say with each heartbeat that it does, and that it does not.
            Some(NodeState::Unreachable | NodeState::Lost) if !is_deaf && self.may_change(node) => {
                self.charge(node);
                self.stop_strays(node);
                self.settle_node(node);
                self.watch(node);
            }
            Some(_) | None => {}
        }
        true
    }

    /// A linked node that is heard and hears us is ready; or reconciling while it holds what it should not; or unsupervised,
    /// where it can neither start nor stop anything.
    pub(crate) fn settle_node(&mut self, node: &NodeName) {
        let contact = self.contacts.get(node);
        if contact.is_some_and(|contact| contact.hearing.is_deaf()) {
            return;
        }
        if let Some(why) = contact.and_then(|contact| contact.supervisor.why_away()) {
            let why = String::from(why);
            return self.call_unsupervised(node, why);
        }
        let stray = contact.is_some_and(Contact::holds_unknown);
        let state = self.state.node(node).map(|node| node.state);
        let node = node.clone();
        match (stray, state) {
            (true, Some(NodeState::Reconciling)) | (false, Some(NodeState::Ready)) | (_, None) => {}
            (true, Some(_)) => self.record(Record::NodeReconciling { node }),
            (false, Some(_)) => self.record(Record::NodeReady { node }),
        }
    }

    fn call_unsupervised(&mut self, name: &NodeName, why: String) {
        let said = |node: &Node| node.unsupervised.as_deref() == Some(&why);
        if self.state.node(name).is_some_and(|node| !said(node)) {
            let node = name.clone();
            self.record(Record::NodeUnsupervised { node, why });
        }
    }

    fn on_supervisor(&mut self, node: &NodeName, supervisor: SupervisorState) {
        if let Some(contact) = self.contacts.get_mut(node) {
            contact.supervisor = supervisor;
        }
        self.settle_node(node);
    }

    pub(crate) fn on_node_gone(&mut self, session: SessionId, node: &NodeName) {
        let Some(contact) = self.contacts.get_mut(node) else {
            return;
        };
        if contact.session == Some(session) {
            contact.session = None;
            contact.strays.clear();
            contact.asked.clear();
            self.call_unreachable(node);
        }
    }

    fn call_unreachable(&mut self, node: &NodeName) {
        match self.state.node(node).map(|node| node.state) {
            Some(NodeState::Ready | NodeState::Reconciling | NodeState::Unsupervised) => {
                self.record(Record::NodeUnreachable { node: node.clone() });
            }
            Some(NodeState::Unreachable | NodeState::Lost) | None => {}
        }
    }

    /// Wakes us when a node that is heard now has been silent for as long as makes it unreachable.
    pub(crate) fn watch(&mut self, node: &NodeName) {
        let at = self.now + self.settings.unreachable_after;
        self.set_timer(TimerKey::NodeSilence(node.clone()), at);
    }

    /// The timer of a node came due. It is not set anew by every heartbeat, so often the node was heard since: the
    /// time of its last word decides.
    pub(crate) fn on_silence(&mut self, node: &NodeName) {
        let Some(contact) = self.contacts.get(node) else {
            return;
        };
        let since = contact.silent_since;
        let known = self.state.node(node).map(|node| node.state);
        if known.is_none_or(|state| state == NodeState::Lost) {
            return;
        }
        let unreachable_at = since + self.settings.unreachable_after;
        let lost_at = self.lost_at_after(since);
        if self.now >= lost_at {
            return self.lose(node);
        }
        let next = if self.now >= unreachable_at {
            self.call_unreachable(node);
            lost_at
        } else {
            unreachable_at
        };
        self.set_timer(TimerKey::NodeSilence(node.clone()), next);
    }

    /// When a node is given up for lost, if it is not heard before.
    pub(crate) fn lost_at(&self, node: &NodeName) -> Option<Time> {
        let contact = self.contacts.get(node)?;
        Some(self.lost_at_after(contact.silent_since))
    }

    fn lost_at_after(&self, silent_since: Time) -> Time {
        (silent_since + self.settings.lost_after).max(self.state.no_loss_before())
    }

    fn lose(&mut self, node: &NodeName) {
        self.record(Record::NodeLost { node: node.clone() });
        // What is still under way on its link is never to arrive: the network may hold it back for minutes.
        self.cut(
            node,
            "this node was silent for so long that it was given up for lost",
        );
        let held: Vec<AttemptId> = self.state.attempts_on(node).cloned().collect();
        for attempt in held {
            self.vanish(node, &attempt, Exit::Unknown);
        }
        self.forget_if_leaving(node);
    }
}
