//! The text of HAProxy's configuration, which is written once: HAProxy cannot add backends while it runs, so it has a fixed
//! number of them with servers in maintenance, and a map from names of services to backends.
//!
//! A request of a service without a ready replica waits in its backend: the only usable server is `wait`, which refuses each
//! connection at once, and HAProxy tries again a second later, without having sent a byte. The map's value says whether
//! the service has a ready replica (`slot1`) or not (`slot1/waiting`), and bounds the number of those that wait.

use std::fmt::Write;
use std::net::SocketAddr;

use super::config::GatewayConfig;

/// File of the map, relative to the runtime directory.
pub(super) const MAP_FILE: &str = "services.map";
/// Socket of the commands, relative to the runtime directory.
pub(super) const SOCKET_FILE: &str = "haproxy.sock";
/// File of the configuration, relative to the runtime directory.
pub(super) const CONFIG_FILE: &str = "haproxy.cfg";
/// Key of the map that is there once the coordinator has answered. No service has this name.
pub(super) const READY_KEY: &str = "/";
/// End of the map's value for a service without a ready replica.
const WAITING: &str = "/waiting";
/// Most connections of clients, if the limit of open files allows them.
const MAX_CONNECTIONS: u64 = 20_000;
/// Open files that HAProxy needs beside those of connections.
const OTHER_FILES: u64 = 300;
/// Seconds after which a client that was refused may try again.
const RETRY_AFTER: u32 = 5;
/// Seconds for which a host may leave what it was sent unacknowledged.
const SILENT_LIMIT: u32 = 30;

/// Name of a backend.
pub(super) fn backend_name(backend: usize) -> String {
    format!("slot{}", backend + 1)
}

/// Name of a server of a backend.
pub(super) fn server_name(server: usize) -> String {
    format!("s{}", server + 1)
}

/// Value of the map for a service.
pub(super) fn route_value(backend: usize, is_waiting: bool) -> String {
    let name = backend_name(backend);
    match is_waiting {
        true => name + WAITING,
        false => name,
    }
}

/// Writes the configuration. `open_files` is the limit of this process.
pub(super) fn haproxy_config(config: &GatewayConfig, open_files: u64) -> String {
    let mut text = head(config, open_files);
    for address in &config.bind {
        let _ = writeln!(text, "    bind {}", bind_line(*address, config));
    }
    text.push_str(&routing(config));
    for backend in 0..config.max_services {
        text.push_str(&backend_section(backend, config));
    }
    text
}

fn head(config: &GatewayConfig, open_files: u64) -> String {
    let connections = (open_files.saturating_sub(OTHER_FILES) / 2).clamp(50, MAX_CONNECTIONS);
    let wait = config.wait_limit.millis().div_ceil(1000);
    // A request may take an hour, but not on a host that no longer answers at all.
    format!(
        "\
global
    stats socket unix@{SOCKET_FILE} mode 600 level admin
    maxconn {connections}
    hard-stop-after 30s
defaults
    mode http
    option http-server-close
    option forwardfor
    option redispatch 1
    option abortonclose
    retries {wait}
    timeout connect 5s
    timeout http-request 30s
    timeout http-keep-alive 60s
    timeout client 60s
    timeout server 1h
    timeout tunnel 1h
    timeout queue {wait}s
    option srvtcpka
    srvtcpka-idle 10s
    srvtcpka-intvl 5s
    default-server tcp-ut {SILENT_LIMIT}s
    http-error status 503 content-type text/plain string \"no replica of the service took the request in time: try again later\\n\" hdr Retry-After {RETRY_AFTER}
frontend services
"
    )
}

fn bind_line(address: SocketAddr, config: &GatewayConfig) -> String {
    let at = match address {
        SocketAddr::V4(_) => format!("ipv4@{address}"),
        SocketAddr::V6(_) => format!("ipv6@{address}"),
    };
    match &config.tls_certificate {
        None => at,
        Some(path) => format!("{at} ssl crt '{}' alpn h2,http/1.1", path.display()),
    }
}

/// Rules by which a request finds its backend: by the header `Sluice-Service`, else by its host name.
fn routing(config: &GatewayConfig) -> String {
    let suffix = config.suffix();
    let header = match suffix.is_empty() {
        true => "req.hdr(sluice-service),lower".to_owned(),
        false => format!("req.hdr(sluice-service),lower,concat({suffix})"),
    };
    let host = match config.domain {
        None => "req.hdr(host),lower,field(1,:),field(1,.)",
        Some(_) => "req.hdr(host),lower,field(1,:)",
    };
    format!(
        "    http-request return status 503 content-type text/plain string \"this gateway waits for the coordinator: try again later\\n\" hdr Retry-After {RETRY_AFTER} unless {{ str({READY_KEY}),map({MAP_FILE}) -m found }}
    http-request set-header X-Forwarded-Proto http unless {{ ssl_fc }}
    http-request set-header X-Forwarded-Proto https if {{ ssl_fc }}
    http-request set-var(txn.service) {host}
    http-request set-var(txn.service) {header} if {{ req.hdr(sluice-service) -m found }}
    http-request set-var(txn.route) var(txn.service),map({MAP_FILE})
    http-request return status 404 content-type text/plain string \"this gateway knows no such service: name one by the host name or by the header Sluice-Service\\n\" unless {{ var(txn.route) -m beg slot }}
    use_backend %[var(txn.route),field(1,/)]
"
    )
}

fn backend_section(backend: usize, config: &GatewayConfig) -> String {
    let most = config.max_waiting;
    let refusal = format!(
        "http-request return status 503 content-type text/plain string \"too many requests wait for this service: try again later\\n\" hdr Retry-After {RETRY_AFTER}"
    );
    // The connections count the request itself, the queue does not.
    let mut text = format!(
        "backend {}
    balance leastconn
    {refusal} if {{ var(txn.route) -m end {WAITING} }} {{ be_conn gt {most} }}
    {refusal} if {{ queue ge {most} }}
    server wait 127.0.0.1:1 backup
",
        backend_name(backend)
    );
    for server in 0..config.max_replicas {
        let _ = writeln!(
            text,
            "    server {} 127.0.0.1:1 disabled",
            server_name(server)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(max_services: usize, max_replicas: usize) -> GatewayConfig {
        GatewayConfig {
            max_services,
            max_replicas,
            ..GatewayConfig::default()
        }
    }

    #[test]
    fn there_are_as_many_backends_and_servers_as_the_config_says() {
        let text = haproxy_config(&config(3, 4), 10_000);
        let count = |part: &str| text.matches(part).count();
        assert_eq!(count("\nbackend slot"), 3);
        assert_eq!(count(" disabled\n"), 12);
        assert_eq!(count("server wait 127.0.0.1:1 backup\n"), 3);
        assert!(text.contains("    maxconn 4850\n"), "{text}");
        assert!(text.contains("    retries 300\n") && text.contains("timeout queue 300s\n"));
    }

    #[test]
    fn a_service_is_found_by_its_host_name_as_the_domain_says() {
        let routing = |domain: Option<&str>| {
            let domain = domain.map(str::to_owned);
            haproxy_config(
                &GatewayConfig {
                    domain,
                    ..config(1, 1)
                },
                1_000,
            )
        };
        let first = routing(None);
        assert!(first.contains("set-var(txn.service) req.hdr(host),lower,field(1,:),field(1,.)\n"));
        assert!(first.contains("set-var(txn.service) req.hdr(sluice-service),lower if"));
        let below = routing(Some("example.org"));
        assert!(below.contains("set-var(txn.service) req.hdr(host),lower,field(1,:)\n"));
        assert!(below.contains("req.hdr(sluice-service),lower,concat(.example.org) if"));
        let whole = routing(Some(""));
        assert!(whole.contains("set-var(txn.service) req.hdr(host),lower,field(1,:)\n"));
        assert!(whole.contains("req.hdr(sluice-service),lower if"));
    }

    #[test]
    fn each_address_has_the_certificate() {
        let config = GatewayConfig {
            bind: vec!["0.0.0.0:80".parse().unwrap(), "[::1]:81".parse().unwrap()],
            tls_certificate: Some("/etc/a b.pem".into()),
            ..config(1, 1)
        };
        let text = haproxy_config(&config, 1_000);
        assert!(text.contains("bind ipv4@0.0.0.0:80 ssl crt '/etc/a b.pem' alpn h2,http/1.1\n"));
        assert!(text.contains("bind ipv6@[::1]:81 ssl crt '/etc/a b.pem' alpn h2,http/1.1\n"));
    }

    #[test]
    fn a_route_names_its_backend_and_whether_requests_wait() {
        assert_eq!(route_value(0, false), "slot1");
        assert_eq!(route_value(6, true), "slot7/waiting");
    }
}
