//! Callers that only want to know whether the supervisor answers, such as `sluice doctor`. A host has one agent, and whoever
//! calls replaces it; a probe names itself by the address that it calls from, is told a hello, and replaces nobody.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;

use sluice_common::chain::chain;
use sluice_common::supervision::PROBE_NAME;
use tracing::debug;

use super::Server;
use crate::connection::Connection;

/// Whether a caller is a probe, by the address that it calls from.
pub(super) fn is_probe(from: &SocketAddr) -> bool {
    let name = from.as_abstract_name();
    name.is_some_and(|name| name.starts_with(PROBE_NAME.as_bytes()))
}

impl Server {
    /// The hello is short enough for the socket to take at once, so the connection can be closed after it.
    pub(super) fn answer_probe(&self, mut connection: Connection) {
        let hello = self.table.hello_to_probe();
        if let Err(e) = connection.send(&hello) {
            debug!("a probe was not answered: {}", chain(&e));
        }
    }
}
