//! Heartbeats of the agent, and their answers.

use alloc::boxed::Box;
use serde::{Deserialize, Serialize};

use crate::lease::{Challenge, SealedLease};
use crate::supervision::BootMillis;

/// Periodic sign of life of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Sequence number on this connection.
    pub number: u64,
    /// Time of sending on the host's boot clock.
    pub sent_at: BootMillis,
    /// `sent_at` of the newest heartbeat or hello that was acknowledged. If that is long ago, the host receives
    /// nothing.
    pub last_acknowledged: BootMillis,
    /// Number of the newest [`Command`](super::Command) received.
    pub last_order: u64,
    /// Challenge of the supervisor for a signed lease; `None` if the agent has none at hand.
    pub challenge: Option<Challenge>,
}

/// Acknowledges a [`Heartbeat`]. Leases count from the moment when the agent sent it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatAck {
    /// Number of the heartbeat.
    pub number: u64,
    /// Signed lease for the heartbeat's challenge.
    pub seal: Option<Box<SealedLease>>,
}
