//! Letting nothing in a group run, and all of it again.

use std::fs;
use std::path::Path;

use sluice_common::supervision::FreezerState;

use crate::file::{self, GroupError};

/// Freezes or thaws a group of version 2, sooner or later: [`unified`] tells when.
pub(crate) fn set_unified(group: &Path, frozen: bool) -> Result<(), GroupError> {
    let value = if frozen { "1" } else { "0" };
    file::write(&group.join("cgroup.freeze"), value)
}

/// The same of a group of version 1.
pub(crate) fn set_legacy(group: &Path, frozen: bool) -> Result<(), GroupError> {
    let value = if frozen { "FROZEN" } else { "THAWED" };
    file::write(&group.join("freezer.state"), value)
}

/// Whether anything in a group of version 2 may run. What was asked for stands in one file and what has come of it in
/// another.
pub(crate) fn unified(group: &Path) -> FreezerState {
    let asked = fs::read_to_string(group.join("cgroup.freeze"));
    let asked = asked.is_ok_and(|text| text.trim() == "1");
    let frozen = file::keyed(&group.join("cgroup.events"), "frozen") == Some(1);
    match (asked, frozen) {
        (_, true) => FreezerState::Frozen,
        (true, false) => FreezerState::Freezing,
        (false, false) => FreezerState::Thawed,
    }
}

/// The same of a group of version 1.
pub(crate) fn legacy(group: &Path) -> FreezerState {
    match fs::read_to_string(group.join("freezer.state")) {
        Ok(state) if state.trim() == "FROZEN" => FreezerState::Frozen,
        Ok(state) if state.trim() == "FREEZING" => FreezerState::Freezing,
        Ok(_) | Err(_) => FreezerState::Thawed,
    }
}
