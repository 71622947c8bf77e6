//! Programs of the host's admin that run around attempts, by `[hooks]` of the config: the prolog before the step's
//! program, in the attempt's own child; the epilog when nothing of the attempt is left, in a child of its own, before
//! the attempt is called gone. Here is what they are and what they are told; [`run`] is how one runs.
//!
//! `config` reads them, `spawn` and `table` say when they run.

pub mod health;
pub mod run;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sluice_common::supervision::SpawnSpec;
use sluice_common::supervisor_config::{ConfigFileError, HostHooks};

use crate::trust::untrusted_reason;

/// In such a directory nobody may replace what is another's.
const STICKY: u32 = 0o1000;
/// May be run by somebody.
const EXECUTABLE: u32 = 0o111;

/// Looks at the programs.
///
/// # Errors
/// Where one is not there or could be changed by others.
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

/// As root it would run whatever somebody else puts in its place.
fn check_program(path: &Path) -> Result<(), String> {
    let shown = path.display();
    if !path.is_absolute() {
        return Err(format!("{shown} is not absolute: begin it with `/`"));
    }
    let cannot = |e| format!("{shown} cannot be looked at: {e}");
    let real = fs::canonicalize(path).map_err(cannot)?;
    let own = nix::unistd::geteuid().as_raw();
    for part in real.ancestors() {
        let found = fs::metadata(part).map_err(cannot)?;
        if part == real && !(found.is_file() && found.mode() & EXECUTABLE != 0) {
            return Err(format!("{shown} is no program: `chmod 755 {shown}`"));
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

/// Under which name hooks are told on whose behalf an attempt runs.
pub const SUBJECT: &str = "SLUICE_HOOK_SUBJECT";

/// What hooks are told of an attempt. Under names of their own: a hook must not be taken for a process of the step.
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
