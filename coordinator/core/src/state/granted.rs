//! Finds the platforms of the hardware that a part of an attempt was granted, the requested ones first.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::id::PlatformName;
use sluice_common::platform;

use crate::model::node::Node;
use crate::model::step::{Attempt, Part, Step};
use crate::state::{State, request};

impl State {
    /// The platforms of the granted hardware, in the order in which the step asks for them; if it takes any, or the
    /// terms have changed since, that of the model, then the others by name. Each GPU must be of a platform for it to
    /// count. Empty if the host was deleted.
    pub(crate) fn granted(&self, step: &Step, attempt: &Attempt, part: &Part) -> Vec<PlatformName> {
        let Some(node) = self.node(&part.node) else {
            return Vec::new();
        };
        let kinds = self.kinds_of(part, node);
        let asked = self.asked_in(&attempt.pool, &request(step)).into_iter();
        let found: Vec<PlatformName> = asked.filter(|it| kinds.contains(it)).collect();
        if !found.is_empty() {
            return found;
        }
        let own = of_model(part, node);
        let pool = self.pool(&attempt.pool);
        let declared = |kind: &PlatformName| pool.and_then(|pool| pool.platforms.get(kind));
        let is_of = |kind: &&PlatformName| {
            declared(kind).is_none_or(|it| it.terms.is_candidate_for_any(!part.gpus.is_empty()))
        };
        let first = Some(&own).filter(|own| kinds.is_empty() || kinds.contains(*own));
        let others = kinds.iter().copied().filter(|kind| **kind != own);
        let all = first.into_iter().chain(others).filter(is_of);
        all.cloned().collect()
    }

    /// The platforms of which each GPU of a part is; without GPUs, those of its host.
    fn kinds_of<'a>(&'a self, part: &Part, node: &Node) -> BTreeSet<&'a PlatformName> {
        let of = |gpu: &String| self.platforms_of(node, Some(gpu));
        let mut gpus = part.gpus.iter();
        match gpus.next() {
            None => self.platforms_of(node, None),
            Some(first) => gpus.fold(of(first), |kinds, gpu| &kinds & &of(gpu)),
        }
    }
}

/// The platform by the GPU model, whatever a pool declares.
pub(crate) fn of_model(part: &Part, node: &Node) -> PlatformName {
    let gpus = &node.inventory.gpus;
    let own = gpus.iter().find(|gpu| part.gpus.contains(&gpu.uuid));
    let gpu = own.or_else(|| gpus.first());
    gpu.map_or_else(platform::cpu, platform::of_gpu)
}
