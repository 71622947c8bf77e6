//! The view of a part of an attempt.

use std::collections::BTreeMap;

use coordinator_core::{Attempt, Core, Part, PartPhase, Step};
use sluice_common::api::PlacementView;

/// Returns the view of one part: where it is, and how it is reached.
pub(super) fn endpoint(
    core: &Core,
    (step, attempt, part): (&Step, &Attempt, &Part),
    rank: u32,
) -> PlacementView {
    let node = core.state().node(&part.node);
    let address = node.filter(|_| part.phase < PartPhase::Ended);
    let address = address.map(|node| node.address.clone());
    let endpoint = part.endpoint.as_deref();
    let ready = core.is_ready(step, attempt, part);
    PlacementView {
        node: part.node.to_string(),
        gpus: part.gpus.clone(),
        rank,
        workdir_refused: None,
        kept: None,
        address: address.filter(|address| !address.is_empty()),
        ports: ports(part),
        ready,
        probe: endpoint
            .filter(|_| !ready)
            .and_then(|endpoint| endpoint.failure.clone()),
    }
}

/// Returns the ports of a part by name.
pub(super) fn ports(part: &Part) -> BTreeMap<String, u16> {
    let known = part.endpoint.iter().flat_map(|endpoint| &endpoint.ports);
    known
        .map(|(name, port)| (name.to_string(), *port))
        .collect()
}
