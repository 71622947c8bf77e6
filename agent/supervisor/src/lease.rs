//! An attempt's lease: how long it may run without renewal. Pure: `table` supplies the time and acts.
//!
//! ```text
//! Held --(until)--> Terminate --(until + grace)--> Kill
//! ```
//!
//! Stages count from the deadline and not from when the supervisor noticed it: after deadline and grace the
//! step may start on another host, so a host that slept past both kills at once.

use serde::{Deserialize, Serialize};
use sluice_common::supervision::BootMillis;
use sluice_common::time::Span;

use crate::clock;

/// The lease of an attempt on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    until: BootMillis,
    grace: Span,
    passed: bool,
}

/// Action that a lease requires now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseStage {
    /// The attempt may run.
    Held,
    /// The lease has expired: send SIGTERM.
    Terminate,
    /// The grace has passed too: send SIGKILL until no process is left.
    Kill,
}

impl Lease {
    /// A lease until `until`, with `grace` between SIGTERM and SIGKILL.
    pub fn new(until: BootMillis, grace: Span) -> Self {
        Self {
            until,
            grace,
            passed: false,
        }
    }

    /// Extends the deadline. An expired lease stays expired, and no deadline moves back.
    pub fn renew(&mut self, until: BootMillis) {
        if !self.passed {
            self.until = self.until.max(until);
        }
    }

    /// Limits the deadline to `latest` and the grace to `grace`, because a compromised agent may have asked
    /// for more.
    #[must_use]
    pub fn capped(self, latest: BootMillis, grace: Span) -> Self {
        Self {
            until: self.until.min(latest),
            grace: self.grace.min(grace),
            ..self
        }
    }

    /// The stage at `now`. A lease that was seen to have expired can no longer be renewed.
    pub fn check(&mut self, now: BootMillis) -> LeaseStage {
        self.passed |= now >= self.until;
        if !self.passed {
            LeaseStage::Held
        } else if now >= self.kill_at() {
            LeaseStage::Kill
        } else {
            LeaseStage::Terminate
        }
    }

    /// Whether the lease was seen to have expired.
    pub fn has_passed(&self) -> bool {
        self.passed
    }

    /// When the next stage begins; `None` in the last.
    pub fn next_stage_at(&self, now: BootMillis) -> Option<BootMillis> {
        if !self.passed {
            return Some(self.until);
        }
        (now < self.kill_at()).then(|| self.kill_at())
    }

    /// When the grace is over.
    pub fn kill_at(&self) -> BootMillis {
        clock::after(self.until, self.grace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease() -> Lease {
        Lease::new(BootMillis(1000), Span::from_millis(50))
    }

    #[test]
    fn stages_come_in_order_and_are_counted_from_the_deadline() {
        let mut lease = lease();
        assert_eq!(lease.check(BootMillis(999)), LeaseStage::Held);
        assert_eq!(lease.next_stage_at(BootMillis(999)), Some(BootMillis(1000)));
        assert_eq!(lease.check(BootMillis(1000)), LeaseStage::Terminate);
        assert_eq!(
            lease.next_stage_at(BootMillis(1000)),
            Some(BootMillis(1050))
        );
        assert_eq!(lease.check(BootMillis(1050)), LeaseStage::Kill);
        assert_eq!(lease.next_stage_at(BootMillis(1050)), None);
    }

    #[test]
    fn a_host_that_slept_past_the_grace_kills_at_once() {
        assert_eq!(lease().check(BootMillis(5000)), LeaseStage::Kill);
    }

    #[test]
    fn a_renewal_never_moves_the_deadline_back() {
        let mut lease = lease();
        lease.renew(BootMillis(10));
        assert_eq!(lease.check(BootMillis(999)), LeaseStage::Held);
        lease.renew(BootMillis(2000));
        assert_eq!(lease.check(BootMillis(1999)), LeaseStage::Held);
        assert_eq!(lease.check(BootMillis(2000)), LeaseStage::Terminate);
    }

    #[test]
    fn a_deadline_that_has_passed_stays_passed() {
        let mut lease = lease();
        lease.check(BootMillis(1000));
        lease.renew(BootMillis(9000));
        assert!(lease.has_passed());
        assert_eq!(lease.check(BootMillis(1050)), LeaseStage::Kill);
    }

    #[test]
    fn a_deadline_at_the_end_of_time_does_not_overflow() {
        let mut lease = Lease::new(BootMillis(u64::MAX), Span::from_secs(30));
        assert_eq!(lease.check(BootMillis(u64::MAX - 1)), LeaseStage::Held);
        assert_eq!(lease.check(BootMillis(u64::MAX)), LeaseStage::Kill);
    }
}
