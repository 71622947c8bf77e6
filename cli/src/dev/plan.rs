//! What is to be there: this machine as the one host, or the hosts, pools, policies and steps of files.
//!
//! Where a file declares hosts, the machine itself does not join: the pools are then exactly what is declared. A pool in
//! which no file binds a subject is given to the command line's own, all of it.

use std::collections::BTreeSet;

use sluice_common::api::{ApplyRequest, NodeView, PolicyRequest, PoolRequest, PutDocument};
use sluice_common::cluster::ClusterTerms;
use sluice_common::id::{PlatformName, PoolName, Subject};
use sluice_common::platform::terms::PlatformTerms;
use sluice_common::request::StepRequest;
use sluice_common::state::NodeState;

use super::host::Host;
use super::layout::{self, Layout};
use super::{POOL, SUBJECT, made, refused};
use crate::args::DevArgs;
use crate::client::Client;
use crate::documents::{self, Document};
use crate::failure::Failure;

/// What is to be there.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) hosts: Vec<Host>,
    pools: Vec<(PoolName, PoolRequest)>,
    platforms: Vec<(PoolName, PlatformName, PlatformTerms)>,
    policies: Vec<(PoolName, Subject, PolicyRequest)>,
    steps: Vec<StepRequest>,
    cluster: Vec<ClusterTerms>,
    /// What the pools may name.
    documents: Vec<PutDocument>,
    /// Roles and bindings.
    access: Vec<PutDocument>,
}

impl Plan {
    /// What the files say.
    pub(super) fn of(args: &DevArgs, layout: &Layout) -> Result<Self, Failure> {
        let mut plan = Self {
            hosts: Vec::new(),
            pools: Vec::new(),
            platforms: Vec::new(),
            policies: Vec::new(),
            steps: Vec::new(),
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
                    Document::Pool(pool, terms) => plan.pools.push((pool, *terms)),
                    Document::Platform(pool, name, terms) => {
                        plan.platforms.push((pool, name, *terms));
                    }
                    Document::Policy(pool, subject, policy) => {
                        plan.policies.push((pool, subject, policy));
                    }
                    Document::Template(name, template) => {
                        plan.documents.push(PutDocument::template(name, *template));
                    }
                    Document::Cluster(terms) => plan.cluster.push(terms),
                    Document::Validation(name, terms) => {
                        plan.documents.push(PutDocument::validation(name, terms));
                    }
                    Document::Role(name, terms) => {
                        plan.access.push(PutDocument::role(name, terms));
                    }
                    Document::Binding(name, terms) => {
                        plan.access.push(PutDocument::binding(name, terms));
                    }
                    Document::Step(step) => plan.steps.push(*step),
                    // It is made by what makes it there.
                    Document::Told(_) => {}
                }
            }
        }
        for host in made::check(hosts).map_err(Failure::Failed)? {
            let place = layout.made_host(host.name.as_str()).map_err(refused)?;
            plan.hosts.push(Host::made(host, place));
        }
        if plan.hosts.is_empty() {
            let name = nix::unistd::gethostname().unwrap_or_default();
            let place = layout.this_host().map_err(refused)?;
            plan.hosts.push(Host::this(layout::node_name(&name), place));
        }
        Ok(plan)
    }

    /// The name of this machine, where it is a host.
    pub(super) fn this_host(&self) -> Option<&str> {
        let host = self.hosts.iter().find(|host| !host.is_made());
        host.map(|host| host.name.as_str())
    }

    /// Makes the pools and binds the subjects.
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
        let declared: BTreeSet<&str> = self.pools.iter().map(|(pool, _)| pool.as_str()).collect();
        let joined: BTreeSet<&str> = self.hosts.iter().map(Host::pool).collect();
        for pool in joined.difference(&declared).filter(|pool| **pool != POOL) {
            // One of an earlier start is as its admin has made it since.
            if client.pool(pool).is_ok() {
                continue;
            }
            let put = client.put_pool(pool, &PoolRequest::default());
            put.map_err(|e| format!("pool `{pool}`: {e}"))?;
        }
        for (pool, subject, policy) in &self.policies {
            let put = client.put_policy(pool.as_str(), subject.as_str(), policy);
            put.map_err(|e| format!("policy of `{subject}`: {e}"))?;
        }
        let bound: BTreeSet<&str> = self
            .policies
            .iter()
            .map(|(pool, ..)| pool.as_str())
            .collect();
        for pool in joined
            .union(&declared)
            .filter(|pool| !bound.contains(**pool))
        {
            let put = client.put_policy(pool, SUBJECT, &PolicyRequest::default());
            put.map_err(|e| format!("policy of `{SUBJECT}`: {e}"))?;
        }
        for terms in &self.cluster {
            let put = client.put_cluster(terms);
            put.map_err(|e| format!("cluster: {e}"))?;
        }
        if !self.access.is_empty() {
            let put = self.access.clone();
            let request = ApplyRequest {
                put,
                ..ApplyRequest::default()
            };
            let put = client.apply(&request, false, false);
            put.map_err(|e| format!("roles and bindings: {e}"))?;
        }
        Ok(())
    }

    /// All at once: a pool may name a platform as its default that stands in another document.
    fn put_pools(&self, client: &Client) -> Result<(), String> {
        let pools = self.pools.iter().cloned();
        let pools = pools.map(|(pool, terms)| PutDocument::pool(pool, terms));
        let platforms = self.platforms.iter().cloned();
        let platforms =
            platforms.map(|(pool, name, terms)| PutDocument::platform(pool, name, terms));
        let request = ApplyRequest {
            put: pools.chain(platforms).collect(),
            ..ApplyRequest::default()
        };
        let made = client.apply(&request, false, false);
        made.map_err(|e| format!("pools: {e}"))?;
        Ok(())
    }

    /// Whether every host takes work.
    pub(super) fn are_ready(&self, nodes: &[NodeView]) -> bool {
        let ready = |host: &Host| {
            let node = nodes.iter().find(|node| node.name == host.name);
            node.is_some_and(|node| node.state == NodeState::Ready)
        };
        self.hosts.iter().all(ready)
    }

    /// Submits the steps of the files.
    pub(super) fn submit(&self, client: &Client) -> Result<(), String> {
        for step in &self.steps {
            let mut step = step.clone();
            step.subject = step.subject.or_else(|| Some(SUBJECT.to_owned()));
            client.submit(&step).map_err(|e| e.to_string())?;
        }
        Ok(())
    }
}
