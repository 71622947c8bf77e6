//! Bounds the number of connections, so that peers who open thousands exhaust neither memory nor descriptors.
//!
//! ```text
//! accepted -> waiting, until a call on it shows a known credential -> known
//! ```
//! Few connections may wait, and a new one always gets a permit: if there is none left, the oldest connection of the
//! network with the most waiting ones is cut. A network full of half-sent requests therefore delays only itself. A
//! known connection is never cut for another.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sluice_transport::NetworkPrefix;
use tokio::sync::Notify;

/// Most connections of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionLimits {
    /// Without a credential yet.
    pub(super) waiting: usize,
    /// With a known caller.
    pub(super) known: usize,
    /// With a known caller, from one address.
    pub(super) known_per_address: usize,
}

/// Counts open connections. Clones share the counts.
#[derive(Clone, Debug)]
pub(super) struct ConnectionPermits {
    limits: ConnectionLimits,
    open: Arc<Mutex<OpenConnections>>,
}

#[derive(Debug, Default)]
struct OpenConnections {
    /// Number of the last connection; older ones have lower numbers.
    last_number: u64,
    waiting: BTreeMap<u64, WaitingConnection>,
    waiting_by_prefix: BTreeMap<NetworkPrefix, usize>,
    known: usize,
    known_by_address: BTreeMap<IpAddr, usize>,
}

#[derive(Debug)]
struct WaitingConnection {
    prefix: NetworkPrefix,
    cut: Arc<Notify>,
}

/// The permit of one connection, released when it is dropped.
#[derive(Debug)]
pub(in super::super) struct ConnectionPermit {
    permits: ConnectionPermits,
    number: u64,
    address: IpAddr,
    cut: Arc<Notify>,
    is_known: std::sync::atomic::AtomicBool,
}

impl ConnectionPermits {
    pub(super) fn new(limits: ConnectionLimits) -> Self {
        Self {
            limits,
            open: Arc::default(),
        }
    }

    /// Returns a permit for a connection of this address; an older connection may lose its own.
    pub(super) fn take(&self, address: IpAddr) -> ConnectionPermit {
        // An IPv4 peer of an IPv6 listener is the same peer.
        let address = address.to_canonical();
        let prefix = NetworkPrefix::of(address);
        let mut open = self.lock();
        if open.waiting.len() >= self.limits.waiting {
            open.cut_one();
        }
        open.last_number += 1;
        let number = open.last_number;
        let cut = Arc::new(Notify::new());
        let waiting = WaitingConnection {
            prefix,
            cut: Arc::clone(&cut),
        };
        open.waiting.insert(number, waiting);
        *open.waiting_by_prefix.entry(prefix).or_default() += 1;
        drop(open);
        ConnectionPermit {
            permits: self.clone(),
            number,
            address,
            cut,
            is_known: false.into(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, OpenConnections> {
        // No statement that could panic leaves the counts half-changed.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenConnections {
    /// Cuts the oldest waiting connection of the network with the most.
    fn cut_one(&mut self) {
        let most = self
            .waiting_by_prefix
            .iter()
            .max_by_key(|(_, count)| **count);
        let Some(prefix) = most.map(|(prefix, _)| *prefix) else {
            return;
        };
        let oldest = self.waiting.iter().find(|(_, it)| it.prefix == prefix);
        if let Some(number) = oldest.map(|(number, _)| *number)
            && let Some(cut) = self.leave(number)
        {
            cut.notify_one();
        }
    }

    /// Removes a connection from the waiting ones, if it is one.
    fn leave(&mut self, number: u64) -> Option<Arc<Notify>> {
        let WaitingConnection { prefix, cut } = self.waiting.remove(&number)?;
        give_back(&mut self.waiting_by_prefix, &prefix);
        Some(cut)
    }
}

fn give_back<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

impl ConnectionPermit {
    /// Moves the connection to the known ones, unless there are too many.
    pub(in super::super) fn mark_known(&self) {
        use std::sync::atomic::Ordering::Relaxed;
        if self.is_known.load(Relaxed) {
            return;
        }
        let mut open = self.permits.lock();
        let limits = self.permits.limits;
        let of_it = open
            .known_by_address
            .get(&self.address)
            .copied()
            .unwrap_or(0);
        if open.known >= limits.known || of_it >= limits.known_per_address {
            return;
        }
        if open.leave(self.number).is_some() {
            open.known += 1;
            open.known_by_address.insert(self.address, of_it + 1);
            self.is_known.store(true, Relaxed);
        }
    }

    /// Resolves when the permit was given to another connection.
    pub(super) async fn revoked(&self) {
        self.cut.notified().await;
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut open = self.permits.lock();
        if *self.is_known.get_mut() {
            open.known -= 1;
            give_back(&mut open.known_by_address, &self.address);
        } else {
            open.leave(self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    const LIMITS: ConnectionLimits = ConnectionLimits {
        waiting: 4,
        known: 3,
        known_per_address: 2,
    };

    fn address(network: u8, host: u8) -> IpAddr {
        IpAddr::from([10, 0, network, host])
    }

    fn is_cut(permit: &ConnectionPermit) -> bool {
        permit.revoked().now_or_never().is_some()
    }

    #[test]
    fn a_newcomer_finds_a_place_and_the_oldest_of_the_largest_network_loses_his() {
        let permits = ConnectionPermits::new(LIMITS);
        let other = permits.take(address(2, 1));
        let many: Vec<ConnectionPermit> =
            (0..3).map(|host| permits.take(address(1, host))).collect();
        let newcomer = permits.take(address(3, 1));
        let cut: Vec<bool> = many.iter().map(is_cut).collect();
        assert_eq!(cut, [true, false, false]);
        assert!(!is_cut(&other) && !is_cut(&newcomer));
        drop((many, other, newcomer));
        let open = permits.lock();
        assert!(open.waiting.is_empty() && open.waiting_by_prefix.is_empty());
    }

    #[test]
    fn whoever_is_known_is_cut_for_nobody_and_each_has_his_share() {
        let permits = ConnectionPermits::new(LIMITS);
        let known = permits.take(address(1, 1));
        known.mark_known();
        known.mark_known();
        let many: Vec<ConnectionPermit> =
            (0..20).map(|host| permits.take(address(1, host))).collect();
        assert!(!is_cut(&known));
        assert_eq!(many.iter().filter(|it| !is_cut(it)).count(), LIMITS.waiting);
        let mapped = permits.take("::ffff:10.0.1.1".parse().unwrap());
        mapped.mark_known();
        let third = permits.take(address(1, 1));
        third.mark_known();
        let known_now = permits.lock().known;
        assert_eq!(known_now, 2);
        drop((known, mapped, third, many));
        let open = permits.lock();
        assert_eq!((open.known, open.known_by_address.len()), (0, 0));
        assert!(open.waiting.is_empty());
    }
}
