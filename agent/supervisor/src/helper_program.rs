//! The program `sluice-helper`, which does as another user what needs no root: where it is and how a child becomes it.

use std::ffi::{CStr, CString, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::OpenOptionsExt;
use std::rc::Rc;

use nix::fcntl::AtFlags;
use nix::unistd::execveat;

/// The name of the program.
const NAME: &str = "sluice-helper";

/// The program, opened once: what is installed in its place later is not run by this supervisor.
#[derive(Clone, Debug)]
pub struct HelperProgram(Rc<File>);

impl HelperProgram {
    /// The one beside this very program.
    ///
    /// # Errors
    /// If it is not there.
    pub fn beside_us() -> io::Result<Self> {
        let path = std::env::current_exe()?.with_file_name(NAME);
        let opened = File::options()
            .read(true)
            .custom_flags(libc::O_PATH)
            .open(&path);
        let opened = opened.map_err(|e| {
            let path = path.display();
            let why = format!("cannot open {path}: {e}; it belongs beside sluice-supervisor");
            io::Error::new(e.kind(), why)
        });
        Ok(Self(Rc::new(opened?)))
    }

    /// A command line of it.
    ///
    /// # Errors
    /// If one of them holds a NUL byte.
    pub fn arguments<T: Into<OsString>>(
        args: impl IntoIterator<Item = T>,
    ) -> io::Result<Vec<CString>> {
        let args = args.into_iter().map(Into::into);
        let all = std::iter::once(NAME.into()).chain(args);
        let all = all.map(|arg: OsString| CString::new(arg.into_vec()));
        Ok(all.collect::<Result<_, _>>()?)
    }

    /// Puts it in the place of this process. Returns only if that fails.
    pub fn execute(&self, argv: &[CString], envp: &[&CStr]) {
        let _said_by_its_end = execveat(&*self.0, c"", argv, envp, AtFlags::AT_EMPTY_PATH);
    }
}

impl AsRawFd for HelperProgram {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
