//! Answers about recovery, and the warrant of an attempt.

use sluice_common::id::AttemptId;

use super::State;
use crate::model::placement::Placement;
use crate::model::recovery::{LogPoint, Recovery, Warrant};

impl State {
    /// The recovery under way, if there is one. While there is, nothing new starts.
    pub fn recovery(&self) -> Option<&Recovery> {
        self.stored.recovery.as_ref()
    }

    /// The warrant by which an attempt can be adopted later, as of now.
    pub fn warrant(&self, id: &AttemptId) -> Option<Warrant> {
        let step = self.step(&id.step)?;
        let attempt = step.attempt(id.number)?;
        let parts = attempt.parts.iter();
        let placements = parts.map(|part| Placement {
            node: part.node.clone(),
            gpus: part.gpus.clone(),
        });
        Some(Warrant {
            told_at: self.log_point(),
            submitted_at: step.submitted_at,
            spec: step.spec.clone(),
            is_part: step.part_of.is_some(),
            excluded_pools: step.excluded_pools.clone(),
            route: step.route.clone(),
            provenance: step.provenance.clone(),
            retries_spent: step.retries_spent,
            pool: attempt.pool.clone(),
            placements: placements.collect(),
            port: attempt.port,
        })
    }

    /// The current position in the log.
    pub fn log_point(&self) -> LogPoint {
        LogPoint {
            epoch: self.epoch().map_or(0, |epoch| epoch.counter),
            seq: self.seq(),
        }
    }
}
