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
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sluice_common::supervision::SpawnSpec;
use sluice_common::time::Span;

use crate::output::Length;
use crate::trust::distrust;

/// Enough to look at a GPU or to mount a file system.
const DEFAULT_TIMEOUT: Span = Span::from_secs(60);

/// One may be the step's bad luck, three in a row are the host's.
const DEFAULT_FAILURES_MAX: u32 = 3;

/// Between two checks of the host, where the config does not say it.
const DEFAULT_INTERVAL: Span = Span::from_secs(60);

/// Between two checks at the least.
const LEAST_INTERVAL: Span = Span::from_secs(1);

/// In such a directory nobody may replace what is another's.
const STICKY: u32 = 0o1000;
/// May be run by somebody.
const EXECUTABLE: u32 = 0o111;

/// `[hooks]` as written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawHooks {
    prolog: Option<PathBuf>,
    epilog: Option<PathBuf>,
    timeout: Option<Length>,
    prolog_failures_max: Option<u32>,
    health_check: Option<PathBuf>,
    health_interval: Option<Length>,
    health_failures_max: Option<u32>,
}

/// What runs around attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hooks {
    /// Before the step's program; where it fails, the step does not start here.
    pub prolog: Option<PathBuf>,
    /// After the last process of an attempt has ended.
    pub epilog: Option<PathBuf>,
    /// How long each may take.
    pub timeout: Span,
    /// Failed prologs in a row that are the host's failure and no longer only the step's.
    pub failures_max: u32,
    /// What says whether the host is fit.
    pub health_check: Option<Check>,
}

/// A check of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What is run.
    pub program: PathBuf,
    /// How long it may take.
    pub timeout: Span,
    /// From the beginning of one to that of the next.
    pub interval: Span,
    /// Failures in a row by which the host is unfit.
    pub failures_max: u32,
}

impl Default for Hooks {
    fn default() -> Self {
        Self {
            prolog: None,
            epilog: None,
            timeout: DEFAULT_TIMEOUT,
            failures_max: DEFAULT_FAILURES_MAX,
            health_check: None,
        }
    }
}

impl RawHooks {
    /// Checks what is written; whether the programs can be used is for [`Hooks::check_programs`].
    ///
    /// # Errors
    /// Where a value means nothing: the key, and what is wrong.
    pub fn check(self) -> Result<Hooks, (String, String)> {
        let counts = [
            ("prolog_failures_max", self.prolog_failures_max),
            ("health_failures_max", self.health_failures_max),
        ];
        if let Some((key, _)) = counts.iter().find(|(_, count)| *count == Some(0)) {
            let message = "0 means nothing: the least is 1".to_owned();
            return Err((format!("hooks.{key}"), message));
        }
        let default = Hooks::default();
        let timeout = self.timeout.map_or(default.timeout, |Length(span)| span);
        let interval = self.health_interval;
        let interval = interval.map_or(DEFAULT_INTERVAL, |Length(span)| span);
        if interval < LEAST_INTERVAL {
            let message =
                format!("{interval} would keep the host busy: the least is {LEAST_INTERVAL}");
            return Err(("hooks.health_interval".to_owned(), message));
        }
        Ok(Hooks {
            prolog: self.prolog,
            epilog: self.epilog,
            timeout,
            failures_max: self.prolog_failures_max.unwrap_or(default.failures_max),
            health_check: self.health_check.map(|program| Check {
                program,
                timeout,
                interval,
                failures_max: self.health_failures_max.unwrap_or(1),
            }),
        })
    }
}

impl Hooks {
    /// Looks at the programs.
    ///
    /// # Errors
    /// Where one is not there or could be changed by others: the key, and what is wrong.
    pub fn check_programs(&self) -> Result<(), (String, String)> {
        let check = self.health_check.as_ref();
        for (name, path) in [
            ("prolog", self.prolog.as_deref()),
            ("epilog", self.epilog.as_deref()),
            ("health_check", check.map(|check| check.program.as_path())),
        ] {
            let checked = path.map_or(Ok(()), check_program);
            checked.map_err(|message| (format!("hooks.{name}"), message))?;
        }
        Ok(())
    }
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
        if let Some((whose, way_out)) = distrust(&found, own, part) {
            return Err(format!("{whose}, and {shown} runs as root: {way_out}"));
        }
    }
    Ok(())
}

/// Under which name hooks are told on whose behalf an attempt runs.
pub const SUBJECT: &str = "SLUICE_HOOK_SUBJECT";

/// What hooks are told of an attempt. Under names of their own: a hook must not be taken for a process of the step.
pub fn told(spec: &SpawnSpec) -> BTreeMap<String, String> {
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
