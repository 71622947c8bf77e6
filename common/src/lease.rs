//! Signed leases. The supervisor generates a challenge, the agent carries it to the coordinator with a heartbeat and
//! returns the signed lease. The supervisor counts the lease from the moment it generated the challenge, by its own
//! clock, so an agent can delay a lease but never extend it.
//!
//! This module defines only the format; the coordinator signs and the supervisor verifies.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::hex;
use crate::id::NodeName;
use crate::time::Span;

/// Number of leases that a host asks for in the time of one. A signature costs the coordinator more than all else that a
/// heartbeat does.
const RENEWALS_PER_LEASE: u64 = 20;

/// Age of a signed lease from which on a heartbeat asks for another: a twentieth of the lease.
pub const fn renewal_age(lease: Span) -> Span {
    Span::from_millis(lease.millis() / RENEWALS_PER_LEASE)
}

/// Random bytes that a supervisor generated and accepts once.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Challenge(pub [u8; 16]);

impl fmt::Debug for Challenge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Challenge({})", hex::encode(&self.0))
    }
}

/// Public half of the Ed25519 key with which a cluster signs leases.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseKey(pub [u8; 32]);

impl LeaseKey {
    /// Parses 64 hexadecimal digits; `None` for any other text.
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

/// The signed content of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseGrant {
    /// Node whose heartbeat was answered.
    pub node: NodeName,
    /// Challenge of that heartbeat.
    pub challenge: Challenge,
    /// Time that attempts may run, counted from the generation of the challenge.
    pub lease: Span,
    /// Time limit for stopping an attempt whose lease has expired.
    pub stop_limit: Span,
}

impl LeaseGrant {
    /// The signed bytes. Fields are separated by line feeds, which none can contain.
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

/// A lease with its signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedLease {
    /// The signed content.
    pub grant: LeaseGrant,
    /// Public key of the signer.
    pub key: LeaseKey,
    /// Ed25519 signature, in two halves.
    pub signature: [[u8; 32]; 2],
}
