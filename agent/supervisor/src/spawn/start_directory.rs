//! The directory in which a step starts: the one that it names; or the one that it prefers, if its user can enter it; or
//! the attempt's own. Paths are claims of the submitter, so a child enters them only as the step's user.

use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::chdir;
use sluice_common::attempt_dir::OWN_WORKDIR;
use sluice_common::directory_refusal::DirectoryRefusal;
use sluice_common::supervisor_config::StepRules;

use super::{confine, lookup};

/// Most bytes of a path in a message.
const SHOWN_PATH_BYTES: usize = 200;

/// Directory in which a step starts.
#[derive(Debug)]
pub(super) struct StartDirectory {
    choice: DirectoryChoice,
    /// The directory that is made for the attempt, unless the step names one.
    own: PathBuf,
}

#[derive(Debug)]
enum DirectoryChoice {
    Own,
    Named(PathBuf),
    Preferred(PathBuf),
}

impl StartDirectory {
    /// The directory of an attempt whose files are in `attempt_dir`; both paths are absolute.
    pub(super) fn of(
        named: Option<PathBuf>,
        preferred: Option<PathBuf>,
        attempt_dir: &Path,
    ) -> Self {
        let choice = match (named, preferred) {
            (Some(path), _) => DirectoryChoice::Named(path),
            (None, Some(path)) => DirectoryChoice::Preferred(path),
            (None, None) => DirectoryChoice::Own,
        };
        Self {
            choice,
            own: attempt_dir.join(OWN_WORKDIR),
        }
    }

    /// Whether the attempt may need a directory of its own.
    pub(super) fn needs_own(&self) -> bool {
        !matches!(self.choice, DirectoryChoice::Named(_))
    }

    /// Enters the preferred directory, or else the attempt's own and says why. Does nothing if the step names one. If
    /// the step's user cannot enter a directory that was made for it, the host is at fault.
    ///
    /// # Errors
    /// If the attempt's own directory cannot be entered.
    pub(super) fn enter_own(&self, rules: &StepRules) -> Result<Option<DirectoryRefusal>, String> {
        let refused = match &self.choice {
            DirectoryChoice::Named(_) => return Ok(None),
            DirectoryChoice::Own => None,
            DirectoryChoice::Preferred(path) => match enter_preferred(path, rules) {
                Ok(()) => return Ok(None),
                Err(why) => Some(why),
            },
        };
        let entered = chdir(&self.own).map_err(|e| lookup::explain_own_workdir(&self.own, e));
        entered.map(|()| refused)
    }

    /// Enters the directory that the step names, if it names one.
    ///
    /// # Errors
    /// If it cannot be entered, or the rules forbid it.
    pub(super) fn enter_named(&self, rules: &StepRules) -> Result<(), String> {
        let DirectoryChoice::Named(path) = &self.choice else {
            return Ok(());
        };
        chdir(path).map_err(|e| lookup::explain_workdir(path, e))?;
        confine::check_workdir(rules)
    }

    /// Enters the directory after the step has ended, or `/` if the step has removed it.
    ///
    /// # Errors
    /// If the rules forbid a directory that the step names.
    pub(super) fn enter_again(&self, rules: &StepRules) -> Result<(), String> {
        let entered = match &self.choice {
            DirectoryChoice::Named(path) => {
                let _somewhere_else = chdir(path).or_else(|_| chdir("/"));
                return confine::check_workdir(rules);
            }
            DirectoryChoice::Own => false,
            DirectoryChoice::Preferred(path) => enter_preferred(path, rules).is_ok(),
        };
        if !entered {
            let _somewhere_else = chdir(&self.own).or_else(|_| chdir("/"));
        }
        Ok(())
    }

    /// Whether the step starts in the attempt's own directory, given the answer of [`Self::enter_own`].
    pub(super) fn is_own(&self, refused: Option<DirectoryRefusal>) -> bool {
        match self.choice {
            DirectoryChoice::Own => true,
            DirectoryChoice::Named(_) => false,
            DirectoryChoice::Preferred(_) => refused.is_some(),
        }
    }

    /// Adds to the reason of a failed start that the step was not in the directory that it prefers.
    pub(super) fn explain(&self, sentence: &str, refused: Option<DirectoryRefusal>) -> String {
        match (&self.choice, refused) {
            (DirectoryChoice::Preferred(path), Some(why)) => {
                let path = lookup::shown(&path.to_string_lossy(), SHOWN_PATH_BYTES);
                format!("{sentence}; it was in a directory of its own, because `{path}` {why}")
            }
            _ => sentence.to_owned(),
        }
    }
}

/// Enters a directory if the kernel lets the step's user and the rules allow it; the caller leaves it otherwise.
fn enter_preferred(path: &Path, rules: &StepRules) -> Result<(), DirectoryRefusal> {
    chdir(path).map_err(|e| match e {
        Errno::ENOENT => DirectoryRefusal::Missing,
        Errno::ENOTDIR => DirectoryRefusal::NotADirectory,
        Errno::EACCES | Errno::EPERM => DirectoryRefusal::Denied,
        _ => DirectoryRefusal::Unreachable,
    })?;
    confine::check_workdir(rules).map_err(|_| DirectoryRefusal::NotAllowed)
}
