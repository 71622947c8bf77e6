//! State of an attempt's GPU memory while the attempt is suspended and resumed. Pure data: `table` drives it,
//! `sluice-helper` moves the memory.
//!
//! ```text
//!            helper: suspend          moved              thaw, helper: resume
//! (nothing) ----------------> Leaving ------> Away ------------------------------> Returning --> (nothing)
//!                                | silent, or too late                                ^
//!                                +------------> Undoing --> (nothing)                 |
//!                                      a supervisor that finds it moved and not frozen
//! ```
//! The move is recorded before the helper starts and until everything is restored, so that the next supervisor
//! can restore it whenever this one dies.

use serde::{Deserialize, Serialize};
use sluice_common::id::AttemptId;
use sluice_common::supervision::{BootMillis, FreezeRefusal, FreezerState, MovedMemory};
use sluice_common::time::Span;

use crate::spawn::helper::Helper;

/// The agent's order to move GPU memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveOrder {
    pub attempt: AttemptId,
    /// The processes that use the attempt's GPUs, as reported by the agent.
    pub users: Vec<u32>,
    /// GPU memory of these processes, in bytes.
    pub bytes: u64,
    /// Time limit of each helper task.
    pub limit: Span,
}

/// GPU memory that is in host memory, or on its way. Stored in the spool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredMove {
    /// Processes whose memory is moved; all in the attempt's groups.
    pub pids: Vec<u32>,
    /// GPU memory in bytes, as reported by the agent.
    pub bytes: u64,
    /// Time limit of each helper task.
    pub limit: Span,
    /// Memory limit of the attempt's group before it was raised; `None` if it has none.
    pub memory_max: Option<u64>,
}

impl StoredMove {
    /// The form for the agent.
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
    pub helper: Helper,
    /// Deadline of the helper.
    pub until: BootMillis,
}

/// Stage of a move.
#[derive(Debug, Default)]
pub enum MoveStage {
    /// Nothing is moved.
    #[default]
    Resident,
    /// A helper moves the memory to the host.
    Leaving(RunningHelper),
    /// The memory is in host memory, and the attempt is frozen or is being frozen.
    Away,
    /// A helper rolls back what another has begun, for this reason.
    Undoing(RunningHelper, FreezeRefusal),
    /// A helper moves the memory back to the GPUs.
    Returning(RunningHelper),
}

/// An order that arrived while a helper was at work, and is done afterwards. Only the last one counts.
#[derive(Debug, PartialEq, Eq)]
pub enum QueuedOrder {
    /// Move the memory, and freeze.
    Suspend(MoveOrder),
    /// Thaw, and restore the memory.
    Thaw,
}

/// State of an attempt's GPU memory.
#[derive(Debug, Default)]
pub struct GpuMove {
    /// Memory that is moved, or on its way.
    pub away: Option<StoredMove>,
    pub stage: MoveStage,
    /// The order to do when the helper has ended.
    pub next: Option<QueuedOrder>,
}

impl GpuMove {
    /// The state that an earlier supervisor left. The freezer tells how far the move had come.
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

    /// The freezer state for the agent, if the kernel reports `found`.
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
