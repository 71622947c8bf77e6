//! The true state of a simulated host's GPUs: memory of steps' processes, leftovers of steps, other users, and whether
//! the GPU answers. A look shows what a driver would.

use std::collections::BTreeMap;

use agent_core::GpuObservation;
use sluice_common::id::AttemptId;

use super::host::SimHost;
use super::seeded_random::SeededRandom;

/// Memory of each GPU in bytes.
pub(crate) const MEMORY: u64 = 40 << 30;
/// Memory held on an idle GPU.
const IDLE: u64 = 10 << 20;

/// Memory that an ended step has left on a GPU.
struct LeftMemory {
    /// Time at which the driver frees it; never if `None`.
    until: Option<u64>,
    bytes: u64,
    /// Process that the driver lists for it.
    pid: Option<u32>,
}

/// One simulated GPU.
pub(crate) struct SimGpu {
    pub(crate) uuid: String,
    rest: Option<LeftMemory>,
    stranger: Option<u32>,
    pub(crate) is_lost: bool,
}

impl SimGpu {
    pub(crate) fn new(uuid: String) -> Self {
        Self {
            uuid,
            rest: None,
            stranger: None,
            is_lost: false,
        }
    }

    /// Whether a step has left memory there.
    pub(crate) fn is_littered(&self, now: u64) -> bool {
        let rest = self.rest.as_ref();
        rest.is_some_and(|rest| rest.until.is_none_or(|until| now < until))
    }

    /// Called when a step that used it is gone. A faulty host may keep the memory for ever.
    pub(crate) fn leave(&mut self, now: u64, is_faulty: bool, random: &mut SeededRandom) {
        let until = match random.below(20) {
            0 if is_faulty => None,
            0..=2 => Some(now + 25_000 + random.below(60_000)),
            3..=9 => Some(now + random.below(10_000)),
            _ => return,
        };
        let pid = random.one_in(2).then_some(4711);
        let bytes = 2 << 30;
        self.rest = Some(LeftMemory { until, bytes, pid });
    }

    /// A process that is no step begins to use it, or ends.
    pub(crate) fn visit(&mut self, pid: u32) {
        self.stranger = match self.stranger {
            Some(_) => None,
            None => Some(pid),
        };
    }

    /// Frees everything, as after a boot.
    pub(crate) fn clear(&mut self) {
        self.rest = None;
        self.stranger = None;
        self.is_lost = false;
    }

    /// Takes it off the bus with everything on it, or brings it back empty.
    pub(crate) fn lose_or_find(&mut self) {
        let is_lost = !self.is_lost;
        self.clear();
        self.is_lost = is_lost;
    }
}

impl SimHost {
    /// Lists attempts whose memory is on a GPU, or whose processes could allocate some at any moment.
    pub(crate) fn users<'a>(&'a self, uuid: &'a str) -> impl Iterator<Item = &'a AttemptId> {
        let procs = self.procs.iter();
        let users = procs.filter(move |(_, proc)| proc.may_use(uuid));
        users.map(|(attempt, _)| attempt)
    }

    /// Returns what the driver shows. One that cannot list processes shows memory alone.
    pub(crate) fn look(
        &self,
        now: u64,
        random: &mut SeededRandom,
    ) -> BTreeMap<String, GpuObservation> {
        let gpus = self.gpus.iter();
        gpus.map(|gpu| {
            let seen = match (gpu.is_lost, random.one_in(50)) {
                (true, _) => GpuObservation::Lost,
                (false, true) => GpuObservation::NoAnswer,
                (false, false) => self.look_at(gpu, now),
            };
            (gpu.uuid.clone(), seen)
        })
        .collect()
    }

    fn look_at(&self, gpu: &SimGpu, now: u64) -> GpuObservation {
        let mut used = IDLE;
        let mut pids = Vec::new();
        for proc in self.procs.values().filter(|proc| proc.has(&gpu.uuid)) {
            used += proc.held_bytes();
            pids.extend(proc.listed());
        }
        let rest = gpu.rest.as_ref().filter(|_| gpu.is_littered(now));
        if let Some(rest) = rest.filter(|_| !self.driver_lies) {
            used += rest.bytes;
            pids.extend(rest.pid);
        }
        if let Some(pid) = gpu.stranger {
            used += 1 << 30;
            pids.push(pid);
        }
        GpuObservation::Present {
            processes: self.driver_tells_processes.then_some(pids),
            memory_used: Some(used),
        }
    }
}
