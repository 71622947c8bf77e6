//! The core: what it holds, how it begins, and which event goes to which part of it. The parts are `link.rs` and
//! `reconcile.rs` (agents), `admit.rs` and `cancel.rs` (callers), `terms.rs` and `admin.rs` (admins) and `schedule.rs`
//! (who runs where).

mod trial;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::host_health::SupervisorState;
use sluice_common::id::{AttemptId, ClusterId, Epoch, NodeName, PoolName};
use sluice_common::rules::PoolRules;
use sluice_common::state::NodeState;
use sluice_common::supervision::BootMillis;
use sluice_common::time::{Span, Time};
use sluice_common::wire::{Command, Greeting, ToNode};

use crate::hearing::Hearing;
use crate::input::{Input, ReplyId, SessionId, Settings, TimerKey};
use crate::link::pace::Pace;
use crate::market::Policy;
use crate::output::{Answer, Output};
use crate::record::clock::ClockJump;
use crate::record::{Record, Stamped};
use crate::recovery::Asked;
use crate::schedule::stirred;
use crate::state::recovery::{LogPoint, RecoveryWhy};
use crate::state::{State, Undo, default_pool, default_subject};

/// The scheduling core. See the head of this crate for how it is driven.
#[derive(Clone, Debug)]
pub struct Core {
    pub(crate) settings: Settings,
    pub(crate) state: State,
    /// What is known of the links of nodes in this run.
    pub(crate) contacts: BTreeMap<NodeName, Contact>,
    /// Pools in which something changed that could let a step start.
    pub(crate) dirty: BTreeSet<PoolName>,
    /// The time of the input that is being handled; never goes back.
    pub(crate) now: Time,
    /// When this run began.
    pub(crate) listening_since: Time,
    /// Where the log stood when this run began.
    pub(crate) began_at: LogPoint,
    outbox: Outbox,
    /// What there was before the changes that are being tried.
    undo: Option<Box<Undo>>,
}

/// How a node is linked. Ends with the process: the next hello tells all of it anew.
#[derive(Clone, Debug)]
pub(crate) struct Contact {
    /// The connection that counts.
    pub(crate) session: Option<SessionId>,
    /// When it was heard last in this run.
    pub(crate) heard_at: Option<Time>,
    /// When its silence began: when it was heard last, or when this coordinator began to listen.
    pub(crate) silent_since: Time,
    /// Whether its supervisor answers its agent.
    pub(crate) supervisor: SupervisorState,
    /// Whether this run has told it an epoch, which it then may hold against us.
    pub(crate) addressed: bool,
    /// Attempts that it holds and that are not live on it here; none of its units are given while there are any.
    pub(crate) strays: BTreeSet<AttemptId>,
    /// Which directory its agent keeps its state in, as it has told.
    pub(crate) state_dir: String,
    /// Whether somebody was refused under this name since it was let in last, which is told once.
    pub(crate) refused: bool,
    /// Attempts that were told to run again on this connection and have not answered: that one is frozen is old news.
    pub(crate) thawing: BTreeSet<AttemptId>,
    /// Attempts that are not known here, and may be adopted when it has shown their warrants.
    pub(crate) asked: BTreeMap<AttemptId, Asked>,
    /// What went out on this connection, and how it arrives there.
    pub(crate) hearing: Hearing,
    /// How often it has changed lately, on whatever connection.
    pub(crate) pace: Pace,
}

impl Contact {
    pub(crate) fn silent_since(now: Time) -> Self {
        Self {
            session: None,
            heard_at: None,
            silent_since: now,
            supervisor: SupervisorState::Answers,
            addressed: false,
            state_dir: String::new(),
            refused: false,
            strays: BTreeSet::new(),
            thawing: BTreeSet::new(),
            asked: BTreeMap::new(),
            hearing: Hearing::since(BootMillis(0)),
            pace: Pace::default(),
        }
    }

    /// Whether it holds attempts that are not live on it here: nothing is granted there until they are settled.
    pub(crate) fn holds_unknown(&self) -> bool {
        !self.strays.is_empty() || !self.asked.is_empty()
    }
}

/// What is to be done, by kind: the order in which it is drained is the order in which it must be done.
#[derive(Clone, Debug, Default)]
struct Outbox {
    records: Vec<Output>,
    sends: Vec<Output>,
    replies: Vec<Output>,
    timers: Vec<Output>,
}

impl Core {
    /// A core over what was brought back from the log. Nothing else may be asked of it before [`Core::start`].
    pub fn recover(settings: Settings, state: State) -> Self {
        Self {
            settings,
            state,
            contacts: BTreeMap::new(),
            dirty: BTreeSet::new(),
            now: Time::default(),
            listening_since: Time::default(),
            began_at: LogPoint::default(),
            outbox: Outbox::default(),
            undo: None,
        }
    }

    /// Begins to speak for the cluster, under an epoch one higher than the last.
    ///
    /// No node is linked yet, so none takes work; each is given its whole time before it is called lost, counted from
    /// now.
    pub fn start(&mut self, now: Time, cluster: ClusterId) {
        self.begin(now, cluster, None);
    }

    /// The same over a store that is of an earlier time than the hosts: nothing new starts until they have told what they
    /// run.
    pub fn start_recovering(&mut self, now: Time, cluster: ClusterId, why: RecoveryWhy) {
        self.begin(now, cluster, Some(why));
    }

    fn begin(&mut self, now: Time, cluster: ClusterId, recovers: Option<RecoveryWhy>) {
        self.now = now;
        self.listening_since = now;
        self.began_at = self.state.log_point();
        let before = self.state.epoch().map_or(0, |epoch| epoch.counter);
        let counter = before.saturating_add(1);
        self.record(Record::CoordinatorStarted {
            epoch: Epoch { cluster, counter },
            lost_after: self.settings.lost_after,
        });
        if self.state.pool(&default_pool()).is_none() {
            self.record(Record::PoolPut {
                pool: default_pool(),
                description: String::from("nodes and steps that name no other pool"),
                capacity: BTreeMap::new(),
                min_runtime: Span::ZERO,
                require: BTreeSet::new(),
                rules: PoolRules::default(),
            });
            self.record(Record::PolicyPut {
                pool: default_pool(),
                subject: default_subject(),
                policy: Policy::default(),
            });
        }
        match recovers {
            Some(why) => self.begin_recovery(why, self.began_at),
            None => self.await_recovery(),
        }
        self.await_nodes();
        self.await_deadlines();
        self.await_all_overdue();
        self.await_all_units();
        self.settle();
    }

    fn await_nodes(&mut self) {
        let nodes = self.state.nodes().values();
        let nodes: Vec<_> = nodes.map(|node| (node.name.clone(), node.state)).collect();
        for (node, state) in nodes {
            self.contacts
                .insert(node.clone(), Contact::silent_since(self.now));
            match state {
                NodeState::Ready | NodeState::Reconciling | NodeState::Unsupervised => {
                    self.record(Record::NodeUnreachable { node: node.clone() });
                    self.watch(&node);
                }
                NodeState::Unreachable => self.watch(&node),
                NodeState::Lost => {}
            }
        }
    }

    /// Handles one event. `now` is the time of it; one that is before the last is taken for the last.
    ///
    /// # Panics
    /// Where [`Core::start`] was not called before.
    pub fn handle(&mut self, now: Time, input: Input) {
        self.now = self.now.max(now);
        match input {
            Input::Submit { reply, steps } => self.on_submit(reply, steps),
            Input::Preview { reply, step } => self.on_preview(reply, *step),
            Input::Cancel { reply, step, grace } => self.on_cancel(reply, step, grace),
            Input::Steer { reply, step, steer } => self.on_steer(reply, step, steer),
            Input::NodeHello {
                session,
                hello,
                claim,
                epoch_is_proven,
            } => self.on_node_hello(session, *hello, &claim, epoch_is_proven),
            Input::FromNode {
                session,
                node,
                message,
            } => self.on_from_node(session, &node, message),
            Input::Heartbeat {
                session,
                node,
                beat,
            } => self.on_heartbeat(session, &node, &beat),
            Input::NodeGone { session, node } => self.on_node_gone(session, &node),
            Input::Apply {
                reply,
                changes,
                force,
                dry_run,
            } => self.on_apply(reply, &changes, force, dry_run),
            Input::Access { reply, change } => self.on_access(reply, change),
            Input::Audit { entry } => self.on_audit(entry),
            Input::MakeJoinToken { reply, token } => self.on_make_join_token(reply, token),
            Input::RevokeJoinToken { reply, token } => self.on_revoke_join_token(reply, token),
            Input::Join { reply, ask } => self.on_join(reply, ask),
            Input::Timer(TimerKey::NodeSilence(node)) => self.on_silence(&node),
            Input::ChangeNode {
                reply,
                node,
                change,
            } => self.on_change_node(reply, &node, change),
            Input::Timer(TimerKey::DrainDeadline(node)) => self.on_drain_deadline(&node),
            Input::Timer(TimerKey::Suspension(id)) => self.on_suspension_timer(&id),
            Input::Timer(TimerKey::Changes(node)) => self.on_changes_timer(&node),
            Input::Timer(TimerKey::Queue(id)) => self.on_queue_timer(&id),
            Input::Timer(TimerKey::Pool(pool)) => {
                self.dirty.insert(pool);
            }
            // It is looked at after every input.
            Input::Timer(TimerKey::Recovery) => {}
            Input::Warrant {
                session,
                node,
                attempt,
                warrant,
            } => self.on_warrant(session, &node, &attempt, warrant),
            Input::EndRecovery { reply } => self.on_end_recovery(reply),
            Input::ClockJumped(by) => self.record(Record::ClockJumped(ClockJump { by })),
            // Those that are too many are forgotten after every input.
            Input::Bounds(bounds) => self.settings.bounds = bounds,
        }
        self.settle();
    }

    /// Lets start what can, and forgets what is old.
    fn settle(&mut self) {
        self.look_at_recovery();
        self.schedule();
        self.forget_old();
    }

    /// What is to be done since the last drain, in the order in which it must be done. The records of one drain are
    /// one truth and must become durable together or not at all.
    pub fn outputs(&mut self) -> Vec<Output> {
        let Outbox {
            mut records,
            mut sends,
            replies,
            timers,
        } = core::mem::take(&mut self.outbox);
        sends.iter_mut().for_each(|output| self.number(output));
        records.extend(sends);
        records.extend(replies);
        records.extend(timers);
        records
    }

    /// The truth as it stands, records that were not drained yet included.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The terms that it was given.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// When a node was heard last, if it was in this run.
    pub fn heard_at(&self, node: &NodeName) -> Option<Time> {
        self.contacts.get(node)?.heard_at
    }

    /// Makes a fact true and has it stored. The one way in which a decision takes effect.
    pub(crate) fn record(&mut self, record: Record) {
        let stamped = Stamped {
            seq: self.state.seq() + 1,
            at: self.now,
            record,
        };
        self.dirty.extend(stirred(&self.state, &stamped.record));
        if let Some(undo) = &mut self.undo {
            undo.note(&self.state, &stamped.record);
        }
        let fits = self.state.apply(&stamped);
        fits.expect("what the core decides follows from the state it decides on");
        self.dirty.extend(stirred(&self.state, &stamped.record));
        self.outbox.records.push(Output::Record(stamped));
    }

    /// The facts after the one with this number that were not drained yet.
    pub(crate) fn records_after(&self, seq: u64) -> impl Iterator<Item = &Record> {
        self.outbox
            .records
            .iter()
            .filter_map(move |output| match output {
                Output::Record(stamped) if stamped.seq > seq => Some(&stamped.record),
                Output::Record(_)
                | Output::Greet { .. }
                | Output::ToNode { .. }
                | Output::Reply { .. }
                | Output::LetGo { .. }
                | Output::SetTimer { .. } => None,
            })
    }

    pub(crate) fn epoch(&self) -> &Epoch {
        let epoch = self.state.epoch();
        epoch.expect("the core was started before it is driven")
    }

    pub(crate) fn greet(&mut self, session: SessionId, greeting: Greeting) {
        self.outbox.sends.push(Output::Greet { session, greeting });
    }

    pub(crate) fn output_send(&mut self, output: Output) {
        self.outbox.sends.push(output);
    }

    /// Tells a node, if it is linked; if not, its next hello shows what it missed.
    pub(crate) fn send(&mut self, node: &NodeName, order: ToNode) {
        let contact = self.contacts.get(node);
        if let Some(session) = contact.and_then(|contact| contact.session) {
            let command = Command {
                epoch: self.epoch().clone(),
                // Both are filled in when it goes out: what a dry run would say is never said.
                number: 0,
                heard: BootMillis(0),
                order,
            };
            self.outbox.sends.push(Output::ToNode {
                session,
                node: node.clone(),
                command,
            });
        }
    }

    /// Gives an order that goes out its place on the connection that it goes by.
    fn number(&mut self, output: &mut Output) {
        if let Output::ToNode {
            session,
            node,
            command,
        } = output
            && let Some(contact) = self.contacts.get_mut(node)
            && contact.session == Some(*session)
        {
            contact.hearing.say(command);
        }
    }

    pub(crate) fn reply(&mut self, reply: ReplyId, answer: Answer) {
        self.outbox.replies.push(Output::Reply { reply, answer });
    }

    pub(crate) fn set_timer(&mut self, key: TimerKey, at: Time) {
        self.outbox.timers.push(Output::SetTimer { key, at });
    }
}
