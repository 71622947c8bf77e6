//! Checks limits of this machine that affect Sluice: UDP buffers, open files, used ports.

use std::io::ErrorKind;
use std::net::{TcpListener, UdpSocket};

use nix::sys::resource::{Resource, getrlimit};

use super::check::Check;

/// Buffer size that each socket of a link asks for.
const UDP_BUFFER_BYTES: u64 = 4 * 1024 * 1024;
/// Open files that suffice for a coordinator of a few hundred hosts and an agent of a few hundred steps.
const OPEN_FILES: u64 = 4096;
/// Default address of a coordinator.
const HTTP: &str = "127.0.0.1:7070";
const QUIC: &str = "127.0.0.1:7443";

pub(super) fn checks() -> Vec<Check> {
    let buffers = ["rmem_max", "wmem_max"].map(|name| {
        let path = format!("/proc/sys/net/core/{name}");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        (name, text.trim().parse().ok())
    });
    let files = getrlimit(Resource::RLIMIT_NOFILE).ok();
    vec![
        udp(&buffers),
        open_files(files),
        port("port http", HTTP, TcpListener::bind(HTTP).map(drop)),
        port("port quic", QUIC, UdpSocket::bind(QUIC).map(drop)),
    ]
}

fn udp(limits: &[(&str, Option<u64>)]) -> Check {
    let name = "udp buffers";
    let low: Vec<&(&str, Option<u64>)> = limits
        .iter()
        .filter(|(_, limit)| limit.is_some_and(|limit| limit < UDP_BUFFER_BYTES))
        .collect();
    if limits.iter().all(|(_, limit)| limit.is_none()) {
        return Check::ok(name, "the kernel does not show it here (a container?)");
    }
    if low.is_empty() {
        return Check::ok(name, format!("at least {UDP_BUFFER_BYTES} bytes"));
    }
    let found: Vec<String> = low
        .iter()
        .map(|(name, limit)| format!("net.core.{name} is {}", limit.unwrap_or(0)))
        .collect();
    let cure: Vec<String> = low
        .iter()
        .map(|(name, _)| format!("net.core.{name}={UDP_BUFFER_BYTES}"))
        .collect();
    let found = format!("{}: floods of messages lose packets", found.join(", "));
    let cure = format!(
        "sysctl -w {}; the same lines in /etc/sysctl.d keep it",
        cure.join(" ")
    );
    Check::warn(name, found, cure)
}

fn open_files(limits: Option<(u64, u64)>) -> Check {
    let name = "open files";
    match limits {
        None => Check::ok(name, "the kernel does not show it"),
        Some((soft, hard)) if hard >= OPEN_FILES => {
            Check::ok(name, format!("{soft}, up to {hard}"))
        }
        Some((_, hard)) => Check::warn(
            name,
            format!("at most {hard}: many steps or hosts exceed that"),
            format!("LimitNOFILE={OPEN_FILES} in the unit, or `ulimit -n` before the start"),
        ),
    }
}

/// A used port belongs to a coordinator, or prevents one from starting.
fn port(name: &'static str, address: &str, bound: std::io::Result<()>) -> Check {
    match bound {
        Ok(()) => Check::ok(name, format!("{address} is free")),
        Err(error) if error.kind() == ErrorKind::AddrInUse => Check::ok(
            name,
            format!("{address} is taken: by a coordinator, if one runs here"),
        ),
        Err(error) => Check::warn(
            name,
            format!("{address}: {error}"),
            "choose others in coordinator.toml, with `http` and `quic`",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::CheckStatus;
    use super::*;

    #[test]
    fn low_buffers_are_told_with_the_line_that_cures() {
        let check = udp(&[("rmem_max", Some(212_992)), ("wmem_max", Some(8_388_608))]);
        assert_eq!(check.verdict, CheckStatus::Warn);
        let cure = check.cure.unwrap();
        assert!(
            cure.starts_with("sysctl -w net.core.rmem_max=4194304;"),
            "{cure}"
        );
        assert!(!cure.contains("wmem"));
        let check = udp(&[("rmem_max", Some(4_194_304)), ("wmem_max", Some(4_194_304))]);
        assert_eq!(check.verdict, CheckStatus::Ok);
        assert_eq!(udp(&[("rmem_max", None)]).verdict, CheckStatus::Ok);
    }

    #[test]
    fn few_files_and_odd_ports_are_told() {
        assert_eq!(open_files(Some((1024, 20_000))).verdict, CheckStatus::Ok);
        assert_eq!(open_files(Some((256, 1024))).verdict, CheckStatus::Warn);
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let again = TcpListener::bind(taken.local_addr().unwrap()).map(drop);
        let check = port("port http", "x", again);
        assert!(check.found.contains("taken"), "{check:?}");
        let refused = Err(ErrorKind::PermissionDenied.into());
        assert_eq!(port("port http", "x", refused).verdict, CheckStatus::Warn);
    }
}
