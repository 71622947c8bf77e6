//! Preempted jobs that are frozen or stopped, and the GPUs that they wait for.

use std::collections::BTreeSet;

use sluice_common::id::{AttemptId, NodeName};
use sluice_common::limit::DEFAULT_SUSPEND_TIMEOUT;
use sluice_common::mig::GpuClass;
use sluice_common::time::Time;

use super::host::gpu_name;
use super::tries::JobTries;
use super::{Simulation, SimulationEvent, attempt};

/// More GPUs of one host than frozen runs wait for.
const MOST_AWAITED: u64 = 4096;

impl Simulation {
    /// Times at which frozen jobs will have been frozen for too long.
    pub(super) fn overdue_at(&self) -> impl Iterator<Item = Time> {
        let since = self.frozen_since.values();
        since.map(|since| *since + DEFAULT_SUSPEND_TIMEOUT)
    }

    /// Stops jobs that have been frozen for too long, and queues them again.
    pub(super) fn stop_overdue(&mut self) {
        let now = self.now;
        let overdue = self.frozen_since.iter();
        let overdue = overdue.filter(|(_, since)| **since + DEFAULT_SUSPEND_TIMEOUT <= now);
        let frozen = overdue.filter_map(|(step, _)| {
            let tries = self.jobs.get(step)?;
            Some(attempt(step, tries.attempts))
        });
        for id in frozen.collect::<Vec<_>>() {
            self.end_attempt(&id, JobTries::may_run_again_after_giving_way);
        }
    }

    /// Names GPUs of a class of a simulated host by their numbers.
    pub(super) fn name_gpus(&self, node: &NodeName, class: &GpuClass, wanted: u64) -> Vec<String> {
        if wanted == 0 {
            return Vec::new();
        }
        let host = self.hosts.get(node);
        let has = host.map_or(0, |host| host.gpus_of(class));
        let runs = self.scheduler.runs_on(node);
        let runs = runs.iter().filter_map(|id| self.scheduler.run(id));
        let held: BTreeSet<&String> = runs.filter_map(|run| run.gpus_on(node)).flatten().collect();
        // Enough GPUs are among the first of this number, however many the host has.
        let looked_at = has.min(held.len() as u64 + wanted + MOST_AWAITED);
        let names: Vec<String> = (0..looked_at).map(|n| gpu_name(class, n)).collect();
        let free = names.iter().filter(|name| !held.contains(name));
        let free = free.map(|name| (name, name.clone()));
        let mut chosen = self.scheduler.gpus_by_wait(node, free).concat();
        chosen.truncate(usize::try_from(wanted).unwrap_or(usize::MAX));
        chosen
    }

    pub(super) fn suspend(&mut self, id: &AttemptId) {
        self.scheduler.suspend(id, 0);
        self.scheduler.freeze(id, 0);
        self.scheduler.await_resumption(id);
        self.frozen_since.insert(id.step.clone(), self.now);
        self.note_preempted(id);
    }

    pub(super) fn preempt(&mut self, id: &AttemptId) {
        self.scheduler.stop(id);
        self.end_attempt(id, JobTries::may_run_again_after_giving_way);
        self.note_preempted(id);
    }

    fn note_preempted(&mut self, id: &AttemptId) {
        let step = id.step.clone();
        self.events.push(SimulationEvent::Preempted { step });
    }
}
