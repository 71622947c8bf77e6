//! Opens groups that another process has made. A keeper ([`crate::keeper`]) kills in them and makes none. The
//! supervisor stores their roots in a file, because another process cannot tell which hierarchy of version 1
//! they use.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sluice_cgroups::cpuset::Cpusets;
use sluice_cgroups::legacy::Legacy;
use sluice_cgroups::unified::Unified;
use sluice_cgroups::{Controller, pids};

use super::Groups;
use super::devices::DeviceFilters;

/// Roots below which the groups of attempts can be killed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRoots {
    pub unified: Option<PathBuf>,
    /// Root of version 1: the freezer's if there is one, else any.
    pub legacy: Option<PathBuf>,
    /// Whether `legacy` is the freezer's.
    pub freezes: bool,
}

impl Groups {
    /// Roots of these groups, for [`Groups::found`].
    pub fn roots(&self) -> GroupRoots {
        GroupRoots {
            unified: self.unified.as_ref().map(|it| it.root().to_owned()),
            legacy: self.legacy.freezer_root().map(ToOwned::to_owned),
            freezes: self.legacy.has(Controller::Freezer),
        }
    }

    /// Groups below roots that another process has made.
    pub fn found(roots: &GroupRoots) -> Self {
        let controller = match roots.freezes {
            true => Controller::Freezer,
            false => Controller::Pids,
        };
        let legacy = roots.legacy.clone();
        Self {
            unified: roots.unified.clone().map(Unified::existing),
            legacy: legacy.map_or_else(Legacy::default, |root| Legacy::existing(controller, root)),
            cpusets: Cpusets::none(),
            watch: None,
            filters: DeviceFilters::none(),
            pids_max: pids::default_max(),
            grouped: BTreeSet::new(),
            leaving: BTreeSet::new(),
        }
    }

    /// Whether attempts have groups at all.
    pub fn are_there(&self) -> bool {
        self.unified.is_some() || self.legacy.freezer_root().is_some()
    }
}
