//! Runs a step's program in a container, through a container runtime of the host. The supervisor starts this mode as the
//! step's user, in the step's groups, so a runtime has no right that the step itself does not have.
//!
//! ```text
//! checks ([`check`])  --failure--> start report of the supervisor
//!    |
//! bubblewrap: this process stays, waits and ends as the program does ([`bubblewrap`])
//! others:     this process becomes the runtime ([`arguments`])
//! ```
//!
//! A container changes what files the program sees. Processes, network and devices are those of the host, limited by the
//! step's groups, so that signals, freezing and accounting are the same as without a container.

mod arguments;
mod bubblewrap;
mod check;
mod enter;
mod root_view;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use sluice_common::attempt_dir::CONTAINER_FILE;
use sluice_common::container::{Container, ContainerMount};
use sluice_common::helper::{START_FAILED, START_REPORT_VARIABLE};
use sluice_common::image::{ContainerRuntime, RUNTIME_DIRECTORIES};
use sluice_common::limit::MAX_SENTENCE_BYTES;

use crate::streams::adopt;

pub(crate) use enter::run as enter;

/// Exit code of a shell for a program that cannot be run, used if there is no start report.
const NOT_RUN: u8 = 126;

/// Directory in which steps share files on the host, and so do steps in containers.
const TMP: &str = "/tmp";

/// The pipe that takes the reason if the program does not start. It closes when this process becomes another program.
struct StartReport(Option<File>);

impl StartReport {
    /// The pipe that the supervisor left open; none behind a wrapper.
    fn inherited() -> Self {
        let number = std::env::var(START_REPORT_VARIABLE).ok();
        let number = number.and_then(|it| it.parse::<RawFd>().ok());
        Self(number.and_then(|it| adopt(it).ok()))
    }

    /// Reports that the program has started.
    fn started(&mut self) {
        self.0 = None;
    }

    /// Reports why the program does not start: to the supervisor, else on standard error.
    fn failed(self, why: &str) -> ExitCode {
        let cut = &why[..why.floor_char_boundary(MAX_SENTENCE_BYTES)];
        let _its_reader_may_have_died = match self.0 {
            Some(mut pipe) => pipe.write_all(&[&[START_FAILED], cut.as_bytes()].concat()),
            None => writeln!(io::stderr(), "sluice: {why}"),
        };
        ExitCode::from(NOT_RUN)
    }
}

/// A program to run in a container, with all that the host adds to the step's own description.
struct ContainerProgram {
    container: Container,
    runtime: ContainerRuntime,
    /// Path of the runtime's program.
    runtime_path: PathBuf,
    /// Name that no other attempt on the host has.
    name: String,
    workdir: PathBuf,
    /// Mounts by target, so that outer ones come before inner ones.
    mounts: BTreeMap<PathBuf, ContainerMount>,
    /// Environment of the program.
    env: BTreeMap<String, String>,
    has_terminal: bool,
    /// Program and arguments; not empty.
    command: Vec<OsString>,
}

/// Runs a program: the arguments are the attempt's directory, and the program with its arguments.
pub(crate) fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let mut report = StartReport::inherited();
    let started = ContainerProgram::prepare(args).and_then(|program| program.start(&mut report));
    match started {
        Ok(code) => code,
        Err(why) => report.failed(&why),
    }
}

impl ContainerProgram {
    fn prepare(mut args: impl Iterator<Item = OsString>) -> Result<Self, String> {
        let dir = args
            .next()
            .map(PathBuf::from)
            .ok_or("no attempt is named")?;
        let command: Vec<OsString> = args.collect();
        if command.is_empty() {
            return Err("no program is named".to_owned());
        }
        let container = read(&dir)?;
        let runtime = chosen(&container)?;
        let runtime_path = path_of(runtime)?;
        let workdir = std::env::current_dir()
            .map_err(|e| format!("the working directory has no name: {e}"))?;
        let mounts = mounts(&dir, &workdir, &container)?;
        let name = dir.file_name().map(|name| name.to_string_lossy());
        let program = Self {
            name: format!("sluice-{}", name.unwrap_or_default()),
            container,
            runtime,
            runtime_path,
            workdir,
            mounts,
            env: environment(),
            has_terminal: io::stdin().is_terminal(),
            command,
        };
        check::check(&program)?;
        Ok(program)
    }

    fn start(&self, report: &mut StartReport) -> Result<ExitCode, String> {
        match self.runtime {
            ContainerRuntime::Bubblewrap => bubblewrap::run(self, report),
            ContainerRuntime::Apptainer
            | ContainerRuntime::Podman
            | ContainerRuntime::Singularity => {
                let invocation = arguments::of(self)?;
                let failed = Command::new(&self.runtime_path)
                    .args(invocation.args)
                    .env_clear()
                    .envs(invocation.env)
                    .exec();
                Err(self.unstartable(&failed))
            }
        }
    }

    fn unstartable(&self, e: &io::Error) -> String {
        let path = self.runtime_path.display();
        format!("the container runtime {path} of this host could not be started: {e}")
    }
}

/// The description that the supervisor wrote.
fn read(dir: &Path) -> Result<Container, String> {
    let path = dir.join(CONTAINER_FILE);
    let failed = |e: &dyn std::fmt::Display| format!("{} cannot be read: {e}", path.display());
    let text = fs::read(&path).map_err(|e| failed(&e))?;
    serde_json::from_slice(&text).map_err(|e| failed(&e))
}

/// The runtime that the agent chose.
fn chosen(container: &Container) -> Result<ContainerRuntime, String> {
    container.runtime.ok_or_else(|| {
        let form = container.image.form();
        format!(
            "this host has no container runtime that runs {}: install {} there",
            form.noun(),
            ContainerRuntime::names_for(form)
        )
    })
}

fn path_of(runtime: ContainerRuntime) -> Result<PathBuf, String> {
    let paths = RUNTIME_DIRECTORIES.map(|dir| Path::new(dir).join(runtime.program()));
    let found = paths.into_iter().find(|path| path.is_file());
    found.ok_or_else(|| {
        let (program, dirs) = (runtime.program(), RUNTIME_DIRECTORIES.join(", "));
        format!("the container runtime `{program}` of this host has gone: it was in one of {dirs}")
    })
}

/// The variables of this process, without its own.
fn environment() -> BTreeMap<String, String> {
    let all = std::env::vars_os();
    let text = |text: OsString| text.into_string().ok();
    all.filter_map(|(name, value)| Some((text(name)?, text(value)?)))
        .filter(|(name, _)| name != START_REPORT_VARIABLE)
        .collect()
}

/// Paths of the host that the program sees: the shared directory for temporary files, the attempt's directory with the files
/// that Sluice's variables name, the working directory, and the mounts of the step and its templates.
fn mounts(
    dir: &Path,
    workdir: &Path,
    container: &Container,
) -> Result<BTreeMap<PathBuf, ContainerMount>, String> {
    let own =
        [Path::new(TMP), dir, workdir].map(|path| ContainerMount::same(&path.to_string_lossy()));
    let all = own.into_iter().chain(container.mounts.iter().cloned());
    let mut mounts = BTreeMap::new();
    for mount in all {
        let target = PathBuf::from(&mount.target);
        if target.components().count() < 2 {
            return Err("a mount cannot take the place of `/` in a container".to_owned());
        }
        mounts.insert(target, mount);
    }
    Ok(mounts)
}
