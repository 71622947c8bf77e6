//! The files of a step's user that get its output, beside where the supervisor keeps it. The child opens them, which is
//! the step's user by then: a path that this user may not write is refused by the kernel.
//!
//! ```text
//! program --pipe--> helper --pipe--> writer --> file of the attempt
//!                     `--> file of the step's user
//! ```
//!
//! The child becomes the helper, and the program its child, so that the attempt does not end before its files are
//! written. Steps without such files have neither.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl, open};
use nix::sys::stat::Mode;
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout, getcwd};
use sluice_common::helper::COPY_OUTPUT;
use sluice_common::output::STREAMS;
use sluice_common::streams::{OutputPath, PathVariable, StepStreams};
use sluice_common::supervisor_config::StepRules;

use super::streams::{ProgramStart, SHOWN_PATH_BYTES, StreamSetup, helper_arguments};
use super::{confine, lookup};
use crate::identity::Identity;
use crate::sys;

/// Mode of new files, before the umask.
const NEW_FILE: u32 = 0o666;

/// Argument of the helper for a stream without a file.
const NO_FILE: &str = "-";

/// Files that the child opens.
pub(super) struct OutputFiles<'a> {
    /// Paths in the order of [`STREAMS`].
    paths: [Option<String>; STREAMS.len()],
    append: bool,
    rules: &'a StepRules,
}

/// Open files, and the index of that of each stream.
pub(super) struct OpenFiles {
    files: Vec<File>,
    of_stream: [Option<usize>; STREAMS.len()],
}

impl<'a> OutputFiles<'a> {
    /// The files of a step, with the name of its user filled in.
    pub(super) fn of(streams: &StepStreams, identity: &Identity, rules: &'a StepRules) -> Self {
        let user = || {
            let mut variables = identity.variables.iter();
            let user = variables.find(|(name, _)| name == "USER");
            user.map_or_else(|| identity.uid.to_string(), |(_, value)| value.clone())
        };
        let path = |path: &Option<OutputPath>| {
            let path = path.as_ref()?;
            Some(path.resolved(|letter| (letter == PathVariable::User).then(user)))
        };
        Self {
            paths: [path(&streams.stdout), path(&streams.stderr)],
            append: streams.append,
            rules,
        }
    }

    pub(super) fn has_any(&self) -> bool {
        self.paths.iter().any(Option::is_some)
    }

    /// Opens the files; `None` if there are none. A file that both streams name is opened once. `in_own_directory` tells
    /// whether the working directory is removed with the attempt.
    pub(super) fn open(&self, in_own_directory: bool) -> Result<Option<OpenFiles>, String> {
        let mut opened = OpenFiles {
            files: Vec::new(),
            of_stream: [None; STREAMS.len()],
        };
        for (n, path) in self.paths.iter().enumerate() {
            let Some(path) = path else { continue };
            let file = self.open_one(path, in_own_directory).map_err(|why| {
                let path = getcwd().unwrap_or_default().join(path);
                let path = lookup::shown(&path.to_string_lossy(), SHOWN_PATH_BYTES);
                let stream = STREAMS[n].file_name();
                format!("the file `{path}` for {stream} {why}")
            })?;
            opened.of_stream[n] = Some(opened.add(file));
        }
        Ok(Some(opened).filter(|opened| !opened.files.is_empty()))
    }

    fn open_one(&self, path: &str, in_own_directory: bool) -> Result<File, String> {
        if in_own_directory && !path.starts_with('/') {
            return Err(
                "would be removed with the directory of the attempt: begin its path with `/`, or set `workdir`"
                    .to_owned(),
            );
        }
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_APPEND | OFlag::O_CLOEXEC;
        // Without blocking: the file may be a pipe that nobody reads.
        let flags = flags | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let file = open(path, flags, Mode::from_bits_truncate(NEW_FILE)).map_err(explain)?;
        let file = File::from(file);
        let failed = |e: io::Error| format!("cannot be used: {e}");
        // The kernel's name of the file, without links.
        let link = Path::new("/proc/self/fd").join(file.as_raw_fd().to_string());
        let real = fs::read_link(link).map_err(failed)?;
        if !confine::is_allowed(self.rules, &real) {
            let rules = self.rules.file.as_deref().unwrap_or("supervisor.toml");
            return Err(format!(
                "is in no directory that steps may work in on this host: choose one below one of `workdirs` in {rules}"
            ));
        }
        fcntl(&file, FcntlArg::F_SETFL(OFlag::O_APPEND)).map_err(|e| failed(e.into()))?;
        let is_regular = file.metadata().is_ok_and(|found| found.is_file());
        if is_regular && !self.append {
            file.set_len(0).map_err(failed)?;
        }
        Ok(file)
    }
}

fn explain(error: Errno) -> String {
    match error {
        Errno::ENOENT | Errno::ENOTDIR => {
            "cannot be made: its directory does not exist on this host; make it on each host of the pool, or choose another"
                .to_owned()
        }
        Errno::EACCES | Errno::EPERM | Errno::EROFS => {
            let why = error.desc();
            format!("may not be written by the step's user: {why}; choose a path that it may write")
        }
        Errno::EISDIR => "is a directory: add the name of a file".to_owned(),
        Errno::ENXIO => "is a pipe that nobody reads: choose a file".to_owned(),
        other => format!("cannot be opened: {}", other.desc()),
    }
}

impl OpenFiles {
    /// Adds a file unless it is there; returns its index.
    fn add(&mut self, file: File) -> usize {
        let identity = |file: &File| file.metadata().map(|it| (it.dev(), it.ino())).ok();
        let new = identity(&file);
        let known = self
            .files
            .iter()
            .position(|it| new.is_some() && identity(it) == new);
        known.unwrap_or_else(|| {
            self.files.push(file);
            self.files.len() - 1
        })
    }

    /// Starts the program as a child of this process, which becomes the helper that copies its output. Returns only on
    /// failure.
    pub(super) fn start(
        self,
        setup: &StreamSetup<'_>,
        program: &ProgramStart<'_>,
    ) -> Result<(), String> {
        let failed = |why: String| format!("the host could not copy output to files: {why}");
        let pipe = |file: Option<usize>| file.map(|_| io::pipe()).transpose();
        let pipes = [pipe(self.of_stream[0]), pipe(self.of_stream[1])];
        let [out, err] = pipes.map(|it| it.map(Option::unzip).map_err(|e| failed(e.to_string())));
        let ((from_out, out), (from_err, err)) = (out?, err?);
        let pid = sys::fork_into(move || {
            let connected = connect(out, err).map_err(|e| failed(e.desc().to_owned()));
            if let Err(sentence) = connected.and_then(|()| (program.execute)()) {
                (program.report)(&sentence);
            }
        });
        let pid = pid.map_err(|e| failed(e.to_string()))?;
        // The helper reads from these.
        let pipes = [from_out, from_err];
        let argv = self.arguments(pid, pipes.each_ref().map(Option::as_ref));
        let argv = argv.and_then(|argv| {
            dup2_stdin(setup.null)?;
            Ok(argv)
        });
        let argv = argv.map_err(|e| failed(e.desc().to_owned()))?;
        let argv = helper_arguments(argv).map_err(failed)?;
        let envp: Vec<_> = program.envp.iter().map(CString::as_c_str).collect();
        setup.helper.execute(&argv, &envp);
        Err(failed("sluice-helper could not be run".to_owned()))
    }

    /// The helper's arguments. The descriptors that they name stay open when it is executed.
    fn arguments(
        &self,
        pid: u32,
        pipes: [Option<&PipeReader>; STREAMS.len()],
    ) -> nix::Result<[String; 2 + 2 * STREAMS.len()]> {
        let numbers = |n: usize| -> nix::Result<[String; 2]> {
            let file = self.of_stream[n].and_then(|file| self.files.get(file));
            let (Some(pipe), Some(file)) = (pipes[n], file) else {
                return Ok([NO_FILE; 2].map(str::to_owned));
            };
            Ok([kept(pipe)?.to_string(), kept(file)?.to_string()])
        };
        let ([out, of_out], [err, of_err]) = (numbers(0)?, numbers(1)?);
        Ok([
            COPY_OUTPUT.to_owned(),
            pid.to_string(),
            out,
            of_out,
            err,
            of_err,
        ])
    }
}

/// Keeps a descriptor open when another program is executed; returns its number.
fn kept(file: &(impl AsRawFd + std::os::fd::AsFd)) -> nix::Result<RawFd> {
    fcntl(file, FcntlArg::F_SETFD(FdFlag::empty()))?;
    Ok(file.as_raw_fd())
}

fn connect(out: Option<PipeWriter>, err: Option<PipeWriter>) -> nix::Result<()> {
    out.map_or(Ok(()), dup2_stdout)?;
    err.map_or(Ok(()), dup2_stderr)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn rules() -> StepRules {
        StepRules {
            workdirs: None,
            ..Default::default()
        }
    }

    fn opened(paths: [&str; 2], append: bool) -> Result<Option<OpenFiles>, String> {
        let files = OutputFiles {
            paths: paths.map(|path| Some(path.to_owned()).filter(|path| !path.is_empty())),
            append,
            rules: &rules(),
        };
        files.open(false)
    }

    #[test]
    fn a_file_is_emptied_unless_it_is_appended_to_and_opened_once_for_both_streams() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let out = path.to_str().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let both = [out, link.to_str().unwrap()];
        for (append, expected) in [(true, "old new "), (false, "new ")] {
            fs::write(&path, "old ").unwrap();
            let files = opened(both, append).unwrap().unwrap();
            assert_eq!((files.files.len(), files.of_stream), (1, [Some(0); 2]));
            (&files.files[0]).write_all(b"new ").unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), expected);
        }
        let files = opened(["", out], true).unwrap().unwrap();
        assert_eq!(files.of_stream, [None, Some(0)]);
        assert!(opened(["", ""], false).unwrap().is_none());
    }

    #[test]
    fn what_cannot_be_written_is_refused_with_the_path_and_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).unwrap();
        let missing = dir.path().join("no/such/file");
        for (path, words) in [
            (missing.to_str().unwrap(), "its directory does not exist"),
            (fifo.to_str().unwrap(), "a pipe that nobody reads"),
            (dir.path().to_str().unwrap(), "is a directory"),
        ] {
            let why = opened(["", path], false).err().unwrap();
            assert!(why.contains(words), "{why}");
            assert!(
                why.starts_with(&format!("the file `{path}` for stderr ")),
                "{why}"
            );
        }
    }

    #[test]
    fn a_file_outside_of_the_directories_of_steps_keeps_its_content() {
        let dir = tempfile::tempdir().unwrap();
        let (inside, outside) = (dir.path().join("in"), dir.path().join("secret"));
        fs::create_dir(&inside).unwrap();
        fs::write(&outside, "kept").unwrap();
        std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
        let rules = StepRules {
            workdirs: Some(vec![inside.display().to_string()]),
            ..rules()
        };
        let files = |name: &str| OutputFiles {
            paths: [Some(inside.join(name).display().to_string()), None],
            append: false,
            rules: &rules,
        };
        let why = files("link").open(false).err().unwrap();
        assert!(why.contains("below one of `workdirs`"), "{why}");
        assert_eq!(fs::read_to_string(&outside).unwrap(), "kept");
        assert!(files("own").open(false).unwrap().is_some());
    }

    #[test]
    fn no_file_is_made_in_the_directory_of_the_attempt() {
        let files = OutputFiles {
            paths: [Some("out".to_owned()), None],
            append: false,
            rules: &rules(),
        };
        let why = files.open(true).err().unwrap();
        let here = std::env::current_dir().unwrap();
        let words = format!("the file `{}/out` for stdout ", here.display());
        assert!(why.starts_with(&words), "{why}");
        assert!(why.contains("set `workdir`"), "{why}");
    }
}
