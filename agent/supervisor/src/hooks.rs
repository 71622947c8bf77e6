//! The admin's hooks, by `[hooks]` of the config. The prolog runs before the step's program, in the attempt's
//! own child. The epilog runs when no process of the attempt is left, in a child of its own, before the
//! attempt is reported as gone. This module checks the programs and builds their variables; [`run`] runs
//! them.

pub mod health;
pub mod run;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sluice_common::supervision::SpawnSpec;
use sluice_common::supervisor_config::{ConfigFileError, HostHooks};

use crate::trust::untrusted_reason;

/// In a directory with this bit, users cannot replace files of others.
const STICKY: u32 = 0o1000;
const EXECUTABLE: u32 = 0o111;

/// Checks the hook programs.
///
/// # Errors
/// If one is missing or others could change it.
pub fn check_programs(hooks: &HostHooks) -> Result<(), ConfigFileError> {
    let check = hooks.health_check.as_ref();
    for (name, program) in [
        ("prolog", hooks.prolog.as_ref()),
        ("epilog", hooks.epilog.as_ref()),
        ("health_check", check.map(|check| &check.program)),
    ] {
        let checked = program.map_or(Ok(()), |program| check_program(Path::new(program)));
        checked.map_err(|message| ConfigFileError::value(&format!("hooks.{name}"), message))?;
    }
    Ok(())
}

/// Root would run whatever another user puts in the program's place.
fn check_program(path: &Path) -> Result<(), String> {
    let shown = path.display();
    if !path.is_absolute() {
        return Err(format!(
            "{shown} is not an absolute path: begin it with `/`"
        ));
    }
    let cannot = |e| format!("{shown} cannot be read: {e}");
    let real = fs::canonicalize(path).map_err(cannot)?;
    let own = nix::unistd::geteuid().as_raw();
    for part in real.ancestors() {
        let found = fs::metadata(part).map_err(cannot)?;
        if part == real && !(found.is_file() && found.mode() & EXECUTABLE != 0) {
            return Err(format!("{shown} is not executable: `chmod 755 {shown}`"));
        }
        if found.is_dir() && found.mode() & STICKY != 0 {
            continue;
        }
        if let Some((reason, way_out)) = untrusted_reason(&found, own, part) {
            return Err(format!("{reason}, and {shown} runs as root: {way_out}"));
        }
    }
    Ok(())
}

/// Name of the hooks' variable for the attempt's subject.
pub const SUBJECT: &str = "SLUICE_HOOK_SUBJECT";

/// Variables of hooks about an attempt. Their names differ from the step's marks, so that a hook does not
/// count as a process of the step.
pub fn variables(spec: &SpawnSpec) -> BTreeMap<String, String> {
    let of_step = |name: &str| spec.env.get(name).cloned().unwrap_or_default();
    [
        ("SLUICE_HOOK_STEP_ID", spec.attempt.step.to_string()),
        ("SLUICE_HOOK_ATTEMPT", spec.attempt.number.to_string()),
        (SUBJECT, spec.subject.to_string()),
        ("SLUICE_HOOK_POOL", of_step("SLUICE_POOL")),
        ("SLUICE_HOOK_NODE", of_step("SLUICE_NODE")),
        ("SLUICE_HOOK_GPUS", of_step("CUDA_VISIBLE_DEVICES")),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_others_could_change_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("hook");
        fs::write(&program, "#!/bin/sh\n").unwrap();
        let with_mode = |mode| {
            fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
            check_program(&program)
        };
        assert_eq!(with_mode(0o755), Ok(()));
        let text = with_mode(0o777).unwrap_err();
        assert!(text.contains("can be written by others"), "{text}");
        let text = with_mode(0o644).unwrap_err();
        assert!(text.contains("`chmod 755"), "{text}");
        for (path, word) in [("prolog.sh", "absolute"), ("/no/such", "/no/such")] {
            let text = check_program(Path::new(path)).unwrap_err();
            assert!(text.contains(word), "{text}");
        }
    }
}
