//! Builds the supervisor's start order from the coordinator's assignment. Pure.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::amount::{Amounts, BYTES_PER_MEGABYTE, MCPU, MEMORY_MB, STORAGE_MB};
use sluice_common::attempt_dir::{ENV_FILE, OWN_WORKDIR};
use sluice_common::id::AttemptId;
use sluice_common::supervision::{
    CpuAllocation, DeviceAccess, Exit, LaunchRecord, ResourceLimits, SpawnSpec,
};
use sluice_common::time::Span;
use sluice_common::usage::Usage;
use sluice_common::wire::{Assignment, AttemptEnd, StopReason};

use crate::environment::{around, environment};
use crate::input::{Now, Settings};
use crate::link::LinkTerms;

/// The order without the lease, which is added when it is sent.
pub(crate) fn spec(
    mut assignment: Assignment,
    processors: CpuAllocation,
    ports: &[u16],
    settings: &Settings,
    terms: LinkTerms,
) -> SpawnSpec {
    let workdir = match &assignment.workdir {
        Some(workdir) => workdir.clone(),
        None => own_path(&assignment.attempt, settings, OWN_WORKDIR),
    };
    let env_file = assignment.launch.has_env_file();
    let file = own_path(&assignment.attempt, settings, ENV_FILE);
    assignment.launch.fill_paths(&workdir, &file);
    let container = assignment.container.iter_mut();
    container.for_each(|it| it.fill_workdir(&workdir));
    let env = environment(&assignment, ports, settings);
    let around_env = around(&assignment, ports, settings);
    let is_allocation = assignment.is_allocation();
    // It has no program that could be wrapped.
    let mut command = match is_allocation {
        true => Vec::new(),
        false => assignment.launch.wrapper,
    };
    // The number of a template's arguments has a much lower bound.
    let wrapper = u32::try_from(command.len()).unwrap_or(u32::MAX);
    command.extend(assignment.command);
    SpawnSpec {
        attempt: assignment.attempt,
        command,
        env,
        workdir: assignment.workdir,
        prefer_workdir: assignment.prefer_workdir,
        lease_until: None,
        lease_grace: lease_grace(assignment.grace, terms.stop_limit),
        launch_record: LaunchRecord {
            timeout: assignment.timeout,
            grace: assignment.grace,
            gpus: assignment.gpus,
            processors: processors.own.clone(),
            is_allocation,
        },
        subject: assignment.subject,
        submitter: assignment.submitter,
        limits: limits(&assignment.resources),
        // The driver adds the devices and the container's runtime, because it knows the host's inventory.
        devices: DeviceAccess::default(),
        processors,
        hooks: assignment.launch.hooks,
        hook_env: around_env,
        wrapper,
        env_file,
        streams: assignment.streams,
        container: assignment.container,
        // Added by the caller, which has them fetched first.
        inputs: None,
        keep: assignment.keep,
    }
}

/// Path of a file in the attempt's directory, which the supervisor makes.
fn own_path(attempt: &AttemptId, settings: &Settings, name: &str) -> String {
    format!("{}/{attempt}/{name}", settings.attempts_dir)
}

/// Limits from the granted resources. Without a request for processors, memory or storage, a step shares the
/// host's.
fn limits(units: &Amounts) -> ResourceLimits {
    let granted = |key| Some(units.get(key)).filter(|amount| *amount > 0);
    let bytes = |key| granted(key).map(|mb| mb.saturating_mul(BYTES_PER_MEGABYTE));
    ResourceLimits {
        mcpu: granted(MCPU),
        memory_bytes: bytes(MEMORY_MB),
        storage_bytes: bytes(STORAGE_MB),
    }
}

/// Grace of a stop by an expired lease. The whole stop must complete within `stop_limit`, after which the
/// step may start elsewhere, so the kill comes after at most five sixths of it and the rest is for dying.
fn lease_grace(grace: Span, stop_limit: Span) -> Span {
    grace.min(stop_limit - Span::from_millis(stop_limit.millis().div_ceil(6)))
}

/// Why an attempt does not start whose lease was not renewed in time.
pub(crate) const LEASE_PASSED: &str = "its lease had expired when it was about to start";

/// The end of an attempt that never had a process.
pub(crate) fn never_started(now: Now, exit: Exit, stopped: Option<StopReason>) -> AttemptEnd {
    AttemptEnd {
        started: None,
        exit,
        stopped,
        at: now.wall,
        usage: Usage::default(),
        kept: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_may_use_what_it_was_granted_and_else_what_there_is() {
        let units = Amounts::new()
            .with(MCPU, 1500)
            .with(MEMORY_MB, 17_180)
            .with(STORAGE_MB, 7);
        let expected = ResourceLimits {
            mcpu: Some(1500),
            memory_bytes: Some(17_180_000_000),
            storage_bytes: Some(7_000_000),
        };
        assert_eq!(limits(&units), expected);
        assert_eq!(limits(&Amounts::new()), ResourceLimits::default());
        let huge = limits(&Amounts::new().with(MEMORY_MB, u64::MAX));
        assert_eq!(huge.memory_bytes, Some(u64::MAX));
    }

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
