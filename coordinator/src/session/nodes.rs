//! Which node is linked by which connection: where a transfer of output is to be opened.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coordinator_core::SessionId;
use sluice_common::id::NodeName;
use sluice_transport::Connection;

type Linked = BTreeMap<NodeName, (SessionId, Connection)>;

/// The connections of linked nodes. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Nodes(Arc<Mutex<Linked>>);

impl Nodes {
    /// The connection of a node, if it is linked.
    pub fn get(&self, node: &NodeName) -> Option<Connection> {
        self.lock()
            .get(node)
            .map(|(_, connection)| connection.clone())
    }

    /// A later session takes the place of an earlier one and never the other way round.
    pub(super) fn put(&self, node: NodeName, session: SessionId, connection: Connection) {
        let mut linked = self.lock();
        if linked.get(&node).is_none_or(|(known, _)| *known < session) {
            linked.insert(node, (session, connection));
        }
    }

    /// Forgets the connection of `session`, if it is still the one that counts.
    pub(super) fn remove(&self, node: &NodeName, session: SessionId) {
        let mut linked = self.lock();
        if linked.get(node).is_some_and(|(known, _)| *known == session) {
            linked.remove(node);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Linked> {
        // The map is whole between any two statements that could panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
