//! Who submitted a step, as a host is told: a name, and the coordinator's signature under it. The agent carries both to the
//! supervisor, which verifies the signature by the key of leases. So an agent can run steps as those users alone whose
//! steps the coordinator has sent to its host.
//!
//! Who signs and who verifies is not decided here: these are the words that both must agree on.

use alloc::format;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::id::{AttemptId, NodeName, UserName};
use crate::lease::LeaseKey;

/// The user who submitted a step, and what proves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submitter {
    /// The user.
    pub user: UserName,
    /// The coordinator's signature; `None` until the coordinator has signed.
    pub seal: Option<SubmitterSeal>,
}

impl From<UserName> for Submitter {
    fn from(user: UserName) -> Self {
        Self { user, seal: None }
    }
}

/// The signature under a submitter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmitterSeal {
    /// The key that signed.
    pub key: LeaseKey,
    /// The signature, in two halves.
    pub signature: [[u8; 32]; 2],
}

/// The bytes under the signature: for one attempt on one node alone. Lines, of which none can hold a line feed.
pub fn signed_bytes(node: &NodeName, attempt: &AttemptId, user: &UserName) -> Vec<u8> {
    format!("sluice submitter 1\n{node}\n{attempt}\n{user}\n").into_bytes()
}
