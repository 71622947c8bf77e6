//! Which node is linked by which connection, where a transfer of output is to be opened, and how it said last that it
//! does. Nothing here outlives the link: what must is a record.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coordinator_core::SessionId;
use sluice_common::id::NodeName;
use sluice_common::inventory::Readings;
use sluice_transport::Connection;

#[derive(Debug, Default)]
struct LinkedNodes {
    links: BTreeMap<NodeName, (SessionId, Connection)>,
    /// A node may tell how it does before its link counts.
    readings: BTreeMap<NodeName, (SessionId, Arc<Readings>)>,
}

/// The connections of linked nodes. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Nodes(Arc<Mutex<LinkedNodes>>);

impl Nodes {
    /// The connection of a node, if it is linked.
    pub fn get(&self, node: &NodeName) -> Option<Connection> {
        let linked = self.lock();
        let link = linked.links.get(node);
        link.map(|(_, connection)| connection.clone())
    }

    /// How a node does, as it said last over the link that it has.
    pub fn readings(&self, node: &NodeName) -> Option<Arc<Readings>> {
        let linked = self.lock();
        let readings = linked.readings.get(node);
        readings.map(|(_, readings)| Arc::clone(readings))
    }

    /// Keeps what a node says of itself; what an earlier session says late is not taken.
    pub(super) fn keep(&self, node: &NodeName, session: SessionId, readings: Readings) {
        let known = &mut self.lock().readings;
        if known.get(node).is_none_or(|(known, _)| *known <= session) {
            known.insert(node.clone(), (session, Arc::new(readings)));
        }
    }

    /// A later session takes the place of an earlier one and never the other way round.
    pub(super) fn put(&self, node: NodeName, session: SessionId, connection: Connection) {
        let links = &mut self.lock().links;
        if links.get(&node).is_none_or(|(known, _)| *known < session) {
            links.insert(node, (session, connection));
        }
    }

    /// Forgets the connection of `session` and what it said, if they are still those that count.
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
        // The map is whole between any two statements that could panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
