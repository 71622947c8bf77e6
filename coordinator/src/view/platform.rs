//! Views of pools' platforms: the declared ones, and those of the hosts' models.

use std::collections::{BTreeMap, BTreeSet};

use coordinator_core::{Core, Node, Pool};
use sluice_common::api::{PlatformUse, PlatformView};
use sluice_common::document::{PlatformItemId, SpecDocument};
use sluice_common::id::{PlatformName, PoolName};
use sluice_common::pool::NamedPlatform;

use super::granted_on;

/// Returns a platform of a pool; `None` if it is neither declared nor on any host.
pub fn one(core: &Core, pool: &PoolName, platform: &PlatformName) -> Option<PlatformView> {
    let found = all(core, core.state().pool(pool)?).into_iter();
    let mut found = found.filter(|view| view.name == platform.as_str());
    found.next()
}

/// Returns every platform of a pool, sorted by name.
pub fn all(core: &Core, pool: &Pool) -> Vec<PlatformView> {
    let counts = counted(core, pool).into_iter();
    let views = counts.map(|(name, (has, nodes))| {
        let declared = pool.platforms.get(&name);
        let terms = declared.map(|it| it.terms.clone());
        let selector = terms.as_ref().map(|it| it.selector.clone());
        PlatformView {
            pool: pool.name.to_string(),
            overrides: terms.as_ref().and_then(|it| it.overrides.clone()),
            mig: terms.as_ref().and_then(|it| it.mig.clone()),
            taint: terms.as_ref().is_some_and(|it| it.taint),
            validations: terms
                .as_ref()
                .map_or_else(Vec::new, |it| it.validations.clone()),
            description: terms.map(|it| it.description).unwrap_or_default(),
            declared: has.declared,
            default: has.default,
            selector,
            nodes: nodes.into_iter().collect(),
            gpus: has.gpus,
            used: has.used,
            free: has.free,
            version: declared.map_or(0, |it| it.version),
            name: name.to_string(),
        }
    });
    views.collect()
}

/// Returns the platforms that a pool declares, as written.
pub(super) fn declared(pool: &Pool) -> Vec<NamedPlatform> {
    let platforms = pool.declared().into_iter();
    let named = platforms.map(|(name, spec)| SpecDocument::new(PlatformItemId { name }, spec));
    named.collect()
}

/// Counts the hosts and GPUs of a pool by platform.
pub(super) fn uses(core: &Core, pool: &Pool) -> BTreeMap<String, PlatformUse> {
    let counts = counted(core, pool).into_iter();
    let uses = counts.map(|(name, (has, _))| (name.to_string(), has));
    uses.collect()
}

type Counted = BTreeMap<PlatformName, (PlatformUse, BTreeSet<String>)>;

fn counted(core: &Core, pool: &Pool) -> Counted {
    let mut all = Counted::new();
    for name in pool.platforms.keys() {
        let (has, _) = all.entry(name.clone()).or_default();
        has.declared = true;
    }
    for node in core.state().nodes_of(&pool.name) {
        count(core, node, &mut all);
    }
    for (name, (has, nodes)) in &mut all {
        has.nodes = nodes.len() as u64;
        has.default = pool.spec.default_platform.as_ref() == Some(name);
    }
    all
}

fn count(core: &Core, node: &Node, all: &mut Counted) {
    let state = core.state();
    for platform in state.platforms_of(node, None) {
        let (_, nodes) = all.entry(platform.clone()).or_default();
        nodes.insert(node.name.to_string());
    }
    let granted = granted_on(core, node);
    for gpu in &node.inventory.gpus {
        let granted = granted.contains(gpu.uuid.as_str());
        let free = state.is_free(node, &gpu.uuid) && state.takes_work(node);
        for platform in state.platforms_of(node, Some(&gpu.uuid)) {
            let (has, _) = all.entry(platform.clone()).or_default();
            has.gpus += 1;
            has.used += u64::from(granted);
            has.free += u64::from(free);
        }
    }
}
