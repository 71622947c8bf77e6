//! What can happen to the core.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::id::{AttemptId, BootId, NodeName};
use sluice_common::supervision::{AttemptView, BootMillis};
use sluice_common::time::{Span, Time};
use sluice_common::wire::{Command, Welcome};

use crate::processors::Topology;

/// One connection to a coordinator; drawn by the driver, counted up, never reused within a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(pub u64);

/// The two clocks of a host: the wall for reports, the boot clock for everything that is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    pub wall: Time,
    pub boot: BootMillis,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A connection to a coordinator stands; the core answers with [`crate::Output::Greet`].
    Dialled { link: LinkId },
    /// The coordinator let the node in.
    Welcomed { link: LinkId, welcome: Welcome },
    /// The connection is gone.
    LinkLost { link: LinkId },
    Command {
        /// The connection; orders of one that was replaced are ignored.
        link: LinkId,
        command: Command,
    },
    /// The coordinator has acknowledged a heartbeat.
    HeartbeatAcked {
        link: LinkId,
        /// When it was *sent*: leases run from there.
        sent: BootMillis,
    },
    /// The supervisor answers, and these are its attempts: the first message of a new connection to it. Never the
    /// answer to `List`, which might cross an order on its way.
    SupervisorUp {
        /// The boot that they belong to.
        boot_id: BootId,
        /// All of them.
        attempts: Vec<AttemptView>,
    },
    /// The supervisor does not answer; it will be back. Said again where the reason has changed.
    SupervisorDown {
        /// Why, and what to do on the host.
        why: String,
    },
    /// An attempt has changed.
    Attempt(AttemptView),
    /// Somebody has looked at the GPUs, because [`crate::Output::LookAtGpus`] asked or by itself.
    Gpus(GpuLook),
    /// A GPU has failed, or the host as a whole.
    GpuHealth(GpuHealth),
    /// A timer that was set has come due. It may fire late or needlessly: the core looks at time and state.
    Timer(TimerKey),
    /// The driver's config has changed.
    Tuned(Tuning),
}

/// What a timer is for. Setting one again replaces it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimerKey {
    /// The grace of a stopping attempt ends, or it is to be killed again.
    Grace(AttemptId),
    /// An attempt has run for its `timeout`.
    Timeout(AttemptId),
    /// The GPUs of an attempt should have come free by now.
    Release(AttemptId),
    /// The GPUs are to be looked at again.
    Look,
    /// An attempt should have been frozen, or thawed, by now.
    Suspension(AttemptId),
    /// The supervisor should have been back by now.
    Supervisor,
}

/// What one look at the GPUs has shown. A driver that does not answer at all shows nothing, and nothing is concluded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuLook {
    /// When it was begun: what happened after that may be missing. One that comes after a later one counts for nothing.
    pub began: BootMillis,
    /// By UUID, of those that can be granted.
    pub gpus: BTreeMap<String, Seen>,
    /// Memory of the host that could be had without swapping, in bytes; `None` where nobody can tell.
    pub memory_available: Option<u64>,
}

/// What was seen of one GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    There {
        /// The processes that use it; `None` where the driver cannot tell for this kind.
        processes: Option<Vec<u32>>,
        /// Memory that is held on it, in bytes; `None` where the driver cannot tell for this kind.
        memory_used: Option<u64>,
    },
    /// It was asked and did not answer this time.
    Unanswered,
    /// It was there and is there no more.
    Lost,
}

/// What a failure of hardware asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GpuHealth {
    /// Grant this GPU to nobody.
    Quarantine {
        uuid: String,
        /// One clause for people.
        why: String,
        /// Whether this is what the driver counts since it was loaded, which each agent that starts anew reads again, and
        /// not what has just happened.
        is_count: bool,
    },
    /// Give this host no more work.
    Drain {
        /// One clause for people.
        why: String,
    },
}

/// What the driver's config says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// This host's name.
    pub node: NodeName,
    /// `PATH` of steps that bring none of their own.
    pub path: String,
    /// How long an attempt's GPUs may take to come free once nothing of it is left.
    pub gpu_release_timeout: Span,
    /// Whether a GPU is kept back while processes use it that are no step's.
    pub respect_foreign: bool,
    /// Whether the GPUs of this host are only said to be there, as those of hosts that are made for trials: then there is no
    /// memory on them that a frozen step would keep.
    pub gpus_are_declared: bool,
    /// How long moving what an attempt holds on GPUs may take before it is frozen, and bringing it back.
    pub suspend_limit: Span,
    /// What is near to what on this host.
    pub topology: Topology,
    /// Where the supervisor has the directories of attempts.
    pub attempts_dir: String,
}

/// The part of [`crate::Settings`] that may change, each as there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// `PATH` of steps that bring none of their own.
    pub path: String,
    /// How long an attempt's GPUs may take to come free once nothing of it is left.
    pub gpu_release_timeout: Span,
    /// Whether a GPU is kept back while processes use it that are no step's.
    pub respect_foreign: bool,
    /// How long moving what an attempt holds on GPUs may take before it is frozen, and bringing it back.
    pub suspend_limit: Span,
}
