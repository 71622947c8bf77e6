//! Leases of all attempts: renewed together, and who has none any more is stopped, agent or no agent.
//!
//! What a lease is, is `lease`'s.

use super::{
    AttemptId, BootMillis, Notice, Stage, StopSignal, Table, chain, clock, error, info, warn,
};

impl Table {
    pub(super) fn on_renew(&mut self, until: BootMillis) {
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
            // Once, and not at each heartbeat for as long as a disk is full.
            Err(e) if !was_unsaved => error!(
                "renewals of leases would not outlive this supervisor until it can write again: {}",
                chain(&e)
            ),
            Ok(()) if was_unsaved => info!("renewals of leases outlive this supervisor again"),
            Ok(()) | Err(_) => {}
        }
    }

    /// Stops those whose lease has passed, and kills those whose grace has.
    pub(super) fn stop_expired(&mut self, now: BootMillis) {
        let mut expired: Vec<(AttemptId, Notice)> = Vec::new();
        for (id, attempt) in &mut self.attempts {
            if attempt.is_gone() {
                continue;
            }
            let Some(lease) = &mut attempt.lease else {
                continue;
            };
            let had_passed = lease.has_passed();
            let stage = lease.look(now);
            if lease.has_passed() && !had_passed {
                warn!(step = %id.step, attempt = id.number, "its lease has passed: stopping it");
                attempt.unsaved = true;
                let deadline = clock::wall_at(lease.kill_at(), now);
                expired.push((id.clone(), Notice::lease_expired(deadline)));
                self.wanted.push((id.clone(), StopSignal::Terminate));
            }
            if stage == Stage::Kill && !attempt.killing {
                attempt.killing = true;
                self.wanted.push((id.clone(), StopSignal::Kill));
            }
        }
        for (id, notice) in &expired {
            self.notify(id, notice);
        }
    }
}
