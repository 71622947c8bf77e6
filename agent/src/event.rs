//! Events for the main loop, and what it sends to the task of a link.

use std::collections::BTreeMap;

use agent_core::{Input, LinkId};
use sluice_common::exec::{ExecId, ExecOrder};
use sluice_common::host_health::HostHealth;
use sluice_common::id::{AttemptId, BootId};
use sluice_common::inventory::{Capability, Inventory, Mechanism, Readings};
use sluice_common::lease::{Challenge, SealedLease};
use sluice_common::port::PortName;
use sluice_common::supervision::{AttemptView, Exit, ToSupervisor};
use sluice_common::time::Span;
use sluice_common::usage::UsageReport;
use sluice_common::wire::{FromNode, Hello};
use tokio::sync::{mpsc, oneshot};

use crate::gpu_usage::GpuUsage;

/// An event for the loop.
#[expect(
    clippy::large_enum_variant,
    reason = "events are handled one at a time, and most are inputs of the core"
)]
#[derive(Debug)]
pub(crate) enum Event {
    /// A connection to a coordinator was made.
    Dialled {
        link: LinkId,
        outbox: mpsc::Sender<ToLink>,
    },
    /// The supervisor has sent its hello.
    SupervisorUp {
        boot_id: BootId,
        attempts: Vec<AttemptView>,
        capabilities: BTreeMap<Capability, Mechanism>,
        carves_gpus: bool,
        outbox: mpsc::Sender<ToSupervisor>,
    },
    /// The inventory has changed.
    HostChanged(Box<Inventory>),
    /// New readings of the host.
    Readings(Box<Readings>),
    /// About what the running attempts use.
    Usage(UsageEvent),
    /// An attempt saved its work this long ago.
    Checkpoint { attempt: AttemptId, ago: Span },
    /// Result of the host's health check.
    Health(HostHealth),
    /// The labels of a reloaded config.
    Labels(BTreeMap<String, String>),
    /// The supervisor has drawn a challenge.
    Challenge(Challenge),
    /// The supervisor is to draw another challenge.
    WantChallenge,
    /// The coordinator has signed a lease.
    Leased(Box<SealedLease>),
    /// About a program beside an attempt.
    Exec(ExecEvent),
    /// An input for the core.
    Core(Input),
    /// A watchdog checks whether the loop runs.
    Asked(oneshot::Sender<()>),
}

/// An event about what the running attempts use.
#[derive(Debug)]
pub(crate) enum UsageEvent {
    /// Cores and memory, as the supervisor measures them.
    Measured(Vec<UsageReport>),
    /// Metrics that attempts serve themselves.
    Metrics(Vec<UsageReport>),
    /// Activity of the GPUs at the last scan.
    Gpus(Box<GpuUsage>),
}

/// A message for a link's task.
#[derive(Debug)]
pub(crate) enum ToLink {
    /// The first message.
    Hello(Box<Hello>),
    Say(FromNode),
}

/// An event about a program beside an attempt.
#[derive(Debug)]
pub(crate) enum ExecEvent {
    /// A caller wants a program beside an attempt.
    Wanted {
        attempt: AttemptId,
        order: ExecOrder,
        answer: oneshot::Sender<Result<StartedExec, ExecRefusal>>,
    },
    /// A caller wants to connect to a port of an attempt. The answer is its number; `None` if the attempt does not run
    /// now, or has no such port.
    PortWanted {
        attempt: AttemptId,
        name: PortName,
        answer: oneshot::Sender<Option<u16>>,
    },
    /// The caller is gone.
    Unwanted(ExecId),
    /// The supervisor reports that the program has ended, or could not start.
    Ended { exec: ExecId, exit: Exit },
}

/// Why no program can run beside an attempt.
#[derive(Debug)]
pub(crate) struct ExecRefusal {
    pub(crate) message: String,
    /// Whether its program has ended, so that only what was kept of it is left.
    pub(crate) has_ended: bool,
}

/// A program that the supervisor was ordered to start.
#[derive(Debug)]
pub(crate) struct StartedExec {
    pub(crate) exec: ExecId,
    /// The exit; dropped without a value if the supervisor is lost.
    pub(crate) end: oneshot::Receiver<Exit>,
}
