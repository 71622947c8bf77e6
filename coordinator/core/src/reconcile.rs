//! What hosts say of attempts, held against what is true here. A status is where an attempt stands now: it implies all
//! that came before, a repeat is harmless, and it never takes an attempt back.
//!
//! An attempt is *live on* a node while it holds units there. One that a host holds and that is not live on it is a
//! *stray*: it was ended here (its host was lost, say) or never known, so it is stopped, and none of the host's units
//! are given until it is gone.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::id::{AttemptId, NodeName, StepId};
use sluice_common::limit::{DEFAULT_GRACE, MAX_ATTEMPTS_PER_NODE};
use sluice_common::supervision::Exit;
use sluice_common::time::Span;
use sluice_common::usage::Usage;
use sluice_common::wire::{
    AttemptEnd, AttemptPhase, AttemptStatus, Gang, Started, StopWhy, ToNode,
};

use crate::core::Core;
use crate::launch;
use crate::record::Record;
use crate::state::{Attempt, Part, PartPhase, Step};
use crate::verdict::{Verdict, verdict};
use crate::words;

impl Core {
    /// Settles what a hello lists, and what it does not list.
    pub(crate) fn reconcile(
        &mut self,
        node: &NodeName,
        statuses: Vec<AttemptStatus>,
        rebooted: bool,
    ) {
        let listed: BTreeSet<AttemptId> = statuses.iter().map(|s| s.attempt.clone()).collect();
        if self.state.recovery().is_some() {
            // What holds nothing there any more goes first: others may have its GPUs.
            self.miss(node, &listed, rebooted);
            let (running, idle) = statuses.into_iter().partition(|s| holds_gpus(&s.phase));
            let (running, idle): (Vec<_>, Vec<_>) = (running, idle);
            let in_order = idle.into_iter().chain(running);
            in_order.for_each(|status| self.take_listed(node, status));
            return;
        }
        for status in statuses {
            self.take_listed(node, status);
        }
        self.miss(node, &listed, rebooted);
    }

    /// Takes in a status that shows what its host missed.
    pub(crate) fn take_listed(&mut self, node: &NodeName, status: AttemptStatus) {
        let id = status.attempt.clone();
        let is_frozen = matches!(
            status.phase,
            AttemptPhase::Suspending(_) | AttemptPhase::Suspended { .. }
        );
        let missed_stop = match &status.phase {
            AttemptPhase::Starting
            | AttemptPhase::Running(_)
            | AttemptPhase::Suspending(_)
            | AttemptPhase::Suspended { .. }
            | AttemptPhase::Resuming(_)
            | AttemptPhase::NotSuspended { .. } => Some(id),
            AttemptPhase::Stopping { .. } | AttemptPhase::Ended(_) | AttemptPhase::Released(_) => {
                None
            }
        };
        self.take_status(node, status);
        if let Some(attempt) = missed_stop {
            self.stop_again(node, &attempt);
            self.steer_again(&attempt, is_frozen);
        }
    }

    /// Settles what is live on a node that does not list it.
    fn miss(&mut self, node: &NodeName, listed: &BTreeSet<AttemptId>, rebooted: bool) {
        let held: Vec<AttemptId> = self.state.attempts_on(node).cloned().collect();
        for attempt in held.iter().filter(|attempt| !listed.contains(attempt)) {
            self.on_missing(node, attempt, rebooted);
        }
    }

    /// The order to stop was lost with an earlier connection.
    fn stop_again(&mut self, node: &NodeName, id: &AttemptId) {
        if let Some((step, attempt, _)) = self.live_on(node, id)
            && let Some(why) = attempt.stopping
        {
            let grace = attempt.grace(step);
            self.send_stop(node, id, why, grace);
        }
    }

    pub(crate) fn send_stop(&mut self, node: &NodeName, id: &AttemptId, why: StopWhy, grace: Span) {
        let attempt = id.clone();
        let order = ToNode::Stop {
            attempt,
            why,
            grace,
        };
        self.send(node, order);
    }

    /// An attempt that is live on a node which does not know it.
    fn on_missing(&mut self, node: &NodeName, id: &AttemptId, rebooted: bool) {
        let Some((_, attempt, part)) = self.live_on(node, id) else {
            return;
        };
        // A host lists whatever it has begun, so one that was not seen running has not: the order was lost with an
        // agent, be it before or after that agent had acknowledged it.
        let unbegun = part.phase <= PartPhase::Starting && attempt.stopping.is_none();
        if part.phase == PartPhase::Ended {
            self.record_released(node, id);
        } else if rebooted {
            self.vanish(node, id, Exit::HostRebooted);
        } else if self.state.recovery().is_some() {
            self.lose_track(node, id);
        } else if unbegun {
            self.send_assignment(node, id);
        } else {
            self.vanish(node, id, Exit::Unknown);
        }
    }

    /// Ends an attempt of which nothing is left, by our own clock and word.
    pub(crate) fn vanish(&mut self, node: &NodeName, id: &AttemptId, exit: Exit) {
        let Some((_, attempt, part)) = self.live_on(node, id) else {
            return;
        };
        let end = AttemptEnd {
            started: part.started,
            exit,
            stopped: attempt.stopping,
            at: self.now,
            usage: Usage::default(),
        };
        self.at_least_ended(node, id, end);
        self.record_released(node, id);
    }

    /// Takes a status in. Whoever calls settles the node afterwards.
    pub(crate) fn take_status(&mut self, node: &NodeName, status: AttemptStatus) {
        if self.live_on(node, &status.attempt).is_some() {
            self.follow(node, status);
        } else if self.may_be_adopted(&status.attempt) {
            self.ask_for_warrant(node, status);
        } else {
            self.on_stray(node, status);
        }
    }

    fn follow(&mut self, node: &NodeName, status: AttemptStatus) {
        let AttemptStatus { attempt: id, phase } = status;
        if !matches!(phase, AttemptPhase::Suspended { .. }) {
            self.on_answer_to_resume(node, &id);
        }
        match phase {
            AttemptPhase::Starting => self.at_least_starting(node, &id),
            AttemptPhase::Running(process) => {
                self.at_least_running(node, &id, process);
                self.follow_suspension(node, &id, None);
                self.on_host_runs(node, &id);
            }
            AttemptPhase::Suspending(process) => self.at_least_running(node, &id, process),
            AttemptPhase::Resuming(process) => {
                self.at_least_running(node, &id, process);
                self.follow_suspension(node, &id, None);
            }
            AttemptPhase::Suspended { started, moved_mb } => {
                self.at_least_running(node, &id, started);
                self.follow_suspension(node, &id, Some(moved_mb));
                self.on_host_suspended(node, &id, moved_mb);
            }
            AttemptPhase::NotSuspended { started, why } => {
                self.at_least_running(node, &id, started);
                self.on_host_not_suspended(node, &id, why);
            }
            AttemptPhase::Stopping { started, why } => {
                self.at_least_stopping(node, &id, started, why)
            }
            AttemptPhase::Ended(end) => self.at_least_ended(node, &id, end),
            AttemptPhase::Released(end) => {
                self.at_least_ended(node, &id, end);
                self.record_released(node, &id);
                self.send(node, ToNode::Forget { attempt: id });
            }
        }
    }

    fn at_least_starting(&mut self, node: &NodeName, id: &AttemptId) {
        if self.phase_on(node, id) == Some(PartPhase::Allocated) {
            self.record(Record::Starting {
                attempt: id.clone(),
                node: node.clone(),
            });
        }
    }

    fn at_least_running(&mut self, node: &NodeName, id: &AttemptId, process: Started) {
        self.at_least_starting(node, id);
        if self.phase_on(node, id) == Some(PartPhase::Starting) {
            self.record(Record::Started {
                attempt: id.clone(),
                node: node.clone(),
                process,
            });
        }
    }

    fn at_least_stopping(
        &mut self,
        node: &NodeName,
        id: &AttemptId,
        started: Option<Started>,
        why: StopWhy,
    ) {
        match started {
            Some(process) => self.at_least_running(node, id, process),
            None => self.at_least_starting(node, id),
        }
        let live = self.live_on(node, id);
        let untold = live.is_some_and(|(_, attempt, part)| {
            part.phase < PartPhase::Ended && attempt.stopping.is_none()
        });
        if untold {
            self.record(Record::Stopping {
                attempt: id.clone(),
                why,
                by: None,
                grace: None,
            });
            // What a host stops by itself is stopped on the others too.
            self.send_stops(id, why, Some(node));
        }
    }

    pub(crate) fn at_least_ended(&mut self, node: &NodeName, id: &AttemptId, end: AttemptEnd) {
        if let Some(process) = end.started {
            self.at_least_running(node, id, process);
        }
        if self
            .phase_on(node, id)
            .is_none_or(|p| p >= PartPhase::Ended)
        {
            return;
        }
        let failed = match &end.exit {
            Exit::HostFailed(sentence) => Some(sentence.clone()),
            Exit::Code(_)
            | Exit::Signal(_)
            | Exit::PrologFailed(_)
            | Exit::NotBegun(_)
            | Exit::StartFailed(_)
            | Exit::LeaseExpired
            | Exit::HostRebooted
            | Exit::OutOfMemory(_)
            | Exit::StorageExceeded(_)
            | Exit::Unknown => None,
        };
        let stopped = end.stopped;
        self.record(Record::Ended {
            attempt: id.clone(),
            node: node.clone(),
            end,
        });
        if let Some(sentence) = failed {
            self.close_failing(node, &id.step, &sentence);
        }
        self.end_as_one(id, stopped);
        self.conclude(id);
    }

    /// A host that cannot start a step cannot start the next one either: it would take the queue and fail it, step by
    /// step. It is closed until an admin has seen to it.
    fn close_failing(&mut self, node: &NodeName, step: &StepId, sentence: &str) {
        let open = self
            .state
            .node(node)
            .is_some_and(|node| node.cordon.is_none());
        if open {
            self.record(Record::NodeCordoned {
                node: node.clone(),
                reason: words::closed_for(step, sentence),
            });
        }
    }

    /// A gang of which one part failed or was lost is stopped on its other hosts; `stopped` is why the part was being
    /// stopped by its own host, where it was.
    fn end_as_one(&mut self, id: &AttemptId, stopped: Option<StopWhy>) {
        let step = self.state.step(&id.step);
        let attempt = step.and_then(|step| step.attempt(id.number));
        let broken = attempt.is_some_and(|attempt| {
            attempt.broken_by.is_some()
                && attempt.stopping.is_none()
                && attempt.unended().next().is_some()
        });
        if broken {
            let why = stopped.unwrap_or(StopWhy::PeerEnded);
            self.stop_attempt(id, why, None);
        }
    }

    /// Records that an attempt is to stop and tells every host on which it has not ended.
    pub(crate) fn stop_attempt(&mut self, id: &AttemptId, why: StopWhy, by: Option<StepId>) {
        self.stop_attempt_within(id, why, by, None);
    }

    /// The same, with a grace of its own where that is the shorter one.
    pub(crate) fn stop_attempt_within(
        &mut self,
        id: &AttemptId,
        why: StopWhy,
        by: Option<StepId>,
        grace: Option<Span>,
    ) {
        self.record(Record::Stopping {
            attempt: id.clone(),
            why,
            by,
            grace,
        });
        self.send_stops(id, why, None);
    }

    /// Tells every host on which an attempt has not ended to stop it, but for the one that knows.
    pub(crate) fn send_stops(&mut self, id: &AttemptId, why: StopWhy, but: Option<&NodeName>) {
        let Some(step) = self.state.step(&id.step) else {
            return;
        };
        let attempt = step.attempt(id.number);
        let grace = attempt.map_or(step.spec.grace, |attempt| attempt.grace(step));
        let parts = attempt.into_iter();
        let hosts = parts.flat_map(Attempt::unended).map(|part| &part.node);
        let hosts = hosts.filter(|host| Some(*host) != but);
        for host in hosts.cloned().collect::<Vec<NodeName>>() {
            self.send_stop(&host, id, why, grace);
        }
    }

    /// The step goes on as soon as its attempt has ended on every host: users see the end at once, while the units
    /// come back when the hosts have seen them free.
    fn conclude(&mut self, id: &AttemptId) {
        let Some(step) = self.state.step(&id.step) else {
            return;
        };
        let Some(attempt) = step.attempt(id.number).filter(|a| a.has_ended()) else {
            return;
        };
        let step_id = id.step.clone();
        let mut hosts = attempt.parts.iter().map(|part| &part.node);
        let drained = hosts.find(|host| {
            let node = self.state.node(host);
            node.is_some_and(|node| node.drain().is_some())
        });
        match verdict(step, attempt, drained) {
            Verdict::Over(state, reason) => self.record(Record::StepEnded {
                step: step_id,
                state,
                reason,
            }),
            Verdict::Again(reason) => self.queue_again(Record::Requeued {
                step: step_id,
                reason,
            }),
        }
    }

    pub(crate) fn record_released(&mut self, node: &NodeName, id: &AttemptId) {
        self.record(Record::Released {
            attempt: id.clone(),
            node: node.clone(),
        });
        self.note_empty(node);
    }

    pub(crate) fn on_stray(&mut self, node: &NodeName, status: AttemptStatus) {
        let AttemptStatus { attempt: id, phase } = status;
        match phase {
            AttemptPhase::Released(_) => {
                if let Some(contact) = self.contacts.get_mut(node) {
                    contact.strays.remove(&id);
                }
                self.send(node, ToNode::Forget { attempt: id });
            }
            AttemptPhase::Starting
            | AttemptPhase::Running(_)
            | AttemptPhase::Stopping { .. }
            | AttemptPhase::Suspending(_)
            | AttemptPhase::Suspended { .. }
            | AttemptPhase::Resuming(_)
            | AttemptPhase::NotSuspended { .. }
            | AttemptPhase::Ended(_) => self.stop_new_stray(node, &id),
        }
    }

    /// Each stray is told once on a connection. A host cannot hold more attempts than its bound, so what is made up
    /// beyond it is told to stop and not remembered.
    fn stop_new_stray(&mut self, node: &NodeName, id: &AttemptId) {
        let Some(contact) = self.contacts.get_mut(node) else {
            return;
        };
        if contact.strays.contains(id) {
            return;
        }
        if contact.strays.len() < MAX_ATTEMPTS_PER_NODE {
            contact.strays.insert(id.clone());
        }
        self.stop_stray(node, id);
    }

    fn stop_stray(&mut self, node: &NodeName, id: &AttemptId) {
        let step = self.state.step(&id.step);
        let grace = step.map_or(DEFAULT_GRACE, |step| step.spec.grace);
        self.send_stop(node, id, StopWhy::Superseded, grace);
    }

    /// Tells every stray again, after a silence in which the first order may have been lost.
    pub(crate) fn stop_strays(&mut self, node: &NodeName) {
        let contact = self.contacts.get(node);
        let strays: Vec<AttemptId> = contact
            .map(|contact| contact.strays.iter().cloned().collect())
            .unwrap_or_default();
        for id in &strays {
            self.stop_stray(node, id);
        }
    }

    /// Tells a host what to run.
    pub(crate) fn send_assignment(&mut self, node: &NodeName, id: &AttemptId) {
        if let Some((step, attempt, part)) = self.live_on(node, id) {
            let gang = self.gang(attempt, part);
            let assignment = launch::assignment(id, (step, attempt, part), &self.state, gang);
            self.send(node, ToNode::Assign(Box::new(assignment)));
        }
    }

    /// The place of a part among the others.
    fn gang(&self, attempt: &Attempt, part: &Part) -> Gang {
        let rank = (0..).zip(&attempt.parts);
        let rank = rank.filter(|(_, other)| other.node == part.node);
        let address = |part: &Part| match self.state.node(&part.node) {
            Some(node) => String::from(node.address()),
            None => String::from(part.node.as_str()),
        };
        Gang {
            rank: rank.map(|(rank, _)| rank).next().unwrap_or_default(),
            hosts: attempt.parts.iter().map(address).collect(),
            port: attempt.port,
        }
    }

    fn phase_on(&self, node: &NodeName, id: &AttemptId) -> Option<PartPhase> {
        self.live_on(node, id).map(|(_, _, part)| part.phase)
    }

    /// An attempt that holds units on a node.
    pub(crate) fn live_on(
        &self,
        node: &NodeName,
        id: &AttemptId,
    ) -> Option<(&Step, &Attempt, &Part)> {
        let step = self.state.step(&id.step)?;
        let attempt = step.attempt(id.number)?;
        let part = attempt.on(node)?;
        (part.phase < PartPhase::Released).then_some((step, attempt, part))
    }
}

/// Whether an attempt in this phase may have the GPUs that it was given.
fn holds_gpus(phase: &AttemptPhase) -> bool {
    match phase {
        AttemptPhase::Starting
        | AttemptPhase::Running(_)
        | AttemptPhase::Stopping { .. }
        | AttemptPhase::Suspending(_)
        | AttemptPhase::Resuming(_)
        | AttemptPhase::NotSuspended { .. }
        | AttemptPhase::Ended(_) => true,
        AttemptPhase::Suspended { .. } | AttemptPhase::Released(_) => false,
    }
}
