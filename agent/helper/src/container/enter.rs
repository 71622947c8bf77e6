//! Runs a program in the container of a running step (`sluice exec`), as the step's user and in the step's groups: in the
//! namespaces of a process of the container or, with Podman, by Podman itself.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, IsTerminal};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use nix::errno::Errno;
use sluice_common::image::ContainerRuntime;

use super::start_report::StartReport;
use super::{check, chosen, environment, path_of, read};

/// Most processes of a step that are searched for one of its container.
const MAX_PROCESSES: usize = 4096;

/// Runs the program: the arguments are the attempt's directory, the process id of the step's main process, and the program
/// with its arguments.
pub(crate) fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let report = StartReport::inherited();
    report.failed(&enter(args))
}

/// Becomes the program. Returns only with the reason of a failure.
fn enter(mut args: impl Iterator<Item = OsString>) -> String {
    let (Some(dir), Some(main), Some(name)) = (args.next(), args.next(), args.next()) else {
        return "no program is named".to_owned();
    };
    let dir = PathBuf::from(dir);
    let main = main.to_str().and_then(|main| main.parse().ok());
    let container = read(&dir).and_then(|container| chosen(&container));
    let entered = match container {
        Ok(ContainerRuntime::Podman) => podman(&dir),
        Ok(_) => main
            .ok_or_else(|| "no main process is named".to_owned())
            .and_then(namespaces),
        Err(why) => Err(why),
    };
    let mut command = match entered {
        Ok(ContainerEntry::Namespaces(env)) => {
            let mut command = Command::new(&name);
            command.env_clear().envs(env);
            command
        }
        Ok(ContainerEntry::Podman(mut podman)) => {
            podman.arg(&name).env_clear().envs(environment());
            podman
        }
        Err(why) => return why,
    };
    let e = command.args(args).exec();
    let shown = check::shown(Path::new(&name));
    match e.kind() {
        io::ErrorKind::NotFound => {
            format!("command `{shown}` was not found in the container of the step")
        }
        _ => format!("command `{shown}` could not be executed in the container of the step: {e}"),
    }
}

/// A way into the container.
enum ContainerEntry {
    /// This process is inside, and this is the environment of the program there.
    Namespaces(BTreeMap<OsString, OsString>),
    /// This command of Podman enters it.
    Podman(Command),
}

fn podman(dir: &Path) -> Result<ContainerEntry, String> {
    let mut command = Command::new(path_of(ContainerRuntime::Podman)?);
    command.args(["exec", "--interactive"]);
    if io::stdin().is_terminal() {
        command.arg("--tty");
    }
    let name = dir.file_name().map(|name| name.to_string_lossy());
    command.arg(format!("sluice-{}", name.unwrap_or_default()));
    Ok(ContainerEntry::Podman(command))
}

/// Joins the namespaces of the first process of the container.
fn namespaces(main: u32) -> Result<ContainerEntry, String> {
    let pid =
        contained(main).ok_or("the container of the step has no process yet, or none any more")?;
    let failed =
        |e: &dyn std::fmt::Display| format!("the container of the step could not be entered: {e}");
    let proc = PathBuf::from(format!("/proc/{pid}"));
    let environ = fs::read(proc.join("environ")).map_err(|e| failed(&e))?;
    let workdir = fs::read_link(proc.join("cwd")).map_err(|e| failed(&e))?;
    let open = |name: &str| File::open(proc.join("ns").join(name)).map_err(|e| failed(&e));
    let (user, mount) = (open("user")?, open("mnt")?);
    if is_other(&proc, "user") {
        join(&user, libc::CLONE_NEWUSER).map_err(|e| failed(&e.desc()))?;
    }
    join(&mount, libc::CLONE_NEWNS).map_err(|e| failed(&e.desc()))?;
    std::env::set_current_dir(&workdir).map_err(|e| failed(&e))?;
    Ok(ContainerEntry::Namespaces(variables(&environ)))
}

fn variables(environ: &[u8]) -> BTreeMap<OsString, OsString> {
    let text = String::from_utf8_lossy(environ);
    let lines = text.split('\0').filter_map(|line| line.split_once('='));
    lines
        .map(|(name, value)| (name.into(), value.into()))
        .collect()
}

/// The first descendant of a process that has another mount namespace and another root directory than this process. While
/// Enroot packs an image, its processes have only the former.
fn contained(main: u32) -> Option<u32> {
    let mut waiting = VecDeque::from([main]);
    for _ in 0..MAX_PROCESSES {
        let pid = waiting.pop_front()?;
        let proc = PathBuf::from(format!("/proc/{pid}"));
        if is_other(&proc, "mnt") && has_other_root(&proc) {
            return Some(pid);
        }
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.unwrap_or_default();
        waiting.extend(
            children
                .split_whitespace()
                .filter_map(|it| it.parse::<u32>().ok()),
        );
    }
    None
}

/// Whether a process has another root directory than this one.
fn has_other_root(proc: &Path) -> bool {
    let id = |root: &Path| fs::metadata(root).map(|it| (it.dev(), it.ino()));
    matches!((id(&proc.join("root")), id(Path::new("/"))), (Ok(one), Ok(own)) if one != own)
}

/// Whether a process has another namespace of a kind than this one.
fn is_other(proc: &Path, kind: &str) -> bool {
    let id = |proc: &Path| fs::metadata(proc.join("ns").join(kind)).map(|it| it.ino());
    matches!((id(proc), id(Path::new("/proc/self"))), (Ok(one), Ok(own)) if one != own)
}

#[expect(unsafe_code, reason = "joining a namespace has no safe form")]
fn join(namespace: &File, kind: i32) -> nix::Result<()> {
    // SAFETY: the call takes two integers, and changes only this process, which has one thread.
    let joined = unsafe { libc::setns(namespace.as_raw_fd(), kind) };
    Errno::result(joined).map(drop)
}
