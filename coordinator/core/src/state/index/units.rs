//! GPUs and MIG instances that attempts hold, and which other units they keep from being granted.

use alloc::string::String;

use sluice_common::id::{AttemptId, NodeName};

use super::Index;
use crate::model::node::Node;

impl Index {
    pub(crate) fn is_granted(&self, node: &NodeName, gpu: &str) -> bool {
        let held = self.held.get(node);
        held.is_some_and(|held| held.gpus.contains_key(gpu))
    }

    /// The units that attempts hold on a node, and who holds each.
    pub(in crate::state) fn gpus_held_on(
        &self,
        node: &NodeName,
    ) -> impl Iterator<Item = (&String, &AttemptId)> {
        let held = self.held.get(node).into_iter();
        held.flat_map(|held| &held.gpus)
    }

    /// The held unit that keeps another from being granted, because one is a MIG instance of the other. This happens
    /// if the MIG mode of a GPU changed while a step held it.
    pub(crate) fn blocker<'a>(
        &'a self,
        node: &Node,
        unit: &str,
    ) -> Option<(&'a str, &'a AttemptId)> {
        let parent = node.parent_of(unit);
        let overlaps = |held: &str| match parent {
            Some(parent) => held == parent,
            None => node.parent_of(held) == Some(unit),
        };
        let mut held = self.gpus_held_on(&node.name);
        let (gpu, attempt) = held.find(|(gpu, _)| overlaps(gpu))?;
        Some((gpu, attempt))
    }
}
