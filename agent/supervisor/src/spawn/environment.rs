//! Builds the environment of a program.

use std::ffi::CString;
use std::path::Path;

use sluice_common::attempt_dir::{
    CHECKPOINT_FILE, CHECKPOINT_VARIABLE, NOTICE_FILE, NOTICE_VARIABLE, STEP_DIR,
};
use sluice_common::environment::Environment;

use super::{SpawnError, c_string, lookup};
use crate::identity::Identity;

/// The step's own variables, over those of its user in the user database; plus paths that only this host
/// knows.
pub(super) fn full(own: &Environment, identity: &Identity, dir: &Path) -> Environment {
    let mut env = own.clone();
    for (name, value) in &identity.variables {
        env.entry(name.clone()).or_insert_with(|| value.clone());
    }
    let checkpoint = dir.join(STEP_DIR).join(CHECKPOINT_FILE);
    for (name, path) in [
        (NOTICE_VARIABLE, dir.join(NOTICE_FILE)),
        (CHECKPOINT_VARIABLE, checkpoint),
    ] {
        env.insert(name.to_owned(), path.display().to_string());
    }
    env
}

/// The full environment as lines for the kernel.
pub(super) fn environment(
    own: &Environment,
    identity: &Identity,
    dir: &Path,
) -> Result<Vec<CString>, SpawnError> {
    env_lines(&full(own, identity, dir))
}

/// Lines of `NAME=value` for the kernel.
pub(super) fn env_lines(env: &Environment) -> Result<Vec<CString>, SpawnError> {
    env.iter()
        .map(|(name, value)| {
            if name.is_empty() || name.contains('=') {
                let name = lookup::shown(name, 80);
                return Err(SpawnError::VariableName { name });
            }
            c_string(format!("{name}={value}"), || {
                format!("environment variable `{}`", lookup::shown(name, 80))
            })
        })
        .collect()
}
