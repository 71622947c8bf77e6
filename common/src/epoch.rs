//! Epochs with the coordinator's seal.
//!
//! A host stores the highest epoch that it has obeyed and reports it in its next hello. The number alone proves
//! nothing: the coordinator accepts a higher epoch than its own only if its own key made the seal.

use serde::{Deserialize, Serialize};

use crate::id::Epoch;

/// Highest counter of an epoch. Each start of a coordinator takes one, so no cluster comes near it.
pub const MAX_EPOCH: u64 = 1 << 40;

/// Length of an [`EpochSeal`] in bytes.
pub const EPOCH_SEAL_BYTES: usize = 32;

/// Seal over cluster, node and counter, which only the coordinator can make and verify.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EpochSeal(pub [u8; EPOCH_SEAL_BYTES]);

/// An epoch with an optional seal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedEpoch {
    /// Cluster and counter.
    pub epoch: Epoch,
    /// `None` on hosts that obeyed the epoch before epochs were sealed, and inside the coordinator's core.
    pub seal: Option<EpochSeal>,
}

impl From<Epoch> for SealedEpoch {
    fn from(epoch: Epoch) -> Self {
        Self { epoch, seal: None }
    }
}
