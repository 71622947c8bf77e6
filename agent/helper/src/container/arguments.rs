//! Command lines of Podman and Apptainer, and what those of all runtimes share. Pure.
//!
//! Variables reach the program by the runtime's own environment and never by its command line, which other users can
//! read. Exceptions are `PATH` and those of the dynamic loader, which are meant for the container and would change the
//! runtime itself: they are passed on by name.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use sluice_common::image::{ContainerRuntime, ImageKind, RUNTIME_PATH};

use super::program::ContainerProgram;

/// Variables of the host's user, which Podman's images replace.
const OF_USER: [&str; 4] = ["HOME", "LOGNAME", "SHELL", "USER"];

/// Variable with the UUIDs of the step's GPUs, which no step can change.
const GPUS: &str = "CUDA_VISIBLE_DEVICES";

/// Shared memory of the host: Podman would give 64 MiB.
const SHARED_MEMORY: &str = "/dev/shm";

/// Arguments and environment of a runtime.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RuntimeCommand {
    pub(super) args: Vec<OsString>,
    pub(super) env: BTreeMap<String, String>,
}

impl RuntimeCommand {
    /// The command of the runtime at `path`.
    pub(super) fn of(self, path: &Path) -> Command {
        let mut command = Command::new(path);
        command.args(self.args).env_clear().envs(self.env);
        command
    }
}

/// Whether a variable is meant for the container and would change the runtime.
pub(super) fn is_only_inside(name: &str) -> bool {
    name == "PATH" || name.starts_with("LD_")
}

/// The command line of Podman or Apptainer.
pub(super) fn of(program: &ContainerProgram) -> Result<RuntimeCommand, String> {
    let invocation = match program.runtime {
        ContainerRuntime::Podman => podman(program),
        ContainerRuntime::Apptainer => apptainer(program, "APPTAINERENV_"),
        ContainerRuntime::Singularity => apptainer(program, "SINGULARITYENV_"),
        ContainerRuntime::Bubblewrap | ContainerRuntime::Enroot => {
            return Err(format!("{} is started otherwise", program.runtime));
        }
    };
    Ok(invocation)
}

pub(super) fn gpus(program: &ContainerProgram) -> impl Iterator<Item = &str> {
    let all = program.env.get(GPUS).map_or("", String::as_str);
    all.split(',').filter(|uuid| !uuid.is_empty())
}

fn workdir(program: &ContainerProgram) -> String {
    program.workdir.to_string_lossy().into_owned()
}

/// `--cgroups=disabled`: the container stays in the step's groups. This needs a namespace of processes, in which a program
/// that is process 1 would ignore SIGTERM without a handler; so that is `--init`.
fn podman(program: &ContainerProgram) -> RuntimeCommand {
    let mut args: Vec<String> = ["run", "--rm", "--interactive", "--name"]
        .map(Into::into)
        .into();
    args.push(program.name.clone());
    if program.has_terminal {
        args.push("--tty".into());
    }
    let same_as_host = [
        "--cgroups=disabled",
        "--init",
        "--network=host",
        "--uts=host",
        "--security-opt=label=disable",
        "--log-driver=none",
        "--entrypoint=",
    ];
    args.extend(same_as_host.map(Into::into));
    args.push(format!("--workdir={}", workdir(program)));
    for mount in program.mounts.values() {
        let (source, target) = (&mount.source, &mount.target);
        let mode = if mount.read_only { ",ro" } else { "" };
        args.push(format!("--mount=type=bind,src={source},dst={target}{mode}"));
    }
    args.push(format!(
        "--mount=type=bind,src={SHARED_MEMORY},dst={SHARED_MEMORY}"
    ));
    args.extend(gpus(program).map(|uuid| format!("--device=nvidia.com/gpu={uuid}")));
    let env = &program.env;
    for (name, value) in env {
        if is_only_inside(name) {
            args.push(format!("--env={name}={value}"));
        } else if !OF_USER.contains(&name.as_str()) {
            args.push(format!("--env={name}"));
        }
    }
    args.push(program.container.image.as_str().to_owned());
    RuntimeCommand {
        args: with_command(args, program),
        env: outside(env).collect(),
    }
}

/// Apptainer passes its own environment on, except for variables that only its `prefix` brings into the container.
fn apptainer(program: &ContainerProgram, prefix: &str) -> RuntimeCommand {
    let mut args: Vec<String> = ["exec", "--no-home", "--pwd"].map(Into::into).into();
    args.push(workdir(program));
    for mount in program.mounts.values() {
        let (source, target) = (&mount.source, &mount.target);
        let mode = if mount.read_only { ":ro" } else { "" };
        args.push(format!("--bind={source}:{target}{mode}"));
    }
    if gpus(program).next().is_some() {
        args.push("--nv".into());
    }
    let image = program.container.image.as_str();
    args.push(match program.container.image.form() {
        ImageKind::Registry => format!("docker://{image}"),
        ImageKind::Sif | ImageKind::Sqsh | ImageKind::Directory => image.to_owned(),
    });
    let env = &program.env;
    let inside = env.iter().filter(|(name, _)| is_only_inside(name));
    let inside = inside.map(|(name, value)| (format!("{prefix}{name}"), value.clone()));
    RuntimeCommand {
        args: with_command(args, program),
        env: outside(env).chain(inside).collect(),
    }
}

/// The variables of the runtime itself.
pub(super) fn outside(env: &BTreeMap<String, String>) -> impl Iterator<Item = (String, String)> {
    let own = env.iter().filter(|(name, _)| !is_only_inside(name));
    own.map(|(name, value)| (name.clone(), value.clone()))
        .chain([("PATH".to_owned(), RUNTIME_PATH.to_owned())])
}

/// Arguments of a runtime, followed by the program and its own.
pub(super) fn with_command(args: Vec<String>, program: &ContainerProgram) -> Vec<OsString> {
    let args = args.into_iter().map(OsString::from);
    args.chain(program.command.iter().cloned()).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::container::program::mounts;
    use sluice_common::container::{Container, ContainerMount};
    use std::path::Path;

    pub(in crate::container) fn program(
        image: &str,
        runtime: ContainerRuntime,
    ) -> ContainerProgram {
        let container = Container {
            image: image.parse().unwrap(),
            runtime: Some(runtime),
            mounts: vec![ContainerMount {
                source: "/data/sets".into(),
                target: "/sets".into(),
                read_only: true,
            }],
        };
        let workdir = Path::new("/a/s.1/work");
        let env = [
            ("CUDA_VISIBLE_DEVICES", "GPU-1,GPU-2"),
            ("HOME", "/home/ada"),
            ("LD_LIBRARY_PATH", "/opt/lib"),
            ("PATH", "/opt/bin"),
            ("TOKEN", "secret"),
        ];
        ContainerProgram {
            mounts: mounts(Path::new("/a/s.1"), workdir, &container).unwrap(),
            container,
            runtime,
            runtime_path: "/usr/bin/x".into(),
            dir: "/a/s.1".into(),
            name: "sluice-s.1".into(),
            workdir: workdir.into(),
            env: env.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            has_terminal: false,
            command: ["python", "-c", "1; 2"].map(Into::into).into(),
        }
    }

    pub(in crate::container) fn line(invocation: &RuntimeCommand) -> String {
        let args = invocation.args.iter();
        let args: Vec<_> = args.map(|arg| arg.to_str().unwrap()).collect();
        args.join(" ")
    }

    #[test]
    fn podman_stays_in_the_groups_of_the_step_and_takes_values_from_its_environment() {
        let of_registry = program("docker.io/library/python:3", ContainerRuntime::Podman);
        let invocation = of(&of_registry).unwrap();
        let expected = "run --rm --interactive --name sluice-s.1 --cgroups=disabled --init --network=host \
             --uts=host --security-opt=label=disable --log-driver=none --entrypoint= \
             --workdir=/a/s.1/work --mount=type=bind,src=/a/s.1,dst=/a/s.1 \
             --mount=type=bind,src=/a/s.1/work,dst=/a/s.1/work \
             --mount=type=bind,src=/data/sets,dst=/sets,ro --mount=type=bind,src=/tmp,dst=/tmp \
             --mount=type=bind,src=/dev/shm,dst=/dev/shm --device=nvidia.com/gpu=GPU-1 --device=nvidia.com/gpu=GPU-2 --env=CUDA_VISIBLE_DEVICES \
             --env=LD_LIBRARY_PATH=/opt/lib --env=PATH=/opt/bin --env=TOKEN \
             docker.io/library/python:3 python -c 1; 2";
        assert_eq!(line(&invocation), expected);
        assert_eq!(invocation.env["TOKEN"], "secret");
        assert_eq!(invocation.env["PATH"], RUNTIME_PATH);
        assert!(!invocation.env.contains_key("LD_LIBRARY_PATH"));
        let on_terminal = ContainerProgram {
            has_terminal: true,
            ..of_registry
        };
        let invocation = line(&of(&on_terminal).unwrap());
        assert!(invocation.contains(" --tty "), "{invocation}");
    }

    #[test]
    fn apptainer_brings_only_by_its_prefix_what_would_change_itself() {
        let of_file = program("/images/train.sif", ContainerRuntime::Apptainer);
        let invocation = of(&of_file).unwrap();
        let expected = "exec --no-home --pwd /a/s.1/work --bind=/a/s.1:/a/s.1 \
             --bind=/a/s.1/work:/a/s.1/work --bind=/data/sets:/sets:ro --bind=/tmp:/tmp --nv \
             /images/train.sif python -c 1; 2";
        assert_eq!(line(&invocation), expected);
        assert_eq!(invocation.env["APPTAINERENV_PATH"], "/opt/bin");
        assert_eq!(invocation.env["APPTAINERENV_LD_LIBRARY_PATH"], "/opt/lib");
        assert_eq!(invocation.env["PATH"], RUNTIME_PATH);
        assert_eq!(invocation.env["HOME"], "/home/ada");
        let mut of_registry = program("docker.io/library/python:3", ContainerRuntime::Singularity);
        of_registry.env.remove("CUDA_VISIBLE_DEVICES");
        let invocation = of(&of_registry).unwrap();
        assert!(line(&invocation).contains("/tmp docker://docker.io/library/python:3 python"));
        assert!(invocation.env.contains_key("SINGULARITYENV_PATH"));
    }

    #[test]
    fn a_mount_in_place_of_the_root_is_refused() {
        let mut container = program("/images/root", ContainerRuntime::Podman).container;
        container.mounts[0].target = "//".into();
        let why = mounts(Path::new("/a"), Path::new("/w"), &container).unwrap_err();
        assert!(why.contains("the place of `/`"), "{why}");
    }
}
