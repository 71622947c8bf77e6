//! Checks before a container is started: the image, the sources of mounts and, if the image is a directory, the program.
//! Each failure is one sentence that names the value and the way out.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::unistd::{AccessFlags, access};
use sluice_common::image::{ContainerRuntime, ImageKind};

use super::program::ContainerProgram;

/// Names of which a root file system has at least one.
const TOP_NAMES: [&str; 3] = ["bin", "usr", "etc"];

/// First bytes of a file system in squashfs, little-endian, by the kernel's `Documentation/filesystems/squashfs.rst`.
const SQUASHFS: &[u8] = b"hsqs";

pub(super) fn check(program: &ContainerProgram) -> Result<(), String> {
    let image = &program.container.image;
    let path = Path::new(image.as_str());
    match image.form() {
        ImageKind::Registry => {}
        ImageKind::Sif => check_file(path, None)?,
        ImageKind::Sqsh => check_file(path, Some(SQUASHFS))?,
        ImageKind::Directory => {
            check_root(path)?;
            check_program(program, path)?;
        }
    }
    for mount in program.mounts.values() {
        fs::metadata(&mount.source).map_err(|e| {
            let (source, why) = (shown(Path::new(&mount.source)), problem(&e));
            format!("mount source `{source}` {why}")
        })?;
    }
    check_letters(program)
}

/// Runtimes separate the parts of a mount by letters that they cannot quote.
fn check_letters(program: &ContainerProgram) -> Result<(), String> {
    let (taken, words) = match program.runtime {
        ContainerRuntime::Bubblewrap => return Ok(()),
        ContainerRuntime::Podman => (",", "`,`"),
        ContainerRuntime::Apptainer | ContainerRuntime::Singularity => (":", "`:`"),
        ContainerRuntime::Enroot => (": \t\n", "`:`, spaces"),
    };
    let mounts = program.mounts.values();
    let paths = mounts.flat_map(|mount| [mount.source.as_str(), &mount.target]);
    // Enroot writes the path of an image into a script.
    let image = &program.container.image;
    let mut paths = paths.chain((image.form() == ImageKind::Sqsh).then(|| image.as_str()));
    let is_taken = |c: char| taken.contains(c) || "\"'\\".contains(c);
    match paths.find(|path| path.contains(is_taken)) {
        None => Ok(()),
        Some(path) => Err(format!(
            "`{}` cannot be mounted by {}: use a path without {words}, quotes and backslashes",
            shown(Path::new(path)),
            program.runtime
        )),
    }
}

fn problem(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::NotFound => "does not exist on this host".to_owned(),
        io::ErrorKind::PermissionDenied => "may not be read by the step's user".to_owned(),
        _ => format!("cannot be read: {e}"),
    }
}

/// Checks that a file can be read, and that it begins as the files of its kind do.
fn check_file(path: &Path, start: Option<&[u8]>) -> Result<(), String> {
    let text = shown(path);
    let found = fs::metadata(path);
    let readable = found.and_then(|found| {
        access(path, AccessFlags::R_OK)?;
        Ok(found.is_file())
    });
    match readable {
        Ok(true) => {}
        Ok(false) => {
            return Err(format!(
                "image `{text}` is not a file, but a directory or device"
            ));
        }
        Err(e) => return Err(missing(&text, &e)),
    }
    let Some(start) = start else { return Ok(()) };
    let mut first = vec![0; start.len()];
    match File::open(path).and_then(|mut file| file.read_exact(&mut first)) {
        Ok(()) if first == start => Ok(()),
        Ok(()) => Err(not_squashfs(&text)),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(not_squashfs(&text)),
        Err(e) => Err(missing(&text, &e)),
    }
}

fn not_squashfs(text: &str) -> String {
    format!("image `{text}` is no squashfs file: make one with `enroot import` or `mksquashfs`")
}

fn check_root(path: &Path) -> Result<(), String> {
    let text = shown(path);
    let found = fs::metadata(path).map_err(|e| missing(&text, &e))?;
    if !found.is_dir() {
        return Err(format!(
            "image `{text}` is a file: name a directory with a root file system, or a `.sif` or `.sqsh` image"
        ));
    }
    access(path, AccessFlags::R_OK | AccessFlags::X_OK)
        .map_err(|e| missing(&text, &io::Error::from(e)))?;
    let has_any = TOP_NAMES.iter().any(|name| path.join(name).exists());
    match has_any {
        true => Ok(()),
        false => Err(format!(
            "image `{text}` holds no root file system: it has none of {}",
            TOP_NAMES.join(", ")
        )),
    }
}

fn missing(text: &str, e: &io::Error) -> String {
    let why = problem(e);
    match e.kind() {
        io::ErrorKind::NotFound => {
            format!("image `{text}` {why}: put it on each host of the pool")
        }
        _ => format!("image `{text}` {why}"),
    }
}

/// Looks up the program in the image and in mounts. A relative one is left to the runtime.
fn check_program(program: &ContainerProgram, root: &Path) -> Result<(), String> {
    let name = Path::new(&program.command[0]);
    let (text, image) = (shown(name), shown(root));
    if name.is_relative() && name.components().count() > 1 {
        return Ok(());
    }
    if name.is_absolute() {
        return match find(program, root, name) {
            ProgramLookup::Program => Ok(()),
            ProgramLookup::NotExecutable => Err(format!(
                "command `{text}` is not an executable file in image `{image}`"
            )),
            ProgramLookup::Nothing => Err(format!(
                "command `{text}` does not exist in image `{image}`"
            )),
        };
    }
    let path = program.env.get("PATH").map_or("", String::as_str);
    let mut files = path.split(':').map(|dir| Path::new(dir).join(name));
    match files.any(|file| find(program, root, &file) == ProgramLookup::Program) {
        true => Ok(()),
        false => Err(format!(
            "command `{text}` was not found in image `{image}` in PATH ({}): check its spelling, or give its full path",
            shown(Path::new(path))
        )),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProgramLookup {
    Program,
    NotExecutable,
    Nothing,
}

/// Looks at a path in the container. What a mount shows counts if it is there, because a link in it may lead into the image.
fn find(program: &ContainerProgram, root: &Path, path: &Path) -> ProgramLookup {
    let mut mounts = program.mounts.iter().rev();
    let mount = mounts.find_map(|(target, mount)| {
        let rest = path.strip_prefix(target).ok()?;
        Some(Path::new(&mount.source).join(rest))
    });
    match mount.map(|file| file.symlink_metadata().is_ok()) {
        Some(true) => ProgramLookup::Program,
        Some(false) => ProgramLookup::Nothing,
        None => look_at(root, path),
    }
}

/// Looks at a path as a program in the image sees it: symbolic links begin at the image's root.
fn look_at(root: &Path, path: &Path) -> ProgramLookup {
    let below: PathBuf = path
        .components()
        .filter(|part| !matches!(part, Component::RootDir))
        .collect();
    let opened = open(root, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).and_then(|root| {
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT);
        openat2(root, &below, how)
    });
    let found = opened.and_then(fstat);
    match found {
        Ok(found) => {
            let is_file =
                SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG;
            match is_file && found.st_mode & 0o111 != 0 {
                true => ProgramLookup::Program,
                false => ProgramLookup::NotExecutable,
            }
        }
        // An old kernel cannot tell; the runtime will.
        Err(Errno::ENOSYS) => ProgramLookup::Program,
        Err(_) => ProgramLookup::Nothing,
    }
}

/// A path made safe for a message: without control characters, and cut.
pub(super) fn shown(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = text
        .chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c });
    let mut short: String = plain.take(200).collect();
    if text.chars().nth(200).is_some() {
        short.push_str("...");
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::program::mounts;
    use sluice_common::container::{Container, ContainerMount};
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// A root file system in which `sh` is reached by two links, and `data` is no program.
    fn root() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir_all(root.join("usr/bin")).unwrap();
        fs::write(root.join("usr/bin/busybox"), "").unwrap();
        fs::write(root.join("usr/bin/data"), "").unwrap();
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(root.join("usr/bin/busybox"), mode).unwrap();
        symlink("/usr/bin/busybox", root.join("usr/bin/sh")).unwrap();
        symlink("usr/bin", root.join("bin")).unwrap();
        dir
    }

    fn checked(image: &Path, runtime: ContainerRuntime, command: &str) -> Result<(), String> {
        let workdir = Path::new("/");
        let container = Container {
            image: image.to_str().unwrap().parse().unwrap(),
            runtime: Some(runtime),
            mounts: vec![],
        };
        let mut program = ContainerProgram {
            mounts: mounts(Path::new("/tmp"), Path::new("/tmp"), &container).unwrap(),
            container,
            runtime,
            runtime_path: "/usr/bin/x".into(),
            dir: "/tmp".into(),
            name: "n".into(),
            workdir: workdir.into(),
            env: [("PATH".to_owned(), "/sbin:/bin".to_owned())].into(),
            has_terminal: false,
            command: vec![command.into()],
        };
        if let Some((source, command)) = command.split_once('|') {
            program.command = vec![command.into()];
            let mount = ContainerMount::same(source);
            program.mounts.insert(source.into(), mount);
        }
        check(&program)
    }

    #[test]
    fn programs_are_looked_up_as_the_image_sees_them() {
        let root = root();
        let run = |command: &str| checked(root.path(), ContainerRuntime::Bubblewrap, command);
        let own = tempfile::NamedTempFile::new_in("/tmp").unwrap();
        let own = own.path().to_str().unwrap();
        for command in ["sh", "/bin/sh", "/usr/bin/busybox", "./own", own] {
            assert_eq!(run(command), Ok(()), "{command}");
        }
        for (command, words) in [
            ("bash", "`bash` was not found in image"),
            ("/bin/bash", "`/bin/bash` does not exist in image"),
            ("/usr/bin/data", "is not an executable file in image"),
            ("/usr/bin", "is not an executable file in image"),
            ("/tmp/no-such", "`/tmp/no-such` does not exist in image"),
            (
                "/no/such|sh",
                "mount source `/no/such` does not exist on this host",
            ),
        ] {
            let why = run(command).unwrap_err();
            assert!(why.contains(words), "{command}: {why}");
        }
    }

    #[test]
    fn an_image_that_is_none_is_named_with_the_way_out() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.sif"), "").unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        fs::write(dir.path().join("a.sqsh"), "hs").unwrap();
        fs::create_dir(dir.path().join("empty")).unwrap();
        fs::create_dir(dir.path().join("dir.sif")).unwrap();
        for (name, words) in [
            ("none", "does not exist on this host: put it on each host"),
            (
                "none.sif",
                "does not exist on this host: put it on each host",
            ),
            ("file", "is a file: name a directory"),
            (
                "empty",
                "holds no root file system: it has none of bin, usr, etc",
            ),
            ("dir.sif", "is not a file, but a directory or device"),
            ("a.sqsh", "is no squashfs file: make one with"),
        ] {
            let path = dir.path().join(name);
            let why = checked(&path, ContainerRuntime::Apptainer, "sh").unwrap_err();
            assert!(why.contains(words), "{name}: {why}");
        }
        let sif = dir.path().join("a.sif");
        assert_eq!(checked(&sif, ContainerRuntime::Apptainer, "sh"), Ok(()));
    }

    #[test]
    fn paths_that_a_runtime_cannot_quote_are_refused() {
        let (root, dir) = (root(), tempfile::tempdir().unwrap());
        let odd = dir.path().join("a,b:c");
        fs::create_dir(&odd).unwrap();
        let command = format!("{}|sh", odd.display());
        for (runtime, words) in [
            (ContainerRuntime::Podman, "use a path without `,`"),
            (ContainerRuntime::Apptainer, "use a path without `:`"),
            (ContainerRuntime::Enroot, "without `:`, spaces, quotes"),
        ] {
            let why = checked(root.path(), runtime, &command).unwrap_err();
            assert!(why.contains(words), "{why}");
        }
        let run = checked(root.path(), ContainerRuntime::Bubblewrap, &command);
        assert_eq!(run, Ok(()));
    }
}
