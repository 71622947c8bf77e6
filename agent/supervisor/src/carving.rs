//! State of the GPU that is being cut into slices. [`crate::table`] starts helpers and takes their answers.

use sluice_common::carving::{CarveFailure, GpuLayout};
use sluice_common::supervision::{BootMillis, FromSupervisor};
use sluice_common::supervisor_config::CarveRules;

use crate::spawn::carver::CarveHelper;

/// A GPU and the layout that it is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CarvingGpu {
    pub(crate) gpu: String,
    pub(crate) layout: GpuLayout,
}

impl CarvingGpu {
    /// The result for the agent.
    pub(crate) fn ended(self, failure: Option<CarveFailure>) -> FromSupervisor {
        FromSupervisor::Carved(self.gpu, self.layout, failure)
    }
}

/// A helper that cuts a GPU.
#[derive(Debug)]
pub(crate) struct RunningCarving {
    pub(crate) order: CarvingGpu,
    pub(crate) helper: CarveHelper,
    pub(crate) until: BootMillis,
}

/// The GPU that is being cut, and what follows.
#[derive(Debug, Default)]
pub(crate) struct Carvings {
    pub(crate) rules: CarveRules,
    pub(crate) running: Option<RunningCarving>,
    /// The latest order that came meanwhile. An agent gives one at a time; a new one may give another.
    pub(crate) next: Option<CarvingGpu>,
    /// Messages for the agent.
    pub(crate) ended: Vec<FromSupervisor>,
}

impl Carvings {
    pub(crate) fn new(rules: CarveRules) -> Self {
        Self {
            rules,
            ..Self::default()
        }
    }

    /// Whether the config allows GPUs to be cut.
    pub(crate) fn is_allowed(&self) -> bool {
        self.rules.is_allowed
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Time limit of the running helper.
    pub(crate) fn deadline(&self) -> Option<BootMillis> {
        self.running.as_ref().map(|running| running.until)
    }
}
