//! Tracks which orders arrived at a host: what was sent on one connection, and what the host's heartbeats say about
//! it. Pure, and forgotten with the connection.
//!
//! A host says with each heartbeat how many orders had arrived by then, and which of its heartbeats was answered
//! last. So a connection that loses everything on the way to the host is found although every message of the host
//! arrives. An order to start or resume an attempt is valid for a limited time, by the host's own clock: if a
//! heartbeat was sent after that and does not count the order, the order will never be carried out.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use sluice_common::id::AttemptId;
use sluice_common::limit::MAX_ATTEMPTS_PER_NODE;
use sluice_common::supervision::BootMillis;
use sluice_common::time::Span;
use sluice_common::wire::{Command, Heartbeat, ToNode};

use crate::input::Settings;

/// Orders of one connection.
#[derive(Clone, Debug)]
pub(crate) struct OrderDelivery {
    /// Latest time of the host's own clock in a heartbeat.
    said_at: BootMillis,
    /// Number of the newest order.
    orders: u64,
    /// Assignments that the host has not counted yet, by order number, with the attempt and the heartbeat that they
    /// answer.
    unseen: BTreeMap<u64, (AttemptId, BootMillis)>,
    /// Whether the host hears nothing, by its own reports.
    deaf: bool,
}

/// Shortest validity of an order, however short the terms: programs can stall for seconds on busy hosts.
const LEAST_ORDER_LIMIT: Span = Span::from_secs(10);

/// The settings that apply to orders.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeliveryTerms {
    heartbeat: Span,
    /// Validity of an order to start or resume an attempt.
    pub(crate) order_limit: Span,
}

impl From<&Settings> for DeliveryTerms {
    /// Orders are valid for less than `unreachable_after`, so that a host that hears nothing shows during the same
    /// connection that its orders have expired; and for less than `lost_after`, when steps start elsewhere.
    fn from(settings: &Settings) -> Self {
        let part = Span::from_millis(settings.unreachable_after.millis() / 3 * 2);
        let most = Span::from_millis(settings.lost_after.millis() / 2);
        Self {
            heartbeat: settings.heartbeat,
            order_limit: part.max(LEAST_ORDER_LIMIT).min(most),
        }
    }
}

impl OrderDelivery {
    /// Starts the count for a connection whose hello was sent at this time.
    pub(crate) fn since(said_at: BootMillis) -> Self {
        Self {
            said_at,
            orders: 0,
            unseen: BTreeMap::new(),
            deaf: false,
        }
    }

    /// Whether the host hears nothing: it gets no new work.
    pub(crate) fn is_deaf(&self) -> bool {
        self.deaf
    }

    /// Numbers an outgoing order, and adds the heartbeat that it answers.
    pub(crate) fn say(&mut self, command: &mut Command) {
        self.orders += 1;
        command.number = self.orders;
        command.last_heard = self.said_at;
        if let ToNode::Assign(assignment) = &command.order
            && self.unseen.len() < MAX_ATTEMPTS_PER_NODE
        {
            let sent = (assignment.attempt.clone(), self.said_at);
            self.unseen.insert(self.orders, sent);
        }
    }

    /// Handles a heartbeat. Returns the attempts whose assignments did not arrive and are no longer valid.
    pub(crate) fn on_heartbeat(
        &mut self,
        beat: &Heartbeat,
        terms: DeliveryTerms,
    ) -> Vec<AttemptId> {
        self.said_at = self.said_at.max(beat.sent_at);
        let unanswered = beat.sent_at.0.saturating_sub(beat.last_acknowledged.0);
        // Two heartbeats may be late before the third counts.
        self.deaf = unanswered.saturating_mul(2) > terms.heartbeat.millis().saturating_mul(5);
        let runs_out = |heard: BootMillis| heard.0.saturating_add(terms.order_limit.millis());
        let (mut void, mut unseen) = (Vec::new(), BTreeMap::new());
        for (number, (attempt, heard)) in core::mem::take(&mut self.unseen) {
            if number <= beat.last_order {
                continue;
            }
            match runs_out(heard) <= beat.sent_at.0 {
                true => void.push(attempt),
                false => drop(unseen.insert(number, (attempt, heard))),
            }
        }
        self.unseen = unseen;
        void
    }
}
