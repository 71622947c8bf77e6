//! The state that HAProxy is to have, from what the coordinator says: services that get requests, and the addresses at which
//! their replicas listen.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use sluice_common::access::NamePattern;
use sluice_common::api::{EndpointView, ServiceView};
use sluice_common::id::ServiceName;
use sluice_common::service::ServiceState;

use super::backends::{DesiredService, DesiredServices};
use super::config::GatewayConfig;
use super::follower::EndpointSnapshot;
use crate::render::safe;

/// Name of the port that gets requests, if a replica has several.
const PORT: &str = "http";

/// The addresses of hosts, as far as they are known.
pub(super) type HostAddresses = BTreeMap<String, IpAddr>;

/// State that follows from a snapshot.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct DesiredState {
    pub(super) services: DesiredServices,
    /// Hosts whose addresses are needed and not known.
    pub(super) unresolved: BTreeSet<String>,
    /// One sentence for each service that gets no requests though it is wanted.
    pub(super) problems: BTreeSet<String>,
}

impl DesiredState {
    /// Reads a snapshot. Without its endpoints, all requests wait.
    pub(super) fn of(
        snapshot: &EndpointSnapshot,
        is_expired: bool,
        config: &GatewayConfig,
        addresses: &HostAddresses,
    ) -> Self {
        let mut state = Self::default();
        let mut keys = BTreeSet::new();
        let wanted = snapshot.services.iter().filter(|it| is_wanted(it, config));
        for service in wanted {
            if ServiceName::new(service.name.clone()).is_err() {
                continue;
            }
            if !keys.insert(service.name.to_ascii_lowercase()) {
                state.problems.insert(format!(
                    "service `{}` gets no requests here: another one has the same name but for upper case, and host names \
                     have none; give one of them another name",
                    safe(&service.name)
                ));
                continue;
            }
            state
                .services
                .insert(service.name.clone(), of_service(service));
        }
        let endpoints = snapshot.endpoints.iter().filter(|_| !is_expired);
        for endpoint in endpoints {
            state.add(endpoint, addresses);
        }
        state
    }

    fn add(&mut self, endpoint: &EndpointView, addresses: &HostAddresses) {
        let Some(service) = self.services.get_mut(&endpoint.service) else {
            return;
        };
        let named = endpoint.ports.get(PORT);
        let Some(port) = named.or_else(|| endpoint.ports.values().next()) else {
            self.problems.insert(format!(
                "service `{}` gets no requests, because its replicas have no port: add `ports: [http]` to it",
                safe(&endpoint.service)
            ));
            return;
        };
        let parsed = endpoint.address.parse::<IpAddr>().ok();
        let Some(address) = parsed.or_else(|| addresses.get(&endpoint.address).copied()) else {
            self.unresolved.insert(endpoint.address.clone());
            return;
        };
        let address = SocketAddr::new(address, *port);
        service.members.insert(endpoint.replica.clone());
        service.replicas.insert(endpoint.replica.clone(), address);
    }
}

fn is_wanted(service: &ServiceView, config: &GatewayConfig) -> bool {
    let matches = |patterns: &[NamePattern], name: &str| patterns.iter().any(|it| it.matches(name));
    service.state != ServiceState::Deleting
        && matches(&config.services, &service.name)
        && matches(&config.subjects, &service.subject)
}

fn of_service(service: &ServiceView) -> DesiredService {
    DesiredService {
        max_concurrency: service.resources.max_concurrency.unwrap_or(0),
        replicas: BTreeMap::new(),
        members: service.members.iter().map(|it| it.id.clone()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn service(name: &str, subject: &str, state: &str, replicas: &[&str]) -> ServiceView {
        let members = replicas.iter().map(|id| {
            serde_json::json!({"id": id, "revision": 1, "state": "running", "ready": true, "node": "n",
                "preemptible": true, "message": ""})
        });
        serde_json::from_value(serde_json::json!({
            "name": name, "subject": subject, "pool": null, "platform": null, "state": state, "message": "",
            "version": 1, "revision": 1, "replicas": 1, "ready": 1, "min_replicas": 1, "max_replicas": 1,
            "command": [], "env": {}, "resources": {"max_concurrency": 3}, "rollout": {}, "placement": "spread",
            "status": {"state": "complete", "updated": 1, "outdated": 0, "began_at": "2026-11-20T10:00:00Z",
                "stable": 1},
            "failures": 0, "members": members.collect::<Vec<_>>(), "revisions": [],
            "made_at": "2026-11-20T10:00:00Z",
        }))
        .unwrap()
    }

    fn endpoint(replica: &str, address: &str, ports: serde_json::Value) -> EndpointView {
        serde_json::from_value(serde_json::json!({
            "service": replica.split('-').next().unwrap(), "subject": "s", "replica": replica, "revision": 1, "node": "n",
            "address": address, "ports": ports, "since": "2026-11-20T10:00:00Z",
        }))
        .unwrap()
    }

    fn snapshot(services: Vec<ServiceView>, endpoints: Vec<EndpointView>) -> EndpointSnapshot {
        EndpointSnapshot {
            asked_at: Instant::now(),
            services,
            endpoints,
        }
    }

    fn of(snapshot: &EndpointSnapshot, addresses: &[(&str, &str)]) -> DesiredState {
        let known = addresses
            .iter()
            .map(|(host, ip)| ((*host).to_owned(), ip.parse().unwrap()));
        DesiredState::of(snapshot, false, &GatewayConfig::default(), &known.collect())
    }

    fn replicas(state: &DesiredState, service: &str) -> Vec<String> {
        state.services[service]
            .replicas
            .values()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_replica_is_reached_at_its_port_http_or_at_its_first() {
        let ports = serde_json::json!({"admin": 1, "http": 2});
        let endpoints = vec![
            endpoint("web-1", "10.0.0.1", ports),
            endpoint(
                "web-2",
                "gpu-1",
                serde_json::json!({"api": 4, "metrics": 5}),
            ),
            endpoint("web-3", "gpu-2", serde_json::json!({"api": 6})),
            endpoint("web-4", "fd00::1", serde_json::json!({"api": 7})),
        ];
        let snapshot = snapshot(
            vec![service("web", "s", "ready", &["web-1", "web-9"])],
            endpoints,
        );
        let state = of(&snapshot, &[("gpu-1", "10.0.0.9")]);
        assert_eq!(
            replicas(&state, "web"),
            ["10.0.0.1:2", "10.0.0.9:4", "[fd00::1]:7"]
        );
        assert_eq!(state.unresolved, BTreeSet::from(["gpu-2".to_owned()]));
        assert_eq!(state.services["web"].max_concurrency, 3);
        assert!(state.services["web"].members.contains("web-9"));
    }

    #[test]
    fn services_that_are_filtered_deleted_or_alike_get_no_requests() {
        let services = vec![
            service("llm-a", "s", "ready", &[]),
            service("LLM-A", "s", "ready", &[]),
            service("llm-b", "other", "ready", &[]),
            service("llm-c", "s", "deleting", &[]),
            service("web", "s", "ready", &[]),
        ];
        let config = GatewayConfig {
            services: vec!["llm-*".parse().unwrap(), "LLM-*".parse().unwrap()],
            subjects: vec!["s".parse().unwrap()],
            ..GatewayConfig::default()
        };
        let state = DesiredState::of(
            &snapshot(services, Vec::new()),
            false,
            &config,
            &HostAddresses::new(),
        );
        assert_eq!(state.services.keys().collect::<Vec<_>>(), ["llm-a"]);
        assert_eq!(state.problems.len(), 1);
    }

    #[test]
    fn without_a_port_or_with_old_endpoints_requests_wait() {
        let endpoints = vec![endpoint("web-1", "10.0.0.1", serde_json::json!({}))];
        let snapshot = snapshot(vec![service("web", "s", "ready", &["web-1"])], endpoints);
        let state = of(&snapshot, &[]);
        assert_eq!(replicas(&state, "web"), [""; 0]);
        assert!(state.problems.first().unwrap().contains("`ports: [http]`"));
        let config = GatewayConfig::default();
        let expired = DesiredState::of(&snapshot, true, &config, &HostAddresses::new());
        assert_eq!(replicas(&expired, "web"), [""; 0]);
        assert!(
            expired.services["web"].members.contains("web-1"),
            "what it does goes on"
        );
        assert!(expired.problems.is_empty());
    }
}
