//! Connections of linked nodes, on which transfers of output are opened, and the nodes' last readings. Nothing here
//! outlives the link.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coordinator_core::SessionId;
use sluice_common::id::NodeName;
use sluice_common::inventory::Readings;
use sluice_transport::Connection;

#[derive(Debug, Default)]
struct LinkedNodes {
    links: BTreeMap<NodeName, (SessionId, Connection)>,
    /// Readings may arrive before the link is accepted.
    readings: BTreeMap<NodeName, (SessionId, Arc<Readings>)>,
}

/// Connections of linked nodes. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Nodes(Arc<Mutex<LinkedNodes>>);

impl Nodes {
    /// Returns the connection of a node, if it is linked.
    pub fn get(&self, node: &NodeName) -> Option<Connection> {
        let linked = self.lock();
        let link = linked.links.get(node);
        link.map(|(_, connection)| connection.clone())
    }

    /// Returns the last readings of a node over its present link.
    pub fn readings(&self, node: &NodeName) -> Option<Arc<Readings>> {
        let linked = self.lock();
        let readings = linked.readings.get(node);
        readings.map(|(_, readings)| Arc::clone(readings))
    }

    /// Stores readings of a node, unless they are of an earlier session.
    pub(super) fn keep(&self, node: &NodeName, session: SessionId, readings: Readings) {
        let known = &mut self.lock().readings;
        if known.get(node).is_none_or(|(known, _)| *known <= session) {
            known.insert(node.clone(), (session, Arc::new(readings)));
        }
    }

    /// Adds a connection. A later session replaces an earlier one, never the other way round.
    pub(super) fn put(&self, node: NodeName, session: SessionId, connection: Connection) {
        let links = &mut self.lock().links;
        if links.get(&node).is_none_or(|(known, _)| *known < session) {
            links.insert(node, (session, connection));
        }
    }

    /// Removes the connection and readings of `session`, unless a later one replaced them.
    pub(super) fn remove(&self, node: &NodeName, session: SessionId) {
        let mut linked = self.lock();
        let counts = |known: Option<SessionId>| known == Some(session);
        if counts(linked.links.get(node).map(|(known, _)| *known)) {
            linked.links.remove(node);
        }
        if counts(linked.readings.get(node).map(|(known, _)| *known)) {
            linked.readings.remove(node);
        }
    }

    fn lock(&self) -> MutexGuard<'_, LinkedNodes> {
        // No statement that could panic leaves the map half-changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
