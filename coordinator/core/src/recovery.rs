//! The store is of an earlier time than the hosts: it was put back from a backup, or lost. What hosts run is *adopted*
//! by the warrants that they show, and nothing new starts until all that may run is known again or has stopped.
//!
//! ```text
//! a status of an attempt that is not known here --> asked for its warrant --> adopted, and followed like any other
//!                                                        |      \--> waits for the other hosts of its gang
//!        no warrant, or one of before what we know ------+--> a stray: it is stopped
//! ```
//! A host that is remembered has reported, or is lost when it has been silent for `lost_after`. One that joined after the
//! time of the store is not remembered, and may run a step that waits here: so a recovery lasts until the leases of
//! earlier coordinators have run out, unless an admin ends it. What the store has running and its host does not know was
//! over, or never began: its step waits again, for free.

mod adoption;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::host_health::SupervisorState;
use sluice_common::id::{AttemptId, NodeName, PoolName, StepId};
use sluice_common::reason::{Reason, ReasonCode};
use sluice_common::rules::PoolRules;
use sluice_common::state::NodeState;
use sluice_common::supervision::Exit;
use sluice_common::time::{Span, Time};
use sluice_common::wire::{AttemptPhase, AttemptStatus, StopWhy};

use crate::core::Core;
use crate::input::{ReplyId, TimerKey};
use crate::output::{Answer, Refusal};
use crate::record::Record;
use crate::state::recovery::{LogPoint, RecoveryEnd, RecoveryWhy, Warrant};
use crate::state::{Attempt, PartPhase, Step, SuspensionPhase};
use crate::words;

/// How long a host that was asked for warrants holds up the end of a recovery. They are files that it reads.
const ANSWER_LIMIT: Span = Span::from_secs(30);

/// How many of the nodes that are waited for are named.
const NAMED_NODES: usize = 5;

/// An attempt whose host was asked for its warrant.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// Where it stands, by its host's last word.
    phase: AttemptPhase,
    /// When the host was asked.
    at: Time,
    /// Its warrant, where it waits for other hosts of its gang.
    warrant: Option<Box<Warrant>>,
}

impl Core {
    /// From now on nothing new starts. What was granted up to `known` the store knows of.
    pub(crate) fn begin_recovery(&mut self, why: RecoveryWhy, known: LogPoint) {
        let before = self.state.recovery().map(|recovery| recovery.known);
        let known = before.map_or(known, |before| before.min(known));
        self.record(Record::RecoveryBegan { why, known });
        self.await_recovery();
    }

    /// Wakes us when the recovery may end.
    pub(crate) fn await_recovery(&mut self) {
        if self.state.recovery().is_some() {
            let at = self.recovery_lasts_until();
            self.set_timer(TimerKey::Recovery, at);
        }
    }

    /// When all has stopped that no host has told of: each lease of an earlier coordinator has run out, as for nodes that
    /// are lost.
    pub fn recovery_lasts_until(&self) -> Time {
        let silent = self.listening_since + self.settings.lost_after;
        silent.max(self.state.no_loss_before())
    }

    /// The remembered nodes that have not told yet what they run, and are not lost.
    pub fn unreported(&self) -> impl Iterator<Item = &NodeName> {
        let nodes = self.state.nodes().values();
        let there = nodes.filter(|node| node.state != NodeState::Lost);
        let silent = there.filter(|node| !self.has_told(&node.name));
        silent.map(|node| &node.name)
    }

    /// Whether a host has told in this run what it has. One whose agent has not heard its supervisor does not know.
    pub(super) fn has_told(&self, node: &NodeName) -> bool {
        let contact = self.contacts.get(node);
        contact.is_some_and(|contact| {
            let knows = !matches!(contact.supervisor, SupervisorState::Unheard(_));
            knows && contact.heard_at.is_some()
        })
    }

    /// Ends the recovery when it has come to its end; asked after every input.
    pub(crate) fn look_at_recovery(&mut self) {
        let over = self.state.recovery().is_some() && self.now >= self.recovery_lasts_until();
        if !over || self.unreported().next().is_some() {
            return;
        }
        match self.answers_due_at() {
            Some(at) if at > self.now => self.set_timer(TimerKey::Recovery, at),
            Some(_) | None => self.end_recovery(RecoveryEnd::Complete),
        }
    }

    /// Until when answers of hosts are waited for.
    fn answers_due_at(&self) -> Option<Time> {
        let asked = self
            .contacts
            .values()
            .flat_map(|contact| contact.asked.values());
        let unanswered = asked.filter(|asked| asked.warrant.is_none());
        unanswered.map(|asked| asked.at + ANSWER_LIMIT).max()
    }

    /// What was not adopted by now is not known here, and is stopped.
    fn end_recovery(&mut self, end: RecoveryEnd) {
        self.record(Record::RecoveryEnded { end });
        let nodes: Vec<NodeName> = self.contacts.keys().cloned().collect();
        for node in nodes {
            for (id, asked) in self.take_asked(&node) {
                self.on_stray(
                    &node,
                    AttemptStatus {
                        attempt: id,
                        phase: asked.phase,
                    },
                );
            }
            self.settle_again(&node);
        }
    }

    fn take_asked(&mut self, node: &NodeName) -> BTreeMap<AttemptId, Asked> {
        let contact = self.contacts.get_mut(node);
        contact
            .map(|contact| core::mem::take(&mut contact.asked))
            .unwrap_or_default()
    }

    /// Why nothing starts.
    pub(crate) fn recovering(&self) -> Reason {
        let nodes: Vec<String> = self.unreported().map(|node| format!("`{node}`")).collect();
        let awaited = match nodes.is_empty() {
            true => String::from("hosts that it does not remember may still run steps"),
            false => format!(
                "{} have not told what they run",
                words::shortened(nodes, NAMED_NODES)
            ),
        };
        let left = self.recovery_lasts_until().since(self.now);
        let message = format!(
            "the coordinator was brought back from an earlier time, and nothing starts yet: {awaited}; all of that is over \
             in {left} at the latest, and `sluice recovery end` does not wait for it"
        );
        Reason::new(ReasonCode::Recovering, message)
    }

    /// An admin does not wait for hosts that have not reported.
    pub(crate) fn on_end_recovery(&mut self, reply: ReplyId) {
        let changed = match self.state.recovery() {
            Some(_) => {
                self.end_recovery(RecoveryEnd::Ordered);
                Ok(())
            }
            None => Err(Refusal::NotRecovering),
        };
        self.reply(reply, Answer::Changed(changed));
    }

    /// A host of a pool that the store does not know: others of the cluster made it after the time of the store.
    pub(crate) fn know_pool(&mut self, pool: &PoolName, node: &NodeName) {
        if self.state.recovery().is_none() || self.state.pool(pool).is_some() {
            return;
        }
        self.record(Record::PoolPut {
            pool: pool.clone(),
            description: format!(
                "told by `{node}` in a recovery: its terms are to be applied again"
            ),
            capacity: BTreeMap::new(),
            min_runtime: Span::ZERO,
            require: BTreeSet::new(),
            rules: PoolRules::default(),
        });
    }

    /// A host does not know an attempt that the store has there. It was over, or never began; which of both, nobody knows.
    pub(crate) fn lose_track(&mut self, node: &NodeName, id: &AttemptId) {
        let Some((_, attempt, part)) = self.live_on(node, id) else {
            return;
        };
        if attempt.stopping.is_some() {
            return self.vanish(node, id, Exit::Unknown);
        }
        let started = part.started;
        self.record(Record::Stopping {
            attempt: id.clone(),
            why: StopWhy::Superseded,
            by: None,
            grace: None,
        });
        self.send_stops(id, StopWhy::Superseded, Some(node));
        let Some((_, attempt, _)) = self.live_on(node, id) else {
            return;
        };
        let end = self.unseen(attempt, started);
        self.record(Record::Ended {
            attempt: id.clone(),
            node: node.clone(),
            end,
        });
        self.queue_untracked(node, &id.step);
        self.record_released(node, id);
    }

    fn queue_untracked(&mut self, node: &NodeName, step: &StepId) {
        let latest = self.state.step(step).and_then(Step::latest);
        if latest.is_some_and(Attempt::has_ended) {
            self.queue_again(Record::Requeued {
                step: step.clone(),
                reason: words::lost_track(node),
            });
        }
    }

    /// Attempts that hosts froze or brought back after the time of the store: they stand here as they stand there. `moved_mb`
    /// is what was moved of one that is frozen.
    pub(crate) fn follow_suspension(
        &mut self,
        node: &NodeName,
        id: &AttemptId,
        moved_mb: Option<u64>,
    ) {
        if self.state.recovery().is_none() {
            return;
        }
        let Some((_, attempt, part)) = self.live_on(node, id) else {
            return;
        };
        // What has ended is neither, whatever its host says.
        let runs = part.phase == PartPhase::Running;
        if !runs || attempt.stopping.is_some() || attempt.parts.len() > 1 {
            return;
        }
        let gpus = part.gpus.clone();
        match (moved_mb, attempt.suspension()) {
            (Some(moved_mb), None | Some(SuspensionPhase::Resuming)) => {
                let room_mb = moved_mb.min(self.memory_of_gpus(node, &gpus));
                self.record(Record::Suspending {
                    attempt: id.clone(),
                    by: None,
                    room_mb,
                });
            }
            (None, Some(SuspensionPhase::Suspended)) => self.follow_resumption(node, id, &gpus),
            (Some(_), Some(SuspensionPhase::Suspending | SuspensionPhase::Suspended))
            | (None, None | Some(SuspensionPhase::Suspending | SuspensionPhase::Resuming)) => {}
        }
    }

    /// It runs where it was frozen. Where its GPUs are another's here it is stopped: the host says what cannot be.
    fn follow_resumption(&mut self, node: &NodeName, id: &AttemptId, gpus: &[String]) {
        let free = gpus.iter().all(|gpu| !self.state.is_granted(node, gpu));
        if !free {
            return self.stop_attempt(id, StopWhy::Superseded, None);
        }
        self.record(Record::Resuming {
            attempt: id.clone(),
            backfill: BTreeSet::new(),
        });
    }
}
