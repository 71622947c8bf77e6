//! Which node is linked by which connection, where a transfer of output is to be opened, and how it said last that it
//! does. Nothing here outlives the link: what must is a record.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coordinator_core::SessionId;
use sluice_common::id::NodeName;
use sluice_common::inventory::Readings;
use sluice_transport::Connection;

type Linked = BTreeMap<NodeName, Link>;

#[derive(Debug)]
struct Link {
    session: SessionId,
    connection: Connection,
    readings: Option<Arc<Readings>>,
}

/// The connections of linked nodes. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Nodes(Arc<Mutex<Linked>>);

impl Nodes {
    /// The connection of a node, if it is linked.
    pub fn get(&self, node: &NodeName) -> Option<Connection> {
        self.lock().get(node).map(|link| link.connection.clone())
    }

    /// How a node does, as it said last over the link that it has.
    pub fn readings(&self, node: &NodeName) -> Option<Arc<Readings>> {
        self.lock().get(node)?.readings.clone()
    }

    /// Keeps what a node says of itself, if its session is the one that counts.
    pub(super) fn keep(&self, node: &NodeName, session: SessionId, readings: Readings) {
        if let Some(link) = self.lock().get_mut(node)
            && link.session == session
        {
            link.readings = Some(Arc::new(readings));
        }
    }

    /// A later session takes the place of an earlier one and never the other way round.
    pub(super) fn put(&self, node: NodeName, session: SessionId, connection: Connection) {
        let mut linked = self.lock();
        if linked.get(&node).is_none_or(|link| link.session < session) {
            let readings = None;
            linked.insert(
                node,
                Link {
                    session,
                    connection,
                    readings,
                },
            );
        }
    }

    /// Forgets the connection of `session`, if it is still the one that counts.
    pub(super) fn remove(&self, node: &NodeName, session: SessionId) {
        let mut linked = self.lock();
        if linked.get(node).is_some_and(|link| link.session == session) {
            linked.remove(node);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Linked> {
        // The map is whole between any two statements that could panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
