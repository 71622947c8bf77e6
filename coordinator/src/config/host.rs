//! Checks the syntax of addresses of other hosts.

use std::net::Ipv6Addr;

/// Whether a text is a host name or address with a port that can be dialled.
pub(crate) fn is_host_and_port(address: &str) -> bool {
    let is_host = |host: &str| {
        let inner = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        match inner {
            Some(inner) => inner.parse::<Ipv6Addr>().is_ok(),
            None => {
                let of_a_name = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
                !host.is_empty() && host.bytes().all(of_a_name)
            }
        }
    };
    address
        .rsplit_once(':')
        .is_some_and(|(host, port)| is_host(host) && port.parse::<u16>().is_ok_and(|port| port > 0))
}
