//! Runs a program in an image by Enroot.
//!
//! Enroot passes variables on through a file of lines, which takes neither line feeds nor quotes around a value, and it
//! sets no working directory. So a script does both in the container, and then becomes the program.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

use nix::sys::wait::WaitStatus;
use nix::unistd::{AccessFlags, Pid, access};
use sluice_common::attempt_dir::STEP_DIR;
use sluice_common::image::ImageKind;

use super::arguments::{RuntimeCommand, gpus, outside, with_command};
use super::program::ContainerProgram;
use super::start_report::{NOT_RUN, StartReport};
use crate::streams::end_like;

/// Directory of Enroot's files within the directory that the step can always write to.
const OWN_DIR: &str = "enroot";

/// Program of Enroot that starts another one with new namespaces.
const NSENTER: &str = "enroot-nsenter";

/// Registry that a reference names, and the one that has its images.
const DOCKER_HUB: (&str, &str) = ("docker.io", "registry-1.docker.io");

/// Becomes Enroot. Returns only if the program does not start.
pub(super) fn run(
    program: &ContainerProgram,
    report: &mut StartReport,
) -> Result<ExitCode, String> {
    let files = RuntimeFiles::of(program);
    files.write_script(&script(program)?)?;
    let has_home = program.env.get("HOME").is_some_and(|home| {
        let home = Path::new(home);
        home.is_dir() && access(home, AccessFlags::W_OK).is_ok()
    });
    if program.container.image.form() == ImageKind::Registry {
        // This may take minutes, in which the step counts as running.
        report.started();
        let failed = |e: io::Error| program.unstartable(&e);
        let stderr = io::stderr().as_fd().try_clone_to_owned().map_err(failed)?;
        let packed = import(program, &files, has_home)
            .of(&program.runtime_path.with_file_name(NSENTER))
            .stdin(Stdio::null())
            .stdout(stderr)
            .status();
        let packed = packed.map_err(failed)?;
        if !packed.success() {
            end_like(
                WaitStatus::from_raw(Pid::this(), packed.into_raw())
                    .map_err(|e| failed(e.into()))?,
            );
        }
    }
    let start = start(program, &files, has_home);
    Err(program.unstartable(&start.of(&program.runtime_path).exec()))
}

/// Files of one attempt.
struct RuntimeFiles {
    dir: PathBuf,
    /// The script that the container begins with.
    script: PathBuf,
    /// The image of a registry, packed into one file.
    packed: PathBuf,
}

impl RuntimeFiles {
    fn of(program: &ContainerProgram) -> Self {
        let dir = program.dir.join(STEP_DIR).join(OWN_DIR);
        Self {
            script: dir.join("script"),
            packed: dir.join("image.sqsh"),
            dir,
        }
    }

    /// Writes the script, which holds the step's variables, for the step's user alone.
    fn write_script(&self, script: &str) -> Result<(), String> {
        let mut new = OpenOptions::new();
        new.write(true).create_new(true).mode(0o600);
        let written = fs::create_dir_all(&self.dir)
            .and_then(|()| new.open(&self.script))
            .and_then(|mut file| file.write_all(script.as_bytes()));
        written.map_err(|e| format!("{} cannot be written: {e}", self.script.display()))
    }
}

/// The command that packs an image of a registry into a file, which counts as the step's. Enroot's programs for that rely on
/// file capabilities, which no step gets; in a user namespace they need none, but there files can have one owner only.
fn import(program: &ContainerProgram, files: &RuntimeFiles, has_home: bool) -> RuntimeCommand {
    let image = program.container.image.as_str();
    let (registry, name) = image.split_once('/').unwrap_or((DOCKER_HUB.0, image));
    let is_of_hub = registry == DOCKER_HUB.0;
    let registry = if is_of_hub { DOCKER_HUB.1 } else { registry };
    let library = match is_of_hub && !name.contains('/') {
        true => "library/",
        false => "",
    };
    let enroot = program.runtime_path.display().to_string();
    let packed = files.packed.display().to_string();
    let uri = format!("docker://{registry}#{library}{name}");
    let in_namespaces = ["--user", "--remap-root", "--mount", &enroot];
    let args = in_namespaces
        .into_iter()
        .chain(["import", "--output", &packed, &uri]);
    let mut env = variables(program, files, has_home);
    env.insert("TAR_OPTIONS".to_owned(), "--no-same-owner".to_owned());
    RuntimeCommand {
        args: args.map(Into::into).collect(),
        env,
    }
}

/// The command that becomes the program. Changes of the image's files are kept in memory.
fn start(program: &ContainerProgram, files: &RuntimeFiles, has_home: bool) -> RuntimeCommand {
    let script = files.script.display().to_string();
    let mut args: Vec<String> = ["start", "--rw", "--rc", &script].map(Into::into).into();
    for mount in program.mounts.values() {
        let (source, target) = (&mount.source, &mount.target);
        let mode = if mount.read_only { ",ro" } else { "" };
        args.push(format!(
            "--mount={source}:{target}:none:x-create=auto,rbind{mode}"
        ));
    }
    args.push(match program.container.image.form() {
        ImageKind::Registry => files.packed.display().to_string(),
        _ => program.container.image.as_str().to_owned(),
    });
    RuntimeCommand {
        args: with_command(args, program),
        env: variables(program, files, has_home),
    }
}

/// The variables of Enroot itself: the step's, without those that its shell would obey, and its directories.
fn variables(
    program: &ContainerProgram,
    files: &RuntimeFiles,
    has_home: bool,
) -> BTreeMap<String, String> {
    let is_of_shell = |name: &str| name.starts_with("BASH") || name == "SHELLOPTS";
    let env = outside(&program.env).filter(|(name, _)| !is_of_shell(name));
    let mut env: BTreeMap<_, _> = env.collect();
    let mut set = |name: &str, value: String| env.insert(name.to_owned(), value);
    let own = |name: &str| files.dir.join(name).display().to_string();
    set("ENROOT_RUNTIME_PATH", own("run"));
    set("ENROOT_DATA_PATH", own("data"));
    set("ENROOT_TEMP_PATH", own(""));
    if !has_home {
        set("ENROOT_CACHE_PATH", own("cache"));
    }
    // A login shell would read the image's profile, which may say and change anything.
    set("ENROOT_LOGIN_SHELL", "no".to_owned());
    let granted: Vec<&str> = gpus(program).collect();
    let visible = match granted.is_empty() {
        true => "void".to_owned(),
        false => granted.join(","),
    };
    set("NVIDIA_VISIBLE_DEVICES", visible);
    env.entry("NVIDIA_DRIVER_CAPABILITIES".to_owned())
        .or_insert_with(|| "compute,utility".to_owned());
    env
}

/// The script that becomes the program: for the image's `sh`, with the program as its arguments.
fn script(program: &ContainerProgram) -> Result<String, String> {
    let mut script = String::new();
    for (name, value) in &program.env {
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if !name.chars().all(is_of_name) || name.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(format!(
                "the variable `{}` cannot be passed on by Enroot: its name may have only letters, digits and `_`",
                name.escape_default()
            ));
        }
        script.push_str(&format!("export {name}={}\n", quoted(value)));
    }
    let workdir = quoted(&program.workdir.to_string_lossy());
    script.push_str(&format!("cd {workdir} || exit {NOT_RUN}\nexec \"$@\"\n"));
    Ok(script)
}

/// A text as one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::arguments::tests::{line, program};
    use sluice_common::image::ContainerRuntime;

    fn of(image: &str) -> ContainerProgram {
        program(image, ContainerRuntime::Enroot)
    }

    #[test]
    fn an_image_is_started_with_the_mounts_and_the_gpus_of_the_step() {
        let mut of_file = of("/images/a.sqsh");
        let files = RuntimeFiles::of(&of_file);
        let command = start(&of_file, &files, true);
        let expected = "start --rw --rc /a/s.1/step/enroot/script --mount=/a/s.1:/a/s.1:none:x-create=auto,rbind \
             --mount=/a/s.1/work:/a/s.1/work:none:x-create=auto,rbind \
             --mount=/data/sets:/sets:none:x-create=auto,rbind,ro --mount=/tmp:/tmp:none:x-create=auto,rbind \
             /images/a.sqsh python -c 1; 2";
        assert_eq!(line(&command), expected);
        let env = &command.env;
        assert_eq!(env["NVIDIA_VISIBLE_DEVICES"], "GPU-1,GPU-2");
        assert_eq!(env["NVIDIA_DRIVER_CAPABILITIES"], "compute,utility");
        assert_eq!(env["ENROOT_RUNTIME_PATH"], "/a/s.1/step/enroot/run");
        assert_eq!(env["HOME"], "/home/ada");
        assert!(!env.contains_key("LD_LIBRARY_PATH") && !env.contains_key("ENROOT_CACHE_PATH"));

        // An image that asks for all GPUs gets none if the step has none.
        of_file.env.remove("CUDA_VISIBLE_DEVICES");
        let more = [("BASH_ENV", "/x"), ("NVIDIA_DRIVER_CAPABILITIES", "all")];
        of_file.env.extend(more.map(|(k, v)| (k.into(), v.into())));
        let env = start(&of_file, &files, false).env;
        assert_eq!(env["NVIDIA_VISIBLE_DEVICES"], "void");
        assert_eq!(env["NVIDIA_DRIVER_CAPABILITIES"], "all");
        assert_eq!(env["ENROOT_CACHE_PATH"], "/a/s.1/step/enroot/cache");
        assert!(!env.contains_key("BASH_ENV"));
    }

    #[test]
    fn an_image_of_a_registry_is_packed_into_the_directory_of_the_attempt() {
        for (image, uri) in [
            (
                "nvcr.io/nvidia/pytorch:24.01-py3",
                "nvcr.io#nvidia/pytorch:24.01-py3",
            ),
            ("docker.io/python", "registry-1.docker.io#library/python"),
            ("docker.io/o/python:3", "registry-1.docker.io#o/python:3"),
            ("localhost:5000/a/b:1", "localhost:5000#a/b:1"),
        ] {
            let program = of(image);
            let files = RuntimeFiles::of(&program);
            let packed = "/a/s.1/step/enroot/image.sqsh";
            let expected = format!(
                "--user --remap-root --mount /usr/bin/x import --output {packed} docker://{uri}"
            );
            assert_eq!(line(&import(&program, &files, true)), expected);
            assert!(line(&start(&program, &files, true)).contains(packed));
        }
    }

    #[test]
    fn the_script_sets_each_value_as_it_is() {
        let mut program = of("/images/a.sqsh");
        program.env = [("A", "it's \"x\"\nB=$HOME"), ("PATH", "/opt/bin")]
            .map(|(k, v)| (k.into(), v.into()))
            .into();
        let expected = "export A='it'\\''s \"x\"\nB=$HOME'\nexport PATH='/opt/bin'\n\
             cd '/a/s.1/work' || exit 126\nexec \"$@\"\n";
        assert_eq!(script(&program).unwrap(), expected);
        program.env.insert("A.B".into(), "x".into());
        let why = script(&program).unwrap_err();
        assert!(
            why.contains("the variable `A.B` cannot be passed on by Enroot"),
            "{why}"
        );
    }
}
