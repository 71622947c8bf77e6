//! State of each GPU of the host: its idle memory level, foreign processes on it, and why it must not be
//! granted. Pure: [`crate::on::gpus`] feeds scans and acts on the results.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use sluice_common::gpu_state::{GpuFault, GpuFaults, GpuStates, MAX_NAMED_PIDS, PidList};
use sluice_common::id::AttemptId;
use sluice_common::supervision::BootMillis;

use crate::input::GpuObservation;

/// Memory that may be used beyond the idle level: drivers' own use varies slightly.
pub(crate) const TOLERANCE_BYTES: u64 = 128 * MIB;
/// Memory that counts as idle on a GPU that was never seen idle: drivers before 510 count up to most of this
/// for themselves.
pub(crate) const UNSEEN_IDLE_BYTES: u64 = 1024 * MIB;

const MIB: u64 = 1 << 20;

/// State that outlives the agent: the driver of the core stores it until the host reboots.
pub type StoredGpus = BTreeMap<String, StoredGpu>;

/// Stored state of one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredGpu {
    /// Memory in use when no process runs, in bytes.
    pub idle_bytes: Option<u64>,
    /// Why the GPU did not come free, and which processes hold it.
    pub held: Option<GpuHolders>,
    /// Why the GPU is unhealthy.
    pub sick: Option<String>,
    /// The driver's failure count at the last report: the same count again is no new failure.
    pub counted: Option<String>,
    /// Conditions that an admin has accepted while they last.
    pub accepted: BTreeSet<String>,
    /// The GPU that the unit is a MIG instance of.
    pub parent: Option<String>,
    /// Suspended attempts that were seen to hold nothing there. They do not own what holds the GPU now, and
    /// must not run before they are resumed.
    pub left_by: BTreeSet<AttemptId>,
}

/// Why a GPU is not free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuHolders {
    /// One clause for people.
    pub why: String,
    /// The processes, if some were seen.
    pub pids: Vec<u32>,
}

/// Owner of the processes on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GpuUse {
    /// An attempt that is not over; its processes are expected.
    Attempt,
    /// An attempt without processes, which waits for the GPU to be free.
    Awaited,
    Unused,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct GpuRecord {
    kept: StoredGpu,
    /// Processes that were there while no attempt used the GPU.
    foreign: BTreeSet<u32>,
    lost: bool,
    /// Conditions that make the GPU unfit while they last.
    conditions: BTreeSet<String>,
    /// Whether memory is in use by no process, though no attempt has the GPU.
    is_used_unseen: bool,
    /// When an admin asked for the GPU's return to service.
    wanted_since: Option<BootMillis>,
}

/// Condition of a GPU whose memory is in use by nobody who can be seen.
const USED_UNSEEN: &str =
    "more than 1 GiB of its memory is in use, by no process that the driver shows";

impl GpuRecord {
    /// The conditions that no admin has accepted.
    fn unaccepted(&self) -> impl Iterator<Item = &str> {
        let unseen = self.is_used_unseen.then_some(USED_UNSEEN);
        let others = self.conditions.difference(&self.kept.accepted);
        others.map(String::as_str).chain(unseen)
    }

    /// The part that does not depend on how the GPU is cut.
    fn of_hardware(&self) -> Self {
        Self {
            kept: StoredGpu {
                sick: self.kept.sick.clone(),
                counted: self.kept.counted.clone(),
                accepted: self.kept.accepted.clone(),
                ..StoredGpu::default()
            },
            conditions: self.conditions.clone(),
            wanted_since: self.wanted_since,
            ..Self::default()
        }
    }
}

/// Whether more memory is in use than drivers use themselves.
fn is_more_than_idle(idle: Option<u64>, used: Option<u64>) -> bool {
    let idle = idle.unwrap_or(0).max(UNSEEN_IDLE_BYTES);
    used.is_some_and(|used| used > idle.saturating_add(TOLERANCE_BYTES))
}

/// All known GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gpus {
    known: BTreeMap<String, GpuRecord>,
    /// Units of each GPU when they were last read.
    units: BTreeMap<String, BTreeSet<String>>,
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

    /// Changes whether foreign processes make a GPU unavailable.
    pub(crate) fn respect_foreign(&mut self, respect: bool) {
        self.respect_foreign = respect;
    }

    /// Restores what an earlier agent of the same boot has stored.
    pub(crate) fn remember(&mut self, kept: StoredGpus) {
        for (uuid, kept) in kept {
            self.known.entry(uuid).or_default().kept = kept;
        }
    }

    /// The state to store.
    pub(crate) fn kept(&self) -> StoredGpus {
        let known = self.known.iter();
        let worth = known.filter(|(_, known)| known.kept != StoredGpu::default());
        worth
            .map(|(uuid, known)| (uuid.clone(), known.kept.clone()))
            .collect()
    }

    /// The current faults.
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

    fn fault(&self, known: &GpuRecord) -> Option<GpuFault> {
        if known.lost {
            return Some(GpuFault::Lost);
        }
        if let Some(why) = &known.kept.sick {
            return Some(GpuFault::Quarantined {
                why: why.clone(),
                pids: Vec::new(),
            });
        }
        if let Some(GpuHolders { why, pids }) = &known.kept.held {
            return Some(GpuFault::Quarantined {
                why: why.clone(),
                pids: pids.clone(),
            });
        }
        let conditions: Vec<&str> = known.unaccepted().collect();
        if !conditions.is_empty() {
            return Some(GpuFault::Quarantined {
                why: conditions.join("; "),
                pids: Vec::new(),
            });
        }
        let foreign = self.respect_foreign && !known.foreign.is_empty();
        foreign.then(|| GpuFault::Foreign {
            pids: named(known.foreign.iter().copied()),
        })
    }

    /// Whether scans are needed because a quarantined GPU may be free, or an admin wants one back.
    pub(crate) fn any_held(&self) -> bool {
        let mut known = self.known.values();
        known.any(|known| known.kept.held.is_some() || known.wanted_since.is_some())
    }

    /// Records the units of GPUs, and forgets those that the driver no longer has and no attempt holds. What is wrong
    /// with the hardware of a GPU is kept. Returns whether a MIG instance is new.
    pub(crate) fn learn_units(
        &mut self,
        units: &BTreeMap<String, BTreeSet<String>>,
        is_held: impl Fn(&str) -> bool,
    ) -> bool {
        let mut is_new = false;
        for (gpu, units) in units {
            for unit in units.iter().filter(|unit| *unit != gpu) {
                let known = self.known.entry(unit.clone()).or_default();
                is_new |= known.kept.parent.replace(gpu.clone()).is_none();
            }
            self.units.insert(gpu.clone(), units.clone());
        }
        let all = self.known.keys();
        let gone = all.filter(|unit| self.is_gone(unit) && !is_held(unit));
        for unit in gone.cloned().collect::<Vec<_>>() {
            let before = self.known.remove(&unit).unwrap_or_default();
            let rest = before.of_hardware();
            if before.kept.parent.is_none() && rest != GpuRecord::default() {
                self.known.insert(unit, rest);
            }
        }
        is_new
    }

    fn parent_of(&self, unit: &str) -> Option<&str> {
        self.known.get(unit)?.kept.parent.as_deref()
    }

    /// Whether the driver has read all units of the GPU, and this is none of them any more.
    pub(crate) fn is_gone(&self, unit: &str) -> bool {
        let gpu = self.parent_of(unit).unwrap_or(unit);
        let units = self.units.get(gpu);
        units.is_some_and(|units| !units.contains(unit))
    }

    /// Whether both are the same hardware: one unit, or a GPU and a MIG instance of it.
    pub(crate) fn overlap(&self, one: &str, other: &str) -> bool {
        one == other || self.parent_of(one) == Some(other) || self.parent_of(other) == Some(one)
    }

    /// The units that now have the hardware of a unit: itself, unless the MIG mode of the GPU has changed.
    pub(crate) fn successors<'a>(&'a self, unit: &'a str) -> impl Iterator<Item = &'a str> {
        let gpu = self.parent_of(unit).unwrap_or(unit);
        let now = self.units.get(gpu).filter(|_| self.is_gone(unit));
        let itself = now.is_none().then_some(unit);
        let now = now.into_iter().flatten().map(String::as_str);
        itself
            .into_iter()
            .chain(now.filter(move |other| self.overlap(unit, other)))
    }

    /// Records an observation of a GPU.
    pub(crate) fn observe(&mut self, uuid: &str, seen: &GpuObservation, hands: GpuUse) {
        let busy = self.busy(uuid, seen);
        let known = self.known.entry(uuid.to_string()).or_default();
        let (processes, memory) = match seen {
            GpuObservation::Lost => {
                known.lost = true;
                return;
            }
            GpuObservation::NoAnswer => return,
            GpuObservation::Present {
                processes,
                memory_used,
            } => (processes.as_deref().unwrap_or_default(), *memory_used),
        };
        known.lost = false;
        // A driver that hides processes is not one that shows none.
        let is_told = processes.is_empty()
            && matches!(
                seen,
                GpuObservation::Present {
                    processes: Some(_),
                    ..
                }
            );
        match hands {
            GpuUse::Attempt => {
                known.foreign.retain(|pid| processes.contains(pid));
                // Of an allocation: a step inside it had left something there.
                known.kept.held.take_if(|_| busy.is_none());
            }
            GpuUse::Awaited => {}
            GpuUse::Unused if known.kept.held.is_some() => known.kept.held = busy,
            GpuUse::Unused => {
                known.foreign = processes.iter().copied().collect();
                known.is_used_unseen = is_told && is_more_than_idle(known.kept.idle_bytes, memory);
                if processes.is_empty() && !known.is_used_unseen {
                    known.kept.idle_bytes = memory.or(known.kept.idle_bytes);
                }
            }
        }
    }

    /// Why a GPU is not free, by an observation; `None` if it is free or the driver cannot tell.
    ///
    /// Foreign processes that were there before the grant do not count, and while they are there neither does
    /// memory, because their share may change.
    pub(crate) fn busy(&self, uuid: &str, seen: &GpuObservation) -> Option<GpuHolders> {
        let (processes, memory) = match seen {
            GpuObservation::Lost => return None,
            GpuObservation::NoAnswer => {
                return Some(GpuHolders {
                    why: "the driver does not report whether it is free".to_string(),
                    pids: Vec::new(),
                });
            }
            GpuObservation::Present {
                processes,
                memory_used,
            } => (processes.as_deref().unwrap_or_default(), *memory_used),
        };
        let known = self.known.get(uuid);
        let is_stranger = |pid: &u32| known.is_some_and(|known| known.foreign.contains(pid));
        let left = named(processes.iter().copied().filter(|pid| !is_stranger(pid)));
        if !left.is_empty() {
            return Some(GpuHolders {
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
        Some(GpuHolders {
            why: format!(
                "{} MiB of its memory are still in use, by no process that the driver shows",
                used / MIB
            ),
            pids: Vec::new(),
        })
    }

    /// Memory in use when no process runs, as far as it was observed.
    pub(crate) fn idle_bytes(&self, uuid: &str) -> u64 {
        let known = self.known.get(uuid);
        known.and_then(|known| known.kept.idle_bytes).unwrap_or(0)
    }

    /// Whether more than the idle memory is in use, by any process; also true if the driver does not tell
    /// this time.
    pub(crate) fn holds(&self, uuid: &str, seen: &GpuObservation) -> bool {
        let memory_used = match seen {
            GpuObservation::Lost => return false,
            GpuObservation::NoAnswer => return true,
            GpuObservation::Present { memory_used, .. } => *memory_used,
        };
        self.busy(
            uuid,
            &GpuObservation::Present {
                processes: None,
                memory_used,
            },
        )
        .is_some()
    }

    /// Records that a suspended attempt holds nothing on the GPU.
    pub(crate) fn mark_vacated(&mut self, uuid: &str, id: &AttemptId) {
        let known = self.known.entry(uuid.to_string()).or_default();
        known.kept.left_by.insert(id.clone());
    }

    /// Whether a suspended attempt was seen to hold nothing on the GPU, by this agent or an earlier one of
    /// this boot.
    pub(crate) fn is_vacated(&self, uuid: &str, id: &AttemptId) -> bool {
        let known = self.known.get(uuid);
        known.is_some_and(|known| known.kept.left_by.contains(id))
    }

    /// Forgets that record, because the attempt is resumed or over; returns whether there was one.
    pub(crate) fn clear_vacated(&mut self, id: &AttemptId) -> bool {
        let mut had_left = false;
        for known in self.known.values_mut() {
            had_left |= known.kept.left_by.remove(id);
        }
        had_left
    }

    /// Quarantines a GPU that did not come free in time.
    pub(crate) fn quarantine(&mut self, uuid: &str, holders: GpuHolders) {
        let known = self.known.entry(uuid.to_string()).or_default();
        known.kept.held = Some(holders);
    }

    /// Replaces the conditions that make a GPU unfit.
    pub(crate) fn set_conditions(&mut self, uuid: &str, conditions: BTreeSet<String>) {
        if conditions.is_empty() && !self.known.contains_key(uuid) {
            return;
        }
        let known = self.known.entry(uuid.to_string()).or_default();
        // An accepted condition that is over counts if it comes again.
        known.kept.accepted.retain(|why| conditions.contains(why));
        known.conditions = conditions;
    }

    /// Marks a GPU as unhealthy; the first cause is reported.
    pub(crate) fn mark_unhealthy(&mut self, uuid: &str, why: String, is_count: bool) {
        let known = self.known.entry(uuid.to_string()).or_default();
        if is_count && known.kept.counted.replace(why.clone()) == Some(why.clone()) {
            return;
        }
        known.kept.sick.get_or_insert(why);
    }

    /// The fault of a GPU, or of a unit of it.
    pub(crate) fn fault_of(&self, gpu: &str) -> Option<GpuFault> {
        let known = self.known.iter();
        let mut known = known.filter(|(unit, _)| self.overlap(unit, gpu));
        known.find_map(|(_, known)| self.fault(known))
    }

    /// Requests the return of a GPU to service; the next scan that starts from now on decides.
    pub(crate) fn request_restore(&mut self, uuid: &str, now: BootMillis) {
        if let Some(known) = self.known.get_mut(uuid) {
            let is_wanted = known.kept.sick.is_some() || known.unaccepted().next().is_some();
            known.wanted_since = is_wanted.then_some(now);
        }
    }

    /// Handles a scan for a requested return: a GPU that answers is healthy again. Another stays as it is
    /// until it is requested again.
    pub(crate) fn give_back(&mut self, uuid: &str, seen: &GpuObservation, began: BootMillis) {
        let Some(known) = self.known.get_mut(uuid) else {
            return;
        };
        if known
            .wanted_since
            .take_if(|since| *since <= began)
            .is_some()
            && let GpuObservation::Present { memory_used, .. } = seen
        {
            known.kept.sick = None;
            known.kept.accepted.clone_from(&known.conditions);
            if core::mem::take(&mut known.is_used_unseen) {
                known.kept.idle_bytes = *memory_used;
            }
        }
    }

    /// Marks the whole host as unfit; the last cause is reported.
    pub(crate) fn drain(&mut self, why: String) {
        self.drain = Some(why);
    }
}

fn named(pids: impl Iterator<Item = u32>) -> Vec<u32> {
    pids.take(MAX_NAMED_PIDS).collect()
}

#[cfg(test)]
mod tests;
