//! From "nothing of an attempt is left" to `Released`: the wait for its GPUs to be *seen* free. What makes a
//! GPU free is in [`crate::gpus`].
//!
//! ```text
//!                no GPUs, or all of them seen free, or lost
//! nothing left -----------------------------------------------> Released
//!      |                                                           ^
//!      +--- `gpu_release_timeout` --- those not free are quarantined
//! ```
//! A look counts where it was begun after nothing was left. The states of the GPUs are told before the status that
//! returns them, so that nobody is granted what is not free.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::id::AttemptId;
use sluice_common::time::Span;
use sluice_common::wire::FromNode;

use crate::attempt::Attempt;
use crate::core::{Core, Supervisor};
use crate::gpus::{Hands, Holders};
use crate::input::{GpuHealth, GpuLook, Now, Seen, TimerKey};
use crate::output::Output;
use crate::stop::later;
use crate::waiting::Release;

use super::suspension::without;

/// Between two looks while somebody waits for a GPU.
const LOOK_FAST: Span = Span::from_millis(100);
/// Between two looks at GPUs that are quarantined until they are free.
const LOOK_SLOWLY: Span = Span::from_secs(5);

impl Core {
    /// Notes which GPUs an attempt was given. A supervisor that has lost what it was told of an attempt tells none, and
    /// takes none away by that.
    pub(crate) fn note_gpus(&mut self, id: &AttemptId, gpus: &[String]) {
        if !gpus.is_empty() {
            self.given.insert(id.clone(), gpus.to_vec());
        }
    }

    /// Nothing of an attempt is left: its GPUs are awaited, where it had any.
    pub(crate) fn await_gpus(&mut self, id: &AttemptId) {
        let given = self.given.get(id).cloned().unwrap_or_default();
        if given.is_empty() {
            return self.change(id, Attempt::on_free);
        }
        let (since, until) = (
            self.clock,
            later(self.clock, self.settings.gpu_release_timeout),
        );
        let release = Release {
            since,
            until,
            awaited: given.into_iter().map(|uuid| (uuid, None)).collect(),
        };
        self.releases.insert(id.clone(), release);
        self.wake(TimerKey::Release(id.clone()), until);
        self.look_at_gpus();
    }

    /// Somebody looked. Before the supervisor has told what runs, nobody knows whose doing it is that was seen. A look
    /// that another has overtaken shows who used a GPU before it came free, and would be taken for what it holds when idle.
    pub(crate) fn on_gpus(&mut self, now: Now, look: GpuLook) {
        if look.began < self.looked_at {
            return;
        }
        self.looked_at = look.began;
        if self.supervisor == Supervisor::Unheard {
            self.early_look = Some(look);
        } else {
            self.judge_look(now, &look);
        }
    }

    /// The supervisor has told what runs: what was seen before can be judged, so that the first hello tells of it.
    pub(crate) fn judge_early_look(&mut self, now: Now) {
        if let Some(look) = self.early_look.take() {
            self.judge_look(now, &look);
        }
    }

    fn judge_look(&mut self, now: Now, look: &GpuLook) {
        let away = self.away();
        let seen_through = (!away.is_empty()).then(|| without(look, &away));
        let look = seen_through.as_ref().unwrap_or(look);
        for (uuid, seen) in &look.gpus {
            let hands = self.hands(uuid);
            self.gpus.see(uuid, seen, hands);
            self.gpus.give_back(uuid, seen, look.began);
            if *seen == Seen::Lost {
                self.stop_those_that_had(now, uuid);
            }
        }
        for release in self.releases.values_mut() {
            if release.since <= look.began {
                strike_off(release, &self.gpus, look);
            }
        }
        self.judge_moves(now, look);
        self.skip_what_others_were_given();
        self.tell_gpus();
        self.release_those_that_wait_no_longer();
    }

    /// A GPU has failed, or the host.
    pub(crate) fn on_gpu_health(&mut self, health: GpuHealth) {
        let before = self.gpus.kept();
        match health {
            GpuHealth::Quarantine {
                uuid,
                why,
                is_count,
            } => self.gpus.sicken(&uuid, why, is_count),
            GpuHealth::Drain { why } => self.gpus.drain(why),
        }
        // What was counted is kept also where there is nothing new to tell.
        if self.gpus.states() == self.told_gpus && self.gpus.kept() != before {
            self.outputs.push(Output::SaveGpus(self.gpus.kept()));
        }
        self.tell_gpus();
    }

    /// An admin wants GPUs back. Whether they are still failing is seen by a look.
    pub(crate) fn on_restore_gpus(&mut self, uuids: &[String]) {
        for uuid in uuids {
            self.gpus.want_back(uuid, self.clock);
        }
        self.look_at_gpus();
    }

    /// Time has passed for one that waits: what is not free by now is kept from everybody.
    pub(crate) fn on_release_timer(&mut self, now: Now, id: &AttemptId) {
        let Some(release) = self.releases.get(id) else {
            return;
        };
        if now.boot < release.until {
            let until = release.until;
            return self.wake(TimerKey::Release(id.clone()), until);
        }
        self.skip_what_others_were_given();
        let release = self.releases.get_mut(id).expect("it was there");
        for (uuid, holders) in core::mem::take(&mut release.awaited) {
            let holders = holders.unwrap_or_else(|| Holders {
                why: "the driver does not tell whether it is free".to_owned(),
                pids: Vec::new(),
            });
            self.gpus.quarantine(&uuid, holders);
        }
        self.tell_gpus();
        self.release_those_that_wait_no_longer();
    }

    /// It may be time for another look.
    pub(crate) fn on_look_timer(&mut self) {
        self.look_at_gpus();
    }

    pub(crate) fn look_at_gpus(&mut self) {
        let nobody_waits = self.releases.is_empty() && self.moves.is_empty();
        let pause = match (nobody_waits, self.gpus.any_held()) {
            (false, _) => LOOK_FAST,
            (true, true) => LOOK_SLOWLY,
            (true, false) => return,
        };
        self.outputs.push(Output::LookAtGpus);
        let at = later(self.clock, pause);
        self.wake(TimerKey::Look, at);
    }

    fn hands(&self, uuid: &str) -> Hands {
        let given = self.given.iter();
        let mut hands = Hands::Nobody;
        for (id, _) in given.filter(|(_, gpus)| gpus.iter().any(|gpu| gpu == uuid)) {
            match self.attempts.get(id) {
                Some(Attempt::Releasing { .. }) => hands = Hands::Awaited,
                Some(attempt) if attempt.is_away() || self.freed.contains(id) => {}
                Some(
                    Attempt::Starting { .. }
                    | Attempt::Running { .. }
                    | Attempt::Frozen(_)
                    | Attempt::Stopping { .. }
                    | Attempt::Ended { .. },
                ) => return Hands::Attempt,
                Some(Attempt::Released { .. }) | None => {}
            }
        }
        hands
    }

    fn stop_those_that_had(&mut self, now: Now, uuid: &str) {
        let given = self.given.iter();
        let had = given.filter(|(_, gpus)| gpus.iter().any(|gpu| gpu == uuid));
        let had: Vec<AttemptId> = had.map(|(id, _)| id.clone()).collect();
        for id in &had {
            self.change(id, |attempt| attempt.on_gpu_lost(now));
        }
    }

    /// A GPU that was granted again was free in between: an agent that has started anew meets attempts of which nothing
    /// is left and whose ends were recorded before.
    fn skip_what_others_were_given(&mut self) {
        let mut taken: BTreeSet<String> = BTreeSet::new();
        for release in self.releases.values() {
            let awaited = release.awaited.keys();
            taken.extend(
                awaited
                    .filter(|gpu| self.hands(gpu) == Hands::Attempt)
                    .cloned(),
            );
        }
        for release in self.releases.values_mut() {
            release.awaited.retain(|gpu, _| !taken.contains(gpu));
        }
    }

    /// Keeps and tells what is wrong with GPUs, where it is not what was said last.
    pub(crate) fn tell_gpus(&mut self) {
        let states = self.gpus.states();
        if states == self.told_gpus {
            return;
        }
        self.told_gpus = states.clone();
        self.outputs.push(Output::SaveGpus(self.gpus.kept()));
        if let Some(link) = self.greeted_link() {
            let message = FromNode::GpuStates(Box::new(states));
            self.outputs.push(Output::Send { link, message });
        }
    }

    fn release_those_that_wait_no_longer(&mut self) {
        let done = self.releases.extract_if(.., |_, r| r.awaited.is_empty());
        let done: Vec<AttemptId> = done.map(|(id, _)| id).collect();
        for id in &done {
            self.change(id, Attempt::on_free);
        }
    }

    /// It holds no GPU and no processor any more.
    pub(crate) fn forget_gpus(&mut self, id: &AttemptId) {
        self.come_back_to_gpus(id);
        self.freed.remove(id);
        self.given.remove(id);
        self.pinned.remove(id);
        self.releases.remove(id);
    }
}

fn strike_off(release: &mut Release, gpus: &crate::gpus::Gpus, look: &GpuLook) {
    release.awaited.retain(|uuid, holders| {
        // A GPU of which nothing is said, not even that it is lost, was not looked at.
        let Some(seen) = look.gpus.get(uuid) else {
            return true;
        };
        *holders = gpus.busy(uuid, seen);
        holders.is_some()
    });
}
