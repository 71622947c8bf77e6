//! Warns about amounts that hosts do not enforce. Such a step is not rejected; a pool that `require`s the capability
//! uses no such host.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use sluice_common::amount::{MCPU, MEMORY_MB};
use sluice_common::id::{NodeName, PoolName};
use sluice_common::inventory::Capability;
use sluice_common::state::StepState;
use sluice_reasons::Unenforced;

use crate::core::Core;
use crate::model::node::Node;
use crate::model::step::Step;
use crate::state::State;
use crate::submit::default_amounts::{states, taken_from};

/// The mechanism that enforces each key.
const LIMITS: [(Capability, &str); 2] = [(Capability::Memory, MEMORY_MB), (Capability::Cpu, MCPU)];

/// Finds hosts that lack a limit. Each pool is checked once, so that a batch costs as much as its pools.
#[derive(Debug)]
pub struct Enforcement<'a> {
    core: &'a Core,
    pools: BTreeMap<&'a PoolName, CandidateHosts<'a>>,
}

/// Hosts on which a step may run.
#[derive(Clone, Debug, Default)]
struct CandidateHosts<'a> {
    all: usize,
    /// Number of hosts that lack a capability, and the first of them.
    lacking: BTreeMap<Capability, (usize, &'a NodeName)>,
}

impl<'a> Enforcement<'a> {
    /// Starts from the hosts as they are now.
    pub fn new(core: &'a Core) -> Self {
        let pools = BTreeMap::new();
        Self { core, pools }
    }

    /// Lists the amounts of a step that are not enforced: on its granted hosts, or else on some hosts where it may
    /// start. Empty for a step that has ended. Defaults of a pool are left out, because the step did not ask for them.
    pub fn warnings(&mut self, step: &Step) -> Vec<Unenforced> {
        // Inside an allocation, a step gets a part of what that asked for.
        let is_own = |key: &str| step.spec.inside.is_none() || states(&step.spec.resources, key);
        let asked = |key: &str| {
            step.spec.request.get(key) > 0 && taken_from(step, key).is_none() && is_own(key)
        };
        if step.state.is_terminal() || !LIMITS.iter().any(|(_, key)| asked(key)) {
            return Vec::new();
        }
        let hosts = self.hosts_of(step);
        let limits = LIMITS.iter().filter(|(_, key)| asked(key));
        let unenforced = limits.filter_map(|(capability, key)| {
            let (lacking, first) = hosts.lacking.get(capability)?;
            Some(Unenforced {
                capability: *capability,
                key,
                asked: step.spec.request.get(key),
                hosts: hosts.all,
                lacking: *lacking,
                first: (*first).clone(),
            })
        });
        unenforced.collect()
    }

    fn hosts_of(&mut self, step: &Step) -> CandidateHosts<'a> {
        let state = self.core.state();
        let waits = step.state == StepState::Queued;
        let running = step.latest().filter(|_| !waits);
        if let Some(attempt) = running {
            let nodes = attempt.parts.iter().filter_map(|it| state.node(&it.node));
            return CandidateHosts::default().with(nodes);
        }
        let mut all = CandidateHosts::default();
        for pool in state.scheduler().pools_of(&step.id) {
            let known = self.pools.entry(pool);
            all.add(known.or_insert_with(|| CandidateHosts::default().with(taking(state, pool))));
        }
        all
    }
}

/// The hosts of a pool that have what it requires.
fn taking<'a>(state: &'a State, pool: &'a PoolName) -> impl Iterator<Item = &'a Node> {
    let nodes = state.nodes().values();
    nodes.filter(move |node| node.pool == *pool && state.missing_capabilities(node).is_empty())
}

impl<'a> CandidateHosts<'a> {
    /// Adds these hosts. A host whose supervisor has not reported yet is left out.
    fn with(mut self, nodes: impl Iterator<Item = &'a Node>) -> Self {
        for node in nodes.filter(|node| !node.inventory.capabilities.is_empty()) {
            self.all += 1;
            let wanted = LIMITS.map(|(capability, _)| capability).into();
            for capability in node.inventory.missing_capabilities(&wanted) {
                self.note(capability, 1, &node.name);
            }
        }
        self
    }

    fn add(&mut self, more: &Self) {
        self.all += more.all;
        for (capability, (count, first)) in &more.lacking {
            self.note(*capability, *count, first);
        }
    }

    fn note(&mut self, capability: Capability, count: usize, node: &'a NodeName) {
        let known = self.lacking.entry(capability).or_insert((0, node));
        known.0 += count;
    }
}
