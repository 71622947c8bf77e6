//! Contents of the cluster that `sluice dev` starts: this machine as the one host, or the hosts, pools, policies and steps of files.
//!
//! If a file declares hosts, the machine itself does not join: the pools are then exactly what is declared. A pool
//! without policies is given to the command line's own subject.

use std::collections::BTreeSet;

use sluice_common::api::{ApplyRequest, NodeView, PutDocument};
use sluice_common::cluster::ClusterSpec;
use sluice_common::document::{PolicyId, SpecDocument};
use sluice_common::pool::{PolicySpec, PoolSpec};
use sluice_common::request::StepRequest;
use sluice_common::state::NodeState;

use super::host::DevHost;
use super::layout::{self, Layout};
use super::{POOL, SUBJECT, declared_host, refused};
use crate::args::DevArgs;
use crate::client::Client;
use crate::documents::{self, Document};
use crate::failure::Failure;

/// Contents of the cluster to start.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) hosts: Vec<DevHost>,
    /// Pools and platforms.
    pools: Vec<PutDocument>,
    policies: Vec<(PolicyId, PolicySpec)>,
    steps: Vec<StepRequest>,
    services: Vec<StepRequest>,
    cluster: Vec<ClusterSpec>,
    /// Documents that pools may name, and the topology.
    documents: Vec<PutDocument>,
    /// Roles and bindings.
    access: Vec<PutDocument>,
}

impl Plan {
    /// Reads the files.
    pub(super) fn of(args: &DevArgs, layout: &Layout) -> Result<Self, Failure> {
        let mut plan = Self {
            hosts: Vec::new(),
            pools: Vec::new(),
            policies: Vec::new(),
            steps: Vec::new(),
            services: Vec::new(),
            cluster: Vec::new(),
            documents: Vec::new(),
            access: Vec::new(),
        };
        let mut hosts = Vec::new();
        for file in &args.file {
            let text = documents::read_file(file)?;
            for document in documents::read(&text, &documents::shown(file))? {
                match document {
                    Document::Host(host) => hosts.push(*host),
                    Document::Put(document) => plan.add(*document),
                    Document::Step(step) => plan.steps.push(*step),
                    Document::Foreign(_) => {
                        return Err(Failure::Usage(format!(
                            "{}: it moves nodes or limits subjects of a cluster that runs: hand it to `sluice apply -f`",
                            documents::shown(file)
                        )));
                    }
                    Document::Service(service) => plan.services.push(*service),
                    // Read-only objects are made by what they belong to.
                    Document::ReadOnly(_) => {}
                }
            }
        }
        for host in declared_host::check(hosts).map_err(Failure::Failed)? {
            let place = layout.made_host(host.name.as_str()).map_err(refused)?;
            plan.hosts.push(DevHost::made(host, place));
        }
        if plan.hosts.is_empty() {
            let name = nix::unistd::gethostname().unwrap_or_default();
            let place = layout.this_host().map_err(refused)?;
            plan.hosts
                .push(DevHost::this(layout::node_name(&name), place));
        }
        Ok(plan)
    }

    fn add(&mut self, document: PutDocument) {
        match document {
            PutDocument::Pool(_) | PutDocument::Platform(_) => self.pools.push(document),
            PutDocument::Policy(SpecDocument {
                id: names, spec, ..
            }) => self.policies.push((names, spec)),
            PutDocument::Cluster(it) => self.cluster.push(it.spec),
            PutDocument::Template { .. }
            | PutDocument::Validation(_)
            | PutDocument::Topology(_) => {
                self.documents.push(document);
            }
            PutDocument::Role(_) | PutDocument::Binding(_) => self.access.push(document),
        }
    }

    /// Returns the name of this machine, if it is a host.
    pub(super) fn this_host(&self) -> Option<&str> {
        let host = self.hosts.iter().find(|host| !host.is_made());
        host.map(|host| host.name.as_str())
    }

    /// Makes the pools and the policies.
    pub(super) fn put_terms(&self, client: &Client) -> Result<(), String> {
        if !self.documents.is_empty() {
            let request = ApplyRequest {
                put: self.documents.clone(),
                ..ApplyRequest::default()
            };
            let made = client.apply(&request, false, false);
            made.map_err(|e| e.to_string())?;
        }
        self.put_pools(client)?;
        let declared = self.pools.iter().filter_map(|document| match document {
            PutDocument::Pool(it) => Some(it.id.name.as_str()),
            _ => None,
        });
        let declared: BTreeSet<&str> = declared.collect();
        let joined: BTreeSet<&str> = self.hosts.iter().map(DevHost::pool).collect();
        for pool in joined.difference(&declared).filter(|pool| **pool != POOL) {
            // A pool of an earlier start is left as its admin changed it since.
            if client.pool(pool).is_ok() {
                continue;
            }
            let put = client.put_pool(pool, &PoolSpec::of_new_pool());
            put.map_err(|e| format!("pool `{pool}`: {e}"))?;
        }
        for (PolicyId { pool, subject }, policy) in &self.policies {
            let put = client.put_policy(pool, subject, policy);
            put.map_err(|e| format!("policy of `{subject}`: {e}"))?;
        }
        let bound: BTreeSet<&str> = self
            .policies
            .iter()
            .map(|(names, _)| names.pool.as_str())
            .collect();
        for pool in joined
            .union(&declared)
            .filter(|pool| !bound.contains(**pool))
        {
            let put = client.put_policy(pool, SUBJECT, &PolicySpec::default());
            put.map_err(|e| format!("policy of `{SUBJECT}`: {e}"))?;
        }
        for terms in &self.cluster {
            let put = client.put_cluster(terms);
            put.map_err(|e| format!("cluster: {e}"))?;
        }
        self.put_access(client)
    }

    fn put_access(&self, client: &Client) -> Result<(), String> {
        if self.access.is_empty() {
            return Ok(());
        }
        let request = ApplyRequest {
            put: self.access.clone(),
            ..ApplyRequest::default()
        };
        let put = client.apply(&request, false, false);
        put.map_err(|e| format!("roles and bindings: {e}"))?;
        Ok(())
    }

    /// Applies all at once, because a pool may name a platform of another document as its default.
    fn put_pools(&self, client: &Client) -> Result<(), String> {
        let request = ApplyRequest {
            put: self.pools.clone(),
            ..ApplyRequest::default()
        };
        let made = client.apply(&request, false, false);
        made.map_err(|e| format!("pools: {e}"))?;
        Ok(())
    }

    /// Whether every host takes work.
    pub(super) fn are_ready(&self, nodes: &[NodeView]) -> bool {
        let ready = |host: &DevHost| {
            let node = nodes.iter().find(|node| node.name == host.name);
            node.is_some_and(|node| node.state == NodeState::Ready)
        };
        self.hosts.iter().all(ready)
    }

    /// Submits the steps of the files, and applies their services.
    pub(super) fn submit(&self, client: &Client) -> Result<(), String> {
        for step in &self.steps {
            let mut step = step.clone();
            step.subject = step.subject.or_else(|| Some(SUBJECT.to_owned()));
            client.submit(&step).map_err(|e| e.to_string())?;
        }
        for service in &self.services {
            let mut service = service.clone();
            service.subject = service.subject.or_else(|| Some(SUBJECT.to_owned()));
            let name = service.name.clone().unwrap_or_default();
            let put = client.put_service(&name, &service);
            put.map_err(|e| format!("service `{name}`: {e}"))?;
        }
        Ok(())
    }
}
