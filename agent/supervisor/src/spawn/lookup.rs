//! Finds a step's program, or says in one sentence why it cannot run. Runs in the child, in the step's
//! working directory; only reads.

use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::AT_FDCWD;
use nix::fcntl::AtFlags;
use nix::unistd::{AccessFlags, faccessat};

const SHOWN_NAME_BYTES: usize = 100;
const SHOWN_PATH_BYTES: usize = 200;

/// Why a program was not found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LookupError {
    #[error(
        "command `{name}` was not found in PATH ({path}): check its spelling, or give its full path"
    )]
    NotInPath { name: String, path: String },
    #[error(
        "command `{name}` was not found: the step's environment has no PATH; set one, or give the full path"
    )]
    NoPath { name: String },
    #[error("command `{name}` does not exist on this host")]
    Missing { name: String },
    #[error(
        "command `{name}` does not exist in the working directory `{dir}` on this host: choose the directory that has it \
         (`workdir`), give its full path, or send it along (`--input FILE`)"
    )]
    NotInDirectory { name: String, dir: String },
    #[error("command `{name}` cannot be reached: {why}")]
    Unreachable { name: String, why: &'static str },
    #[error("command `{name}` is a directory{at}, not a program")]
    Directory { name: String, at: String },
    #[error(
        "command `{name}` is not executable{at}: `chmod +x` it, or put its interpreter before it"
    )]
    NotExecutable { name: String, at: String },
}

/// File type at a path.
enum PathLookup {
    StepProgram,
    Directory,
    NotExecutable,
    Nothing(Errno),
}

/// The file for `name`. With a slash it is a path relative to the working directory; otherwise it is searched
/// in `path`, in which an empty entry means the working directory, as in POSIX.
pub(super) fn find(name: &str, path: Option<&str>) -> Result<CString, LookupError> {
    let found = if name.contains('/') {
        at_path(name)
    } else {
        in_path(name, path)
    }?;
    CString::new(found.as_os_str().as_bytes()).map_err(|_| LookupError::Missing {
        name: shown(name, SHOWN_NAME_BYTES),
    })
}

fn at_path(text: &str) -> Result<PathBuf, LookupError> {
    let path = PathBuf::from(text);
    let name = shown(text, SHOWN_NAME_BYTES);
    let at = String::new();
    match look_at(&path) {
        PathLookup::StepProgram => Ok(path),
        PathLookup::Directory => Err(LookupError::Directory { name, at }),
        PathLookup::NotExecutable => Err(LookupError::NotExecutable { name, at }),
        PathLookup::Nothing(Errno::ENOENT) => Err(missing(name, &path)),
        PathLookup::Nothing(e) => Err(LookupError::Unreachable {
            name,
            why: e.desc(),
        }),
    }
}

/// Says that a path names nothing, with the directory in which a relative one was looked up.
fn missing(name: String, path: &Path) -> LookupError {
    match nix::unistd::getcwd() {
        Ok(dir) if path.is_relative() => LookupError::NotInDirectory {
            name,
            dir: shown(&dir.to_string_lossy(), SHOWN_PATH_BYTES),
        },
        _ => LookupError::Missing { name },
    }
}

fn in_path(text: &str, path: Option<&str>) -> Result<PathBuf, LookupError> {
    let name = shown(text, SHOWN_NAME_BYTES);
    let Some(path) = path else {
        return Err(LookupError::NoPath { name });
    };
    let mut near_miss = None;
    for entry in path.split(':') {
        let file = Path::new(if entry.is_empty() { "." } else { entry }).join(text);
        let at = format!(
            " (found at {})",
            shown(&file.to_string_lossy(), SHOWN_PATH_BYTES)
        );
        let name = name.clone();
        match look_at(&file) {
            PathLookup::StepProgram => return Ok(file),
            PathLookup::NotExecutable => near_miss = Some(LookupError::NotExecutable { name, at }),
            PathLookup::Directory => {
                near_miss.get_or_insert(LookupError::Directory { name, at });
            }
            PathLookup::Nothing(_) => {}
        }
    }
    Err(near_miss.unwrap_or_else(|| LookupError::NotInPath {
        name,
        path: shown(path, SHOWN_PATH_BYTES),
    }))
}

fn look_at(path: &Path) -> PathLookup {
    match nix::sys::stat::stat(path) {
        Err(e) => PathLookup::Nothing(e),
        Ok(found) if found.st_mode & libc::S_IFMT == libc::S_IFDIR => PathLookup::Directory,
        Ok(_) if may_execute(path) => PathLookup::StepProgram,
        Ok(_) => PathLookup::NotExecutable,
    }
}

fn may_execute(path: &Path) -> bool {
    faccessat(AT_FDCWD, path, AccessFlags::X_OK, AtFlags::AT_EACCESS).is_ok()
}

/// Why the working directory could not be entered.
pub(super) fn explain_workdir(dir: &Path, e: Errno) -> String {
    let dir = shown(&dir.to_string_lossy(), SHOWN_PATH_BYTES);
    match e {
        Errno::ENOENT => format!(
            "working directory `{dir}` does not exist on this host: make it, or leave it out for a fresh one"
        ),
        Errno::ENOTDIR => format!("working directory `{dir}` is not a directory"),
        Errno::EACCES => format!("working directory `{dir}` may not be entered by the step's user"),
        other => format!(
            "working directory `{dir}` cannot be entered: {}",
            other.desc()
        ),
    }
}

/// Why the directory that was made for the attempt could not be entered.
pub(super) fn explain_own_workdir(dir: &Path, e: Errno) -> String {
    let dir = shown(&dir.to_string_lossy(), SHOWN_PATH_BYTES);
    match e {
        Errno::EACCES => format!(
            "the step's user cannot get to its own directory `{dir}` on this host: let others pass through those above \
             it (`chmod o+x`)"
        ),
        other => format!("the host could not enter `{dir}`: {}", other.desc()),
    }
}

/// Why `file`, which was found for `name`, could not run.
pub(super) fn explain_exec(name: &str, file: &str, bytes: usize, e: Errno) -> String {
    let name = shown(name, SHOWN_NAME_BYTES);
    match e {
        Errno::E2BIG => format!(
            "command and environment take {bytes} bytes, more than this host's kernel accepts (about 2 MiB together, \
             128 KiB for one argument or variable): pass large data in a file"
        ),
        Errno::ENOEXEC => format!(
            "command `{name}` is not a program that this host can run: it has no `#!` line and is not an executable for this machine"
        ),
        Errno::ENOENT => match interpreter(file) {
            Some(interpreter) => format!(
                "command `{name}` exists, but its interpreter `{interpreter}` does not exist on this host"
            ),
            None => format!(
                "command `{name}` exists, but the loader that it needs does not exist on this host"
            ),
        },
        Errno::EACCES => format!(
            "command `{name}` may not be executed by the step's user: its interpreter is not executable, or its file \
             system is mounted `noexec`"
        ),
        Errno::EAGAIN => format!(
            "command `{name}` could not be executed: the step's user runs as many processes on this host as it may \
             (`nproc`)"
        ),
        other => format!("command `{name}` could not be executed: {}", other.desc()),
    }
}

/// The interpreter in a script's first line.
fn interpreter(file: &str) -> Option<String> {
    let mut head = Vec::new();
    File::open(file)
        .and_then(|file| file.take(256).read_to_end(&mut head))
        .ok()?;
    interpreter_in(&head)
}

/// The interpreter in the first bytes of a file, made safe for a message.
pub(crate) fn interpreter_in(head: &[u8]) -> Option<String> {
    let line = head.strip_prefix(b"#!")?.split(|b| *b == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    Some(shown(line.split_whitespace().next()?, SHOWN_PATH_BYTES))
}

/// `text` made safe for a message: without control characters, and truncated.
pub(super) fn shown(text: &str, max: usize) -> String {
    let plain: String = text
        .chars()
        .take(max + 1)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    match cut(&plain, max) {
        whole if whole.len() == plain.len() => whole.to_owned(),
        part => format!("{part}..."),
    }
}

/// The longest prefix of `text` with at most `max` bytes.
pub(crate) fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn make(dir: &Path, name: &str, mode: u32) -> String {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "#!/no/such/shell -x\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.to_string_lossy().into_owned()
    }

    #[test]
    fn the_first_executable_in_the_path_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        make(dir.path(), "a/tool", 0o644);
        fs::create_dir_all(dir.path().join("b/tool")).unwrap();
        let third = make(dir.path(), "c/tool", 0o755);
        make(dir.path(), "d/tool", 0o755);
        let root = dir.path().display();
        let path = format!("{root}/none:{root}/a:{root}/b:{root}/c:{root}/d");
        assert_eq!(find("tool", Some(&path)).unwrap().to_str().unwrap(), third);
    }

    #[test]
    fn each_reason_has_its_own_sentence() {
        let dir = tempfile::tempdir().unwrap();
        let plain = make(dir.path(), "bin/plain", 0o644);
        let bin = dir.path().join("bin").display().to_string();
        let text = |name: &str, path: Option<&str>| find(name, path).unwrap_err().to_string();
        assert!(
            text("foo", Some("/x:/y")).starts_with("command `foo` was not found in PATH (/x:/y)")
        );
        assert!(text("foo", None).contains("has no PATH"));
        assert!(text("/no/such", None).contains("`/no/such` does not exist on this host"));
        let here = std::env::current_dir().unwrap();
        let here = format!(
            "`./no/such` does not exist in the working directory `{}`",
            here.display()
        );
        assert!(text("./no/such", None).contains(&here));
        assert!(text(&plain, None).contains("is not executable: `chmod +x`"));
        assert!(text("plain", Some(&bin)).contains(&format!("(found at {plain})")));
        assert!(text(&bin, None).contains("is a directory, not a program"));
        assert!(text(&format!("{plain}/x"), None).contains("cannot be reached: Not a directory"));
    }

    #[test]
    fn a_missing_interpreter_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let script = make(dir.path(), "s", 0o755);
        let text = explain_exec("s", &script, 0, Errno::ENOENT);
        assert!(
            text.contains("its interpreter `/no/such/shell` does not exist"),
            "{text}"
        );
    }

    #[test]
    fn what_is_shown_is_short_and_moves_no_cursor() {
        assert_eq!(shown("plain", 80), "plain");
        assert_eq!(shown("a\u{1b}[2J\nb", 80), "a\u{fffd}[2J\u{fffd}b");
        assert_eq!(shown(&"x".repeat(99), 10), format!("{}...", "x".repeat(10)));
        assert_eq!(cut("aäb", 2), "a");
    }
}
