//! Limits concurrent handshakes. A handshake costs tens of kilobytes and a signature, and the sender address of its
//! first packet may be forged:
//!
//! ```text
//! few pending from unproven addresses -> admit anyone
//! more -> admit only proven addresses (QUIC's Retry, which needs no state here)
//! many pending from proven ones, in total or from one network -> drop the packet; an honest dialler repeats it after 1
//! s
//! ```
//!
//! Forged packets take nothing from the owner of the address. Part of the limit is reserved for addresses from which
//! nodes have connected with a certificate.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::network_prefix::NetworkPrefix;

/// Most pending handshakes from unproven addresses.
const MAX_UNPROVEN: usize = 64;
/// Most pending handshakes from proven addresses. An honest handshake takes a few round trips, so ten thousand hosts
/// connect within seconds; held open as long as possible, this many cost about 20 MB.
const MAX_UNDER_WAY: usize = 256;
/// Most pending handshakes from one network.
const MAX_OF_PREFIX: usize = 64;
/// Additional handshakes for addresses from which nodes have connected.
const KEPT_FOR_KNOWN: usize = 64;
/// Most addresses remembered: twice the hosts of the largest cluster. Beyond that all are forgotten and learned again
/// at their next connections.
const MAX_KNOWN: usize = 20_000;

/// Treatment of a first packet.
#[derive(Debug)]
pub(crate) enum GateDecision {
    /// The handshake may start; the permit counts it until dropped.
    Admit(HandshakePermit),
    /// The peer must prove its address first.
    Retry,
    /// The limit is reached: the packet is dropped.
    Ignore,
}

/// Pending handshakes and known addresses. Clones share the state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate(Arc<Mutex<PendingHandshakes>>);

#[derive(Debug, Default)]
struct PendingHandshakes {
    unproven: usize,
    proven: usize,
    /// Pending handshakes from proven addresses, by network.
    of_prefix: BTreeMap<NetworkPrefix, usize>,
    known: BTreeSet<IpAddr>,
}

/// Permit for one handshake, released on drop.
#[derive(Debug)]
pub(crate) struct HandshakePermit {
    gate: Gate,
    address: IpAddr,
    is_proven: bool,
}

impl Gate {
    /// Decides about a first packet from `address`, which QUIC has verified if `is_proven`.
    pub(crate) fn enter(&self, address: IpAddr, is_proven: bool) -> GateDecision {
        let address = address.to_canonical();
        let mut under_way = self.lock();
        if is_proven {
            let prefix = NetworkPrefix::of(address);
            let is_known = under_way.known.contains(&address);
            let most = MAX_UNDER_WAY + if is_known { KEPT_FOR_KNOWN } else { 0 };
            let of_it = under_way.of_prefix.get(&prefix).copied().unwrap_or(0);
            if under_way.proven >= most || (of_it >= MAX_OF_PREFIX && !is_known) {
                return GateDecision::Ignore;
            }
            under_way.proven += 1;
            under_way.of_prefix.insert(prefix, of_it + 1);
        } else {
            if under_way.unproven >= MAX_UNPROVEN {
                return GateDecision::Retry;
            }
            under_way.unproven += 1;
        }
        GateDecision::Admit(HandshakePermit {
            gate: self.clone(),
            address,
            is_proven,
        })
    }

    fn lock(&self) -> MutexGuard<'_, PendingHandshakes> {
        // The counts are consistent at every statement that could panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HandshakePermit {
    /// Remembers that a node has connected from this address.
    pub(crate) fn remember_address(&self) {
        let mut under_way = self.gate.lock();
        if under_way.known.len() >= MAX_KNOWN && !under_way.known.contains(&self.address) {
            under_way.known.clear();
        }
        under_way.known.insert(self.address);
    }
}

impl Drop for HandshakePermit {
    fn drop(&mut self) {
        let mut under_way = self.gate.lock();
        if !self.is_proven {
            under_way.unproven -= 1;
            return;
        }
        under_way.proven -= 1;
        let prefix = NetworkPrefix::of(self.address);
        if let Some(count) = under_way.of_prefix.get_mut(&prefix) {
            *count -= 1;
            if *count == 0 {
                under_way.of_prefix.remove(&prefix);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(network: u32, host: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits((10 << 24) | (network << 8) | host).into()
    }

    /// Permits for proven addresses of many networks, until the limit is reached.
    fn fill(gate: &Gate) -> Vec<HandshakePermit> {
        let mut rooms = Vec::new();
        for number in 0..1000 {
            match gate.enter(address(number / 50, number % 50), true) {
                GateDecision::Admit(room) => rooms.push(room),
                GateDecision::Retry => panic!("it is proven"),
                GateDecision::Ignore => {}
            }
        }
        rooms
    }

    #[test]
    fn a_flood_of_unproven_packets_is_asked_for_proof_and_costs_no_more_room() {
        let gate = Gate::default();
        let mut rooms = Vec::new();
        for number in 0..10_000 {
            match gate.enter(address(number / 20, number % 20), false) {
                GateDecision::Admit(room) => rooms.push(room),
                GateDecision::Retry => {}
                GateDecision::Ignore => panic!("none of these networks has many"),
            }
        }
        assert_eq!(rooms.len(), MAX_UNPROVEN);
        // The owner of a forged address is not affected.
        assert!(matches!(
            gate.enter(address(1, 1), true),
            GateDecision::Admit(_)
        ));
        drop(rooms);
        assert!(matches!(
            gate.enter(address(1, 1), false),
            GateDecision::Admit(_)
        ));
        let left = gate.lock();
        assert_eq!(
            (left.unproven, left.proven, left.of_prefix.len()),
            (0, 0, 0)
        );
    }

    #[test]
    fn one_network_takes_its_part_and_no_more() {
        let gate = Gate::default();
        let mut rooms = Vec::new();
        for number in 0..250 {
            if let GateDecision::Admit(room) = gate.enter(address(7, number), true) {
                rooms.push(room);
            }
        }
        assert_eq!(rooms.len(), MAX_OF_PREFIX);
        assert!(matches!(
            gate.enter(address(8, 1), true),
            GateDecision::Admit(_)
        ));
    }

    #[test]
    fn a_host_that_has_linked_finds_room_when_all_networks_attack() {
        let gate = Gate::default();
        let host = address(200, 1);
        let GateDecision::Admit(room) = gate.enter(host, false) else {
            panic!("nothing is under way");
        };
        room.remember_address();
        drop(room);
        let rooms = fill(&gate);
        assert_eq!(rooms.len(), MAX_UNDER_WAY);
        assert!(matches!(
            gate.enter(address(201, 1), true),
            GateDecision::Ignore
        ));
        let kept: Vec<GateDecision> = (0..100).map(|_| gate.enter(host, true)).collect();
        let let_in = kept
            .iter()
            .filter(|it| matches!(it, GateDecision::Admit(_)));
        assert_eq!(let_in.count(), KEPT_FOR_KNOWN);
    }
}
