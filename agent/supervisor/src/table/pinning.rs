//! Attempts with processors of their own. The agent assigns processors in the start order, and may change
//! them later, such as when an attempt is thawed and its processors were given to another meanwhile.

use sluice_common::inventory::{Capability, Mechanism};
use sluice_common::processors::{CpuMode, CpuSet};
use sluice_common::supervision::{LaunchRecord, MAX_SUPERVISION_FRAME_BYTES, SpawnSpec};

use super::{AttemptId, Table, warn};
use crate::spawn::SpawnError;

/// Most bytes of GPU names in all launch records. The list of all attempts must fit into one frame, of which
/// the rest takes at most three quarters; without a bound, a compromised agent could make a list that cannot
/// be sent.
const MAX_NAMED_BYTES: usize = MAX_SUPERVISION_FRAME_BYTES / 4;

impl Table {
    /// Fails if the attempt must be pinned and this host cannot: it must not start without the guarantee.
    pub(super) fn check_pinning(&self, spec: &SpawnSpec) -> Result<(), SpawnError> {
        let processors = &spec.processors;
        let is_wanted = processors.mode == CpuMode::Pinned || !processors.own.is_empty();
        let can = self.groups.capabilities().get(&Capability::Cpuset) != Some(&Mechanism::None);
        match is_wanted && (!can || processors.own.is_empty()) {
            true => Err(SpawnError::NotPinned),
            false => Ok(()),
        }
    }

    /// Changes the processors of a pinned attempt.
    pub(super) fn on_pin(&mut self, id: &AttemptId, processors: CpuSet) {
        let pinned = self.attempts.get(id).filter(|a| !a.is_gone());
        if pinned.is_none_or(|a| a.memo.processors.is_empty()) || processors.is_empty() {
            return;
        }
        let memo = LaunchRecord {
            timeout: None,
            grace: sluice_common::time::Span::ZERO,
            gpus: Vec::new(),
            processors: processors.clone(),
            is_allocation: false,
        };
        if !self.can_list(&memo) {
            return warn!(step = %id.step, attempt = id.number, "its processors cannot be changed: the list is too long");
        }
        if let Err(e) = self.groups.pin(id, &processors) {
            return warn!(step = %id.step, attempt = id.number, "its processors cannot be changed: {e}");
        }
        if let Some(attempt) = self.attempts.get_mut(id) {
            attempt.memo.processors = processors;
            attempt.unsaved = true;
            self.changed.insert(id.clone());
        }
    }

    /// Whether the list of all attempts fits into one frame with one more launch record.
    pub(super) fn can_list(&self, memo: &LaunchRecord) -> bool {
        let named = self.attempts.values().map(|attempt| &attempt.memo);
        let bytes: usize = named.chain([memo]).map(named_bytes).sum();
        bytes <= MAX_NAMED_BYTES
    }
}

fn named_bytes(memo: &LaunchRecord) -> usize {
    let bytes = |name: &String| name.len() + size_of::<u64>();
    let processors = match memo.processors.is_empty() {
        true => 0,
        false => memo.processors.to_string().len(),
    };
    memo.gpus.iter().map(bytes).sum::<usize>() + processors
}
