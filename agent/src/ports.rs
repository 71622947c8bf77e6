//! Finds ports of this host to which nothing is bound. They are not held: between the choice and the step's own bind, only a
//! program that picks a port of the range by itself could take one.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use nix::errno::Errno;
use sluice_common::port::PortRange;
use tokio::net::TcpSocket;
use tracing::warn;

/// A prime by which the first ports of agents with neighbouring process ids lie apart.
const SPREAD: usize = 7919;

/// Chooses ports in turn, so that one which was given back is not given again at once: its old callers may still try it.
#[derive(Debug)]
pub(crate) struct PortSearch {
    range: PortRange,
    /// The port that was found last.
    last: u16,
}

impl PortSearch {
    /// Begins at a port that depends on the process: several agents of one machine, as on trial, do not find the same.
    pub(crate) fn new(range: PortRange) -> Self {
        let count = range.ports().count();
        let skipped = (std::process::id() as usize).wrapping_mul(SPREAD) % count.max(1);
        let last = range.ports().nth(skipped).unwrap_or_default();
        Self { range, last }
    }

    /// At most `count` ports that are not in use and to which nothing is bound, in the order of choice.
    pub(crate) fn find(&mut self, count: usize, in_use: &BTreeSet<u16>) -> Vec<u16> {
        let last = self.last;
        let above = self.range.ports().filter(|port| *port > last);
        let below = self.range.ports().filter(|port| *port <= last);
        let candidates = above.chain(below).filter(|port| !in_use.contains(port));
        let found: Vec<u16> = candidates
            .filter(|port| is_free(*port))
            .take(count)
            .collect();
        self.last = found.last().copied().unwrap_or(last);
        found
    }
}

/// Whether a program may bind the port, on all addresses. Without `SO_REUSEADDR`: a program may bind without it.
fn is_free(port: u16) -> bool {
    let v6 = || bind(TcpSocket::new_v6(), (Ipv6Addr::UNSPECIFIED, port).into());
    let v4 = || bind(TcpSocket::new_v4(), (Ipv4Addr::UNSPECIFIED, port).into());
    // A host may have switched off one of them.
    let is_off = |error: &io::Error| {
        let code = error.raw_os_error().map(Errno::from_raw);
        matches!(code, Some(Errno::EAFNOSUPPORT | Errno::EADDRNOTAVAIL))
    };
    v6().or_else(|e| if is_off(&e) { Ok(()) } else { Err(e) })
        .is_ok()
        && v4().is_ok()
}

fn bind(socket: io::Result<TcpSocket>, address: SocketAddr) -> io::Result<()> {
    socket?.bind(address)
}

/// Range of the ports that Linux gives to outgoing connections.
const LOCAL_RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// Warns if Linux may give ports of the range to outgoing connections.
pub(crate) fn warn_of_overlap(range: &PortRange) {
    let local = fs::read_to_string(LOCAL_RANGE).unwrap_or_default();
    if overlaps(range, &local) {
        warn!(
            ports = %range,
            "steps may find that an outgoing connection has their port: set `ports` in agent.toml outside {LOCAL_RANGE}, \
             or add these ports to net.ipv4.ip_local_reserved_ports"
        );
    }
}

/// Whether a port lies in the range and in the kernel's, which is two numbers.
fn overlaps(range: &PortRange, local: &str) -> bool {
    let mut ends = local.split_whitespace().map(str::parse::<u16>);
    let (Some(Ok(first)), Some(Ok(last))) = (ends.next(), ends.next()) else {
        return false;
    };
    let ports = range.ports();
    *ports.start() <= last && first <= *ports.end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_range_that_the_kernel_uses_too_is_seen() {
        let range = PortRange::default();
        for (local, expected) in [
            ("32768\t60999\n", false),
            ("1024\t65535\n", true),
            ("29499 60999", true),
            ("10000 19999", false),
            ("", false),
        ] {
            assert_eq!(overlaps(&range, local), expected, "{local}");
        }
    }

    #[test]
    fn ports_are_found_in_turn_and_none_that_is_bound_or_in_use() {
        // Whatever else runs on this machine, so that some are free.
        let range: PortRange = "18000-18063".parse().unwrap();
        let mut finder = PortSearch::new(range.clone());
        let nothing = BTreeSet::new();
        let first = finder.find(2, &nothing);
        let second = finder.find(2, &nothing);
        assert_eq!((first.len(), second.len()), (2, 2));
        assert!(first.iter().all(|port| !second.contains(port)));
        // On one address only, and not yet listening for all.
        let bound = TcpListener::bind(("127.0.0.1", first[0])).unwrap();
        let mut in_use: BTreeSet<u16> = range.ports().collect();
        in_use.remove(&first[0]);
        assert!(finder.find(1, &in_use).is_empty());
        drop(bound);
        assert_eq!(finder.find(1, &in_use), [first[0]]);
    }
}
