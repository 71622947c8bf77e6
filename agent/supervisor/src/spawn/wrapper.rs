//! Passes a step's variables through the wrapper. A wrapper is the admin's program with an environment of its
//! own, so that no `PATH` or `LD_PRELOAD` of a step affects it. The step's variables are in a file that only
//! its user can read, removed with the attempt. Either the wrapper passes the file on (`{{env_file}}`, as
//! container runtimes do), or this program runs behind the wrapper: with [`MODE`] as its first argument it
//! sets the variables and executes the step's program.

use std::ffi::{CString, OsString};
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use sluice_common::attempt_dir::{CONTAINER_FILE, ENV_FILE};
use sluice_common::environment::Environment;
use sluice_common::helper::{HOLD_ALLOCATION, RUN_CONTAINER};
use sluice_common::supervision::SpawnSpec;

use super::child::StepProgram;
use super::environment::{env_lines, environment, full};
use super::{SpawnError, Spawner, arguments, host, lookup};
use crate::helper_program;
use crate::identity::Identity;

/// First argument of this program if it runs behind a wrapper.
pub const MODE: &str = "--behind-wrapper";

/// Exit codes of a shell for a program that is not found, or not executable.
const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;

impl Spawner {
    /// The program to run for a step: its own, or the wrapper with it.
    pub(super) fn program(
        &self,
        spec: &SpawnSpec,
        identity: &Identity,
        dir: &Path,
    ) -> Result<StepProgram, SpawnError> {
        let split = usize::try_from(spec.wrapper).unwrap_or(usize::MAX);
        let (wrapper, command) = spec
            .command
            .split_at_checked(split)
            .unwrap_or((&[], &spec.command));
        if command.is_empty() {
            return Ok(StepProgram {
                argv: arguments(&self.by_helper(HOLD_ALLOCATION, &[], &[]))?,
                envp: environment(&spec.env, identity, dir)?,
                path: None,
                reports: false,
            });
        }
        // Invalid commands are rejected before anything starts.
        arguments(command)?;
        let command = match spec.container {
            None => command.to_vec(),
            Some(_) => self.by_helper(RUN_CONTAINER, &[shown(dir)], command),
        };
        if wrapper.is_empty() {
            return Ok(StepProgram {
                argv: arguments(&command)?,
                envp: environment(&spec.env, identity, dir)?,
                path: spec.env.get("PATH").cloned(),
                reports: spec.container.is_some(),
            });
        }
        let file = dir.join(ENV_FILE);
        let own = full(&spec.env, identity, dir);
        env_lines(&own)?;
        let mut argv = wrapper.to_vec();
        if !spec.env_file {
            argv.extend([shown(&self.own_program), MODE.to_owned(), shown(&file)]);
        }
        argv.extend(command);
        Ok(StepProgram {
            argv: arguments(&argv)?,
            envp: environment(&spec.hook_env, identity, dir)?,
            path: spec.hook_env.get("PATH").cloned(),
            reports: false,
        })
    }

    /// The command behind the helper in a mode with its arguments: to start or enter the container of an attempt, or to hold
    /// the place of an allocation.
    pub(super) fn by_helper(&self, mode: &str, own: &[String], command: &[String]) -> Vec<String> {
        let helper = self.own_program.with_file_name(helper_program::NAME);
        [&[shown(&helper), mode.to_owned()], own, command].concat()
    }

    /// Writes the description of the attempt's container, which its user may read.
    fn write_container(
        &self,
        spec: &SpawnSpec,
        identity: &Identity,
        dir: &Path,
    ) -> Result<(), SpawnError> {
        let Some(container) = &spec.container else {
            return Ok(());
        };
        let text = serde_json::to_string(container).expect("a container has string keys only");
        let path = dir.join(CONTAINER_FILE);
        host(
            || format!("write {}", path.display()),
            write(&path, &text, identity),
        )
    }

    /// Writes the description of the container, and the file of variables if a wrapper needs one.
    pub(super) fn write_launch_files(
        &self,
        spec: &SpawnSpec,
        identity: &Identity,
        dir: &Path,
    ) -> Result<(), SpawnError> {
        self.write_container(spec, identity, dir)?;
        if spec.wrapper == 0 {
            return Ok(());
        }
        let own = full(&spec.env, identity, dir);
        let text = match spec.env_file {
            true => lines(&own)?,
            false => serde_json::to_string(&own).expect("an environment has string keys only"),
        };
        let path = dir.join(ENV_FILE);
        host(
            || format!("write {}", path.display()),
            write(&path, &text, identity),
        )
    }
}

fn write(path: &Path, text: &str, identity: &Identity) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text.as_bytes())?;
    match identity.is_own() {
        true => Ok(()),
        false => fchown(
            &file,
            Some(identity.uid.as_raw()),
            Some(identity.gid.as_raw()),
        ),
    }
}

pub(super) fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// One line for each variable, without quotes, as container runtimes read it.
fn lines(env: &Environment) -> Result<String, SpawnError> {
    let mut text = String::new();
    for (name, value) in env {
        if value.contains(['\n', '\r']) {
            let name = lookup::shown(name, 80);
            return Err(SpawnError::LineBreak { name });
        }
        let _never_fails = writeln!(text, "{name}={value}");
    }
    Ok(text)
}

/// Behind a wrapper: sets the variables of the file over those of the wrapper, and executes the program that
/// follows. Returns only with the reason of a failure.
pub fn run(mut args: impl Iterator<Item = OsString>) -> (String, u8) {
    let Some(file) = args.next().map(PathBuf::from) else {
        return (format!("{MODE}: no file of variables is named"), NOT_RUN);
    };
    let own = match read(&file) {
        Ok(own) => own,
        Err(e) => return (format!("cannot read {}: {e}", file.display()), NOT_RUN),
    };
    let path = own.get("PATH").cloned();
    let inherited = std::env::vars_os()
        .filter(|(name, _)| name.to_str().is_none_or(|name| !own.contains_key(name)));
    let inherited = inherited.filter_map(|(name, value)| {
        CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()).ok()
    });
    let envp = env_lines(&own).map(|own| inherited.chain(own).collect());
    let argv: Result<Vec<CString>, _> = args.map(|arg| CString::new(arg.as_bytes())).collect();
    let (Ok(envp), Ok(argv)) = (envp, argv) else {
        return (
            "a variable or an argument contains a NUL byte".to_owned(),
            NOT_RUN,
        );
    };
    if argv.is_empty() {
        return (format!("{MODE}: no program is named"), NOT_RUN);
    }
    let program = StepProgram {
        argv,
        envp,
        path,
        reports: false,
    };
    match program.start() {
        Err(why) if why.contains("not found") => (why, NOT_FOUND),
        Err(why) => (why, NOT_RUN),
        Ok(()) => (String::new(), 0),
    }
}

fn read(file: &Path) -> io::Result<Environment> {
    Ok(serde_json::from_reader(io::BufReader::new(File::open(
        file,
    )?))?)
}
