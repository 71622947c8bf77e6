//! How one attempt stands with what it holds on GPUs. Pure data: `table` drives it, `sluice-helper` does the
//! moving.
//!
//! ```text
//!            helper: suspend          moved              thaw, helper: resume
//! (nothing) ----------------> Leaving ------> Away ------------------------------> Returning --> (nothing)
//!                                | silent, or too late                                ^
//!                                +------------> Undoing --> (nothing)                 |
//!                                      a supervisor that finds it moved and not frozen
//! ```
//! It is recorded before the helper is sent and until everything is back, so that the next supervisor knows whom to
//! bring back, whenever this one dies.

use serde::{Deserialize, Serialize};
use sluice_common::id::AttemptId;
use sluice_common::supervision::{BootMillis, FreezeRefusal, FreezerState, MovedMemory};
use sluice_common::time::Span;

use crate::spawn::helper::Helper;

/// What the agent wants moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveOrder {
    /// Whose.
    pub attempt: AttemptId,
    /// The processes that use its GPUs, as the agent says.
    pub users: Vec<u32>,
    /// How much they hold, in bytes.
    pub bytes: u64,
    /// How long each task of a helper may take.
    pub limit: Span,
}

/// What is moved, or is on its way. Kept on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredMove {
    /// Whose it is: processes of the attempt's groups.
    pub pids: Vec<u32>,
    /// How much, in bytes, as the agent says.
    pub bytes: u64,
    /// How long each task of a helper may take.
    pub limit: Span,
    /// What the memory limit of its group was before it was raised; none where it has none.
    pub memory_max: Option<u64>,
}

impl StoredMove {
    /// As the agent is told.
    pub fn moved(&self) -> MovedMemory {
        MovedMemory {
            pids: self.pids.clone(),
            bytes: self.bytes,
        }
    }
}

/// A helper at work.
#[derive(Debug)]
pub struct RunningHelper {
    /// Who.
    pub helper: Helper,
    /// When it takes too long.
    pub until: BootMillis,
}

/// How far it has come.
#[derive(Debug, Default)]
pub enum MoveStage {
    /// Everything is where the step has put it.
    #[default]
    Resident,
    /// A helper moves it.
    Leaving(RunningHelper),
    /// It is in the host's memory, and the attempt is frozen or is being frozen.
    Away,
    /// A helper undoes what another has begun; this is why.
    Undoing(RunningHelper, FreezeRefusal),
    /// A helper brings it back.
    Returning(RunningHelper),
}

/// What was ordered while a helper was at work: done when that has ended. The last order counts.
#[derive(Debug, PartialEq, Eq)]
pub enum QueuedOrder {
    /// Move, and freeze.
    Suspend(MoveOrder),
    /// Thaw, and bring back.
    Thaw,
}

/// How an attempt stands with it.
#[derive(Debug, Default)]
pub struct GpuMove {
    /// What is moved, or is on its way.
    pub away: Option<StoredMove>,
    /// How far it has come.
    pub stage: MoveStage,
    /// What is to be done then.
    pub next: Option<QueuedOrder>,
}

impl GpuMove {
    /// As an earlier supervisor has left it: what it is about is seen by its freezer.
    pub fn found(away: Option<StoredMove>) -> Self {
        Self {
            away,
            ..Self::default()
        }
    }

    /// The helper that is at work.
    pub fn sent(&self) -> Option<&RunningHelper> {
        match &self.stage {
            MoveStage::Leaving(sent) | MoveStage::Undoing(sent, _) | MoveStage::Returning(sent) => {
                Some(sent)
            }
            MoveStage::Resident | MoveStage::Away => None,
        }
    }

    /// What its freezer is said to be, where the kernel says `found`.
    pub fn shown(&self, found: FreezerState) -> FreezerState {
        match (&self.stage, &self.away, found) {
            (MoveStage::Leaving(_) | MoveStage::Undoing(..), _, _) => FreezerState::Moving,
            (MoveStage::Returning(_), _, _) => FreezerState::Restoring,
            (MoveStage::Away, Some(away), FreezerState::Frozen) => {
                FreezerState::Moved(away.moved())
            }
            (MoveStage::Resident | MoveStage::Away, _, found) => found,
        }
    }
}
