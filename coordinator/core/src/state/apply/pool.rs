//! How a state changes by what is written of pools and policies.

use alloc::vec::Vec;

use sluice_common::cluster::ClusterSpec;
use sluice_common::id::{
    NodeName, PlatformName, PoolName, StepId, Subject, TemplateName, ValidationName,
};
use sluice_common::template::Template;
use sluice_common::validation::ValidationSpec;

use crate::model::cluster::Cluster;
use crate::model::pool::{Binding, Platform, Pool};
use crate::model::template::KeptTemplate;
use crate::model::validation::Validation;
use crate::record::{PlatformPut, PolicyPut, PoolPut};
use crate::state::State;

use super::{Fit, Mismatch, Pools, Thing, need};

impl State {
    pub(super) fn on_pool_put(&mut self, it: &PoolPut) -> Fit {
        let PoolPut { pool: name, spec } = it;
        let before = self.kept.pools.remove(name);
        let required = before.as_ref().map(|pool| pool.spec.require.clone());
        let made = before.as_ref().map_or(self.kept.seq, |pool| pool.made);
        let (platforms, policies) = before
            .map(|pool| (pool.platforms, pool.policies))
            .unwrap_or_default();
        let pool = Pool {
            name: name.clone(),
            spec: spec.clone(),
            version: self.kept.seq,
            made,
            platforms,
            policies,
        };
        self.index.put_terms(&pool);
        let changed = required.unwrap_or_default() != pool.spec.require;
        self.kept.pools.insert(name.clone(), pool);
        if changed {
            self.place_nodes_of(name);
        }
        Ok(())
    }

    /// Finds out anew of which platforms the nodes of a pool are, and ranks them.
    pub(in crate::state) fn sort_nodes_of(&mut self, name: &PoolName) {
        let hosts = self.index.market().pool(name);
        let hosts = hosts.map(|pool| pool.nodes());
        let hosts: Vec<NodeName> = hosts.into_iter().flatten().cloned().collect();
        for node in hosts.iter().filter_map(|host| self.kept.nodes.get(host)) {
            self.index.sort_node(node);
            self.index.place_node(node);
        }
    }

    /// Ranks the nodes of a pool anew that requires something else of them than before.
    pub(in crate::state) fn place_nodes_of(&mut self, name: &PoolName) {
        let hosts = self.index.market().pool(name).map(|pool| pool.nodes());
        let hosts: Vec<NodeName> = hosts.into_iter().flatten().cloned().collect();
        for node in hosts.iter().filter_map(|host| self.kept.nodes.get(host)) {
            self.index.place_node(node);
        }
    }

    pub(super) fn on_policy_put(&mut self, it: &PolicyPut) -> Fit {
        let PolicyPut {
            pool: name,
            subject,
            policy,
        } = it;
        let pool = pool_mut(&mut self.kept.pools, name)?;
        let binding = Binding {
            policy: policy.clone(),
            version: self.kept.seq,
        };
        pool.policies.insert(subject.clone(), binding);
        let market = self.index.market_mut();
        market.put_policy(name, subject, policy.clone());
        Ok(())
    }

    pub(super) fn on_policy_deleted(&mut self, name: &PoolName, subject: &Subject) -> Fit {
        let pool = pool_mut(&mut self.kept.pools, name)?;
        let known = pool.policies.remove(subject).is_some();
        need(known, || Mismatch::NoPolicy(name.clone(), subject.clone()))?;
        self.index.market_mut().remove_policy(name, subject);
        Ok(())
    }

    pub(super) fn on_platform_put(&mut self, it: &PlatformPut) -> Fit {
        let PlatformPut {
            pool: name,
            platform,
            terms,
        } = it;
        let pool = pool_mut(&mut self.kept.pools, name)?;
        let declared = Platform {
            terms: terms.clone(),
            version: self.kept.seq,
        };
        pool.platforms.insert(platform.clone(), declared);
        self.index.put_terms(pool);
        self.sort_nodes_of(name);
        Ok(())
    }

    pub(super) fn on_platform_deleted(&mut self, name: &PoolName, platform: &PlatformName) -> Fit {
        let pool = pool_mut(&mut self.kept.pools, name)?;
        let known = pool.platforms.remove(platform).is_some();
        need(known, || {
            Mismatch::NoPlatform(name.clone(), platform.clone())
        })?;
        self.index.put_terms(pool);
        self.sort_nodes_of(name);
        Ok(())
    }

    pub(super) fn on_pool_deleted(&mut self, name: &PoolName) -> Fit {
        let hosts = self.nodes_of(name).next();
        need(hosts.is_none(), || Mismatch::PoolHasNodes(name.clone()))?;
        let known = self.kept.pools.remove(name).is_some();
        need(known, || Thing::Pool(name.clone()).into())?;
        let promised: Vec<StepId> = self.market().nominated_in(name).cloned().collect();
        for step in &promised {
            self.kept.nominations.remove(step);
        }
        self.index.remove_pool(name);
        Ok(())
    }

    pub(super) fn on_template_put(&mut self, name: &TemplateName, terms: &Template) -> Fit {
        let kept = KeptTemplate {
            template: terms.clone(),
            version: self.kept.seq,
        };
        self.kept.templates.insert(name.clone(), kept);
        Ok(())
    }

    pub(super) fn on_template_deleted(&mut self, name: &TemplateName) -> Fit {
        let known = self.kept.templates.remove(name).is_some();
        need(known, || Thing::Template(name.clone()).into())
    }

    pub(super) fn on_cluster_put(&mut self, terms: &ClusterSpec) -> Fit {
        self.kept.cluster = Cluster {
            terms: terms.clone(),
            version: self.kept.seq,
        };
        Ok(())
    }

    pub(super) fn on_validation_put(
        &mut self,
        name: &ValidationName,
        terms: &ValidationSpec,
    ) -> Fit {
        let validation = Validation {
            terms: terms.clone(),
            version: self.kept.seq,
        };
        self.kept.validations.insert(name.clone(), validation);
        Ok(())
    }

    pub(super) fn on_validation_deleted(&mut self, name: &ValidationName) -> Fit {
        let known = self.kept.validations.remove(name).is_some();
        need(known, || Thing::Validation(name.clone()).into())
    }
}

fn pool_mut<'a>(pools: &'a mut Pools, name: &PoolName) -> Result<&'a mut Pool, Mismatch> {
    let pool = pools.get_mut(name);
    pool.ok_or_else(|| Thing::Pool(name.clone()).into())
}
