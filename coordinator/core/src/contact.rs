//! Connection state of each node. The next hello reports all of it again, so nothing here is stored.

pub(crate) mod change_rate;
pub(crate) mod delivery;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;

use sluice_common::host_health::SupervisorState;
use sluice_common::id::AttemptId;
use sluice_common::supervision::BootMillis;
use sluice_common::time::Time;
use sluice_common::wire::AttemptPhase;

use self::delivery::OrderDelivery;
use crate::contact::change_rate::ChangeRate;
use crate::input::SessionId;
use crate::model::recovery::Warrant;

/// The link of one node.
#[derive(Clone, Debug)]
pub(crate) struct Contact {
    /// The connection that counts.
    pub(crate) session: Option<SessionId>,
    /// When it was heard last in this run.
    pub(crate) heard_at: Option<Time>,
    /// When its silence began: when it was heard last, or when this coordinator began to listen.
    pub(crate) silent_since: Time,
    /// Whether its supervisor answers its agent.
    pub(crate) supervisor: SupervisorState,
    /// Whether this run has told it an epoch, which it then may hold against us.
    pub(crate) addressed: bool,
    /// Attempts that it holds and that are not live on it here; none of its resources are given while there are any.
    pub(crate) strays: BTreeSet<AttemptId>,
    /// Which directory its agent keeps its state in, as it has told.
    pub(crate) state_dir: String,
    /// Whether a caller was refused under this name since it was let in last, which is told once.
    pub(crate) refused: bool,
    /// Attempts that were told to run again on this connection and have not answered: that one is frozen is old news.
    pub(crate) thawing: BTreeSet<AttemptId>,
    /// Attempts that are not known here, and may be adopted when it has shown their warrants.
    pub(crate) asked: BTreeMap<AttemptId, PendingAdoption>,
    /// What went out on this connection, and how it arrives there.
    pub(crate) delivery: OrderDelivery,
    /// Number of times it has changed lately, on whatever connection.
    pub(crate) change_rate: ChangeRate,
}

impl Contact {
    pub(crate) fn silent_since(now: Time) -> Self {
        Self {
            session: None,
            heard_at: None,
            silent_since: now,
            supervisor: SupervisorState::Responding,
            addressed: false,
            state_dir: String::new(),
            refused: false,
            strays: BTreeSet::new(),
            thawing: BTreeSet::new(),
            asked: BTreeMap::new(),
            delivery: OrderDelivery::since(BootMillis(0)),
            change_rate: ChangeRate::default(),
        }
    }

    /// Whether it holds attempts that are not live on it here: nothing is granted there until they are settled.
    pub(crate) fn holds_unknown(&self) -> bool {
        !self.strays.is_empty() || !self.asked.is_empty()
    }
}

/// An attempt whose host was asked for its warrant.
#[derive(Clone, Debug)]
pub(crate) struct PendingAdoption {
    /// Where it stands, by its host's last word.
    pub(crate) phase: AttemptPhase,
    /// When the host was asked.
    pub(crate) at: Time,
    /// The warrant, if it waits for other hosts of its gang.
    pub(crate) warrant: Option<Box<Warrant>>,
}
