//! Outputs of the core.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::epoch::SealedEpoch;
use sluice_common::gpu_state::GpuStates;
use sluice_common::host_health::SupervisorState;
use sluice_common::id::AttemptId;
use sluice_common::inputs::InputFile;
use sluice_common::probe::ProbeKind;
use sluice_common::supervision::{BootMillis, ToSupervisor};
use sluice_common::time::Span;
use sluice_common::warrant::SealedWarrant;
use sluice_common::wire::{AttemptStatus, FromNode};

use crate::endpoint::{ProbeCheck, StoredEndpoint};
use crate::gpus::StoredGpus;
use crate::input::{LinkId, TimerKey};

/// An action for the driver. Actions must be performed in order.
#[expect(
    clippy::large_enum_variant,
    reason = "outputs are drained at once, and the large one is the one that counts"
)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Store this as the highest epoch that the host has obeyed, with its seal, durably, before the following
    /// outputs.
    SaveEpoch(SealedEpoch),
    /// Send a hello on a new connection; the driver adds the inventory. If the supervisor has not answered
    /// since the agent started, this comes when it has, or when its absence is reported.
    Greet {
        link: LinkId,
        highest_epoch: Option<SealedEpoch>,
        /// Every attempt that was not forgotten.
        attempts: Vec<AttemptStatus>,
        /// GPUs that must not be granted.
        gpu_states: GpuStates,
        /// Time of the message.
        said_at: BootMillis,
        /// Whether the supervisor answers.
        supervisor: SupervisorState,
    },
    /// Send to the coordinator. If the connection is gone, the next hello has the information.
    Send { link: LinkId, message: FromNode },
    /// Log the message, drop the connection and reconnect later: the coordinator is not obeyed, and its order
    /// was not executed. The core has forgotten the connection already.
    Reject {
        link: LinkId,
        /// The reason, and what would help.
        message: String,
    },
    /// Send to the supervisor. Only while it is connected; the core repeats lost orders after a reconnect.
    Supervise(ToSupervisor),
    /// Feed [`crate::Input::Timer`] at this time or later; replaces a timer with the same key.
    SetTimer { key: TimerKey, at: BootMillis },
    /// Scan the GPUs soon, and feed [`crate::Input::Gpus`]. One scan serves all requests made before it
    /// started; a driver that does not answer need not be waited for.
    ScanGpus,
    /// Store the warrant of an attempt before the following outputs, until the supervisor is ordered to
    /// forget the attempt.
    KeepWarrant {
        attempt: AttemptId,
        /// The warrant as received.
        warrant: SealedWarrant,
    },
    /// Store the ports, probes and readiness of an attempt before the following outputs, until the supervisor is ordered
    /// to forget the attempt. [`crate::Core::with_endpoints`] restores it.
    KeepEndpoint {
        attempt: AttemptId,
        endpoint: Box<StoredEndpoint>,
    },
    /// Probe an attempt and feed [`crate::Input::Probed`] after `timeout` at the latest.
    Probe {
        attempt: AttemptId,
        kind: ProbeKind,
        number: u32,
        check: ProbeCheck,
        timeout: Span,
    },
    /// Get these files from the coordinator, in this order, into the file that the start order names, and feed
    /// [`crate::Input::Inputs`]. Not wanted any more once the attempt is not starting.
    FetchInputs {
        attempt: AttemptId,
        files: Vec<InputFile>,
    },
    /// Send the coordinator the warrant of an attempt, or that there is none.
    ShowWarrant { link: LinkId, attempt: AttemptId },
    /// Store this durably until the host reboots, before the following outputs. [`crate::Core::with_gpus`]
    /// restores it.
    SaveGpus(StoredGpus),
}
