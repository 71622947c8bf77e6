//! Waits of attempts that end with a GPU scan.

use alloc::collections::BTreeMap;
use alloc::string::String;

use sluice_common::id::AttemptId;
use sluice_common::supervision::BootMillis;

use crate::gpus::GpuHolders;

/// The wait of an attempt without processes for its GPUs to be free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReleaseWait {
    /// When its last process ended.
    pub(crate) since: BootMillis,
    /// When GPUs that are not free are given up.
    pub(crate) until: BootMillis,
    /// The GPUs that were not seen free yet, with the last observation. Never empty.
    pub(crate) awaited: BTreeMap<String, Option<GpuHolders>>,
}

/// Why an attempt waits for a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GpuWait {
    /// To find the users of its GPUs.
    Counting { since: BootMillis },
    /// To see its GPUs empty.
    Awaited { since: BootMillis },
}

/// Attempts that wait for a scan because of a suspension.
pub(crate) type GpuWaits = BTreeMap<AttemptId, GpuWait>;
