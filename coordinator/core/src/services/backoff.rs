//! Pauses before replicas that fail are replaced: they double from one failure to the next, within bounds.

use sluice_common::time::{Span, Time};

use crate::model::service::{Replica, ReplicaBackoff, ReplicaPhase};

/// Pause after the first failure.
const FIRST_PAUSE: Span = Span::from_secs(1);

/// Longest pause after failures.
const MAX_PAUSE: Span = Span::from_secs(300);

/// Time for which a replica must have been ready, so that its end is the first failure again.
pub(crate) const STEADY: Span = Span::from_secs(60);

/// Returns the number of failures with this one, and the time before which no replica is added. Replicas that were
/// there when the last one failed fail together with it.
pub(super) fn pause(before: &ReplicaBackoff, failed: Option<&Replica>, now: Time) -> (u32, Time) {
    let was_there = failed.is_some_and(|failed| failed.added_at <= before.raised_at);
    if was_there && before.failures > 0 {
        return (before.failures, before.restart_at);
    }
    let steady = failed.is_some_and(|failed| match failed.phase {
        ReplicaPhase::Serving { since } => now.since(since) >= STEADY,
        ReplicaPhase::Starting | ReplicaPhase::Draining { .. } => false,
    });
    let failures = if steady {
        1
    } else {
        before.failures.saturating_add(1)
    };
    (failures, now + pause_after(failures))
}

fn pause_after(failures: u32) -> Span {
    let doubled = 1u64.checked_shl(failures.saturating_sub(1).min(32));
    let millis = FIRST_PAUSE
        .millis()
        .saturating_mul(doubled.unwrap_or(u64::MAX));
    Span::from_millis(millis).min(MAX_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_within_bounds() {
        let pauses = [1, 2, 3, 9, 10, 1000].map(pause_after);
        assert_eq!(pauses, [1, 2, 4, 256, 300, 300].map(Span::from_secs));
    }

    #[test]
    fn replicas_that_fail_together_count_once() {
        let at = |secs: u64| Time::from_unix_millis(secs * 1000);
        let replica = |added, phase| Replica {
            step: sluice_common::id::StepId::new("web-1").unwrap(),
            revision: 1,
            added_at: at(added),
            phase,
        };
        let first = pause(
            &ReplicaBackoff::default(),
            Some(&replica(5, ReplicaPhase::Starting)),
            at(10),
        );
        assert_eq!(first, (1, at(11)));
        let before = ReplicaBackoff {
            failures: 1,
            raised_at: at(10),
            restart_at: at(11),
            last: None,
        };
        let together = pause(&before, Some(&replica(5, ReplicaPhase::Starting)), at(10));
        assert_eq!(together, first);
        let again = pause(&before, Some(&replica(11, ReplicaPhase::Starting)), at(12));
        assert_eq!(again, (2, at(14)));
        let steady = ReplicaPhase::Serving { since: at(20) };
        assert_eq!(
            pause(&before, Some(&replica(11, steady)), at(90)),
            (1, at(91))
        );
        assert_eq!(
            pause(&before, Some(&replica(11, steady)), at(30)),
            (2, at(32))
        );
    }
}
