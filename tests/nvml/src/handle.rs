//! Handles: numbers in the shape of pointers. A UUID gets its number when it is first asked for and keeps it while the
//! process lives, so a handle stays valid if the order of the host file changes.

use std::sync::{Mutex, MutexGuard, PoisonError};

use nvml_wrapper_sys::bindings as nvml;

static UUIDS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Returns the handle of the GPU or MIG device with this UUID: never null, never dereferenced.
pub(crate) fn of(uuid: &str) -> nvml::nvmlDevice_t {
    let mut uuids = uuids();
    let known = uuids.iter().position(|known| known == uuid);
    let index = known.unwrap_or_else(|| {
        uuids.push(uuid.to_owned());
        uuids.len() - 1
    });
    std::ptr::without_provenance_mut(index + 1)
}

/// Returns the UUID of a handle.
pub(crate) fn uuid(handle: nvml::nvmlDevice_t) -> Option<String> {
    let index = handle.addr().checked_sub(1)?;
    uuids().get(index).cloned()
}

/// A list that only grows is never half-changed.
fn uuids() -> MutexGuard<'static, Vec<String>> {
    UUIDS.lock().unwrap_or_else(PoisonError::into_inner)
}
