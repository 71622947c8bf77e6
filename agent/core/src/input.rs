//! What can happen to the core.

use alloc::vec::Vec;

use sluice_common::id::{AttemptId, BootId, NodeName};
use sluice_common::supervision::{AttemptView, BootMillis};
use sluice_common::time::Time;
use sluice_common::wire::{Command, Welcome};

/// One connection to a coordinator; drawn by the driver, counted up, never reused within a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(pub u64);

/// The two clocks of a host: the wall for reports, the boot clock for everything that is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Wall clock.
    pub wall: Time,
    /// `CLOCK_BOOTTIME`.
    pub boot: BootMillis,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A connection to a coordinator stands; the core answers with [`crate::Output::Greet`].
    Dialled {
        /// The connection.
        link: LinkId,
    },
    /// The coordinator let the node in.
    Welcomed {
        /// The connection.
        link: LinkId,
        /// Its terms.
        welcome: Welcome,
    },
    /// The connection is gone.
    LinkLost {
        /// The connection.
        link: LinkId,
    },
    /// An order.
    Command {
        /// The connection; orders of one that was replaced are ignored.
        link: LinkId,
        /// The order.
        command: Command,
    },
    /// The coordinator has acknowledged a heartbeat.
    HeartbeatAcked {
        /// The connection.
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
    /// The supervisor is gone; it will be back.
    SupervisorDown,
    /// An attempt has changed.
    Attempt(AttemptView),
    /// A timer that was set has come due. It may fire late or needlessly: the core looks at time and state.
    Timer(TimerKey),
}

/// What a timer is for. Setting one again replaces it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimerKey {
    /// The grace of a stopping attempt ends, or it is to be killed again.
    Grace(AttemptId),
    /// An attempt has run for its `timeout`.
    Timeout(AttemptId),
}

/// What the driver's config says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// This host's name.
    pub node: NodeName,
    /// `PATH` of steps that bring none of their own.
    pub path: alloc::string::String,
}
