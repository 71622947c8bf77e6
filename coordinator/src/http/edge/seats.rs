//! How many connections there are, so that peers who open thousands take neither memory nor descriptors that others need.
//!
//! ```text
//! accepted -> waiting, until a call on it shows a credential that is known -> known
//! ```
//!
//! Of those that wait there are few, and a newcomer always finds a place: where there is none, the oldest of the network
//! that has most of them is cut. So whoever holds half-sent heads open holds up his own network and nobody who calls. A
//! connection that is known is never cut for another.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sluice_transport::NetworkPrefix;
use tokio::sync::Notify;

/// The most connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// On which nobody has shown anything yet.
    pub(super) waiting: usize,
    /// Whose callers are known.
    pub(super) known: usize,
    /// Those of one address.
    pub(super) known_of_each: usize,
}

/// The connections that there are. Clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Seats {
    room: Room,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    /// Numbers drawn for connections: an older one has a lower one.
    drawn: u64,
    waiting: BTreeMap<u64, Waiting>,
    waiting_of: BTreeMap<NetworkPrefix, usize>,
    known: usize,
    known_of: BTreeMap<IpAddr, usize>,
}

#[derive(Debug)]
struct Waiting {
    prefix: NetworkPrefix,
    cut: Arc<Notify>,
}

/// A connection's place, given back when it is dropped.
#[derive(Debug)]
pub(in super::super) struct Seat {
    seats: Seats,
    number: u64,
    address: IpAddr,
    cut: Arc<Notify>,
    is_known: std::sync::atomic::AtomicBool,
}

impl Seats {
    pub(super) fn new(room: Room) -> Self {
        Self {
            room,
            taken: Arc::default(),
        }
    }

    /// A place for a connection of this address; an older connection may lose its own.
    pub(super) fn take(&self, address: IpAddr) -> Seat {
        // An IPv4 peer of an IPv6 listener is the same peer.
        let address = address.to_canonical();
        let prefix = NetworkPrefix::of(address);
        let mut taken = self.lock();
        if taken.waiting.len() >= self.room.waiting {
            taken.cut_one();
        }
        taken.drawn += 1;
        let number = taken.drawn;
        let cut = Arc::new(Notify::new());
        let waiting = Waiting {
            prefix,
            cut: Arc::clone(&cut),
        };
        taken.waiting.insert(number, waiting);
        *taken.waiting_of.entry(prefix).or_default() += 1;
        drop(taken);
        Seat {
            seats: self.clone(),
            number,
            address,
            cut,
            is_known: false.into(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        // The counts are whole between any two statements that could panic.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// Cuts the oldest connection of the network that has most of those that wait.
    fn cut_one(&mut self) {
        let most = self.waiting_of.iter().max_by_key(|(_, count)| **count);
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

    /// Takes one out of those that wait, if it is one.
    fn leave(&mut self, number: u64) -> Option<Arc<Notify>> {
        let Waiting { prefix, cut } = self.waiting.remove(&number)?;
        give_back(&mut self.waiting_of, &prefix);
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

impl Seat {
    /// Its caller is known: it waits no longer, unless there are too many such.
    pub(in super::super) fn is_of_a_known_caller(&self) {
        use std::sync::atomic::Ordering::Relaxed;
        if self.is_known.load(Relaxed) {
            return;
        }
        let mut taken = self.seats.lock();
        let room = self.seats.room;
        let of_it = taken.known_of.get(&self.address).copied().unwrap_or(0);
        if taken.known >= room.known || of_it >= room.known_of_each {
            return;
        }
        if taken.leave(self.number).is_some() {
            taken.known += 1;
            taken.known_of.insert(self.address, of_it + 1);
            self.is_known.store(true, Relaxed);
        }
    }

    /// Comes back when the place was given to another.
    pub(super) async fn is_taken_away(&self) {
        self.cut.notified().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.lock();
        if *self.is_known.get_mut() {
            taken.known -= 1;
            give_back(&mut taken.known_of, &self.address);
        } else {
            taken.leave(self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    const ROOM: Room = Room {
        waiting: 4,
        known: 3,
        known_of_each: 2,
    };

    fn address(network: u8, host: u8) -> IpAddr {
        IpAddr::from([10, 0, network, host])
    }

    fn is_cut(seat: &Seat) -> bool {
        seat.is_taken_away().now_or_never().is_some()
    }

    #[test]
    fn a_newcomer_finds_a_place_and_the_oldest_of_the_largest_network_loses_his() {
        let seats = Seats::new(ROOM);
        let other = seats.take(address(2, 1));
        let many: Vec<Seat> = (0..3).map(|host| seats.take(address(1, host))).collect();
        let newcomer = seats.take(address(3, 1));
        let cut: Vec<bool> = many.iter().map(is_cut).collect();
        assert_eq!(cut, [true, false, false]);
        assert!(!is_cut(&other) && !is_cut(&newcomer));
        drop((many, other, newcomer));
        let taken = seats.lock();
        assert!(taken.waiting.is_empty() && taken.waiting_of.is_empty());
    }

    #[test]
    fn whoever_is_known_is_cut_for_nobody_and_each_has_his_share() {
        let seats = Seats::new(ROOM);
        let known = seats.take(address(1, 1));
        known.is_of_a_known_caller();
        known.is_of_a_known_caller();
        let many: Vec<Seat> = (0..20).map(|host| seats.take(address(1, host))).collect();
        assert!(!is_cut(&known));
        assert_eq!(many.iter().filter(|it| !is_cut(it)).count(), ROOM.waiting);
        let mapped = seats.take("::ffff:10.0.1.1".parse().unwrap());
        mapped.is_of_a_known_caller();
        let third = seats.take(address(1, 1));
        third.is_of_a_known_caller();
        let known_now = seats.lock().known;
        assert_eq!(known_now, 2);
        drop((known, mapped, third, many));
        let taken = seats.lock();
        assert_eq!((taken.known, taken.known_of.len()), (0, 0));
        assert!(taken.waiting.is_empty());
    }
}
