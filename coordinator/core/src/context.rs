//! The context that a handler works on. It reads the state, the connections and the time, and pushes what it decides:
//! records, orders, replies and timers. The driver drains these ([`Context::outputs`]).

mod affected;
mod dry_run;
mod due_allocations;
mod due_services;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::id::{Epoch, NodeName, PoolName, ServiceName, StepId};
use sluice_common::supervision::BootMillis;
use sluice_common::time::Time;
use sluice_common::wire::{Command, HelloReply, ToNode};

pub(crate) use self::affected::PoolCheck;
use self::affected::PoolChecks;
use crate::contact::Contact;
use crate::input::{Bounds, ReplyId, SessionId, Settings, TimerKey};
use crate::model::recovery::LogPoint;
use crate::output::{Answer, Output};
use crate::record::{LogEntry, Record};
use crate::services::load::ServiceLoads;
use crate::state::{Rollback, State};

/// The state, the connections, and the collected outputs.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    settings: Settings,
    state: State,
    contacts: BTreeMap<NodeName, Contact>,
    /// Pools in which a change could let a step start.
    affected: PoolChecks,
    /// Services for which something may be due.
    due_services: BTreeSet<ServiceName>,
    /// Allocations inside which a step may start or must end.
    due_allocations: BTreeSet<StepId>,
    service_loads: BTreeMap<ServiceName, ServiceLoads>,
    now: Time,
    listening_since: Time,
    began_at: LogPoint,
    outbox: Outbox,
    /// Values before the changes of a dry run.
    rollback: Option<Box<Rollback>>,
}

/// Collected outputs by kind, in the order in which they must be carried out.
#[derive(Clone, Debug, Default)]
struct Outbox {
    records: Vec<Output>,
    sends: Vec<Output>,
    replies: Vec<Output>,
    timers: Vec<Output>,
}

impl Context {
    pub(crate) fn new(settings: Settings, state: State) -> Self {
        Self {
            settings,
            state,
            contacts: BTreeMap::new(),
            affected: PoolChecks::default(),
            due_services: BTreeSet::new(),
            due_allocations: BTreeSet::new(),
            service_loads: BTreeMap::new(),
            now: Time::default(),
            listening_since: Time::default(),
            began_at: LogPoint::default(),
            outbox: Outbox::default(),
            rollback: None,
        }
    }

    /// Starts the time of this run.
    pub(crate) fn begin(&mut self, now: Time) {
        self.now = now;
        self.listening_since = now;
        self.began_at = self.state.log_point();
    }

    /// Sets the time of the next input. Time never goes back.
    pub(crate) fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
    }

    /// The state with all records, also those that are not drained yet.
    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn set_bounds(&mut self, bounds: Bounds) {
        self.settings.bounds = bounds;
    }

    /// Time of the current input.
    pub(crate) fn now(&self) -> Time {
        self.now
    }

    /// Start time of this run.
    pub(crate) fn listening_since(&self) -> Time {
        self.listening_since
    }

    /// Position in the log at the start of this run.
    pub(crate) fn began_at(&self) -> LogPoint {
        self.began_at
    }

    pub(crate) fn epoch(&self) -> &Epoch {
        let epoch = self.state.epoch();
        epoch.expect("the core was started before it is driven")
    }

    /// The connections of all nodes that were heard, or awaited, in this run.
    pub(crate) fn contacts(&self) -> &BTreeMap<NodeName, Contact> {
        &self.contacts
    }

    pub(crate) fn contact(&self, node: &NodeName) -> Option<&Contact> {
        self.contacts.get(node)
    }

    pub(crate) fn contact_mut(&mut self, node: &NodeName) -> Option<&mut Contact> {
        self.contacts.get_mut(node)
    }

    /// Sets the connection of a node and returns the previous one.
    pub(crate) fn set_contact(&mut self, node: NodeName, contact: Contact) -> Option<Contact> {
        self.contacts.insert(node, contact)
    }

    /// A pool in which a change could let a step start, if one is left to check.
    pub(crate) fn affected_pool(&self) -> Option<(&PoolName, &PoolCheck)> {
        self.affected.first()
    }

    /// Whether the whole queue of a pool is to be checked.
    pub(crate) fn is_affected(&self, pool: &PoolName) -> bool {
        self.affected.is_whole(pool)
    }

    pub(crate) fn set_affected(&mut self, pool: PoolName) {
        self.affected.insert(pool);
    }

    /// Marks a pool as checked: no step starts there until something changes, or until that time.
    pub(crate) fn set_settled(&mut self, pool: &PoolName, until: Option<Time>) {
        self.affected.set_settled(pool, until);
    }

    /// Applies a record to the state and has it stored. Every decision takes effect here.
    pub(crate) fn record(&mut self, record: Record) {
        let stamped = LogEntry {
            seq: self.state.seq() + 1,
            at: self.now,
            record,
        };
        self.affected.note(&self.state, &stamped.record, self.now);
        if let Some(rollback) = &mut self.rollback {
            rollback.note(&self.state, &stamped.record);
        }
        let fits = self.state.apply(&stamped);
        fits.expect("what the core decides follows from the state it decides on");
        self.affected.note(&self.state, &stamped.record, self.now);
        self.note_due_services(&stamped.record);
        self.note_due_allocations(&stamped.record);
        self.outbox.records.push(Output::Record(stamped));
    }

    /// The records after this number that are not drained yet.
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

    pub(crate) fn greet(&mut self, session: SessionId, greeting: HelloReply) {
        self.outbox.sends.push(Output::Greet { session, greeting });
    }

    pub(crate) fn unhold_step(&mut self, session: SessionId, why: &str) {
        let why = String::from(why);
        self.outbox.sends.push(Output::LetGo { session, why });
    }

    /// Sends an order to a node, if it is connected. If it is not, its next hello shows what it missed.
    pub(crate) fn send(&mut self, node: &NodeName, order: ToNode) {
        let contact = self.contacts.get(node);
        if let Some(session) = contact.and_then(|contact| contact.session) {
            let command = Command {
                epoch: self.epoch().clone(),
                // Both are filled in when the order goes out, because a dry run sends none.
                number: 0,
                last_heard: BootMillis(0),
                order,
            };
            self.outbox.sends.push(Output::ToNode {
                session,
                node: node.clone(),
                command,
            });
        }
    }

    /// Numbers an outgoing order on its connection.
    fn number(&mut self, output: &mut Output) {
        if let Output::ToNode {
            session,
            node,
            command,
        } = output
            && let Some(contact) = self.contacts.get_mut(node)
            && contact.session == Some(*session)
        {
            contact.delivery.say(command);
        }
    }

    pub(crate) fn reply(&mut self, reply: ReplyId, answer: Answer) {
        self.outbox.replies.push(Output::Reply { reply, answer });
    }

    pub(crate) fn set_timer(&mut self, key: TimerKey, at: Time) {
        self.outbox.timers.push(Output::SetTimer { key, at });
    }

    /// Takes the outputs since the last drain, in the order in which they must be carried out. The records of one
    /// drain must become durable together or not at all.
    pub(crate) fn outputs(&mut self) -> Vec<Output> {
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
}
