//! What the core wants done.

use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::epoch::SealedEpoch;
use sluice_common::gpu_state::GpuStates;
use sluice_common::host_health::SupervisorState;
use sluice_common::id::AttemptId;
use sluice_common::supervision::{BootMillis, ToSupervisor};
use sluice_common::warrant::SealedWarrant;
use sluice_common::wire::{AttemptStatus, FromNode};

use crate::gpus::KeptGpus;
use crate::input::{LinkId, TimerKey};

/// One thing to be done, in order.
#[expect(
    clippy::large_enum_variant,
    reason = "outputs are drained at once, and the large one is the one that counts"
)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Make this the highest epoch that the host has obeyed, with its seal, durably, before what follows.
    SaveEpoch(SealedEpoch),
    /// Say hello on a new connection, with these; the driver adds what the host has. Comes at once, or, if the supervisor
    /// has not answered since the agent started, as soon as it has or has been away for long enough to say so.
    Greet {
        link: LinkId,
        /// The highest epoch obeyed.
        highest_epoch: Option<SealedEpoch>,
        /// Every attempt that was not forgotten.
        attempts: Vec<AttemptStatus>,
        /// Which GPUs are not to be granted.
        gpu_states: GpuStates,
        /// When it is said.
        said_at: BootMillis,
        /// Whether the supervisor answers.
        supervisor: SupervisorState,
    },
    /// Tell the coordinator. Lost where the connection is gone: the next hello says it again.
    Send { link: LinkId, message: FromNode },
    /// The coordinator on this connection is not obeyed: log the sentence, drop the connection and dial again later.
    /// What it asked for was not done. The core has forgotten the connection already.
    Reject {
        link: LinkId,
        /// Why, and what would help.
        message: String,
    },
    /// Tell the supervisor. Comes only while it is up; what is lost with it the core says again when it is back.
    Supervise(ToSupervisor),
    /// Feed [`crate::Input::Timer`] at this time or later; replaces a timer of the same key.
    SetTimer { key: TimerKey, at: BootMillis },
    /// Look at the GPUs soon, and feed [`crate::Input::Gpus`]. One look answers all that were asked for before it was
    /// begun; a driver that does not answer need not be waited for.
    LookAtGpus,
    /// Keep the warrant of an attempt, before what follows, until the supervisor is told to forget the attempt.
    KeepWarrant {
        attempt: AttemptId,
        /// As it came.
        warrant: SealedWarrant,
    },
    /// Show the coordinator the warrant of an attempt, or tell it that there is none.
    ShowWarrant { link: LinkId, attempt: AttemptId },
    /// Keep this until the host is booted anew, durably, before what follows. Given back by
    /// [`crate::Core::with_gpus`].
    SaveGpus(KeptGpus),
}
