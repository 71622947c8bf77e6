//! Starts attempts: checks the order, forks a child behind a gate, records it, and opens the gate.

use std::io;

use nix::unistd::Uid;
use sluice_common::error_chain::error_chain;
use sluice_common::id::AttemptId;
use sluice_common::limit::MAX_ATTEMPTS_PER_NODE;
use sluice_common::processors::CpuSet;
use sluice_common::supervision::{AttemptView, BootMillis, Exit, LaunchRecord, SpawnSpec};
use tracing::warn;

use super::{Table, no_group, restore};
use crate::attempt::Attempt;
use crate::identity::StepOwner;
use crate::lease::Lease;
use crate::spawn::{SpawnError, WaitingChild, step_hooks};
use crate::{clock, hooks};

/// Why an attempt with a lease does not start.
const NO_KEEPER: &str = "no keeper of leases runs on this host, so nothing would stop the step in time if its supervisor died: see `systemctl status sluice-steps.service sluice-keeper.timer` there";

impl Table {
    pub(super) fn on_spawn(&mut self, spec: &SpawnSpec, now: BootMillis) -> Option<AttemptView> {
        let id = &spec.attempt;
        if let Some(known) = self.attempts.get(id) {
            return Some(self.shown(id, known.view(id)?));
        }
        if self.attempts.len() >= MAX_ATTEMPTS_PER_NODE {
            // Not stored: the attempts of rejected orders would accumulate without bound.
            let why = format!(
                "this host already holds {MAX_ATTEMPTS_PER_NODE} attempts, which is the maximum"
            );
            return refused(spec, why);
        }
        if !self.can_list(&spec.launch_record) {
            let why = "the names of its GPUs and of those of all other attempts are too long to be \
                 listed: forget attempts that are gone";
            return refused(spec, why.to_owned());
        }
        let attempt = self.make(spec, now);
        restore::log_birth(id, &attempt);
        if attempt.is_gone() {
            self.changed.insert(id.clone());
        } else {
            self.storage.on_begun(now);
        }
        self.attempts.insert(id.clone(), attempt);
        None
    }

    /// Whether the attempt needs a keeper. On a host without signed leases, an attempt without a lease needs
    /// none.
    pub fn needs_keeper(&self, spec: &SpawnSpec) -> bool {
        spec.lease_until.is_some() || self.seals.is_settled()
    }

    fn make(&mut self, spec: &SpawnSpec, now: BootMillis) -> Attempt {
        let made = self.lease_for_start(spec, now).and_then(|lease| {
            if self.needs_keeper(spec) && !self.has_keeper {
                return Err(Exit::HostFailed(NO_KEEPER.to_owned()));
            }
            let forked = self.fork(spec, lease);
            forked.map_err(|error| error.into_exit())
        });
        made.unwrap_or_else(|exit| {
            let mut refused = Attempt::refused(exit, clock::wall_now(), spec.launch_record.clone());
            refused.unsaved = true;
            refused
        })
    }

    /// Process, record, gate: this order ensures that every program is recorded.
    pub(super) fn fork_as(
        &mut self,
        spec: &SpawnSpec,
        (step_owner, own): (StepOwner, Option<Uid>),
        lease: Lease,
    ) -> Result<Attempt, SpawnError> {
        let id = &spec.attempt;
        self.has_room_to_write()?;
        let after = self.save_after_hooks(spec, &step_owner)?;
        let processes = step_hooks::processes(&spec.hooks.limits);
        let made = self
            .groups
            .make(id, &spec.limits, &spec.processors, processes);
        made.map_err(no_group)?;
        let forked = self.filter_devices(spec);
        let forked = forked.and_then(|()| self.fork_into_group(spec, &step_owner, own));
        let forked = forked.inspect_err(|_| self.groups.remove(id))?;
        let mut attempt = Attempt::starting(
            forked.process,
            forked.report,
            spec.launch_record.clone(),
            lease,
        );
        attempt.hook_variables = hooks::variables(spec);
        attempt.uid = own;
        attempt.submitter = step_owner.submitter;
        attempt.after = after;
        attempt.storage = self.storage.hold(id, spec.limits.storage_bytes);
        let record = attempt.record(&spec.attempt, &self.boot_id);
        if let Err(e) = self.spool.save(&record) {
            self.groups.remove(id);
            self.storage.release(&mut attempt.storage);
            return Err(SpawnError::Host {
                action: "record the attempt".to_owned(),
                why: io::Error::other(error_chain(&e)),
            });
        }
        self.by_pid.insert(forked.process.pid, spec.attempt.clone());
        self.writer.begin(id, forked.streams);
        forked.gate.open();
        Ok(attempt)
    }

    /// Removes old files of the same attempt id, so that output of an earlier step is not shown as this
    /// one's.
    pub(super) fn clear_old_directory(&mut self, id: &AttemptId) -> Result<(), SpawnError> {
        let made = self.sweep.clear_old_directory(id);
        made.map_err(|why| SpawnError::Host {
            action: format!("put away what lies in the place of {id}"),
            why,
        })
    }

    fn filter_devices(&mut self, spec: &SpawnSpec) -> Result<(), SpawnError> {
        let filtered = self.groups.filter_devices(&spec.attempt, &spec.devices);
        filtered.map_err(|e| SpawnError::Host {
            action: "keep the attempt from the GPUs of others".to_owned(),
            why: io::Error::other(error_chain(&e)),
        })
    }

    /// The child enters its groups before the gate, so no process of the step runs outside of them.
    fn fork_into_group(
        &self,
        spec: &SpawnSpec,
        step_owner: &StepOwner,
        own: Option<Uid>,
    ) -> Result<WaitingChild, SpawnError> {
        let group_entry = self.groups.entry(&spec.attempt).map_err(no_group)?;
        self.spawner.fork(spec, (step_owner, own), &group_entry)
    }
}

/// Reports a failed start without storing it, and without text that may be too long for a frame.
fn refused(spec: &SpawnSpec, why: String) -> Option<AttemptView> {
    let id = &spec.attempt;
    warn!(step = %id.step, attempt = id.number, "refused: {why}");
    let memo = LaunchRecord {
        gpus: Vec::new(),
        processors: CpuSet::default(),
        ..spec.launch_record.clone()
    };
    Attempt::refused(Exit::StartFailed(why), clock::wall_now(), memo).view(id)
}
