//! Applies records of nodes: reports, connections, and actions of admins.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};

use sluice_common::carving::CarveOrder;
use sluice_common::gpu_state::GpuStates;
use sluice_common::id::{NodeName, PoolName};
use sluice_common::inventory::Inventory;
use sluice_common::state::NodeState;
use sluice_common::time::Time;

use crate::model::carving::{Carving, FailedCarving};
use crate::model::node::{Cordon, Drain, GpuCordon, Node, PoolMove};
use crate::record::{CarvingFailed, GpusCordoned, NodeDraining, NodeLabelled, NodeReported};
use crate::state::State;

use super::{ApplyResult, Mismatch, RecordRef, need};

type Nodes = BTreeMap<NodeName, Node>;

fn node_mut<'a>(nodes: &'a mut Nodes, name: &NodeName) -> Result<&'a mut Node, Mismatch> {
    let node = nodes.get_mut(name);
    node.ok_or_else(|| RecordRef::Node(name.clone()).into())
}

impl State {
    /// Returns the pool of a node by the rule of earlier releases: the one of its config, unless an admin had moved
    /// it.
    fn pool_by_config(&self, name: &NodeName, config: &PoolName) -> (PoolName, Option<PoolName>) {
        let moved = self.stored.nodes.get(name);
        let moved = moved.filter(|node| node.pool_of_config.is_some() && node.pool != *config);
        match moved.map(|node| node.pool.clone()) {
            Some(moved) => (moved, Some(config.clone())),
            None => (config.clone(), None),
        }
    }

    pub(super) fn on_node_reported(&mut self, at: Time, it: &NodeReported) -> ApplyResult {
        let NodeReported {
            node: name,
            pool,
            pool_of_config,
            labels,
            address,
            version,
            boot_id,
            inventory,
        } = it;
        let (pool, of_config) = match pool_of_config {
            Some(config) => (pool.clone(), Some(config.clone()).filter(|it| it != pool)),
            None => self.pool_by_config(name, pool),
        };
        need(self.stored.pools.contains_key(&pool), || {
            RecordRef::Pool(pool.clone()).into()
        })?;
        let before = self.stored.nodes.remove(name);
        if let Some(before) = &before {
            self.index.unsettle_node(before);
        }
        let unlisted_instances = before
            .as_ref()
            .map(|n| self.unlisted_instances(n, inventory));
        let set = before.as_ref().map(|n| n.labels_set.clone());
        let mut node = Node {
            name: name.clone(),
            pool,
            pool_of_config: of_config,
            labels: labels.clone(),
            address: address.clone(),
            version: version.clone(),
            boot_id: boot_id.clone(),
            inventory: inventory.clone(),
            state: before.as_ref().map_or(NodeState::Unreachable, |n| n.state),
            state_since: before.as_ref().map_or(at, |n| n.state_since),
            joined_at: before.as_ref().map_or(at, |n| n.joined_at),
            labels_set: set.unwrap_or_default(),
            leaving: before.as_ref().is_some_and(|n| n.leaving),
            gpus: before.as_ref().map(|n| n.gpus.clone()).unwrap_or_default(),
            gpu_cordons: before
                .as_ref()
                .map(|n| n.gpu_cordons.clone())
                .unwrap_or_default(),
            unlisted_instances: unlisted_instances.unwrap_or_default(),
            carvings: before
                .as_ref()
                .map(|n| n.carvings.clone())
                .unwrap_or_default(),
            unsupervised: before.as_ref().and_then(|n| n.unsupervised.clone()),
            cordon: before.and_then(|n| n.cordon),
        };
        forget_failed_carvings(&mut node);
        self.index.settle_node(&node);
        self.index.place_node(&node);
        self.stored.nodes.insert(name.clone(), node);
        Ok(())
    }

    /// The GPUs of MIG instances that steps hold and that a new inventory does not list.
    fn unlisted_instances(&self, before: &Node, now: &Inventory) -> BTreeMap<String, String> {
        let is_listed = |unit: &str| now.gpus.iter().any(|gpu| gpu.uuid == unit);
        let held = self.index.gpus_held_on(&before.name);
        held.filter(|(unit, _)| !is_listed(unit))
            .filter_map(|(unit, _)| Some((unit.clone(), before.parent_of(unit)?.to_string())))
            .collect()
    }

    pub(super) fn on_node(&mut self, at: Time, name: &NodeName, state: NodeState) -> ApplyResult {
        let node = node_mut(&mut self.stored.nodes, name)?;
        need(node.state != state, || {
            Mismatch::NodeState(name.clone(), state)
        })?;
        node.state = state;
        node.state_since = at;
        node.unsupervised = None;
        match state {
            // A node that is heard again is not deleted.
            NodeState::Ready | NodeState::Reconciling | NodeState::Unsupervised => {
                node.leaving = false;
            }
            NodeState::Unreachable | NodeState::Lost => {}
        }
        self.index.place_node(node);
        Ok(())
    }

    /// Sets the state and the reason. The reason may change while the state stays.
    pub(super) fn on_node_unsupervised(
        &mut self,
        at: Time,
        name: &NodeName,
        why: &str,
    ) -> ApplyResult {
        if self.node(name).map(|node| node.state) != Some(NodeState::Unsupervised) {
            self.on_node(at, name, NodeState::Unsupervised)?;
        }
        node_mut(&mut self.stored.nodes, name)?.unsupervised = Some(why.into());
        Ok(())
    }

    /// Updates nodes in the scheduler whose granted resources have changed.
    pub(super) fn place_nodes<'a>(
        &mut self,
        names: impl Iterator<Item = &'a NodeName>,
    ) -> ApplyResult {
        // The rest are hosts: what stands for a pool without any changes with its terms alone.
        for name in names.filter(|name| !name.is_of_pool()) {
            let node = self.stored.nodes.get(name);
            let node = node.ok_or_else(|| RecordRef::Node(name.clone()))?;
            self.index.place_node(node);
        }
        Ok(())
    }

    pub(super) fn on_node_cordoned(
        &mut self,
        at: Time,
        name: &NodeName,
        reason: &str,
    ) -> ApplyResult {
        let node = node_mut(&mut self.stored.nodes, name)?;
        close(node, at, reason);
        self.index.place_node(node);
        Ok(())
    }

    pub(super) fn on_node_draining(&mut self, at: Time, it: &NodeDraining) -> ApplyResult {
        let NodeDraining {
            node: name,
            reason,
            deadline,
        } = it;
        let deadline = *deadline;
        let node = node_mut(&mut self.stored.nodes, name)?;
        let cordon = close(node, at, reason);
        let empty_since = cordon.drain.and_then(|drain| drain.empty_since);
        cordon.drain = Some(Drain {
            deadline,
            empty_since,
        });
        self.index.place_node(node);
        Ok(())
    }

    pub(super) fn on_node_drained(&mut self, at: Time, name: &NodeName) -> ApplyResult {
        let empty = self.index.attempts_on(name).next().is_none();
        let node = node_mut(&mut self.stored.nodes, name)?;
        let drain = node.cordon.as_mut().and_then(|c| c.drain.as_mut());
        let drain = drain.filter(|drain| empty && drain.empty_since.is_none());
        let drain = drain.ok_or_else(|| Mismatch::NotDraining(name.clone()))?;
        drain.empty_since = Some(at);
        Ok(())
    }

    pub(super) fn on_node_uncordoned(&mut self, name: &NodeName) -> ApplyResult {
        let node = node_mut(&mut self.stored.nodes, name)?;
        let closed = node.cordon.take().is_some();
        need(closed, || Mismatch::NotCordoned(name.clone()))?;
        self.index.place_node(node);
        Ok(())
    }

    pub(super) fn on_node_moving(
        &mut self,
        at: Time,
        name: &NodeName,
        pool: &PoolName,
    ) -> ApplyResult {
        need(self.stored.pools.contains_key(pool), || {
            RecordRef::Pool(pool.clone()).into()
        })?;
        let node = node_mut(&mut self.stored.nodes, name)?;
        let reason = node.cordon.as_ref().map(|cordon| cordon.reason.clone());
        let before = node.cordon.as_ref().map(|cordon| cordon.moves.as_ref());
        let opens = before.is_none_or(|moves| moves.is_some_and(|moves| moves.opens));
        let cordon = close(node, at, &reason.unwrap_or_default());
        let pool = pool.clone();
        cordon.moves = Some(PoolMove { pool, opens });
        self.index.place_node(node);
        Ok(())
    }

    pub(super) fn on_node_moved(&mut self, name: &NodeName, pool: &PoolName) -> ApplyResult {
        let empty = self.index.attempts_on(name).next().is_none();
        let known = self.stored.pools.contains_key(pool);
        let node = node_mut(&mut self.stored.nodes, name)?;
        need(empty && known && node.moves_to() == Some(pool), || {
            Mismatch::NotMoving(name.clone(), pool.clone())
        })?;
        let config = node.configured_pool().clone();
        node.pool_of_config = Some(config).filter(|config| config != pool);
        node.pool = pool.clone();
        let cordon = node.cordon.take();
        let stays = cordon.filter(|cordon| cordon.moves.as_ref().is_some_and(|moves| !moves.opens));
        node.cordon = stays.map(|cordon| Cordon {
            moves: None,
            ..cordon
        });
        self.index.sort_node(node);
        self.index.place_node(node);
        Ok(())
    }

    pub(super) fn on_gpus_reported(&mut self, name: &NodeName, states: &GpuStates) -> ApplyResult {
        let node = node_mut(&mut self.stored.nodes, name)?;
        node.gpus = states.clone();
        self.index.place_node(node);
        Ok(())
    }

    pub(super) fn on_gpus_cordoned(&mut self, at: Time, it: &GpusCordoned) -> ApplyResult {
        let GpusCordoned {
            node: name,
            gpus,
            reason,
        } = it;
        let node = node_mut(&mut self.stored.nodes, name)?;
        for gpu in gpus {
            let before = node.gpu_cordons.get(gpu);
            let cordon = GpuCordon {
                reason: reason.to_string(),
                since: before.map_or(at, |before| before.since),
            };
            node.gpu_cordons.insert(gpu.clone(), cordon);
        }
        self.index.place_node(node);
        Ok(())
    }

    pub(super) fn on_gpus_uncordoned(&mut self, name: &NodeName, gpus: &[String]) -> ApplyResult {
        let node = node_mut(&mut self.stored.nodes, name)?;
        for gpu in gpus {
            let has_failed = node.has_failed_carving(gpu);
            if has_failed {
                node.carvings.remove(gpu);
            }
            let closed = node.gpu_cordons.remove(gpu).is_some();
            need(
                closed || has_failed || node.gpus.faults.contains_key(gpu),
                || Mismatch::GpuIsFit(name.clone(), gpu.clone()),
            )?;
        }
        self.index.place_node(node);
        Ok(())
    }

    pub(super) fn on_gpu_carving(
        &mut self,
        at: Time,
        name: &NodeName,
        order: &CarveOrder,
    ) -> ApplyResult {
        let node = node_mut(&mut self.stored.nodes, name)?;
        let CarveOrder {
            gpu,
            layout,
            before,
        } = order;
        let known = node.carvings.get(gpu);
        need(known.is_none_or(|known| known.failed.is_some()), || {
            Mismatch::GpuCarving(name.clone(), gpu.clone())
        })?;
        let same = known.filter(|known| known.layout == *layout);
        let carving = Carving {
            layout: layout.clone(),
            before: before.clone(),
            since: at,
            failures: same.map_or(0, |known| known.failures),
            failed: None,
        };
        node.carvings.insert(gpu.clone(), carving);
        self.index.place_node(node);
        Ok(())
    }

    pub(super) fn on_gpu_carved(&mut self, name: &NodeName, gpu: &str) -> ApplyResult {
        let node = node_mut(&mut self.stored.nodes, name)?;
        let ended = node.carvings.remove(gpu);
        need(ended.is_some_and(|it| it.failed.is_none()), || {
            Mismatch::GpuCarving(name.clone(), gpu.to_string())
        })?;
        self.index.place_node(node);
        Ok(())
    }

    pub(super) fn on_gpu_not_carved(&mut self, it: &CarvingFailed) -> ApplyResult {
        let node = node_mut(&mut self.stored.nodes, &it.node)?;
        let carving = node.carvings.get_mut(&it.gpu);
        let carving = carving.filter(|carving| carving.failed.is_none());
        let carving =
            carving.ok_or_else(|| Mismatch::GpuCarving(it.node.clone(), it.gpu.clone()))?;
        carving.failures = carving.failures.saturating_add(1);
        carving.failed = Some(FailedCarving {
            why: it.why.clone(),
            is_restored: it.is_restored,
            retry_at: it.retry_at,
        });
        self.index.place_node(node);
        Ok(())
    }

    pub(super) fn on_node_labelled(&mut self, it: &NodeLabelled) -> ApplyResult {
        let NodeLabelled {
            node: name,
            set,
            removed,
        } = it;
        let node = node_mut(&mut self.stored.nodes, name)?;
        for key in removed {
            if node.labels.contains_key(key.as_str()) {
                node.labels_set.insert(key.clone(), None);
            } else {
                node.labels_set.remove(key);
            }
        }
        for (key, value) in set {
            node.labels_set.insert(key.clone(), Some(value.clone()));
        }
        self.index.sort_node(node);
        self.index.place_node(node);
        Ok(())
    }

    pub(super) fn on_node_leaving(&mut self, name: &NodeName) -> ApplyResult {
        let node = node_mut(&mut self.stored.nodes, name)?;
        let away = match node.state {
            NodeState::Unreachable | NodeState::Lost => true,
            NodeState::Ready | NodeState::Reconciling | NodeState::Unsupervised => false,
        };
        need(away && !node.leaving, || {
            Mismatch::CannotLeave(name.clone(), node.state)
        })?;
        node.leaving = true;
        self.index.place_node(node);
        Ok(())
    }

    pub(super) fn on_node_deleted(&mut self, name: &NodeName) -> ApplyResult {
        let node = node_mut(&mut self.stored.nodes, name)?;
        let empty = self.index.attempts_on(name).next().is_none();
        need(empty, || Mismatch::HoldsSteps(name.clone()))?;
        self.index.unsettle_node(node);
        self.stored.nodes.remove(name);
        self.index.scheduler_mut().remove_host(name);
        Ok(())
    }
}

/// Forgets the failures of GPUs that the node no longer lists.
fn forget_failed_carvings(node: &mut Node) {
    let Inventory {
        gpus, empty_gpus, ..
    } = &node.inventory;
    let is_listed = |gpu: &String| gpus.iter().chain(empty_gpus).any(|it| it.whole() == gpu);
    node.carvings
        .retain(|gpu, carving| carving.failed.is_none() || is_listed(gpu));
}

/// Cordons a node. A node that is cordoned already keeps its time and its drain.
fn close<'a>(node: &'a mut Node, at: Time, reason: &str) -> &'a mut Cordon {
    let cordon = node.cordon.get_or_insert_with(|| Cordon {
        reason: String::new(),
        since: at,
        drain: None,
        moves: None,
    });
    cordon.reason = reason.to_string();
    cordon
}
