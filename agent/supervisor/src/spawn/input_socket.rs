//! Makes the socket by which callers send a step its input: the parent's half of [`super::streams`].

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, lchown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use sluice_common::attempt_dir::{INPUT_DIR, INPUT_SOCKET};
use sluice_common::streams::{StepInput, StepStreams};

use super::streams::{DEFAULT_SIZE, InputSource};
use super::{PRIVATE, SpawnError, Spawner, host, make_dir};

impl Spawner {
    /// The source of a step's input, with the socket in `dir` that it needs.
    pub(super) fn input_source(
        &self,
        streams: &StepStreams,
        dir: &Path,
    ) -> Result<InputSource, SpawnError> {
        Ok(match &streams.stdin {
            StepInput::Empty => InputSource::Given,
            StepInput::File(path) => InputSource::File(PathBuf::from(path)),
            StepInput::Stream if streams.terminal => {
                InputSource::Terminal(self.input_socket(dir)?, DEFAULT_SIZE)
            }
            StepInput::Stream => InputSource::Stream(self.input_socket(dir)?),
        })
    }

    /// A socket in a directory that only the agent may enter.
    pub(super) fn input_socket(&self, dir: &Path) -> Result<UnixListener, SpawnError> {
        let dir = dir.join(INPUT_DIR);
        make_dir(&dir, PRIVATE, None)?;
        let made = || -> io::Result<UnixListener> {
            let opened = OpenOptions::new()
                .read(true)
                .custom_flags(libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW)
                .open(&dir)?;
            // The whole path may be too long for the address of a socket.
            let path = Path::new("/proc/self/fd").join(opened.as_raw_fd().to_string());
            let socket = path.join(INPUT_SOCKET);
            let listener = UnixListener::bind(&socket)?;
            if let Some(uid) = self.reader_uid {
                lchown(&socket, Some(uid), None)?;
                lchown(&dir, Some(uid), None)?;
            }
            Ok(listener)
        };
        host(|| format!("make a socket in {}", dir.display()), made())
    }
}
