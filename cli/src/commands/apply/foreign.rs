//! Documents of other tools that have none of ours: nodes of a pool, which are moved there, quotas, which become the
//! limit of a subject in each pool, and pools of steps that name none, which become settings of the cluster. What they come to depends on what the cluster has, so it is read first.

use std::collections::BTreeSet;

use sluice_common::api::{
    ClusterView, DeleteDocument, MoveRequest, NodeView, PolicyView, PoolView, PutDocument,
};
use sluice_common::cluster::{ClusterSpec, DefaultPool};
use sluice_common::document::{ClusterObjectId, PolicyId, SingletonId, SpecDocument};
use sluice_common::pool::{PolicySpec, PoolSpec};

use super::super::drain::tell;
use super::super::elsewhere::spec_of;
use super::super::move_nodes::told;
use super::super::outage_note;
use super::ChangeOptions;
use crate::client::{Client, RetryLimit};
use crate::documents::DocumentLocation;
use crate::elsewhere::{ForeignDocument, PoolNodes, Quota, gpuctl};
use crate::failure::{FAILED, Failure};
use crate::out::Out;
use crate::render::safe;

/// Changes by documents of other tools beside those by documents of ours.
#[derive(Default)]
pub(super) struct ForeignChanges {
    nodes: Vec<(PoolNodes, DocumentLocation)>,
    quotas: Vec<(Quota, DocumentLocation)>,
    default_pools: Vec<(DefaultPool, DocumentLocation)>,
    /// Nodes of the cluster, if any are listed.
    known: Vec<NodeView>,
}

/// Returns the deletion that a document stands for.
pub(super) fn delete(document: &ForeignDocument) -> Result<DeleteDocument, String> {
    match document {
        ForeignDocument::PoolNodes(PoolNodes { pool, .. }) => {
            Ok(DeleteDocument::Pool { name: pool.clone() })
        }
        ForeignDocument::DefaultPool(_) => Err(
            "resource_manager: the pools of steps that name none cannot be deleted: apply a `kind: cluster` without them"
                .to_owned(),
        ),
        ForeignDocument::Quota(Quota { subject, .. }) => {
            let subject = safe(subject);
            Err(format!(
                "namespace.{subject}: a quota is the limit of a policy in each pool: `sluice delete policy POOL/{subject}`"
            ))
        }
    }
}

impl ForeignChanges {
    pub(super) fn add(&mut self, document: ForeignDocument, place: DocumentLocation) {
        match document {
            ForeignDocument::PoolNodes(nodes) => self.nodes.push((nodes, place)),
            ForeignDocument::Quota(quota) => self.quotas.push((quota, place)),
            ForeignDocument::DefaultPool(pools) => self.default_pools.push((pools, place)),
        }
    }

    pub(super) fn has_nodes(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// Checks that every listed node exists and is listed once, before anything is changed, and warns of hardware that
    /// differs from what the file declares.
    pub(super) fn check(&mut self, client: &Client, out: Out) -> Result<(), Failure> {
        if self.nodes.is_empty() {
            return Ok(());
        }
        let read = || client.nodes();
        self.known = client.keep_trying(RetryLimit::READ, outage_note(out), read)?;
        let known = &self.known;
        let mut seen = BTreeSet::new();
        for (name, declared, pool, place) in self.each() {
            let shown = safe(name);
            let field = format!("nodes.{shown}");
            let at = place.of(Some(&field), name);
            let Some(node) = known.iter().find(|node| node.name == name) else {
                return Err(Failure::Failed(format!(
                    "{at}: {field}: there is no node `{shown}`: let the host join (`sluice token create --pool {}`), or \
                     remove it from the file; nothing was changed",
                    safe(pool)
                )));
            };
            if !seen.insert(name) {
                return Err(Failure::Failed(format!(
                    "{at}: {field}: it is in two pools: leave it in one of them; nothing was changed"
                )));
            }
            if let Some(difference) = declared.and_then(|kind| gpuctl::difference(kind, node)) {
                out.warning(&format!(
                    "{at}: {field}.gpu-type: {difference}; the host counts"
                ));
            }
        }
        for (PoolNodes { pool, nodes, .. }, place) in &self.nodes {
            let others = known.iter().filter(|node| node.pool == *pool);
            for node in others.filter(|node| !nodes.contains_key(&node.name)) {
                let node = safe(&node.name);
                out.notice(&format!(
                    "{place}: nodes: {node} is in pool {} too and stays there: `sluice move node {node} --pool default` takes it out",
                    safe(pool)
                ));
            }
        }
        Ok(())
    }

    fn each(&self) -> impl Iterator<Item = (&str, Option<&str>, &str, &DocumentLocation)> {
        self.nodes
            .iter()
            .flat_map(|(PoolNodes { pool, nodes, .. }, place)| {
                let each = nodes.iter();
                each.map(move |(name, kind)| (name.as_str(), kind.as_deref(), pool.as_str(), place))
            })
    }

    /// Returns the documents that documents of other tools come to: settings of the cluster, pools that are not there or have another
    /// description, and a policy for each quota and pool, of those that exist and those that are put. What a pool or a
    /// policy has besides stays.
    pub(super) fn documents(
        &self,
        client: &Client,
        put: &[PutDocument],
        out: Out,
    ) -> Result<Vec<(PutDocument, DocumentLocation)>, Failure> {
        let mut documents = Vec::new();
        for (pools, place) in &self.default_pools {
            let read = || client.cluster();
            let known = client.keep_trying(RetryLimit::READ, outage_note(out), read)?;
            documents.push((cluster(pools, known), place.clone()));
        }
        if self.nodes.is_empty() && self.quotas.is_empty() {
            return Ok(documents);
        }
        let read = || client.pools();
        let known = client.keep_trying(RetryLimit::READ, outage_note(out), read)?;
        let mut names: BTreeSet<String> = known.iter().map(|pool| pool.name.clone()).collect();
        names.extend(put.iter().filter_map(|document| match document {
            PutDocument::Pool(pool) => Some(pool.id.name.clone()),
            _ => None,
        }));
        for (nodes, place) in &self.nodes {
            let is_put =
                names.contains(&nodes.pool) && known.iter().all(|it| it.name != nodes.pool);
            let pool = pool(nodes, &known).filter(|_| !is_put);
            documents.extend(pool.map(|pool| (pool, place.clone())));
            names.insert(nodes.pool.clone());
        }
        for pool in names.iter().filter(|_| !self.quotas.is_empty()) {
            documents.extend(self.policies_in(client, pool, out)?);
        }
        for (Quota { subject, .. }, place) in &self.quotas {
            let names: Vec<String> = names.iter().map(|name| safe(name)).collect();
            out.warning(&place.noted(&format!(
                "namespace.{}: a quota there holds over all pools, a limit here in each by itself: {}",
                safe(subject),
                names.join(", ")
            )));
        }
        Ok(documents)
    }

    /// Returns the policies of quotas in a pool.
    fn policies_in(
        &self,
        client: &Client,
        pool: &str,
        out: Out,
    ) -> Result<Vec<(PutDocument, DocumentLocation)>, Failure> {
        let read = || match client.policies(pool) {
            // It is made by the same call.
            Err(error) if error.status() == Some(404) => Ok(Vec::new()),
            read => read,
        };
        let known = client.keep_trying(RetryLimit::READ, outage_note(out), read)?;
        let policies = self.quotas.iter().map(|(quota, place)| {
            let before = known.iter().find(|it| it.subject == quota.subject);
            (policy(quota, pool, before), place.clone())
        });
        Ok(policies.collect())
    }

    /// Moves the listed nodes, each even if others fail.
    pub(super) fn move_nodes(
        &self,
        client: &Client,
        options: ChangeOptions,
        out: Out,
    ) -> Result<u8, Failure> {
        let mut code = 0;
        for (name, _, pool, place) in self.each() {
            let known = self.known.iter().find(|node| node.name == name);
            let Some(node) = known else { continue };
            let told = match moved(client, node, pool, options, out) {
                Ok(told) => told,
                Err(failure) => {
                    code = FAILED;
                    out.error(&format!("{place}: nodes.{}: {failure}", safe(name)));
                    continue;
                }
            };
            match out.format().is_text() {
                true => out.result(&(told + "\n"))?,
                false => out.notice(&told),
            }
        }
        Ok(code)
    }
}

fn moved(
    client: &Client,
    node: &NodeView,
    pool: &str,
    options: ChangeOptions,
    out: Out,
) -> Result<String, Failure> {
    if node.pool == pool {
        return Ok(told(node, pool, out));
    }
    if options.dry_run {
        let (name, from, to) = (safe(&node.name), safe(&node.pool), safe(pool));
        return Ok(format!(
            "{name} would move from pool {from} to {to} (dry run)"
        ));
    }
    let request = MoveRequest {
        pool: pool.to_owned(),
        reason: None,
        deadline: None,
    };
    let call = || client.move_node(&node.name, &request);
    let node = client.keep_trying(RetryLimit::CHANGE, outage_note(out), call)?;
    if node.pool != pool {
        tell(client, &node, out)?;
    }
    Ok(told(&node, pool, out))
}

/// Returns the document of a pool, if it is not there or has another description.
fn pool(nodes: &PoolNodes, known: &[PoolView]) -> Option<PutDocument> {
    let before = known.iter().find(|pool| pool.name == nodes.pool);
    let (mut spec, version) = match before {
        Some(view) => (spec_of(view.clone()), view.version),
        None => (PoolSpec::of_new_pool(), 0),
    };
    let is_same = |text: &String| *text == spec.description;
    if before.is_some() && nodes.description.as_ref().is_none_or(is_same) {
        return None;
    }
    spec.description = nodes.description.clone().unwrap_or_default();
    let name = nodes.pool.clone();
    Some(PutDocument::Pool(SpecDocument {
        version: Some(version),
        ..SpecDocument::new(ClusterObjectId { name }, Box::new(spec))
    }))
}

/// Returns the settings of the cluster with these pools of steps that name none. What else is set stays.
fn cluster(pools: &DefaultPool, known: ClusterView) -> PutDocument {
    let default_pool = DefaultPool {
        cpu: pools.cpu.clone().or(known.default_pool.cpu),
        gpu: pools.gpu.clone().or(known.default_pool.gpu),
    };
    let subjects = known.subjects;
    let spec = ClusterSpec {
        default_pool,
        subjects,
    };
    PutDocument::Cluster(SpecDocument {
        version: Some(known.version),
        ..SpecDocument::new(SingletonId {}, spec)
    })
}

/// Returns the policy of a subject in a pool with the limit of a quota.
fn policy(
    Quota { subject, limit }: &Quota,
    pool: &str,
    before: Option<&PolicyView>,
) -> PutDocument {
    let id = PolicyId {
        pool: pool.to_owned(),
        subject: subject.clone(),
    };
    let spec = before.map_or_else(PolicySpec::default, |view| view.spec.clone());
    let limit = limit.clone();
    PutDocument::Policy(SpecDocument {
        version: Some(before.map_or(0, |view| view.version)),
        ..SpecDocument::new(id, PolicySpec { limit, ..spec })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pools_of_steps_that_name_none_leave_the_other_settings_of_the_cluster() {
        let known = json!({"default_pool": {"cpu": "a", "gpu": "b"}, "version": 7,
            "subjects": {"alice": {"gpu": "c"}}});
        let pools = serde_json::from_value(json!({"gpu": "d"})).unwrap();
        let PutDocument::Cluster(put) = cluster(&pools, serde_json::from_value(known).unwrap())
        else {
            panic!("it is no document of the cluster");
        };
        assert_eq!(put.version, Some(7));
        assert_eq!(
            serde_json::to_value(&put.spec).unwrap(),
            json!({"default_pool": {"cpu": "a", "gpu": "d"}, "subjects": {"alice": {"gpu": "c"}}})
        );
    }
}
