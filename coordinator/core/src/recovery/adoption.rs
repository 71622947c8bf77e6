//! What hosts run and the store does not know: they are asked for its warrants, and by these it is one of ours again, or
//! it is stopped.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use sluice_common::id::{AttemptId, NodeName};
use sluice_common::limit::MAX_ATTEMPTS_PER_NODE;
use sluice_common::state::{NodeState, StepState};
use sluice_common::supervision::Exit;
use sluice_common::usage::Usage;
use sluice_common::wire::{AttemptEnd, AttemptPhase, AttemptStatus, Started, StopWhy, ToNode};

use super::Asked;
use crate::core::Core;
use crate::input::SessionId;
use crate::record::{Placement, Record};
use crate::state::recovery::{FrozenOnHost, Warrant};
use crate::state::{Attempt, Step};

/// What is to become of an attempt whose warrant was shown.
enum Ruling {
    Adopt,
    /// Another host of it is not known yet.
    Wait,
    Refuse,
}

impl Core {
    /// Whether an attempt that is not live on its host may be of after what the store knows.
    pub(crate) fn may_be_adopted(&self, id: &AttemptId) -> bool {
        if self.state.recovery().is_none() {
            return false;
        }
        self.state.step(&id.step).is_none_or(|step| {
            let last = step.latest().map_or(0, |last| last.number);
            last < id.number || is_past(step)
        })
    }

    /// Has a host show the warrant of an attempt, once; from then on its last word of it is kept.
    pub(crate) fn ask_for_warrant(&mut self, node: &NodeName, status: AttemptStatus) {
        let now = self.now;
        let Some(contact) = self.contacts.get_mut(node) else {
            return;
        };
        if let Some(asked) = contact.asked.get_mut(&status.attempt) {
            asked.phase = status.phase;
            return;
        }
        if contact.asked.len() >= MAX_ATTEMPTS_PER_NODE {
            return self.on_stray(node, status);
        }
        let asked = Asked {
            phase: status.phase,
            at: now,
            warrant: None,
        };
        contact.asked.insert(status.attempt.clone(), asked);
        self.send(
            node,
            ToNode::Show {
                attempt: status.attempt,
            },
        );
    }

    /// A host shows a warrant, or that it has none.
    pub(crate) fn on_warrant(
        &mut self,
        session: SessionId,
        node: &NodeName,
        id: &AttemptId,
        warrant: Option<Box<Warrant>>,
    ) {
        if !self.on_heard(session, node) {
            return;
        }
        let contact = self.contacts.get_mut(node);
        let Some(asked) = contact.and_then(|contact| contact.asked.get_mut(id)) else {
            return;
        };
        asked.warrant = warrant;
        self.rule(node, id);
        self.settle_node(node);
    }

    /// Looks again at what waited for this host, which has come.
    pub(crate) fn rule_again(&mut self) {
        let waiting = self.contacts.iter().flat_map(|(node, contact)| {
            let shown = contact
                .asked
                .iter()
                .filter(|(_, asked)| asked.warrant.is_some());
            shown.map(move |(id, _)| (node.clone(), id.clone()))
        });
        for (node, id) in waiting.collect::<Vec<_>>() {
            self.rule(&node, &id);
            self.settle_again(&node);
        }
    }

    /// One that is silent is settled when it is heard.
    pub(super) fn settle_again(&mut self, node: &NodeName) {
        let state = self.state.node(node).map(|node| node.state);
        if let Some(NodeState::Ready | NodeState::Reconciling | NodeState::Unsupervised) = state {
            self.settle_node(node);
        }
    }

    fn rule(&mut self, node: &NodeName, id: &AttemptId) {
        let contact = self.contacts.get(node);
        let Some(asked) = contact.and_then(|contact| contact.asked.get(id)).cloned() else {
            return;
        };
        let warrant = asked
            .warrant
            .map(|warrant| unheld(*warrant, node, &asked.phase));
        let ruling = match &warrant {
            Some(warrant) => self.judge_warrant(node, id, warrant, &asked.phase),
            None => Ruling::Refuse,
        };
        match (ruling, warrant) {
            (Ruling::Wait, _) => {}
            (Ruling::Adopt, Some(warrant)) if self.make_way(id) => {
                self.adopt(node, id, warrant, &asked.phase);
            }
            (Ruling::Adopt | Ruling::Refuse, _) => {
                if let Some(contact) = self.contacts.get_mut(node) {
                    contact.asked.remove(id);
                }
                self.on_stray(
                    node,
                    AttemptStatus {
                        attempt: id.clone(),
                        phase: asked.phase,
                    },
                );
            }
        }
    }

    fn judge_warrant(
        &self,
        node: &NodeName,
        id: &AttemptId,
        warrant: &Warrant,
        phase: &AttemptPhase,
    ) -> Ruling {
        let hosts: BTreeSet<&NodeName> = warrant.placements.iter().map(|it| &it.node).collect();
        let known = self.state.recovery().map(|recovery| recovery.known);
        let is_later = known.is_some_and(|known| warrant.told_at > known);
        let is_whole = hosts.contains(node) && hosts.len() == warrant.placements.len();
        if !is_later || !is_whole || !self.may_be_adopted(id) {
            return Ruling::Refuse;
        }
        // Of two steps of one name the later one counts, whatever its caller has done with it.
        let is_another = |step: &Step| step.submitted_at < warrant.submitted_at;
        let fits = self
            .state
            .step(&id.step)
            .is_none_or(|step| match is_past(step) {
                true => is_another(step),
                false => step.spec == warrant.spec,
            });
        let is_frozen = matches!(phase, AttemptPhase::Suspended { .. });
        if !fits || !(is_frozen || self.are_free(&warrant.placements)) {
            return Ruling::Refuse;
        }
        match hosts.iter().all(|host| self.state.node(host).is_some()) {
            true => Ruling::Adopt,
            false => Ruling::Wait,
        }
    }

    fn are_free(&self, placements: &[Placement]) -> bool {
        placements.iter().all(|placement| {
            let mut gpus = placement.gpus.iter();
            gpus.all(|gpu| !self.state.is_granted(&placement.node, gpu))
        })
    }

    /// The step waits, or is not there: an earlier attempt is over, for this one came after it, and an earlier step of
    /// that name was forgotten. Whether it is so then.
    fn make_way(&mut self, id: &AttemptId) -> bool {
        let Some(step) = self.state.step(&id.step) else {
            return true;
        };
        if is_past(step) {
            self.record(Record::StepForgotten {
                step: id.step.clone(),
            });
            return true;
        }
        if let Some(live) = step.live() {
            let earlier = step.attempt_id(live.number);
            self.end_earlier(&earlier);
        }
        let queued = |step: &Step| step.state == StepState::Queued;
        self.state.step(&id.step).is_some_and(queued)
    }

    /// Ends an attempt after which there was another. What it left on its hosts is stopped when they tell of it.
    fn end_earlier(&mut self, id: &AttemptId) {
        let attempt = |core: &Self| core.state.step(&id.step)?.attempt(id.number).cloned();
        if attempt(self).is_some_and(|attempt| attempt.stopping.is_none()) {
            self.stop_attempt(id, StopWhy::Superseded, None);
        }
        let Some(attempt) = attempt(self) else { return };
        for part in attempt.unended() {
            let end = self.unseen(&attempt, part.started);
            self.at_least_ended(&part.node, id, end);
        }
    }

    pub(super) fn unseen(&self, attempt: &Attempt, started: Option<Started>) -> AttemptEnd {
        AttemptEnd {
            started,
            exit: Exit::Unknown,
            stopped: attempt.stopping,
            at: self.now,
            usage: Usage::default(),
        }
    }

    fn adopt(&mut self, node: &NodeName, id: &AttemptId, warrant: Warrant, phase: &AttemptPhase) {
        self.know_pool(&warrant.pool, node);
        let hosts: Vec<NodeName> = warrant
            .placements
            .iter()
            .map(|it| it.node.clone())
            .collect();
        let mut here = warrant.placements.iter().filter(|it| it.node == *node);
        let gpus = here.next().map_or(&[][..], |it| &it.gpus);
        let frozen = frozen_in(phase, self.memory_of_gpus(node, gpus));
        self.record(Record::Adopted {
            attempt: id.clone(),
            node: node.clone(),
            warrant: Box::new(warrant),
            frozen,
        });
        for host in &hosts {
            self.take_up(host, id);
        }
        for host in &hosts {
            self.empty_drained(host);
        }
    }

    /// What a host has said of an attempt before it was adopted counts now. One that has told all it runs, and not this,
    /// has lost it.
    fn take_up(&mut self, host: &NodeName, id: &AttemptId) {
        let lost = self
            .state
            .node(host)
            .is_some_and(|node| node.state == NodeState::Lost);
        let has_told = self.has_told(host);
        let Some(contact) = self.contacts.get_mut(host) else {
            return;
        };
        let is_linked = contact.session.is_some() && has_told;
        match contact.asked.remove(id) {
            Some(asked) => self.take_listed(
                host,
                AttemptStatus {
                    attempt: id.clone(),
                    phase: asked.phase,
                },
            ),
            None if is_linked || lost => self.lose_track(host, id),
            None => {}
        }
        self.settle_again(host);
    }
}

/// Whether a step is over, and holds nothing.
fn is_past(step: &Step) -> bool {
    step.state.is_terminal() && !step.holds_units()
}

/// What has returned its units holds none: its GPUs may be another's by now.
fn unheld(mut warrant: Warrant, node: &NodeName, phase: &AttemptPhase) -> Warrant {
    if matches!(phase, AttemptPhase::Released(_)) {
        let mut placements = warrant.placements.iter_mut();
        if let Some(here) = placements.find(|placement| placement.node == *node) {
            here.gpus.clear();
        }
    }
    warrant
}

/// What is frozen, with no more moved from its GPUs than `most_mb`.
fn frozen_in(phase: &AttemptPhase, most_mb: u64) -> Option<FrozenOnHost> {
    match phase {
        AttemptPhase::Suspended { started, moved_mb } => Some(FrozenOnHost {
            process: *started,
            moved_mb: (*moved_mb).min(most_mb),
        }),
        AttemptPhase::Starting
        | AttemptPhase::Running(_)
        | AttemptPhase::Stopping { .. }
        | AttemptPhase::Ended(_)
        | AttemptPhase::Released(_)
        | AttemptPhase::Suspending(_)
        | AttemptPhase::Resuming(_)
        | AttemptPhase::NotSuspended { .. } => None,
    }
}
