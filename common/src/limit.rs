//! Bounds that more than one program relies on, each with its reason.

use crate::time::Span;

/// Largest frame between agent and coordinator, in bytes. A command with its environment is bounded by
/// [`MAX_SPEC_BYTES`]; a `Hello` that lists [`MAX_ATTEMPTS_PER_NODE`] attempts fits with room.
pub const MAX_FRAME_BYTES: usize = 4 * 1024 * 1024;

/// Largest command plus environment plus working directory of one step, in bytes. Linux takes about 2 MiB in
/// `execve`; half of that leaves room for what the host adds.
pub const MAX_SPEC_BYTES: usize = 1024 * 1024;

/// Largest warrant of an attempt, in bytes: a whole step in JSON, encrypted and then written as text. Beside the assignment
/// that carries it there is room for it in a frame.
pub const MAX_WARRANT_BYTES: usize = 2 * 1024 * 1024;

/// Most attempts that one host may hold at once. The supervisor refuses more; a host of 192 cores that runs one step
/// a core stays far below.
pub const MAX_ATTEMPTS_PER_NODE: usize = 4096;

/// Most of anything that may be asked for, reserved or declared: every reader of JSON reads it as it is, and sums over
/// all steps stay far from the top of `u64`.
pub const MAX_AMOUNT: u64 = 1 << 53;

/// Most labels of a node, of its own config or set by admins.
pub const MAX_NODE_LABELS: usize = 64;

/// Most labels of a step: a list of steps carries them all along.
pub const MAX_STEP_LABELS: usize = 64;

/// Largest HTTP request body, in bytes.
pub const MAX_BODY_BYTES: usize = 1024 * 1024;

/// Largest HTTP request body of a batch, in bytes.
pub const MAX_BATCH_BODY_BYTES: usize = 16 * 1024 * 1024;

/// Most steps in one batch.
pub const MAX_BATCH_STEPS: usize = 10_000;

/// Most hosts of one gang: each is told of all, in a variable for which Linux has room for 128 KiB.
pub const MAX_GANG_NODES: u32 = 1_000;

/// Where a host is reached by the others of a gang, in bytes: [`MAX_GANG_NODES`] of them with commas between fit into
/// one variable.
pub const MAX_ADDRESS_BYTES: usize = 127;

/// Between the stop signal and the kill, unless a step says otherwise.
pub const DEFAULT_GRACE: Span = Span::from_secs(30);

/// Longest grace that a step may ask for. A host that must be emptied may have to wait this long.
pub const MAX_GRACE: Span = Span::from_secs(24 * 3600);

/// How long a step that gave way stays frozen before it is stopped and waits to start anew, unless it says otherwise:
/// what it holds of its host's memory is of use to others.
pub const DEFAULT_SUSPEND_TIMEOUT: Span = Span::from_secs(3600);

/// How long an attempt may run on after the last heartbeat that the coordinator acknowledged.
pub const DEFAULT_LEASE: Span = Span::from_secs(5 * 60);

/// How long a supervisor may take to stop an attempt whose lease has passed.
pub const DEFAULT_STOP_LIMIT: Span = Span::from_secs(30);

/// How long a keeper leaves an attempt whose kill is due to its supervisor, before it kills the attempt itself.
pub const KEEPER_DELAY: Span = Span::from_secs(1);

/// Between two looks of a keeper that runs all the time at the deadlines of attempts.
pub const KEEPER_PERIOD: Span = Span::from_secs(1);

/// Between two runs of the keeper that the init system starts by a timer: `OnUnitInactiveSec` of `sluice-keeper.timer`.
pub const KEEPER_TIMER_PERIOD: Span = Span::from_secs(5);

/// How late the init system may start it: `AccuracySec` of `sluice-keeper.timer`.
pub const KEEPER_TIMER_ACCURACY: Span = Span::from_secs(1);

/// How long after its kill was due an attempt may run on if its supervisor is dead, stopped or cannot start: the delay, the
/// longest pause between two runs of the keeper, and 3 s in which a busy host starts one and it kills. A sign of life of a
/// keeper counts for as long.
pub const KEEPER_LIMIT: Span = Span::from_secs(10);

const _: () = assert!(
    KEEPER_LIMIT.millis()
        >= KEEPER_DELAY.millis()
            + KEEPER_TIMER_PERIOD.millis()
            + KEEPER_TIMER_ACCURACY.millis()
            + 3_000
);

/// How far two hosts' clocks may part over one lease.
pub const DRIFT_MARGIN: Span = Span::from_secs(10);

/// Silence after which a node gets no new work.
pub const DEFAULT_UNREACHABLE_AFTER: Span = Span::from_secs(15);

/// Silence after which a node's steps are started elsewhere. At least lease + stop limit + keeper limit + drift margin,
/// which the coordinator checks when it starts: what is started elsewhere must have stopped here.
pub const DEFAULT_LOST_AFTER: Span = Span::from_secs(6 * 60 + 30);

/// Between two heartbeats of an agent.
pub const DEFAULT_HEARTBEAT: Span = Span::from_secs(3);

/// Addresses of network hardware by which a machine is told from others. Hosts with many cards have eight.
pub const MAX_ADDRESSES: usize = 64;

/// Longest sentence of a host on why a start failed. The views of every attempt must fit into one frame.
pub const MAX_SENTENCE_BYTES: usize = 512;
