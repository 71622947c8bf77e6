//! The submitter of a step as hosts receive it: a user name with the coordinator's signature. The agent passes both to
//! the supervisor, which verifies the signature with the key of leases. An agent can therefore run steps only as users
//! whose steps the coordinator has sent to its host.
//!
//! This module defines only the format; the coordinator signs and the supervisor verifies.

use alloc::format;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::id::{AttemptId, NodeName, UserName};
use crate::lease::LeaseKey;

/// User who submitted a step, with proof.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submitter {
    /// Name of the user.
    pub user: UserName,
    /// The coordinator's signature; `None` until the coordinator has signed.
    pub seal: Option<SubmitterSeal>,
}

impl From<UserName> for Submitter {
    fn from(user: UserName) -> Self {
        Self { user, seal: None }
    }
}

/// Signature of a submitter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmitterSeal {
    /// Public key of the signer.
    pub key: LeaseKey,
    /// Ed25519 signature, in two halves.
    pub signature: [[u8; 32]; 2],
}

/// The signed bytes, bound to one attempt on one node. Fields are separated by line feeds, which none can contain.
pub fn signed_bytes(node: &NodeName, attempt: &AttemptId, user: &UserName) -> Vec<u8> {
    format!("sluice submitter 1\n{node}\n{attempt}\n{user}\n").into_bytes()
}
