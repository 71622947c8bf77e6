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

/// Connection state of one node.
#[derive(Clone, Debug)]
pub(crate) struct Contact {
    /// The connection in use; older ones of the node are ignored.
    pub(crate) session: Option<SessionId>,
    /// Time of the last message in this run.
    pub(crate) heard_at: Option<Time>,
    /// Start of the silence: the last message, or the time at which this coordinator began to listen.
    pub(crate) silent_since: Time,
    /// Whether its supervisor answers its agent.
    pub(crate) supervisor: SupervisorState,
    /// Whether this run has sent the node an epoch, which a later hello may show.
    pub(crate) addressed: bool,
    /// Attempts that the node holds and that are not live there here. No resources of the node are granted while
    /// there are any.
    pub(crate) strays: BTreeSet<AttemptId>,
    /// State directory of the agent, from its hello.
    pub(crate) state_dir: String,
    /// Whether a caller was refused under this name since the last welcome. Only the first such refusal is recorded.
    pub(crate) refused: bool,
    /// Attempts with an unanswered order to resume on this connection. A report that such an attempt is frozen is out
    /// of date.
    pub(crate) thawing: BTreeSet<AttemptId>,
    /// Attempts that are not known here and may be adopted once the node has shown their warrants.
    pub(crate) asked: BTreeMap<AttemptId, PendingAdoption>,
    /// Ends of allocations that the node has reported while steps inside them still held a part of them there.
    pub(crate) held_back: BTreeMap<AttemptId, AttemptPhase>,
    /// Orders sent on this connection, and what the node says about their arrival.
    pub(crate) delivery: OrderDelivery,
    /// Recent changes of the node, over all its connections.
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
            held_back: BTreeMap::new(),
            delivery: OrderDelivery::since(BootMillis(0)),
            change_rate: ChangeRate::default(),
        }
    }

    /// Whether the node holds attempts that are not live there here. Nothing is granted there until they are settled.
    pub(crate) fn holds_unknown(&self) -> bool {
        !self.strays.is_empty() || !self.asked.is_empty()
    }
}

/// An attempt whose host was asked for its warrant.
#[derive(Clone, Debug)]
pub(crate) struct PendingAdoption {
    /// Phase in the host's last report.
    pub(crate) phase: AttemptPhase,
    /// Time of the request.
    pub(crate) at: Time,
    /// The warrant, if it waits for other hosts of its gang.
    pub(crate) warrant: Option<Box<Warrant>>,
}
