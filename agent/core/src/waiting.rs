//! What attempts wait for that only a look at the GPUs of the host can show.

use alloc::collections::BTreeMap;
use alloc::string::String;

use sluice_common::id::AttemptId;
use sluice_common::supervision::BootMillis;

use crate::gpus::Holders;

/// The wait of an attempt of which nothing is left for its GPUs to come free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Release {
    /// When nothing of it was left.
    pub(crate) since: BootMillis,
    /// When what is not free is given up.
    pub(crate) until: BootMillis,
    /// The GPUs that were not seen free yet, with what was seen last. Never empty.
    pub(crate) awaited: BTreeMap<String, Option<Holders>>,
}

/// What a look at GPUs is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// To know who uses them.
    Counting { since: BootMillis },
    /// To see them free.
    Awaited { since: BootMillis },
}

/// Who waits for a look because of a suspension, by attempt.
pub(crate) type Moves = BTreeMap<AttemptId, Wait>;
