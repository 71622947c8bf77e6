//! What the supervisor is told to start, from what the coordinator has assigned. Pure.

use sluice_common::supervision::{Memo, SpawnSpec};
use sluice_common::time::Span;
use sluice_common::wire::Assignment;

use crate::environment::environment;
use crate::input::Settings;
use crate::link::Terms;

/// Everything but the lease, which is filled in when the order goes out.
pub(crate) fn spec(assignment: Assignment, settings: &Settings, terms: Terms) -> SpawnSpec {
    let env = environment(&assignment, settings);
    SpawnSpec {
        attempt: assignment.attempt,
        command: assignment.command,
        env,
        workdir: assignment.workdir,
        lease_until: None,
        lease_grace: lease_grace(assignment.grace, terms.stop_limit),
        memo: Memo {
            timeout: assignment.timeout,
            grace: assignment.grace,
        },
    }
}

/// The grace of a stop by an expired lease. All of that stop must be over within `stop_limit`, after which the step
/// may be started elsewhere: so at most five sixths of it pass before the kill, and the rest is for dying.
fn lease_grace(grace: Span, stop_limit: Span) -> Span {
    grace.min(stop_limit - Span::from_millis(stop_limit.millis().div_ceil(6)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kill_of_an_expired_lease_falls_within_the_stop_limit() {
        for (grace, stop_limit, expected) in [
            (10_000, 30_000, 10_000),
            (30_000, 30_000, 25_000),
            (u64::MAX, 600, 500),
            (30_000, 1, 0),
            (30_000, 0, 0),
            (0, 30_000, 0),
        ] {
            let found = lease_grace(Span::from_millis(grace), Span::from_millis(stop_limit));
            assert_eq!(found, Span::from_millis(expected), "{grace} {stop_limit}");
        }
    }
}
