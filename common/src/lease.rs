//! Leases that only the cluster can give. The supervisor draws a challenge, the agent carries it to the coordinator with
//! a heartbeat, and carries back what the coordinator has signed. So an agent can delay a lease and never extend it: the
//! supervisor counts the lease from the moment when it drew the challenge, by its own clock.
//!
//! Who signs and who verifies is not decided here: these are the words that both must agree on.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::hex;
use crate::id::NodeName;
use crate::time::Span;

/// Random bytes that a supervisor has drawn and will recognise once.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Challenge(pub [u8; 16]);

impl fmt::Debug for Challenge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Challenge({})", hex::encode(&self.0))
    }
}

/// The public half of the Ed25519 key by which a cluster signs leases.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseKey(pub [u8; 32]);

impl LeaseKey {
    /// The key that 64 hexadecimal digits stand for; `None` if the text is something else.
    pub fn parse(text: &str) -> Option<Self> {
        hex::decode(text.trim()).map(Self)
    }
}

impl fmt::Display for LeaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

impl fmt::Debug for LeaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseKey({self})")
    }
}

/// What is signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseGrant {
    /// The node whose heartbeat was answered.
    pub node: NodeName,
    /// What that heartbeat carried.
    pub challenge: Challenge,
    /// How long attempts may run on, counted from when the supervisor drew the challenge.
    pub lease: Span,
    /// How long stopping an attempt whose lease has passed may take.
    pub stop_limit: Span,
}

impl LeaseGrant {
    /// The bytes under the signature. Lines, of which none can hold a line feed.
    pub fn signed_bytes(&self) -> Vec<u8> {
        let text: String = format!(
            "sluice lease 1\n{}\n{}\n{}\n{}\n",
            self.node,
            hex::encode(&self.challenge.0),
            self.lease.millis(),
            self.stop_limit.millis()
        );
        text.into_bytes()
    }
}

/// A grant with its signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedLease {
    /// What is signed.
    pub grant: LeaseGrant,
    /// By which key.
    pub key: LeaseKey,
    /// The signature, in two halves.
    pub signature: [[u8; 32]; 2],
}
