//! Runs the program `sluice-helper`, which does as another user what needs no root: finds it, starts it in a
//! child, and asks it questions.

use std::ffi::{CStr, CString, OsString};
use std::fs::File;
use std::io::{self, PipeWriter, Read, Seek, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::rc::Rc;

use nix::fcntl::AtFlags;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::prctl::{set_no_new_privs, set_pdeathsig};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::wait::waitpid;
use nix::unistd::{
    Pid, Uid, alarm, chdir, dup2_stderr, dup2_stdin, dup2_stdout, execveat, geteuid, getpid,
    getppid,
};
use serde::Serialize;
use sluice_codec::encode;
use sluice_common::supervisor_config::MAX_ANSWER_BYTES;

use crate::{oom, sys};

/// Name of the program's file.
pub const NAME: &str = "sluice-helper";

/// The unprivileged user that answers questions of root. No program assigns this id and no range of attempts
/// may include it (`sluice_common::uid_range`), so no step can run as the same user and forge an answer.
const UNUSED_UID: Uid = Uid::from_raw(4_294_967_293);

/// Time limit of an answer, on a busy host or with a slow user database. Both questions of an upgrade
/// take less than the init system's watchdog limit.
const ANSWER_LIMIT_SECS: u32 = 20;

/// The opened program. A later installation does not change what this supervisor runs.
#[derive(Clone, Debug)]
pub struct HelperProgram(Rc<File>);

impl HelperProgram {
    /// Opens the helper in the directory of this program.
    ///
    /// # Errors
    /// If it is missing.
    pub fn installed() -> io::Result<Self> {
        Self::at(&std::env::current_exe()?.with_file_name(NAME))
    }

    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        let opened = File::options()
            .read(true)
            .custom_flags(libc::O_PATH)
            .open(path);
        let opened = opened.map_err(|e| {
            let path = path.display();
            let why = format!("cannot open {path}: {e}; it belongs beside sluice-supervisor");
            io::Error::new(e.kind(), why)
        });
        Ok(Self(Rc::new(opened?)))
    }

    /// Builds the helper's command line.
    ///
    /// # Errors
    /// If an argument contains a NUL byte.
    pub fn arguments<T: Into<OsString>>(
        args: impl IntoIterator<Item = T>,
    ) -> io::Result<Vec<CString>> {
        let args = args.into_iter().map(Into::into);
        let all = std::iter::once(NAME.into()).chain(args);
        let all = all.map(|arg: OsString| CString::new(arg.into_vec()));
        Ok(all.collect::<Result<_, _>>()?)
    }

    /// The helper's answer in a mode, with `input` as its standard input: all of its output, truncated if
    /// longer than allowed. The helper runs as an unprivileged user without capabilities, for a limited time.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn ask(&self, mode: &str, input: &File) -> io::Result<Vec<u8>> {
        let argv = Self::arguments([mode])?;
        let (answer, to_us) = io::pipe()?;
        let parent = getpid();
        let pid = sys::fork_into(|| {
            if self.prepare(input, &to_us, parent).is_ok() {
                self.execute(&argv, &[]);
            }
        })?;
        drop(to_us);
        let mut said = Vec::new();
        // An answer that is one byte too long fails to parse.
        let most = MAX_ANSWER_BYTES as u64 + 1;
        let read = answer.take(most).read_to_end(&mut said);
        let _where_nobody_hears_of_children_it_is_gone =
            waitpid(Pid::from_raw(pid.cast_signed()), None);
        read.map(|_| said)
    }

    /// The installed helper's answer about a value.
    ///
    /// # Errors
    /// If the helper is missing or cannot be started, or the value is too long.
    pub fn ask_about(mode: &str, value: &impl Serialize) -> io::Result<Vec<u8>> {
        let question = encode(value, MAX_ANSWER_BYTES).map_err(io::Error::other)?;
        Self::installed()?.ask(mode, &in_memory(&question)?)
    }

    /// Runs in the child: drops the supervisor's descriptors and all privileges.
    fn prepare(&self, input: &File, to_us: &PipeWriter, parent: Pid) -> io::Result<()> {
        let null = File::options().write(true).open("/dev/null")?;
        dup2_stdin(input)?;
        dup2_stdout(to_us)?;
        dup2_stderr(null)?;
        sys::close_all_but(&[self.as_raw_fd()])?;
        sys::default_signals();
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
        oom::give_up()?;
        chdir("/")?;
        // A user namespace without that id, or a process without permission, cannot switch to it.
        give_up_rights(Some(UNUSED_UID)).or_else(|_| give_up_rights(None))?;
        alarm::set(ANSWER_LIMIT_SECS);
        // A change of user clears this setting, so it comes last; the parent may have died before.
        set_pdeathsig(Signal::SIGKILL)?;
        match getppid() == parent {
            true => Ok(()),
            false => Err(io::Error::other("the supervisor has ended")),
        }
    }

    /// Executes the helper in this process. Returns only on failure.
    pub fn execute(&self, argv: &[CString], envp: &[&CStr]) {
        let _said_by_its_end = execveat(&*self.0, c"", argv, envp, AtFlags::AT_EMPTY_PATH);
    }
}

impl AsRawFd for HelperProgram {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// In a child: switches to `uid` if the process is root, and drops all privileges for good.
///
/// # Errors
/// If the kernel rejects it.
pub fn give_up_rights(uid: Option<Uid>) -> nix::Result<()> {
    if geteuid().is_root() {
        sys::drop_bounding_set()?;
        uid.map_or(Ok(()), sys::become_user)?;
        sys::drop_capabilities()?;
    }
    set_no_new_privs()
}

/// A memory file with these bytes, open at its start.
///
/// # Errors
/// If there is no memory.
pub fn in_memory(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create(c"sluice", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs another program instead of the helper, which is given the mode as a file name.
    fn answer(program: &str, mode: &str) -> String {
        let input = in_memory(b"what it is given").unwrap();
        let said = HelperProgram::at(Path::new(program))
            .unwrap()
            .ask(mode, &input);
        String::from_utf8(said.unwrap()).unwrap()
    }

    #[test]
    fn whoever_answers_has_no_right_and_is_nobody_else() {
        let status = answer("/bin/cat", "/proc/self/status");
        let field = |name: &str| {
            let mut lines = status.lines();
            let found = lines.find_map(|line| line.strip_prefix(name));
            found.unwrap().split_whitespace().collect::<Vec<_>>()
        };
        for capabilities in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
            assert_eq!(field(capabilities), ["0000000000000000"], "{capabilities}");
        }
        assert_eq!(field("NoNewPrivs:"), ["1"]);
        assert_eq!(field("SigBlk:"), ["0000000000000000"]);
        if geteuid().is_root() {
            assert_eq!(field("CapBnd:"), ["0000000000000000"]);
            let nobody = UNUSED_UID.to_string();
            assert_eq!(field("Uid:"), [nobody.as_str(); 4]);
            assert_eq!(field("Gid:"), [nobody.as_str(); 4]);
            assert_eq!(field("Groups:"), [nobody.as_str()]);
        }
        assert_eq!(answer("/bin/cat", "-"), "what it is given");
    }

    #[test]
    fn it_has_no_descriptor_of_ours() {
        let open = answer("/bin/ls", "/proc/self/fd");
        // The last is the directory that is being listed.
        assert_eq!(open.lines().collect::<Vec<_>>(), ["0", "1", "2", "3"]);
    }

    #[test]
    fn an_endless_answer_is_cut() {
        assert_eq!(answer("/usr/bin/yes", "y").len(), MAX_ANSWER_BYTES + 1);
    }
}
