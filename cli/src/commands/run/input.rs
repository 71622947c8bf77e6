//! Detects input on standard input of `run`, which a step cannot read and which would be lost silently.
//!
//! Input counts as lost if nobody has read it when the command looks: before the submit, while the step waits and once
//! it is over. Looking consumes nothing, so others who share the descriptor (a script's `while read`, the parent
//! program) still find all of it. A terminal, `/dev/null`, an empty file, an ended pipe, and one that is open and
//! silent hold no data.

use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv};
use nix::sys::uio::pread;
use nix::unistd::{Whence, lseek};

/// The error for input, with both ways out.
pub(super) const REFUSAL: &str = "standard input holds data that the step would never see, because a step's input is empty: \
     if it needs none, add `</dev/null` (in a `while read` loop too); \
     else have the command read a file that its host has: `sluice run -- sh -c 'PROGRAM <FILE'`";

/// Whether standard input holds data.
pub(super) fn holds_data() -> bool {
    waits_on(&io::stdin())
}

/// Whether a descriptor holds data. One that cannot be read holds none.
fn waits_on(input: &impl AsFd) -> bool {
    let input = input.as_fd();
    if input.is_terminal() {
        return false;
    }
    let mut fds = [PollFd::new(input, PollFlags::POLLIN)];
    let readable = poll(&mut fds, PollTimeout::ZERO).is_ok()
        && fds[0]
            .revents()
            .is_some_and(|events| events.contains(PollFlags::POLLIN));
    if !readable {
        return false;
    }
    // Files, `/dev/null` and sockets report themselves readable at their end too.
    let mut byte = [0];
    let seen = match lseek(input, 0, Whence::SeekCur) {
        Ok(at) => pread(input, &mut byte, at),
        Err(Errno::ESPIPE) => recv(input.as_raw_fd(), &mut byte, MsgFlags::MSG_PEEK),
        Err(error) => Err(error),
    };
    match seen {
        Ok(bytes) => bytes > 0,
        // A pipe is readable only if it holds data.
        Err(error) => error == Errno::ENOTSOCK,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Seek, SeekFrom, Write};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_pipe_holds_data_from_its_first_byte_until_that_is_read() {
        let (mut reader, mut writer) = io::pipe().unwrap();
        assert!(!waits_on(&reader), "it is open and silent");
        writer.write_all(b"hi").unwrap();
        assert!(waits_on(&reader));
        assert!(waits_on(&reader), "looking took it away");
        drop(writer);
        assert!(waits_on(&reader), "its writer has gone");
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hi");
        assert!(!waits_on(&reader), "it has ended");
    }

    #[test]
    fn a_socket_holds_data_and_not_its_end() {
        let (reader, mut writer) = UnixStream::pair().unwrap();
        let reader = File::from(OwnedFd::from(reader));
        assert!(!waits_on(&reader));
        writer.write_all(b"h").unwrap();
        assert!(waits_on(&reader));
        drop(writer);
        (&reader).read_exact(&mut [0]).unwrap();
        assert!(!waits_on(&reader), "it has ended");
    }

    #[test]
    fn a_file_holds_what_lies_behind_the_position() {
        let mut file = tempfile::tempfile().unwrap();
        assert!(!waits_on(&file));
        file.write_all(b"line\n").unwrap();
        assert!(!waits_on(&file), "everything was read");
        file.seek(SeekFrom::Start(2)).unwrap();
        assert!(waits_on(&file));
        assert_eq!(file.stream_position().unwrap(), 2);
    }

    #[test]
    fn devices_hold_data_as_they_are() {
        for (path, data) in [
            ("/dev/null", false),
            ("/dev/zero", true),
            ("/proc/self/status", true),
            ("/", false),
        ] {
            assert_eq!(waits_on(&File::open(path).unwrap()), data, "{path}");
        }
        let unreadable = File::options().write(true).open("/dev/zero").unwrap();
        assert!(!waits_on(&unreadable));
    }
}
