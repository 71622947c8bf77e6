//! Groups addresses by network for rate limits, because the owner of one address usually controls the whole network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Length in bits of the network part, as assigned by providers.
const BITS_V4: u32 = 24;
const BITS_V6: u32 = 48;

/// Network of an address: a /24 of IPv4, a /48 of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NetworkPrefix(IpAddr);

impl NetworkPrefix {
    /// The network of an address. IPv4-mapped addresses count as IPv4.
    pub fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(it) => {
                let mask = u32::MAX << (u32::BITS - BITS_V4);
                Ipv4Addr::from_bits(it.to_bits() & mask).into()
            }
            IpAddr::V6(it) => {
                let mask = u128::MAX << (u128::BITS - BITS_V6);
                Ipv6Addr::from_bits(it.to_bits() & mask).into()
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_and_others_are_not() {
        let of = |text: &str| NetworkPrefix::of(text.parse().unwrap());
        assert_eq!(of("10.0.0.1"), of("10.0.0.254"));
        assert_eq!(of("10.0.0.1"), of("::ffff:10.0.0.9"));
        assert_ne!(of("10.0.0.1"), of("10.0.1.1"));
        assert_eq!(of("2001:db8:1::1"), of("2001:db8:1:ffff::2"));
        assert_ne!(of("2001:db8:1::1"), of("2001:db8:2::1"));
    }
}
