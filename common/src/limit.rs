//! Bounds that more than one program relies on, each with its reason.

use crate::time::Span;

/// Largest frame between agent and coordinator, in bytes. A command with its environment is bounded by
/// [`MAX_SPEC_BYTES`]; a `Hello` that lists [`MAX_ATTEMPTS_PER_NODE`] attempts fits with room.
pub const MAX_FRAME_BYTES: usize = 4 * 1024 * 1024;

/// Largest command, environment and working directory of one step together, in bytes. Linux accepts about 2 MiB in
/// `execve`; half of that leaves room for what the host adds.
pub const MAX_SPEC_BYTES: usize = 1024 * 1024;

/// Largest warrant of an attempt, in bytes: a whole step as JSON, encrypted and encoded as text. Fits into a frame
/// together with its assignment.
pub const MAX_WARRANT_BYTES: usize = 2 * 1024 * 1024;

/// Most attempts that one host may hold at once; the supervisor refuses more. A host of 192 cores that runs one step
/// per core stays far below.
pub const MAX_ATTEMPTS_PER_NODE: usize = 4096;

/// Largest amount that may be requested, reserved or declared. Every JSON parser reads it exactly, and sums over all
/// steps fit into `u64`.
pub const MAX_AMOUNT: u64 = 1 << 53;

/// Most labels of a node, from its config and from admins.
pub const MAX_NODE_LABELS: usize = 64;

/// Most labels of a step, since lists of steps include them.
pub const MAX_STEP_LABELS: usize = 64;

/// Largest HTTP request body, in bytes.
pub const MAX_BODY_BYTES: usize = 1024 * 1024;

/// Largest HTTP request body of a batch, in bytes.
pub const MAX_BATCH_BODY_BYTES: usize = 16 * 1024 * 1024;

/// Most steps in one batch.
pub const MAX_BATCH_STEPS: usize = 10_000;

/// Most hosts of one gang. Each gets the addresses of all in one environment variable, for which Linux allows 128 KiB.
pub const MAX_GANG_NODES: u32 = 1_000;

/// Longest address at which gang members reach a host, in bytes: [`MAX_GANG_NODES`] of them with commas fit into one
/// environment variable.
pub const MAX_ADDRESS_BYTES: usize = 127;

/// Default time between the stop signal and the kill.
pub const DEFAULT_GRACE: Span = Span::from_secs(30);

/// Longest grace period that a step may ask for. Draining a host may take this long.
pub const MAX_GRACE: Span = Span::from_secs(24 * 3600);

/// Default time that a preempted step stays suspended before it is stopped and queued again, since it occupies host
/// memory.
pub const DEFAULT_SUSPEND_TIMEOUT: Span = Span::from_secs(3600);

/// Time that an attempt may run on after the last heartbeat that the coordinator acknowledged.
pub const DEFAULT_LEASE: Span = Span::from_secs(5 * 60);

/// Time limit for stopping an attempt whose lease has expired.
pub const DEFAULT_STOP_LIMIT: Span = Span::from_secs(30);

/// Time that a keeper leaves an overdue kill to the supervisor before it kills the attempt itself.
pub const KEEPER_DELAY: Span = Span::from_secs(1);

/// Time between two checks of a keeper that runs continuously.
pub const KEEPER_PERIOD: Span = Span::from_secs(1);

/// Time between two runs of a keeper that the init system starts by a timer: `OnUnitInactiveSec` of
/// `sluice-keeper.timer`.
pub const KEEPER_TIMER_PERIOD: Span = Span::from_secs(5);

/// Delay with which the init system may start the keeper: `AccuracySec` of `sluice-keeper.timer`.
pub const KEEPER_TIMER_ACCURACY: Span = Span::from_secs(1);

/// Time that an attempt may outlive its due kill if its supervisor is dead, stopped or cannot start: delay, longest
/// pause between two keeper runs, and 3 s for a busy host to start the keeper and kill. Also the time for which a
/// keeper's last run counts as recent.
pub const KEEPER_LIMIT: Span = Span::from_secs(10);

const _: () = assert!(
    KEEPER_LIMIT.millis()
        >= KEEPER_DELAY.millis()
            + KEEPER_TIMER_PERIOD.millis()
            + KEEPER_TIMER_ACCURACY.millis()
            + 3_000
);

/// Largest drift between the clocks of two hosts during one lease.
pub const DRIFT_MARGIN: Span = Span::from_secs(10);

/// Silence after which a node gets no new work.
pub const DEFAULT_UNREACHABLE_AFTER: Span = Span::from_secs(15);

/// Silence after which a node's steps are started elsewhere. The coordinator checks at its start that this is at least
/// lease + stop limit + keeper limit + drift margin, because the old attempts must have stopped by then.
pub const DEFAULT_LOST_AFTER: Span = Span::from_secs(6 * 60 + 30);

/// Time between two heartbeats of an agent.
pub const DEFAULT_HEARTBEAT: Span = Span::from_secs(3);

/// Most network addresses that identify a machine. Hosts with many cards have eight.
pub const MAX_ADDRESSES: usize = 64;

/// Longest explanation of a failed start, in bytes. The views of all attempts must fit into one frame.
pub const MAX_SENTENCE_BYTES: usize = 512;
