//! What is known of each GPU of the host: how much of its memory is held when nothing runs on it, who uses it that is no
//! step's, and why it is not to be granted. Pure: [`crate::on::gpus`] brings the looks and acts on what is found.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use sluice_common::gpu_state::{GpuFault, GpuFaults, GpuStates, MAX_NAMED_PIDS, PidList};
use sluice_common::id::AttemptId;
use sluice_common::supervision::BootMillis;

use crate::input::Seen;

/// Memory that may be held beyond the idle level: drivers keep a little more or less of it from one moment to the next.
pub(crate) const TOLERANCE_BYTES: u64 = 128 * MIB;
/// What counts as idle on a GPU that was never seen idle: drivers before 510 count up to most of this as used that is
/// theirs.
pub(crate) const UNSEEN_IDLE_BYTES: u64 = 1024 * MIB;

const MIB: u64 = 1 << 20;

/// What outlives the agent: kept on disk by whoever drives the core, for as long as the host is not booted anew.
pub type KeptGpus = BTreeMap<String, KeptGpu>;

/// The same of one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptGpu {
    /// Memory that is held on it when nothing runs there, in bytes.
    pub idle_bytes: Option<u64>,
    /// What holds it, where it did not come free: why, and which processes.
    pub held: Option<Holders>,
    /// What its health is wanting in.
    pub sick: Option<String>,
    /// What the driver counted of failures when it was told last: the same count, told again, is no new failure.
    pub counted: Option<String>,
    /// Attempts that are frozen and were seen to hold nothing there: whatever holds it by now is not theirs, and they may
    /// not run before they were told to.
    pub left_by: BTreeSet<AttemptId>,
}

/// What keeps a GPU from being free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holders {
    /// One clause for people.
    pub why: String,
    /// The processes, where some were seen.
    pub pids: Vec<u32>,
}

/// In whose hands a GPU is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hands {
    /// An attempt's that is not over: whatever runs there is its own affair.
    Attempt,
    /// An attempt's of which nothing is left, which waits for it to be free.
    Awaited,
    Nobody,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Known {
    kept: KeptGpu,
    /// Who was there when it was in nobody's hands.
    strangers: BTreeSet<u32>,
    lost: bool,
    /// Since when an admin wants it back.
    wanted_since: Option<BootMillis>,
}

/// Every GPU of which something is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gpus {
    known: BTreeMap<String, Known>,
    drain: Option<String>,
    respect_foreign: bool,
}

impl Gpus {
    pub(crate) fn new(respect_foreign: bool) -> Self {
        Self {
            respect_foreign,
            ..Self::default()
        }
    }

    /// From now on.
    pub(crate) fn respect_foreign(&mut self, respect: bool) {
        self.respect_foreign = respect;
    }

    /// Takes over what an earlier agent of the same boot has kept.
    pub(crate) fn remember(&mut self, kept: KeptGpus) {
        for (uuid, kept) in kept {
            self.known.entry(uuid).or_default().kept = kept;
        }
    }

    /// What is to be kept.
    pub(crate) fn kept(&self) -> KeptGpus {
        let known = self.known.iter();
        let worth = known.filter(|(_, known)| known.kept != KeptGpu::default());
        worth
            .map(|(uuid, known)| (uuid.clone(), known.kept.clone()))
            .collect()
    }

    /// What is wrong now.
    pub(crate) fn states(&self) -> GpuStates {
        let known = self.known.iter();
        let faults: GpuFaults = known
            .filter_map(|(uuid, known)| Some((uuid.clone(), self.fault(known)?)))
            .collect();
        GpuStates {
            faults,
            drain: self.drain.clone(),
        }
    }

    fn fault(&self, known: &Known) -> Option<GpuFault> {
        if known.lost {
            return Some(GpuFault::Lost);
        }
        if let Some(why) = &known.kept.sick {
            return Some(GpuFault::Quarantined {
                why: why.clone(),
                pids: Vec::new(),
            });
        }
        if let Some(Holders { why, pids }) = &known.kept.held {
            return Some(GpuFault::Quarantined {
                why: why.clone(),
                pids: pids.clone(),
            });
        }
        let foreign = self.respect_foreign && !known.strangers.is_empty();
        foreign.then(|| GpuFault::Foreign {
            pids: named(known.strangers.iter().copied()),
        })
    }

    /// Whether a look is worth while for the sake of a GPU that may be free again, or that an admin wants back.
    pub(crate) fn any_held(&self) -> bool {
        let mut known = self.known.values();
        known.any(|known| known.kept.held.is_some() || known.wanted_since.is_some())
    }

    /// Takes in what was seen of one.
    pub(crate) fn see(&mut self, uuid: &str, seen: &Seen, hands: Hands) {
        let busy = self.busy(uuid, seen);
        let known = self.known.entry(uuid.to_string()).or_default();
        let (processes, memory) = match seen {
            Seen::Lost => {
                known.lost = true;
                return;
            }
            Seen::Unanswered => return,
            Seen::There {
                processes,
                memory_used,
            } => (processes.as_deref().unwrap_or_default(), *memory_used),
        };
        known.lost = false;
        match hands {
            Hands::Attempt => known.strangers.retain(|pid| processes.contains(pid)),
            Hands::Awaited => {}
            Hands::Nobody if known.kept.held.is_some() => known.kept.held = busy,
            Hands::Nobody => {
                known.strangers = processes.iter().copied().collect();
                if processes.is_empty() {
                    known.kept.idle_bytes = memory.or(known.kept.idle_bytes);
                }
            }
        }
    }

    /// What keeps a GPU from being free, by what was seen of it; `None` where it is free, or where nobody can tell.
    ///
    /// Those that were there before it was granted are not counted. Nor is its memory while they are, because how much of
    /// it is theirs may change.
    pub(crate) fn busy(&self, uuid: &str, seen: &Seen) -> Option<Holders> {
        let (processes, memory) = match seen {
            Seen::Lost => return None,
            Seen::Unanswered => {
                return Some(Holders {
                    why: "the driver does not tell whether it is free".to_string(),
                    pids: Vec::new(),
                });
            }
            Seen::There {
                processes,
                memory_used,
            } => (processes.as_deref().unwrap_or_default(), *memory_used),
        };
        let known = self.known.get(uuid);
        let is_stranger = |pid: &u32| known.is_some_and(|known| known.strangers.contains(pid));
        let left = named(processes.iter().copied().filter(|pid| !is_stranger(pid)));
        if !left.is_empty() {
            return Some(Holders {
                why: format!("it is still held by {}", PidList(&left)),
                pids: left,
            });
        }
        if !processes.is_empty() {
            return None;
        }
        let idle = known.and_then(|known| known.kept.idle_bytes);
        let most = idle
            .unwrap_or(UNSEEN_IDLE_BYTES)
            .saturating_add(TOLERANCE_BYTES);
        let used = memory.filter(|used| *used > most)?;
        Some(Holders {
            why: format!(
                "{} MiB of its memory are still held, by no process that the driver shows",
                used / MIB
            ),
            pids: Vec::new(),
        })
    }

    /// Memory that is held on it when nothing runs there, as far as it was seen.
    pub(crate) fn idle_bytes(&self, uuid: &str) -> u64 {
        let known = self.known.get(uuid);
        known.and_then(|known| known.kept.idle_bytes).unwrap_or(0)
    }

    /// Whether memory is held on it beyond what is held when nothing runs there, whoever is listed; also where the driver
    /// does not tell this time.
    pub(crate) fn holds(&self, uuid: &str, seen: &Seen) -> bool {
        let memory_used = match seen {
            Seen::Lost => return false,
            Seen::Unanswered => return true,
            Seen::There { memory_used, .. } => *memory_used,
        };
        self.busy(
            uuid,
            &Seen::There {
                processes: None,
                memory_used,
            },
        )
        .is_some()
    }

    /// A frozen attempt was seen to hold nothing there.
    pub(crate) fn leave(&mut self, uuid: &str, id: &AttemptId) {
        let known = self.known.entry(uuid.to_string()).or_default();
        known.kept.left_by.insert(id.clone());
    }

    /// Whether a frozen attempt was seen to hold nothing there, by this agent or an earlier one of the same boot.
    pub(crate) fn is_left(&self, uuid: &str, id: &AttemptId) -> bool {
        let known = self.known.get(uuid);
        known.is_some_and(|known| known.kept.left_by.contains(id))
    }

    /// An attempt may run again, or is over; whether it had left any.
    pub(crate) fn come_back(&mut self, id: &AttemptId) -> bool {
        let mut had_left = false;
        for known in self.known.values_mut() {
            had_left |= known.kept.left_by.remove(id);
        }
        had_left
    }

    /// It did not come free in time.
    pub(crate) fn quarantine(&mut self, uuid: &str, holders: Holders) {
        let known = self.known.entry(uuid.to_string()).or_default();
        known.kept.held = Some(holders);
    }

    /// Its health is wanting in something; the first cause is the one that is shown.
    pub(crate) fn sicken(&mut self, uuid: &str, why: String, is_count: bool) {
        let known = self.known.entry(uuid.to_string()).or_default();
        if is_count && known.kept.counted.replace(why.clone()) == Some(why.clone()) {
            return;
        }
        known.kept.sick.get_or_insert(why);
    }

    /// An admin wants it back: the next look that was begun from now on decides.
    pub(crate) fn want_back(&mut self, uuid: &str, now: BootMillis) {
        if let Some(known) = self.known.get_mut(uuid) {
            known.wanted_since = known.kept.sick.is_some().then_some(now);
        }
    }

    /// It was looked at: one that answers is forgiven what was noted of its health where an admin wants it back. Another
    /// stays as it is until it is asked for again.
    pub(crate) fn give_back(&mut self, uuid: &str, seen: &Seen, began: BootMillis) {
        let Some(known) = self.known.get_mut(uuid) else {
            return;
        };
        if known
            .wanted_since
            .take_if(|since| *since <= began)
            .is_some()
            && matches!(seen, Seen::There { .. })
        {
            known.kept.sick = None;
        }
    }

    /// The host as a whole is unfit; the first cause is the one that is shown.
    pub(crate) fn drain(&mut self, why: String) {
        self.drain.get_or_insert(why);
    }
}

fn named(pids: impl Iterator<Item = u32>) -> Vec<u32> {
    pids.take(MAX_NAMED_PIDS).collect()
}

#[cfg(test)]
mod tests;
