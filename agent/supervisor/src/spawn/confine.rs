//! Switches a child to the step's user and drops its privileges, after the gate and before anything of the
//! step's own is touched.
//!
//! The kernel dictates the order: limits and the capability bounding set can only be changed as root; groups
//! come before the user, because another user cannot change them; the user comes last.

use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::prctl::set_no_new_privs;
use nix::sys::resource::setrlimit;
use nix::sys::stat::{Mode, umask};
use nix::unistd::{geteuid, getresgid, getresuid, setgroups, setresgid, setresuid};
use sluice_common::supervisor_config::StepRules;

use super::lookup;
use crate::identity::Identity;
use crate::{config, sys};

/// Most bytes of a path in a message.
const SHOWN_PATH_BYTES: usize = 200;

/// Switches to `identity` for good.
pub(super) fn become_user(identity: &Identity, rules: &StepRules) -> Result<(), String> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |e: Errno| format!("the host could not {what}: {}", e.desc())
    };
    for (name, most) in &rules.limits {
        let resource = config::rlimit(name).ok_or(Errno::EINVAL);
        let set = resource.and_then(|resource| setrlimit(resource, *most, *most));
        set.map_err(failed(&format!("set limit {name}")))?;
    }
    if let Some(mask) = rules.umask {
        umask(Mode::from_bits_truncate(mask));
    }
    if geteuid().is_root() {
        if !identity.uid.is_root() {
            sys::drop_bounding_set().map_err(failed("drop capabilities"))?;
        }
        setgroups(&identity.groups).map_err(failed("set the groups"))?;
        setresgid(identity.gid, identity.gid, identity.gid).map_err(failed("set the group"))?;
        setresuid(identity.uid, identity.uid, identity.uid).map_err(failed("set the user"))?;
    }
    if !identity.uid.is_root() {
        sys::drop_capabilities().map_err(failed("drop capabilities"))?;
    }
    set_no_new_privs().map_err(failed("forbid new privileges"))?;
    if rules.keep_projects {
        let kept = sys::project::keep_projects();
        kept.map_err(failed("keep it from changing projects of files"))?;
    }
    confirm(identity, rules)
}

/// Verifies the result, because a mistake would give a step privileges.
fn confirm(identity: &Identity, rules: &StepRules) -> Result<(), String> {
    let (uid, gid) = (identity.uid, identity.gid);
    let user_is = getresuid().is_ok_and(|u| [u.real, u.effective, u.saved] == [uid; 3]);
    let group_is = getresgid().is_ok_and(|g| [g.real, g.effective, g.saved] == [gid; 3]);
    let root = uid.is_root() && !rules.allow_root;
    match user_is && group_is && !root {
        true => Ok(()),
        false => Err("the host could not make the process that of the step's user".to_owned()),
    }
}

/// Whether the rules allow steps to work in the current directory.
pub(super) fn check_workdir(rules: &StepRules) -> Result<(), String> {
    if rules.workdirs.is_none() {
        return Ok(());
    }
    // The kernel's name of the directory, without links.
    let here = nix::unistd::getcwd()
        .map_err(|e| format!("the working directory has no name: {}", e.desc()))?;
    if is_allowed(rules, &here) {
        return Ok(());
    }
    let here = lookup::shown(&here.to_string_lossy(), SHOWN_PATH_BYTES);
    let file = rules.file.as_deref().unwrap_or("supervisor.toml");
    Err(format!(
        "steps may not work in `{here}` on this host: choose a directory below one of `workdirs` in {file}, or have it added"
    ))
}

/// Whether a path without links is below a directory that the rules allow.
pub(super) fn is_allowed(rules: &StepRules, path: &Path) -> bool {
    let allows = |roots: &Vec<String>| {
        let mut roots = roots.iter();
        roots.any(|root| path.starts_with(resolved(root.as_ref())))
    };
    rules.workdirs.as_ref().is_none_or(allows)
}

fn resolved(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}
