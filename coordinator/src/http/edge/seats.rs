//! How many connections there are, in all and of each address: beyond the bounds nobody is let in, so that one peer that
//! opens thousands takes neither memory nor descriptors that others need.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// The most connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) in_all: usize,
    pub(super) of_each: usize,
}

/// The connections that there are. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Seats(Arc<Mutex<Taken>>);

#[derive(Debug, Default)]
struct Taken {
    in_all: usize,
    of_each: BTreeMap<IpAddr, usize>,
}

/// A connection's place, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    seats: Seats,
    address: IpAddr,
}

impl Seats {
    /// A place for a connection of this address, if there is one.
    pub(super) fn take(&self, address: IpAddr, room: Room) -> Option<Seat> {
        // An IPv4 peer of an IPv6 listener is the same peer.
        let address = address.to_canonical();
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_it = taken.of_each.get(&address).copied().unwrap_or(0);
        if taken.in_all >= room.in_all || of_it >= room.of_each {
            return None;
        }
        taken.in_all += 1;
        taken.of_each.insert(address, of_it + 1);
        Some(Seat {
            seats: self.clone(),
            address,
        })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let taken = self.seats.0.lock();
        let mut taken = taken.unwrap_or_else(PoisonError::into_inner);
        taken.in_all -= 1;
        if let Some(of_it) = taken.of_each.get_mut(&self.address) {
            *of_it -= 1;
            if *of_it == 0 {
                taken.of_each.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_share_and_gives_it_back() {
        let room = Room {
            in_all: 3,
            of_each: 2,
        };
        let seats = Seats::default();
        let [a, b, c] = [1, 2, 3].map(|last| IpAddr::from([10, 0, 0, last]));
        let first = seats.take(a, room);
        let _second = seats
            .take("::ffff:10.0.0.1".parse().unwrap(), room)
            .unwrap();
        assert!(first.is_some() && seats.take(a, room).is_none());
        let _third = seats.take(b, room).unwrap();
        assert!(seats.take(c, room).is_none());
        drop(first);
        assert!(seats.take(c, room).is_some());
        assert!(seats.take(a, room).is_some());
    }
}
