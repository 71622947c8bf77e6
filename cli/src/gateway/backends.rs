//! The backends of HAProxy as this program has set them, and the changes by which they follow the endpoints.
//!
//! Removals are planned and applied before additions, so that no request goes to a replica that is not ready any more while
//! others are added. A change takes effect here only after HAProxy has made it, so a change that failed is planned again.
//!
//! ```text
//! server:  free -> serving -> draining -> free
//! ```
//! A replica that left the endpoints drains: it gets no new requests, and those under way go on. Its server is free once
//! they are over, or the replica has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use super::haproxy_config::{MAP_FILE, backend_name, route_value, server_name};

/// A service that gets requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DesiredService {
    /// Most requests that one replica is given at once; 0 for any number.
    pub(super) max_concurrency: u64,
    /// Ready replicas with their addresses.
    pub(super) replicas: BTreeMap<String, SocketAddr>,
    /// Replicas that have not ended.
    pub(super) members: BTreeSet<String>,
}

/// All services that get requests, by name.
pub(super) type DesiredServices = BTreeMap<String, DesiredService>;

#[derive(Clone, Debug, PartialEq, Eq)]
enum BackendServer {
    Free,
    Serving {
        replica: String,
        address: SocketAddr,
        max_concurrency: u64,
    },
    Draining {
        replica: String,
    },
}

/// Entry of the map for a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BackendRoute {
    /// A replica is ready.
    Ready,
    /// Requests wait for one.
    Waiting,
}

#[derive(Clone, Debug)]
struct ServiceBackend {
    service: Option<String>,
    route: Option<BackendRoute>,
    servers: Vec<BackendServer>,
}

impl ServiceBackend {
    fn is_free(&self) -> bool {
        self.service.is_none()
    }

    fn are_servers_free(&self) -> bool {
        self.servers.iter().all(|it| *it == BackendServer::Free)
    }

    fn serves(&self, replica: &str) -> bool {
        let is_it = |it: &BackendServer| matches!(it, BackendServer::Serving { replica: it, .. } if it == replica);
        self.servers.iter().any(is_it)
    }
}

/// A change of HAProxy's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BackendChange {
    /// Sends requests of a service to its backend.
    Route {
        backend: usize,
        service: String,
        route: BackendRoute,
    },
    /// Sends no more requests of a service anywhere.
    Unroute { backend: usize, service: String },
    /// Gives a server no new requests.
    Drain { backend: usize, server: usize },
    /// Takes a server out, with the requests that it may still have.
    Free { backend: usize, server: usize },
    /// Gives requests to a replica.
    Serve {
        backend: usize,
        server: usize,
        service: String,
        replica: String,
        address: SocketAddr,
        max_concurrency: u64,
    },
    /// Sets the number of requests that a replica is given at once.
    Limit {
        backend: usize,
        server: usize,
        max_concurrency: u64,
    },
}

/// The additions, and why some are missing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct BackendPlan {
    pub(super) changes: Vec<BackendChange>,
    /// One sentence for each service that cannot get all its replicas.
    pub(super) shortages: BTreeSet<String>,
}

/// All backends of HAProxy.
#[derive(Debug)]
pub(super) struct Backends {
    all: Vec<ServiceBackend>,
    /// End of each key of the map.
    suffix: String,
}

impl Backends {
    /// The backends of a HAProxy that has just started: each server is in maintenance.
    pub(super) fn new(backends: usize, servers: usize, suffix: String) -> Self {
        let backend = ServiceBackend {
            service: None,
            route: None,
            servers: vec![BackendServer::Free; servers],
        };
        Self {
            all: vec![backend; backends],
            suffix,
        }
    }

    /// Each service with the number of its backend.
    pub(super) fn services(&self) -> impl Iterator<Item = (usize, &str)> {
        let all = self.all.iter().enumerate();
        all.filter_map(|(at, it)| Some((at, it.service.as_deref()?)))
    }

    /// Servers that drain, with their backends.
    pub(super) fn draining(&self) -> Vec<(usize, usize)> {
        self.servers(|it| matches!(it, BackendServer::Draining { .. }))
    }

    fn servers(&self, is_wanted: impl Fn(&BackendServer) -> bool) -> Vec<(usize, usize)> {
        let all = self.all.iter().enumerate();
        let places = all.flat_map(|(backend, it)| {
            let servers = it.servers.iter().enumerate();
            let wanted = servers.filter(|(_, server)| is_wanted(server));
            wanted.map(move |(server, _)| (backend, server))
        });
        places.collect()
    }

    /// Plans what no longer gets requests.
    pub(super) fn removals(&self, desired: &DesiredServices) -> Vec<BackendChange> {
        let mut changes = Vec::new();
        for (backend, it) in self.all.iter().enumerate() {
            let Some(service) = &it.service else { continue };
            let wanted = desired.get(service);
            let nobody = DesiredService::default();
            let drains = drains(backend, it, wanted.unwrap_or(&nobody));
            if it.route.is_some() && wanted.is_none() {
                let service = service.clone();
                changes.push(BackendChange::Unroute { backend, service });
            } else if it.route == Some(BackendRoute::Ready) && is_last(it, &drains) {
                changes.push(BackendChange::Route {
                    backend,
                    service: service.clone(),
                    route: BackendRoute::Waiting,
                });
            }
            changes.extend(drains);
            changes.extend(ended(backend, it, wanted.unwrap_or(&nobody)));
        }
        changes
    }

    /// Plans what gets requests from now on.
    pub(super) fn additions(&self, desired: &DesiredServices) -> BackendPlan {
        let mut plan = BackendPlan::default();
        let mut free = (0..self.all.len()).filter(|at| self.all[*at].is_free());
        for (service, wanted) in desired {
            let own = self
                .services()
                .find(|(_, it)| it == service)
                .map(|(at, _)| at);
            let Some(backend) = own.or_else(|| free.next()) else {
                plan.shortages.insert(format!(
                    "service `{service}` gets no requests here, because {} others do: raise max_services",
                    self.all.len()
                ));
                continue;
            };
            self.add(backend, service, wanted, &mut plan);
        }
        plan
    }

    fn add(&self, backend: usize, service: &str, wanted: &DesiredService, plan: &mut BackendPlan) {
        let it = &self.all[backend];
        let servers = it.servers.iter().enumerate();
        let mut free = servers
            .clone()
            .filter(|(_, it)| **it == BackendServer::Free)
            .map(|(at, _)| at);
        let mut serves = false;
        for (replica, address) in &wanted.replicas {
            if it.serves(replica) {
                serves = true;
                continue;
            }
            let Some(server) = free.next() else {
                plan.shortages.insert(format!(
                    "service `{service}` has ready replicas that get no requests here, because it may have {}: raise \
                     max_replicas",
                    it.servers.len()
                ));
                break;
            };
            serves = true;
            plan.changes.push(BackendChange::Serve {
                backend,
                server,
                service: service.to_owned(),
                replica: replica.clone(),
                address: *address,
                max_concurrency: wanted.max_concurrency,
            });
        }
        let limits = servers.filter_map(|(server, it)| match it {
            BackendServer::Serving {
                max_concurrency, ..
            } if *max_concurrency != wanted.max_concurrency => Some(BackendChange::Limit {
                backend,
                server,
                max_concurrency: wanted.max_concurrency,
            }),
            BackendServer::Serving { .. }
            | BackendServer::Free
            | BackendServer::Draining { .. } => None,
        });
        plan.changes.extend(limits);
        let route = match serves {
            true => BackendRoute::Ready,
            false => BackendRoute::Waiting,
        };
        if it.route != Some(route) {
            let service = service.to_owned();
            plan.changes.push(BackendChange::Route {
                backend,
                service,
                route,
            });
        }
    }

    /// Commands of HAProxy that make a change.
    pub(super) fn commands(&self, change: &BackendChange) -> Vec<String> {
        let place = |backend: &usize, server: &usize| {
            format!("{}/{}", backend_name(*backend), server_name(*server))
        };
        match change {
            BackendChange::Route {
                backend,
                service,
                route,
            } => {
                let verb = match self.all[*backend].route {
                    None => "add",
                    Some(_) => "set",
                };
                let value = route_value(*backend, *route == BackendRoute::Waiting);
                vec![format!(
                    "{verb} map {MAP_FILE} {} {value}",
                    self.key(service)
                )]
            }
            BackendChange::Unroute { service, .. } => {
                vec![format!("del map {MAP_FILE} {}", self.key(service))]
            }
            BackendChange::Drain { backend, server } => {
                vec![format!("set server {} state drain", place(backend, server))]
            }
            BackendChange::Free { backend, server } => {
                let place = place(backend, server);
                vec![
                    format!("set server {place} state maint"),
                    format!("shutdown sessions server {place}"),
                ]
            }
            BackendChange::Serve {
                backend,
                server,
                address,
                max_concurrency,
                ..
            } => {
                let place = place(backend, server);
                vec![
                    format!(
                        "set server {place} addr {} port {}",
                        address.ip(),
                        address.port()
                    ),
                    format!("set maxconn server {place} {max_concurrency}"),
                    format!("set server {place} state ready"),
                ]
            }
            BackendChange::Limit {
                backend,
                server,
                max_concurrency,
            } => vec![format!(
                "set maxconn server {} {max_concurrency}",
                place(backend, server)
            )],
        }
    }

    fn key(&self, service: &str) -> String {
        format!("{}{}", service.to_ascii_lowercase(), self.suffix)
    }

    /// Takes in a change that HAProxy has made.
    pub(super) fn apply(&mut self, change: BackendChange) {
        match change {
            BackendChange::Route {
                backend,
                service,
                route,
            } => {
                let it = &mut self.all[backend];
                it.service = Some(service);
                it.route = Some(route);
            }
            BackendChange::Unroute { backend, .. } => {
                self.all[backend].route = None;
                self.release(backend);
            }
            BackendChange::Drain { backend, server } => {
                let it = &mut self.all[backend].servers[server];
                if let BackendServer::Serving { replica, .. } = it {
                    let replica = std::mem::take(replica);
                    *it = BackendServer::Draining { replica };
                }
            }
            BackendChange::Free { backend, server } => {
                self.all[backend].servers[server] = BackendServer::Free;
                self.release(backend);
            }
            BackendChange::Serve {
                backend,
                server,
                service,
                replica,
                address,
                max_concurrency,
            } => {
                let it = &mut self.all[backend];
                it.service = Some(service);
                it.servers[server] = BackendServer::Serving {
                    replica,
                    address,
                    max_concurrency,
                };
            }
            BackendChange::Limit {
                backend,
                server,
                max_concurrency: new,
            } => {
                if let BackendServer::Serving {
                    max_concurrency, ..
                } = &mut self.all[backend].servers[server]
                {
                    *max_concurrency = new;
                }
            }
        }
    }

    /// Frees a backend that has neither a route nor a server in use.
    fn release(&mut self, backend: usize) {
        let it = &mut self.all[backend];
        if it.route.is_none() && it.are_servers_free() {
            it.service = None;
        }
    }
}

/// Servers whose replicas left the endpoints, or have another address.
fn drains(backend: usize, it: &ServiceBackend, wanted: &DesiredService) -> Vec<BackendChange> {
    let servers = it.servers.iter().enumerate();
    let gone = servers.filter(|(_, server)| match server {
        BackendServer::Serving {
            replica, address, ..
        } => wanted.replicas.get(replica) != Some(address),
        BackendServer::Free | BackendServer::Draining { .. } => false,
    });
    gone.map(|(server, _)| BackendChange::Drain { backend, server })
        .collect()
}

/// Whether no server gets requests after these drains.
fn is_last(it: &ServiceBackend, drains: &[BackendChange]) -> bool {
    let serving = it
        .servers
        .iter()
        .filter(|it| matches!(it, BackendServer::Serving { .. }));
    serving.count() == drains.len()
}

/// Servers that drain and whose replicas have ended: their hosts may be gone, and their connections never end by themselves. A
/// replica that is ready at another address has ended at this one.
fn ended(backend: usize, it: &ServiceBackend, wanted: &DesiredService) -> Vec<BackendChange> {
    let servers = it.servers.iter().enumerate();
    let over = servers.filter(|(_, server)| match server {
        BackendServer::Draining { replica } => {
            !wanted.members.contains(replica) || wanted.replicas.contains_key(replica)
        }
        BackendServer::Free | BackendServer::Serving { .. } => false,
    });
    over.map(|(server, _)| BackendChange::Free { backend, server })
        .collect()
}

#[cfg(test)]
mod tests;
