//! Container runtimes that steps can use. A runtime is looked up in a fixed list of directories, asked for its version,
//! and, if it needs nothing but the kernel, tried out. The answers stay until the program's file changes; a runtime that
//! could not be used is tried again after a while, because the cause may be a setting of the kernel.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::{AccessFlags, Pid, access};
use sluice_common::image::{
    ContainerRuntime, ContainerRuntimes, RUNTIME_DIRECTORIES, RUNTIME_PATH,
};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, timeout};

use super::notes::Notes;

/// Time limit of one program. Podman takes a second on a busy host.
const LIMIT: Duration = Duration::from_secs(5);
/// Time after which an unusable runtime is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(60);
/// Programs by which Enroot shows an image.
const OF_ENROOT: [&str; 3] = ["mountpoint", "squashfuse", "unsquashfs"];
/// Device by which it does.
const FUSE: &str = "/dev/fuse";
/// Directories that Enroot makes at each start, and would make in the agent's home.
const ENROOT_PATHS: [&str; 3] = [
    "ENROOT_CACHE_PATH",
    "ENROOT_DATA_PATH",
    "ENROOT_RUNTIME_PATH",
];
/// Most bytes of an answer that are read.
const MAX_ANSWER_BYTES: u64 = 4096;

/// The runtimes of the last look.
#[derive(Debug)]
pub(super) struct ContainerDetector {
    directories: Vec<PathBuf>,
    known: BTreeMap<ContainerRuntime, KnownRuntime>,
}

/// A runtime's program and its answer.
#[derive(Debug)]
struct KnownRuntime {
    file: FileStamp,
    /// Version, or why the runtime cannot be used.
    answer: Result<String, String>,
    asked: Instant,
}

/// Data by which a changed file is noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileStamp {
    path: PathBuf,
    inode: u64,
    modified: i64,
}

impl Default for ContainerDetector {
    fn default() -> Self {
        Self::within(RUNTIME_DIRECTORIES.map(PathBuf::from).into())
    }
}

impl ContainerDetector {
    fn within(directories: Vec<PathBuf>) -> Self {
        Self {
            directories,
            known: BTreeMap::new(),
        }
    }

    /// Asks programs that are new or have changed, all at the same time: each may take long.
    pub(super) async fn look(&mut self) {
        let mut asking = JoinSet::new();
        for runtime in ContainerRuntime::ALL {
            let Some(file) = self.find(runtime) else {
                self.known.remove(&runtime);
                continue;
            };
            let known = self.known.get(&runtime);
            let is_current = known.is_some_and(|known| {
                known.file == file && (known.answer.is_ok() || known.asked.elapsed() < RETRY_AFTER)
            });
            if !is_current {
                asking.spawn(async move {
                    let answer = ask(runtime, &file.path).await;
                    let asked = Instant::now();
                    let known = KnownRuntime {
                        file,
                        answer,
                        asked,
                    };
                    (runtime, known)
                });
            }
        }
        while let Some(asked) = asking.join_next().await {
            // A task that panicked is asked again at the next look.
            self.known.extend(asked);
        }
    }

    /// The program of a runtime, in the first directory that has it.
    fn find(&self, runtime: ContainerRuntime) -> Option<FileStamp> {
        self.directories.iter().find_map(|dir| {
            let path = dir.join(runtime.program());
            let found = path.metadata().ok()?;
            let is_program = found.is_file() && found.mode() & 0o111 != 0;
            is_program.then(|| FileStamp {
                path,
                inode: found.ino(),
                modified: found.mtime(),
            })
        })
    }

    /// The usable runtimes; a note tells of each other one.
    pub(super) fn detect(&self, notes: &mut Notes) -> ContainerRuntimes {
        let mut usable = ContainerRuntimes::new();
        for (runtime, known) in &self.known {
            match &known.answer {
                Ok(version) => {
                    usable.insert(*runtime, version.clone());
                }
                Err(why) => {
                    let path = known.file.path.display();
                    notes.add(format!("{path} cannot run steps: {why}"));
                }
            }
        }
        usable
    }
}

/// The version of a runtime, if it can be used.
async fn ask(runtime: ContainerRuntime, program: &Path) -> Result<String, String> {
    let asks = match runtime {
        ContainerRuntime::Enroot => "version",
        _ => "--version",
    };
    let said = answer(program, &[asks]).await?;
    let version = version(&said).ok_or_else(|| format!("its `{asks}` names none"))?;
    match runtime {
        ContainerRuntime::Bubblewrap => {
            let trial = ["--unshare-user", "--ro-bind", "/", "/", "/bin/true"];
            answer(program, &trial).await?;
        }
        ContainerRuntime::Enroot => enroot_shows_images(RUNTIME_PATH, Path::new(FUSE))?,
        _ => {}
    }
    Ok(version)
}

/// Checks that a host has what Enroot needs to show an image, besides its own programs.
fn enroot_shows_images(path: &str, fuse: &Path) -> Result<(), String> {
    let has = |name: &&str| {
        path.split(':')
            .any(|dir| Path::new(dir).join(name).is_file())
    };
    if let Some(missing) = OF_ENROOT.iter().find(|name| !has(name)) {
        return Err(format!("it needs `{missing}`: install it"));
    }
    access(fuse, AccessFlags::R_OK | AccessFlags::W_OK).map_err(|e| {
        let (fuse, why) = (fuse.display(), e.desc());
        format!("it needs {fuse}, open to every user ({why}): load the kernel module `fuse`, and give the file the mode 0666")
    })
}

/// The first word that begins with a digit, such as that of `podman version 4.3.1`.
fn version(said: &str) -> Option<String> {
    let mut words = said.split_whitespace();
    let word = words.find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    Some(word.to_owned())
}

/// Output of a program, if it succeeds in time.
async fn answer(program: &Path, args: &[&str]) -> Result<String, String> {
    let child = Command::new(program)
        .args(args)
        .envs(ENROOT_PATHS.map(|name| (name, "/tmp")))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Its children hold its streams too, so they are killed with it.
        .process_group(0)
        .spawn();
    let child = child.map_err(|e| format!("it cannot be started: {e}"))?;
    let pid = Pid::from_raw(child.id().cast_signed());
    let mut ended = spawn_blocking(move || end(child));
    let Ok(done) = timeout(LIMIT, &mut ended).await else {
        // The thread reaps it only then, so the number is still its own.
        let _it_may_have_just_ended = killpg(pid, Signal::SIGKILL);
        let _its_answer_comes_too_late = ended.await;
        let limit = LIMIT.as_secs();
        return Err(format!("`{}` took longer than {limit} s", args.join(" ")));
    };
    let failed = |e: &dyn std::fmt::Display| format!("it cannot be asked: {e}");
    let (succeeded, out, err) = done.map_err(|e| failed(&e))?.map_err(|e| failed(&e))?;
    match succeeded {
        true => Ok(out),
        false => {
            let mut lines = err.lines();
            let said = lines.next().unwrap_or("it says nothing");
            Err(format!("`{}` fails: {said}", args.join(" ")))
        }
    }
}

/// Whether a program succeeded, and what it printed on both streams.
fn end(mut child: Child) -> io::Result<(bool, String, String)> {
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let out = out.map_or(Ok(String::new()), read)?;
    let err = err.map_or(Ok(String::new()), read)?;
    Ok((child.wait()?.success(), out, err))
}

fn read(from: impl Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    from.take(MAX_ANSWER_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn program(dir: &Path, name: &str, script: &str) {
        let path = dir.join(format!(".{name}"));
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        // A new file under the old name, as a package manager installs it.
        fs::rename(&path, dir.join(name)).unwrap();
    }

    async fn found(detector: &mut ContainerDetector) -> (ContainerRuntimes, Vec<String>) {
        detector.look().await;
        let mut notes = Notes::default();
        (detector.detect(&mut notes), notes.list())
    }

    #[tokio::test]
    async fn runtimes_are_found_by_their_programs_and_asked_once() {
        let dir = tempfile::tempdir().unwrap();
        let asked = dir.path().join("asked").display().to_string();
        let podman = format!("echo x >>{asked}; echo podman version 4.3.1");
        program(dir.path(), "podman", &podman);
        program(dir.path(), "apptainer", "echo apptainer version 1.3.4-1");
        fs::write(dir.path().join("singularity"), "no program").unwrap();
        let directories = vec!["/nowhere".into(), dir.path().to_owned()];
        let mut detector = ContainerDetector::within(directories);
        let expected = [
            (ContainerRuntime::Apptainer, "1.3.4-1".to_owned()),
            (ContainerRuntime::Podman, "4.3.1".to_owned()),
        ];
        for _ in 0..2 {
            assert_eq!(
                found(&mut detector).await,
                (expected.clone().into(), vec![])
            );
        }
        assert_eq!(fs::read_to_string(&asked).unwrap(), "x\n");
        program(dir.path(), "podman", "echo podman version 5.0.0");
        fs::remove_file(dir.path().join("apptainer")).unwrap();
        let newer = [(ContainerRuntime::Podman, "5.0.0".to_owned())];
        assert_eq!(found(&mut detector).await, (newer.into(), vec![]));
    }

    #[tokio::test]
    async fn a_runtime_that_cannot_be_used_is_not_offered_and_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let closed = "case $1 in --version) echo bubblewrap 0.8.0;; \
            *) echo 'bwrap: No permissions to create new namespace' >&2; exit 1;; esac";
        program(dir.path(), "bwrap", closed);
        program(dir.path(), "podman", "echo nothing");
        let mut detector = ContainerDetector::within(vec![dir.path().to_owned()]);
        let (usable, notes) = found(&mut detector).await;
        assert!(usable.is_empty(), "{usable:?}");
        assert!(notes[0].contains("/bwrap cannot run steps: `--unshare-user --ro-bind"));
        assert!(notes[0].contains("No permissions to create new namespace"));
        assert!(notes[1].contains("/podman cannot run steps: its `--version` names none"));
        program(dir.path(), "bwrap", "echo bubblewrap 0.8.0");
        let (usable, _) = found(&mut detector).await;
        assert_eq!(usable[&ContainerRuntime::Bubblewrap], "0.8.0");
    }

    #[tokio::test]
    async fn enroot_is_asked_in_its_own_words_and_needs_what_shows_images() {
        let dir = tempfile::tempdir().unwrap();
        let own = "[ $1 = version ] && [ -d $ENROOT_DATA_PATH ] && echo 4.1.2";
        program(dir.path(), "enroot", own);
        let said = answer(&dir.path().join("enroot"), &["version"]).await;
        assert_eq!(said.as_deref(), Ok("4.1.2\n"));

        let path = format!("/nowhere:{}", dir.path().display());
        let fuse = dir.path().join("fuse");
        for missing in OF_ENROOT {
            let why = enroot_shows_images(&path, &fuse).unwrap_err();
            assert_eq!(why, format!("it needs `{missing}`: install it"));
            program(dir.path(), missing, "");
        }
        let why = enroot_shows_images(&path, &fuse).unwrap_err();
        assert!(
            why.contains("fuse, open to every user (No such file"),
            "{why}"
        );
        fs::write(&fuse, "").unwrap();
        assert_eq!(enroot_shows_images(&path, &fuse), Ok(()));
    }

    #[tokio::test]
    async fn programs_that_hang_are_asked_at_the_same_time_and_killed_with_their_children() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["apptainer", "singularity", "podman", "bwrap"] {
            program(dir.path(), name, "sleep 1000; true");
        }
        let mut detector = ContainerDetector::within(vec![dir.path().to_owned()]);
        let begun = Instant::now();
        let (usable, notes) = found(&mut detector).await;
        assert!(
            usable.is_empty() && notes.len() == 4,
            "{usable:?} {notes:?}"
        );
        assert!(
            notes[0].contains("`--version` took longer than 5 s"),
            "{notes:?}"
        );
        assert!(begun.elapsed() < 3 * LIMIT, "{:?}", begun.elapsed());
    }
}
