//! An epoch together with the proof that a coordinator of the cluster has spoken it.
//!
//! A host keeps the highest epoch that it has obeyed and shows it in its next hello. The number alone proves nothing: the
//! coordinator believes a higher epoch than its own only if its own key made the seal.

use serde::{Deserialize, Serialize};

use crate::id::Epoch;

/// Highest counter of an epoch. Each start of a coordinator takes one, so no cluster comes near it.
pub const MAX_EPOCH: u64 = 1 << 40;

/// Bytes of an [`EpochSeal`].
pub const EPOCH_SEAL_BYTES: usize = 32;

/// The coordinator's seal over cluster, node and counter: only the coordinator can make it or check it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EpochSeal(pub [u8; EPOCH_SEAL_BYTES]);

/// An epoch, and its seal if there is one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedEpoch {
    /// The epoch.
    pub epoch: Epoch,
    /// `None` on a host that obeyed it before epochs were sealed, and inside the coordinator's core.
    pub seal: Option<EpochSeal>,
}

impl From<Epoch> for SealedEpoch {
    fn from(epoch: Epoch) -> Self {
        Self { epoch, seal: None }
    }
}
