//! Applies records of pools and policies.

use alloc::vec::Vec;

use sluice_common::cluster::ClusterSpec;
use sluice_common::id::{
    NodeName, PlatformName, PoolName, StepId, Subject, TemplateName, ValidationName,
};
use sluice_common::template::Template;
use sluice_common::topology::TopologySpec;
use sluice_common::validation::ValidationSpec;

use crate::model::cluster::Cluster;
use crate::model::pool::{BoundPolicy, DeclaredPlatform, Pool};
use crate::model::template::StoredTemplate;
use crate::model::topology::Topology;
use crate::model::validation::Validation;
use crate::record::{PlatformPut, PolicyPut, PoolPut};
use crate::state::State;

use super::{ApplyResult, Mismatch, Pools, RecordRef, need};

impl State {
    pub(super) fn on_pool_put(&mut self, it: &PoolPut) -> ApplyResult {
        let PoolPut { pool: name, spec } = it;
        let before = self.stored.pools.remove(name);
        let required = before.as_ref().map(|pool| pool.spec.require.clone());
        let made = before.as_ref().map_or(self.stored.seq, |pool| pool.made);
        let (platforms, policies) = before
            .map(|pool| (pool.platforms, pool.policies))
            .unwrap_or_default();
        let pool = Pool {
            name: name.clone(),
            spec: spec.clone(),
            version: self.stored.seq,
            made,
            platforms,
            policies,
        };
        self.index.put_terms(&pool);
        let changed = required.unwrap_or_default() != pool.spec.require;
        self.stored.pools.insert(name.clone(), pool);
        if changed {
            self.place_nodes_of(name);
        }
        Ok(())
    }

    /// Finds the platforms of a pool's nodes again, and updates the nodes in the scheduler.
    pub(in crate::state) fn sort_nodes_of(&mut self, name: &PoolName) {
        let hosts = self.index.scheduler().pool(name);
        let hosts = hosts.map(|pool| pool.nodes());
        let hosts: Vec<NodeName> = hosts.into_iter().flatten().cloned().collect();
        for node in hosts.iter().filter_map(|host| self.stored.nodes.get(host)) {
            self.index.sort_node(node);
            self.index.place_node(node);
        }
    }

    /// Updates the nodes of a pool in the scheduler after a change of its required capabilities.
    pub(in crate::state) fn place_nodes_of(&mut self, name: &PoolName) {
        let hosts = self.index.scheduler().pool(name).map(|pool| pool.nodes());
        let hosts: Vec<NodeName> = hosts.into_iter().flatten().cloned().collect();
        for node in hosts.iter().filter_map(|host| self.stored.nodes.get(host)) {
            self.index.place_node(node);
        }
    }

    pub(super) fn on_policy_put(&mut self, it: &PolicyPut) -> ApplyResult {
        let PolicyPut {
            pool: name,
            subject,
            policy,
        } = it;
        let pool = pool_mut(&mut self.stored.pools, name)?;
        let binding = BoundPolicy {
            policy: policy.clone(),
            version: self.stored.seq,
        };
        pool.policies.insert(subject.clone(), binding);
        let scheduler = self.index.scheduler_mut();
        scheduler.put_policy(name, subject, policy.clone());
        Ok(())
    }

    pub(super) fn on_policy_deleted(&mut self, name: &PoolName, subject: &Subject) -> ApplyResult {
        let pool = pool_mut(&mut self.stored.pools, name)?;
        let known = pool.policies.remove(subject).is_some();
        need(known, || Mismatch::NoPolicy(name.clone(), subject.clone()))?;
        self.index.scheduler_mut().remove_policy(name, subject);
        Ok(())
    }

    pub(super) fn on_platform_put(&mut self, it: &PlatformPut) -> ApplyResult {
        let PlatformPut {
            pool: name,
            platform,
            terms,
        } = it;
        let pool = pool_mut(&mut self.stored.pools, name)?;
        let declared = DeclaredPlatform {
            terms: terms.clone(),
            version: self.stored.seq,
        };
        pool.platforms.insert(platform.clone(), declared);
        self.index.put_terms(pool);
        self.sort_nodes_of(name);
        Ok(())
    }

    pub(super) fn on_platform_deleted(
        &mut self,
        name: &PoolName,
        platform: &PlatformName,
    ) -> ApplyResult {
        let pool = pool_mut(&mut self.stored.pools, name)?;
        let known = pool.platforms.remove(platform).is_some();
        need(known, || {
            Mismatch::NoPlatform(name.clone(), platform.clone())
        })?;
        self.index.put_terms(pool);
        self.sort_nodes_of(name);
        Ok(())
    }

    pub(super) fn on_pool_deleted(&mut self, name: &PoolName) -> ApplyResult {
        let hosts = self.nodes_of(name).next();
        let held = self.attempts_on(&NodeName::of_pool(name)).next();
        need(hosts.is_none() && held.is_none(), || {
            Mismatch::PoolHasNodes(name.clone())
        })?;
        let known = self.stored.pools.remove(name).is_some();
        need(known, || RecordRef::Pool(name.clone()).into())?;
        let promised: Vec<StepId> = self.scheduler().nominated_in(name).cloned().collect();
        for step in &promised {
            self.stored.nominations.remove(step);
        }
        self.stored.lost_work.remove(name);
        self.index.remove_pool(name);
        Ok(())
    }

    pub(super) fn on_template_put(&mut self, name: &TemplateName, terms: &Template) -> ApplyResult {
        let stored = StoredTemplate {
            template: terms.clone(),
            version: self.stored.seq,
        };
        self.stored.templates.insert(name.clone(), stored);
        Ok(())
    }

    pub(super) fn on_template_deleted(&mut self, name: &TemplateName) -> ApplyResult {
        let known = self.stored.templates.remove(name).is_some();
        need(known, || RecordRef::Template(name.clone()).into())
    }

    pub(super) fn on_cluster_put(&mut self, terms: &ClusterSpec) -> ApplyResult {
        self.stored.cluster = Cluster {
            terms: terms.clone(),
            version: self.stored.seq,
        };
        Ok(())
    }

    pub(super) fn on_topology_put(&mut self, terms: &TopologySpec) -> ApplyResult {
        self.set_topology(Topology {
            terms: terms.clone(),
            version: self.stored.seq,
        });
        Ok(())
    }

    /// Sets the topology, and finds the domains of all nodes again.
    pub(in crate::state) fn set_topology(&mut self, topology: Topology) {
        self.index.put_topology(&topology.terms);
        self.stored.topology = topology;
        for node in self.stored.nodes.values() {
            self.index.sort_node(node);
            self.index.place_node(node);
        }
    }

    pub(super) fn on_validation_put(
        &mut self,
        name: &ValidationName,
        terms: &ValidationSpec,
    ) -> ApplyResult {
        let validation = Validation {
            terms: terms.clone(),
            version: self.stored.seq,
        };
        self.stored.validations.insert(name.clone(), validation);
        Ok(())
    }

    pub(super) fn on_validation_deleted(&mut self, name: &ValidationName) -> ApplyResult {
        let known = self.stored.validations.remove(name).is_some();
        need(known, || RecordRef::Validation(name.clone()).into())
    }
}

fn pool_mut<'a>(pools: &'a mut Pools, name: &PoolName) -> Result<&'a mut Pool, Mismatch> {
    let pool = pools.get_mut(name);
    pool.ok_or_else(|| RecordRef::Pool(name.clone()).into())
}
