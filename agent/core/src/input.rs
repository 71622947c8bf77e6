//! Inputs of the core.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::carving::{CarveFailure, GpuLayout};
use sluice_common::id::{AttemptId, BootId, NodeName};
use sluice_common::port::PortRange;
use sluice_common::probe::ProbeKind;
use sluice_common::supervision::{AttemptView, BootMillis};
use sluice_common::time::{Span, Time};
use sluice_common::wire::{Command, Welcome};

use crate::processors::Topology;

/// A connection to a coordinator. The driver assigns increasing numbers, never reused within a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(pub u64);

/// The two clocks of a host: the wall clock for reports, the boot clock for timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    pub wall: Time,
    pub boot: BootMillis,
}

/// An input of the core.
#[expect(
    clippy::large_enum_variant,
    reason = "inputs are handled one at a time, and the large one is the most frequent"
)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A connection to a coordinator was made; the core answers with [`crate::Output::Greet`].
    Dialled { link: LinkId },
    /// The coordinator has accepted the node.
    Welcomed { link: LinkId, welcome: Welcome },
    /// The connection is lost.
    LinkLost { link: LinkId },
    Command {
        /// The connection; orders of a replaced one are ignored.
        link: LinkId,
        command: Command,
    },
    /// The coordinator has acknowledged a heartbeat.
    HeartbeatAcked {
        link: LinkId,
        /// When the heartbeat was *sent*: leases count from there.
        sent: BootMillis,
    },
    /// The supervisor answers with its attempts: the first message of a new connection. Never the answer to
    /// `List`, which might cross an order on its way.
    SupervisorUp {
        /// The boot of the attempts.
        boot_id: BootId,
        attempts: Vec<AttemptView>,
    },
    /// The supervisor does not answer, and is expected back. Repeated if the reason changes.
    SupervisorDown {
        /// The reason, and what to do on the host.
        why: String,
    },
    /// An attempt has changed.
    Attempt(AttemptView),
    /// A scan of the GPUs, requested by [`crate::Output::ScanGpus`] or not.
    Gpus(GpuScan),
    /// A GPU has failed, or the whole host.
    GpuHealth(GpuHealth),
    /// The supervisor has made a layout of a GPU, or could not.
    Carved {
        gpu: String,
        layout: GpuLayout,
        failure: Option<CarveFailure>,
    },
    /// The driver has reported all of its GPUs, and the link has the inventory, if it has changed.
    Looked {
        /// When the query started: later events may be missing from the inventory.
        began: BootMillis,
    },
    /// Ports of [`Settings::ports`] to which nothing was bound just now. Fed before an order that assigns an attempt
    /// with ports.
    FreePorts(Vec<u16>),
    /// Result of a probe: answers [`crate::Output::Probe`].
    Probed {
        attempt: AttemptId,
        kind: ProbeKind,
        /// The number of the probe; the answer to an older one is ignored.
        number: u32,
        outcome: ProbeOutcome,
    },
    /// A timer is due. It may fire late or needlessly: the core checks time and state.
    Timer(TimerKey),
    /// The driver's config has changed.
    Tuned(ReloadedSettings),
    /// The host has the inputs of an attempt, or cannot get them: answers [`crate::Output::FetchInputs`].
    Inputs {
        attempt: AttemptId,
        fetched: Result<(), InputsFailure>,
    },
}

/// Result of one probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    Succeeded,
    /// Text about what the probe saw.
    Failed(String),
    /// The host could not probe, which says nothing about the step.
    Unknown,
}

/// Why a host cannot get the inputs of an attempt, with the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputsFailure {
    /// They are not to be had on any host.
    Step(String),
    /// This host cannot store them.
    Host(String),
}

/// Purpose of a timer. Setting one again replaces it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimerKey {
    /// The grace of a stopping attempt ends, or the kill is repeated.
    Grace(AttemptId),
    /// An attempt has run for its `timeout`.
    Timeout(AttemptId),
    /// Time limit for an attempt's GPUs to be free.
    Release(AttemptId),
    /// The GPUs are to be scanned again.
    GpuScan,
    /// Time limit of a suspend or resume.
    Suspension(AttemptId),
    /// Time limit for the supervisor to be back.
    Supervisor,
    /// The next probe of an attempt is due.
    Probe(AttemptId, ProbeKind),
    /// Ports and readiness of an attempt are to be reported again.
    Endpoint(AttemptId),
}

/// Result of one GPU scan. A driver that does not answer at all yields no GPUs, and no conclusions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuScan {
    /// When the scan started: later events may be missing from it. A scan that arrives after a later one is
    /// ignored.
    pub began: BootMillis,
    /// Observations by UUID, of GPUs that can be granted.
    pub gpus: BTreeMap<String, GpuObservation>,
    /// Units of each GPU whose units could all be read: the GPU itself, or its MIG instances.
    pub units: BTreeMap<String, BTreeSet<String>>,
    /// Available memory of the host without swapping, in bytes; `None` if unknown.
    pub memory_available: Option<u64>,
}

/// Observation of one GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GpuObservation {
    Present {
        /// Processes that use the GPU; `None` if the driver cannot tell for this kind.
        processes: Option<Vec<u32>>,
        /// Memory in use, in bytes; `None` if the driver cannot tell for this kind.
        memory_used: Option<u64>,
    },
    /// The GPU did not answer this time.
    NoAnswer,
    /// The GPU existed before and is gone.
    Lost,
}

/// Consequence of a hardware failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GpuHealth {
    /// Grant this GPU to no step.
    Quarantine {
        uuid: String,
        /// One clause for people.
        why: String,
        /// Whether this is a count since the driver was loaded, which each new agent reads again, and no new
        /// event.
        is_count: bool,
    },
    /// Grant no GPU while it has conditions: all those of each named GPU, by UUID. Repeated with each scan.
    Conditions(BTreeMap<String, BTreeSet<String>>),
    /// Give this host no more work.
    Drain {
        /// One clause for people.
        why: String,
    },
}

/// Settings from the driver's config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub node: NodeName,
    /// `PATH` of steps that set none.
    pub path: String,
    /// Time limit for an attempt's GPUs to be free after its last process.
    pub gpu_release_timeout: Span,
    /// Whether a GPU with foreign processes is unavailable.
    pub respect_foreign: bool,
    /// Whether the GPUs are only declared, as on hosts for trials: suspended steps hold no memory on them
    /// then.
    pub gpus_are_declared: bool,
    /// Time limit for moving GPU memory at a suspend, and for restoring it.
    pub suspend_limit: Span,
    /// Locality of processors and GPUs.
    pub topology: Topology,
    /// The supervisor's directory of attempts' directories.
    pub attempts_dir: String,
    /// Directory for the inputs of attempts, a file for each.
    pub inputs_dir: String,
    /// The ports that attempts get.
    pub ports: PortRange,
}

/// The part of [`crate::Settings`] that can change, with the same meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReloadedSettings {
    pub path: String,
    pub gpu_release_timeout: Span,
    pub respect_foreign: bool,
    pub suspend_limit: Span,
}
