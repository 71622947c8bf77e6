//! Reads which GPUs are to be cut into slices, and whether each of them can be cut now.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use sluice_common::carving::{GpuLayout, offer_text};
use sluice_common::id::{NodeName, PlatformName, StepId};
use sluice_common::mig::MigProfile;
use sluice_common::state::NodeState;
use sluice_common::time::Time;

use super::State;
use crate::model::carving::{CarveRequest, FailedCarving};
use crate::model::node::Node;

/// Why a GPU is not cut now, or that it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CarveStatus {
    /// The host cuts the GPU.
    Carving,
    /// The GPU is cut as soon as its pool is considered.
    Idle,
    /// A step has the GPU or a slice of it.
    InUse(StepId),
    /// A step waits for GPUs of the host.
    Promised(StepId),
    /// The last try failed.
    Failed(FailedCarving),
    /// Two platforms ask for different slices.
    Contradiction(PlatformName, PlatformName),
    /// The config of the host does not allow it.
    NotAllowed,
    /// The GPU offers none of these slices, or not this one; the text lists the others.
    NotOffered(String),
    /// The slices that the GPU has now could not be restored after a failure.
    CannotRestore(GpuLayout),
    /// The GPU is unfit.
    Unfit,
    /// The host is not connected, or does not know its GPUs.
    HostAway,
}

impl CarveStatus {
    /// Whether an admin has to do something before the GPU is cut.
    pub fn needs_admin(&self) -> bool {
        match self {
            Self::Carving | Self::Idle | Self::InUse(_) | Self::Promised(_) | Self::HostAway => {
                false
            }
            Self::Failed(_)
            | Self::Contradiction(..)
            | Self::NotAllowed
            | Self::NotOffered(_)
            | Self::CannotRestore(_)
            | Self::Unfit => true,
        }
    }
}

impl fmt::Display for CarveStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Carving => f.write_str("it is being cut"),
            Self::Idle => f.write_str("it is idle and will be cut"),
            Self::InUse(step) => write!(f, "it is cut when step `{step}` has ended"),
            Self::Promised(step) => write!(
                f,
                "it is cut when step `{step}`, which waits for GPUs of this host, has them or waits elsewhere"
            ),
            Self::Failed(FailedCarving {
                why,
                is_restored: true,
                ..
            }) => write!(
                f,
                "it was not cut and is as before: {why}. It is tried again later, or at once after `sluice uncordon NODE \
                 --gpu N`"
            ),
            Self::Failed(FailedCarving { why, .. }) => write!(
                f,
                "it was not cut, and could not be made as before: {why}. Reset it, then `sluice uncordon NODE --gpu N`"
            ),
            Self::Contradiction(one, other) => write!(
                f,
                "platforms `{one}` and `{other}` ask for different slices of it, so it is not cut: change one of them"
            ),
            Self::NotAllowed => f.write_str(
                "the host does not allow it to be cut: set carve_gpus = true in supervisor.toml and reload the \
                 supervisor",
            ),
            Self::NotOffered(offered) => write!(
                f,
                "it does not offer these slices, so it is not cut: it has {offered}; change `mig` of the platform, or \
                 its selector"
            ),
            Self::CannotRestore(layout) => write!(
                f,
                "it is cut into {layout}, which could not be restored after a failure: destroy these instances with \
                 `nvidia-smi mig`"
            ),
            Self::Unfit => f.write_str("it is unfit, so it is not cut: see why under the unfit GPUs"),
            Self::HostAway => f.write_str("it is cut when its host is ready"),
        }
    }
}

/// A GPU of a node that is to be cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CarveState {
    /// UUID of the whole GPU.
    pub gpu: String,
    pub wish: CarveRequest,
    pub standing: CarveStatus,
}

impl State {
    /// The GPUs of a node that are to be cut, and those that are being cut.
    pub fn carvings(&self, node: &Node, now: Time) -> Vec<CarveState> {
        let wishes = self.index().wishes(&node.name);
        let states = wishes.map(|(gpu, wish)| CarveState {
            gpu: gpu.clone(),
            wish: wish.clone(),
            standing: self.carve_standing(node, gpu, wish, now),
        });
        states.collect()
    }

    fn carve_standing(
        &self,
        node: &Node,
        gpu: &str,
        wish: &CarveRequest,
        now: Time,
    ) -> CarveStatus {
        if node.is_carved(gpu) {
            return CarveStatus::Carving;
        }
        if let Some(rival) = &wish.rival {
            return CarveStatus::Contradiction(wish.platform.clone(), rival.clone());
        }
        if !node.inventory.carves_gpus {
            return CarveStatus::NotAllowed;
        }
        if let Some(offered) = node.lacks_profile(gpu, &wish.layout) {
            return CarveStatus::NotOffered(offered);
        }
        let before = node.layout_of(gpu);
        if !before.can_be_made() {
            return CarveStatus::CannotRestore(before);
        }
        let failed = node.carvings.get(gpu).filter(|it| it.layout == wish.layout);
        let failed = failed.and_then(|carving| carving.failed.clone());
        if let Some(failed) = failed.filter(|failed| now < failed.retry_at) {
            return CarveStatus::Failed(failed);
        }
        if node.units_of(gpu).any(|unit| node.fault_of(unit).is_some()) {
            return CarveStatus::Unfit;
        }
        let is_here = node.state == NodeState::Ready && !node.leaving;
        if !is_here || node.inventory.gpus_unknown {
            return CarveStatus::HostAway;
        }
        if let Some(step) = self.step_on(node, gpu) {
            return CarveStatus::InUse(step);
        }
        match self.step_promised(&node.name) {
            Some(step) => CarveStatus::Promised(step),
            None => CarveStatus::Idle,
        }
    }

    /// A step that has a GPU or a slice of it, also one that is frozen or not released.
    pub(crate) fn step_on(&self, node: &Node, gpu: &str) -> Option<StepId> {
        let is_of = |unit: &String| node.parent_of(unit).unwrap_or(unit) == gpu;
        let mut attempts = self.attempts_on(&node.name);
        let found = attempts.find(|id| {
            let run = self.scheduler().run(id);
            let units = run.and_then(|run| run.gpus.get(&node.name));
            units.into_iter().flatten().any(is_of)
        });
        found.map(|id| id.step.clone())
    }

    /// A step that is nominated for GPUs of a node.
    fn step_promised(&self, node: &NodeName) -> Option<StepId> {
        let wants_gpus = |step: &&StepId| {
            let request = self.scheduler().request(step);
            request.is_some_and(|request| request.each.mgpu() > 0)
        };
        let promised = self.stored.nominations.iter();
        let promised = promised.filter(|(_, nomination)| nomination.hosts.contains(node));
        let mut steps = promised.map(|(step, _)| step);
        steps.find(wants_gpus).cloned()
    }
}

impl Node {
    /// The units that the node lists of a whole GPU, and the GPU itself.
    pub fn units_of<'a>(&'a self, gpu: &'a str) -> impl Iterator<Item = &'a str> {
        let units = self
            .inventory
            .gpus
            .iter()
            .filter(move |it| it.whole() == gpu);
        units.map(|it| it.uuid.as_str()).chain([gpu])
    }

    /// The present layout of a whole GPU.
    pub fn layout_of(&self, gpu: &str) -> GpuLayout {
        GpuLayout::of_units(self.inventory.gpus.iter().filter(|it| it.whole() == gpu))
    }

    /// Whether a whole GPU, or the one of a unit, is being cut.
    pub fn is_carved(&self, unit: &str) -> bool {
        let gpu = self.parent_of(unit).unwrap_or(unit);
        let carving = self.carvings.get(gpu);
        carving.is_some_and(|carving| carving.failed.is_none())
    }

    /// Whether a whole GPU could not be cut.
    pub fn has_failed_carving(&self, gpu: &str) -> bool {
        let carving = self.carvings.get(gpu);
        carving.is_some_and(|carving| carving.failed.is_some())
    }

    /// The profiles that a GPU offers, if a slice of the layout is not among them.
    fn lacks_profile(&self, gpu: &str, layout: &GpuLayout) -> Option<String> {
        let all = self.inventory.gpus.iter().chain(&self.inventory.empty_gpus);
        let gpu = all.into_iter().find(|it| it.whole() == gpu)?;
        let offered = &gpu.board.mig_profiles;
        let GpuLayout::Slices(profiles) = layout else {
            return None;
        };
        let has = |profile: &MigProfile| offered.contains_key(profile.as_str());
        (!profiles.iter().all(has)).then(|| offer_text(offered.keys()))
    }
}

impl CarveRequest {
    /// The wish in words, without its GPU.
    pub fn message(&self, standing: &CarveStatus) -> String {
        let Self {
            platform, layout, ..
        } = self;
        format!("platform `{platform}` asks for {layout}: {standing}")
    }
}
