//! Runs a step's program in a container, through a container runtime of the host. The supervisor starts this mode as the
//! step's user, in the step's groups, so a runtime has no right that the step itself does not have.
//!
//! ```text
//! checks ([`check`])  --failure--> start report of the supervisor
//!    |
//! bubblewrap: this process stays, waits and ends as the program does ([`bubblewrap`])
//! Enroot:     this process packs an image of a registry into a file, and becomes the runtime ([`enroot`])
//! others:     this process becomes the runtime ([`arguments`])
//! ```
//!
//! A container changes what files the program sees. Processes, network and devices are those of the host, limited by the
//! step's groups, so that signals, freezing and accounting are the same as without a container.

mod arguments;
mod bubblewrap;
mod check;
mod enroot;
mod enter;
mod program;
mod root_view;
mod start_report;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{self, IsTerminal};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use sluice_common::attempt_dir::CONTAINER_FILE;
use sluice_common::container::Container;
use sluice_common::helper::START_REPORT_VARIABLE;
use sluice_common::image::{ContainerRuntime, RUNTIME_DIRECTORIES};

use program::{ContainerProgram, mounts};
use start_report::StartReport;

pub(crate) use enter::run as enter;

/// Runs a program: the arguments are the attempt's directory, and the program with its arguments.
pub(crate) fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let mut report = StartReport::inherited();
    let started = prepare(args).and_then(|program| start(&program, &mut report));
    match started {
        Ok(code) => code,
        Err(why) => report.failed(&why),
    }
}

fn prepare(mut args: impl Iterator<Item = OsString>) -> Result<ContainerProgram, String> {
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
    let workdir =
        std::env::current_dir().map_err(|e| format!("the working directory has no name: {e}"))?;
    let mounts = mounts(&dir, &workdir, &container)?;
    let name = dir.file_name().map(|name| name.to_string_lossy());
    let program = ContainerProgram {
        name: format!("sluice-{}", name.unwrap_or_default()),
        container,
        runtime,
        runtime_path,
        dir,
        workdir,
        mounts,
        env: environment(),
        has_terminal: io::stdin().is_terminal(),
        command,
    };
    check::check(&program)?;
    Ok(program)
}

fn start(program: &ContainerProgram, report: &mut StartReport) -> Result<ExitCode, String> {
    match program.runtime {
        ContainerRuntime::Bubblewrap => bubblewrap::run(program, report),
        ContainerRuntime::Enroot => enroot::run(program, report),
        ContainerRuntime::Apptainer | ContainerRuntime::Podman | ContainerRuntime::Singularity => {
            let failed = arguments::of(program)?.of(&program.runtime_path).exec();
            Err(program.unstartable(&failed))
        }
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
