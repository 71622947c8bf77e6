//! Stores what is needed to run templates' hooks after a step's program, and to keep files of it: one file for each
//! attempt that has such hooks or patterns. It survives the supervisor. The environment in templates may be secret, so
//! only the supervisor can read the file, and it is removed with the attempt.

use std::fs;
use std::io;

use serde::{Deserialize, Serialize};
use sluice_common::environment::Environment;
use sluice_common::id::{AttemptId, Subject, UserName};
use sluice_common::keep::KeepPattern;
use sluice_common::supervision::SpawnSpec;
use sluice_common::template::launch::{HookRun, ProcessLimit};

use super::{Spool, SpoolError, failed, read_json};
use crate::identity::StepOwner;

/// Differs from the suffix of records.
const SUFFIX: &str = ".after";

/// Hooks after an attempt's program, with their environment and limits, and the files to keep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AfterHooks {
    pub subject: Subject,
    /// The user who submitted the step, if this host's config requires one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitter: Option<UserName>,
    /// Environment of the program, without what this host adds.
    pub env: Environment,
    /// Working directory of the program; `None` is the attempt's own.
    #[serde(default)]
    pub workdir: Option<String>,
    /// Working directory of the program if its user could enter it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefer_workdir: Option<String>,
    /// Resource limits of each process.
    #[serde(default)]
    pub limits: Vec<ProcessLimit>,
    /// Hooks in their order.
    pub hooks: Vec<HookRun>,
    /// Patterns of the files in the attempt's own directory that are kept, after the hooks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keep: Vec<KeepPattern>,
}

impl AfterHooks {
    /// The hooks of a spawn order, if it has any.
    pub fn of(spec: &SpawnSpec, step_owner: &StepOwner) -> Option<Self> {
        let hooks = spec.hooks.after.clone();
        // A step with a named directory has none of its own.
        let own = spec.workdir.is_none();
        let keep: Vec<_> = spec.keep.iter().filter(|_| own).cloned().collect();
        (!hooks.is_empty() || !keep.is_empty()).then(|| Self {
            subject: step_owner.subject.clone(),
            submitter: step_owner.submitter.clone(),
            env: spec.hook_env.clone(),
            workdir: spec.workdir.clone(),
            prefer_workdir: spec.prefer_workdir.clone(),
            limits: spec.hooks.limits.clone(),
            hooks,
            keep,
        })
    }

    /// The subject and submitter of the attempt.
    pub fn step_owner(&self) -> StepOwner {
        StepOwner {
            subject: self.subject.clone(),
            submitter: self.submitter.clone(),
        }
    }
}

impl Spool {
    /// Stores the hooks. Must be called before the program may run.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_after_hooks(
        &self,
        attempt: &AttemptId,
        after: &AfterHooks,
    ) -> Result<(), SpoolError> {
        self.write_json(&self.after_hooks_path(attempt), after)
    }

    /// Whether the attempt has hooks.
    pub fn has_after_hooks(&self, attempt: &AttemptId) -> bool {
        self.after_hooks_path(attempt).exists()
    }

    /// Reads the hooks.
    ///
    /// # Errors
    /// If the file is missing or damaged.
    pub fn read_after_hooks(&self, attempt: &AttemptId) -> io::Result<AfterHooks> {
        read_json(&self.after_hooks_path(attempt))
    }

    /// Removes the hooks, if there are any.
    ///
    /// # Errors
    /// If the file cannot be removed.
    pub fn delete_after_hooks(&self, attempt: &AttemptId) -> Result<(), SpoolError> {
        let path = self.after_hooks_path(attempt);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed("remove", &path, e)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Removes the hooks of attempts that are gone or never began.
    ///
    /// # Errors
    /// If the directory cannot be listed, or a file cannot be removed.
    pub fn retain_after_hooks(&self, live: impl Fn(&AttemptId) -> bool) -> Result<(), SpoolError> {
        let listing = |e| failed("list", &self.dir, e);
        for entry in fs::read_dir(&self.dir).map_err(listing)? {
            let name = entry.map_err(listing)?.file_name();
            let stem = name.to_str().and_then(|name| name.strip_suffix(SUFFIX));
            let id = stem.and_then(|stem| stem.parse::<AttemptId>().ok());
            if let Some(id) = id.filter(|id| !live(id)) {
                self.delete_after_hooks(&id)?;
            }
        }
        Ok(())
    }

    fn after_hooks_path(&self, attempt: &AttemptId) -> std::path::PathBuf {
        self.dir.join(format!("{attempt}{SUFFIX}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_common::time::Span;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_runs_after_an_attempt_is_kept_for_nobody_else_and_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        let id: AttemptId = "a.1".parse().unwrap();
        let after = AfterHooks {
            subject: Subject::new("s").unwrap(),
            submitter: UserName::new("alice").ok(),
            env: Environment::from([("TOKEN".to_owned(), "secret".to_owned())]),
            workdir: None,
            prefer_workdir: None,
            limits: Vec::new(),
            hooks: vec![HookRun {
                name: "1".to_owned(),
                command: vec!["true".to_owned()],
                timeout: Span::from_secs(1),
            }],
            keep: vec!["out/*".parse().unwrap()],
        };
        spool.write_after_hooks(&id, &after).unwrap();
        let mode = fs::metadata(spool.after_hooks_path(&id))
            .unwrap()
            .permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        assert_eq!(spool.read_after_hooks(&id).unwrap(), after);
        assert!(spool.load().unwrap().damaged.is_empty(), "it is no record");
        spool.delete_after_hooks(&id).unwrap();
        spool.delete_after_hooks(&id).unwrap();
        assert!(!spool.has_after_hooks(&id));
        spool.write_after_hooks(&id, &after).unwrap();
        spool.retain_after_hooks(|known| *known == id).unwrap();
        assert!(spool.has_after_hooks(&id));
        spool.retain_after_hooks(|_| false).unwrap();
        assert!(!spool.has_after_hooks(&id));
    }
}
