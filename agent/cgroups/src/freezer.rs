//! Freezes and thaws control groups.

use std::path::Path;

use sluice_common::supervision::FreezerState;

use crate::file::{self, GroupError};

/// Starts to freeze or thaw a group of version 2; [`unified`] tells when that is complete.
pub(crate) fn set_unified(group: &Path, frozen: bool) -> Result<(), GroupError> {
    let value = if frozen { "1" } else { "0" };
    file::write(&group.join("cgroup.freeze"), value)
}

/// Starts to freeze or thaw a group of version 1.
pub(crate) fn set_legacy(group: &Path, frozen: bool) -> Result<(), GroupError> {
    let value = if frozen { "FROZEN" } else { "THAWED" };
    file::write(&group.join("freezer.state"), value)
}

/// The state of a group of version 2. One file has the requested state and another the actual one.
pub(crate) fn unified(group: &Path) -> FreezerState {
    let asked = file::read_text(&group.join("cgroup.freeze"));
    let asked = asked.is_ok_and(|text| text.trim() == "1");
    let frozen = file::keyed_number(&group.join("cgroup.events"), "frozen") == Some(1);
    match (asked, frozen) {
        (_, true) => FreezerState::Frozen,
        (true, false) => FreezerState::Freezing,
        (false, false) => FreezerState::Thawed,
    }
}

/// The state of a group of version 1.
pub(crate) fn legacy(group: &Path) -> FreezerState {
    match file::read_text(&group.join("freezer.state")) {
        Ok(state) if state.trim() == "FROZEN" => FreezerState::Frozen,
        Ok(state) if state.trim() == "FREEZING" => FreezerState::Freezing,
        Ok(_) | Err(_) => FreezerState::Thawed,
    }
}
