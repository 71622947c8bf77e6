//! Accepts connections of the agent and of probes. A host has one agent, so a new connection replaces the old
//! one. A probe, such as `sluice doctor`, only checks whether the supervisor answers; it identifies itself by
//! its socket address, gets a hello, and replaces no agent.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;

use sluice_common::error_chain::error_chain;
use sluice_common::supervision::{BootMillis, PROBE_NAME};
use sluice_common::time::Span;
use tracing::{debug, info, warn};

use super::Server;
use crate::clock;
use crate::connection::{Connection, peer_uid};

/// Pause after a failed accept, most likely for lack of descriptors, so that the loop does not spin.
const ACCEPT_RETRY: Span = Span::from_secs(1);

/// Whether a peer is a probe, by its socket address.
fn is_probe(from: &SocketAddr) -> bool {
    let name = from.as_abstract_name();
    name.is_some_and(|name| name.starts_with(PROBE_NAME.as_bytes()))
}

impl Server {
    pub(super) fn on_caller(&mut self, now: BootMillis) {
        let Some(listener) = &self.listener else {
            return;
        };
        let (stream, from) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
            Err(e) => {
                warn!("a connection could not be accepted: {e}");
                self.accept_at = Some(clock::after(now, ACCEPT_RETRY));
                return;
            }
        };
        match peer_uid(&stream) {
            Ok(uid) if self.may_connect(uid) => {}
            Ok(uid) => {
                return warn!(
                    uid,
                    "a connection was refused: this user is not the agent's"
                );
            }
            Err(e) => return warn!("a connection was refused: its user is unknown: {e}"),
        }
        match Connection::new(stream) {
            Ok(connection) if is_probe(&from) => self.answer_probe(connection),
            Ok(connection) => self.replace_agent(connection),
            Err(e) => warn!("a connection could not be used: {e}"),
        }
    }

    fn may_connect(&self, uid: u32) -> bool {
        uid == 0 || uid == nix::unistd::geteuid().as_raw() || Some(uid) == self.options.agent_uid
    }

    /// A new connection means that the agent lost the old one or was replaced.
    fn replace_agent(&mut self, connection: Connection) {
        let replaced = self.agent.replace(connection).is_some();
        self.table.end_execs();
        info!(replaced, "an agent has connected");
        let hello = self.table.hello();
        self.send_to_agent(&hello);
        self.reported_health = None;
        self.tell_health();
    }

    /// The hello fits into the socket's buffer, so the connection can be closed right after it.
    fn answer_probe(&self, mut connection: Connection) {
        let hello = self.table.hello_to_probe();
        if let Err(e) = connection.send(&hello) {
            debug!("a probe was not answered: {}", error_chain(&e));
        }
    }
}
