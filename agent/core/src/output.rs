//! What the core wants done.

use alloc::vec::Vec;

use sluice_common::id::Epoch;
use sluice_common::supervision::{BootMillis, ToSupervisor};
use sluice_common::wire::{AttemptStatus, FromNode};

use crate::input::{LinkId, TimerKey};

/// One thing to be done, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Make this the highest epoch that the host has obeyed, durably, before what follows.
    SaveEpoch(Epoch),
    /// Say hello on a new connection, with these; the driver adds what the host has.
    Greet {
        /// The connection.
        link: LinkId,
        /// The highest epoch obeyed.
        highest_epoch: Option<Epoch>,
        /// Every attempt that was not forgotten.
        attempts: Vec<AttemptStatus>,
    },
    /// Tell the coordinator. Lost where the connection is gone: the next hello says it again.
    Send {
        /// The connection.
        link: LinkId,
        /// The words.
        message: FromNode,
    },
    /// Tell the supervisor. Lost where it is down: the core says it again when it is up.
    Supervise(ToSupervisor),
    /// Feed [`crate::Input::Timer`] at this time or later; replaces a timer of the same key.
    SetTimer {
        /// Which.
        key: TimerKey,
        /// When.
        at: BootMillis,
    },
}
