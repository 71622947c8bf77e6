//! Leases of all attempts: renews them together, and stops expired attempts, with or without an agent.
//!
//! [`crate::lease`] is one lease; [`crate::seal`] verifies signed ones.

use sluice_common::lease::SealedLease;
use sluice_common::supervision::{Exit, SpawnSpec};

use super::{
    AttemptId, BootMillis, FromSupervisor, LeaseStage, StopNotice, StopSignal, Table, clock, error,
    error_chain, info, warn,
};
use crate::lease::Lease;
use crate::seal::LeaseRejection;

/// Why an attempt does not start if its lease has expired by then.
const LEASE_PASSED: &str = "its lease had expired when it was about to start";

impl Table {
    /// Renews by the agent's word, which counts until the host has seen a signed lease.
    pub(super) fn on_renew(&mut self, until: BootMillis, now: BootMillis) {
        if !self.seals.is_settled() {
            self.renew(until.min(self.seals.latest(now)));
        }
    }

    pub(super) fn on_want_challenge(&mut self, now: BootMillis) -> Option<FromSupervisor> {
        self.seals.draw(now).map(FromSupervisor::Challenge)
    }

    pub(super) fn on_lease(&mut self, lease: &SealedLease) {
        let why = match self.seals.verify(lease) {
            Ok(until) => {
                self.lease_rejection = None;
                return self.renew(until);
            }
            // A lease that arrives after a later one, or after a restart.
            Err(LeaseRejection::Unknown) => return,
            Err(why) => error_chain(&why),
        };
        if self.lease_rejection.as_ref() != Some(&why) {
            error!("a lease was rejected: {why}");
            self.lease_rejection = Some(why);
        }
    }

    fn renew(&mut self, until: BootMillis) {
        if self.renewed >= Some(until) {
            return;
        }
        self.renewed = Some(until);
        for attempt in self.attempts.values_mut() {
            if let Some(lease) = &mut attempt.lease {
                lease.renew(until);
            }
        }
        let saved = self.spool.save_renewal(&self.boot_id, until);
        let was_unsaved = std::mem::replace(&mut self.renewal_unsaved, saved.is_err());
        match saved {
            // Logged once, and not at each heartbeat while a disk is full.
            Err(e) if !was_unsaved => error!(
                "renewals of leases would not outlive this supervisor until it can write again: {}",
                error_chain(&e)
            ),
            Ok(()) if was_unsaved => info!("renewals of leases outlive this supervisor again"),
            Ok(()) | Err(_) => {}
        }
    }

    /// The lease of an attempt that is about to start.
    ///
    /// # Errors
    /// The exit of the attempt, if it has no valid lease.
    pub(super) fn lease_for_start(&self, spec: &SpawnSpec, now: BootMillis) -> Result<Lease, Exit> {
        let latest = self.seals.latest(now);
        let said = spec.lease_until.unwrap_or(latest);
        let said = (!self.seals.is_settled()).then_some(said);
        let until = said.max(self.renewed).unwrap_or(BootMillis(0));
        let grace = spec.lease_grace.min(self.seals.longest_grace());
        let mut lease = Lease::new(until.min(latest), grace);
        match (lease.check(now), &self.lease_rejection) {
            (LeaseStage::Held, _) => Ok(lease),
            // An admin must resolve this before any start can succeed.
            (_, Some(why)) => Err(Exit::HostFailed(format!("its leases are rejected: {why}"))),
            (_, None) => Err(Exit::NotBegun(LEASE_PASSED.to_owned())),
        }
    }

    /// Stops attempts whose lease has expired, and kills those whose grace is over.
    pub(super) fn stop_expired(&mut self, now: BootMillis) {
        let mut expired: Vec<(AttemptId, StopNotice)> = Vec::new();
        for (id, attempt) in &mut self.attempts {
            if attempt.is_gone() {
                continue;
            }
            let Some(lease) = &mut attempt.lease else {
                continue;
            };
            let had_passed = lease.has_passed();
            let stage = lease.check(now);
            if lease.has_passed() && !had_passed {
                warn!(step = %id.step, attempt = id.number, "its lease has expired: stopping it");
                attempt.unsaved = true;
                let deadline = clock::wall_at(lease.kill_at(), now);
                expired.push((id.clone(), StopNotice::lease_expired(deadline)));
                self.wanted.push((id.clone(), StopSignal::Terminate));
            }
            if stage == LeaseStage::Kill && !attempt.killing {
                attempt.killing = true;
                self.wanted.push((id.clone(), StopSignal::Kill));
            }
        }
        for (id, notice) in &expired {
            self.notify(id, notice);
        }
    }
}
