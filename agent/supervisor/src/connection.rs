//! One agent's connection: bytes in, messages out, and back. Owns the bounded buffers. `server` decides when
//! to read and write, and disconnects a peer that violates the protocol.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use nix::sys::socket::{getsockopt, sockopt};
use sluice_codec::{CodecError, FrameBuffer, frame};
use sluice_common::supervision::{FromSupervisor, MAX_SUPERVISION_FRAME_BYTES, ToSupervisor};

/// Most bytes queued for an agent. An agent that does not read is disconnected, and gets everything when it
/// reconnects; two maximal frames allow one full answer after another.
const MAX_UNSENT_BYTES: usize = 2 * (MAX_SUPERVISION_FRAME_BYTES + 4);

/// Most bytes read in one turn, so that a flooding agent delays neither leases nor children.
const READ_BYTES: usize = 64 * 1024;

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub enum DisconnectReason {
    /// The peer closed the connection.
    #[error("it was closed")]
    Closed,
    /// The peer sent an invalid message.
    #[error("it broke the protocol")]
    Protocol(#[from] CodecError),
    /// The peer does not read.
    #[error("it has left {bytes} bytes unread")]
    Unread {
        /// Bytes queued for the peer.
        bytes: usize,
    },
    /// The socket failed.
    #[error("its socket failed")]
    Io(#[from] io::Error),
}

/// A connection of the agent.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    input: FrameBuffer,
    output: Vec<u8>,
    /// Bytes of `output` already sent.
    sent: usize,
}

impl Connection {
    /// Wraps a new stream.
    ///
    /// # Errors
    /// If the stream cannot be made non-blocking.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            input: FrameBuffer::new(MAX_SUPERVISION_FRAME_BYTES),
            output: Vec::new(),
            sent: 0,
        })
    }

    /// Reads what has arrived, up to a bound.
    ///
    /// # Errors
    /// If the stream has ended.
    pub fn fill(&mut self) -> Result<(), DisconnectReason> {
        let mut bytes = [0; READ_BYTES];
        match self.stream.read(&mut bytes) {
            Ok(0) => Err(DisconnectReason::Closed),
            Ok(len) => {
                self.input.push(&bytes[..len]);
                Ok(())
            }
            Err(e) if is_passing(&e) => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => Err(DisconnectReason::Closed),
            Err(e) => Err(e.into()),
        }
    }

    /// The next complete message; call until `None`.
    ///
    /// # Errors
    /// If the peer sent an invalid message.
    pub fn take(&mut self) -> Result<Option<ToSupervisor>, DisconnectReason> {
        Ok(self.input.next()?)
    }

    /// Sends as much of a message as the peer accepts; [`Connection::flush`] sends the rest.
    ///
    /// # Errors
    /// If the peer is gone or does not read.
    pub fn send(&mut self, message: &FromSupervisor) -> Result<(), DisconnectReason> {
        let bytes = frame(message, MAX_SUPERVISION_FRAME_BYTES)?;
        let unsent = self.output.len() - self.sent + bytes.len();
        if unsent > MAX_UNSENT_BYTES {
            return Err(DisconnectReason::Unread { bytes: unsent });
        }
        self.output.extend_from_slice(&bytes);
        self.flush()
    }

    /// Sends queued bytes. If the peer is gone, no error is returned, because messages that it sent before
    /// may still be readable: [`Connection::fill`] reports the end after them.
    ///
    /// # Errors
    /// If the stream fails.
    pub fn flush(&mut self) -> Result<(), DisconnectReason> {
        while self.has_unsent() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(0) => return Err(DisconnectReason::Closed),
                Ok(len) => self.sent += len,
                Err(e) if e.kind() == io::ErrorKind::BrokenPipe => self.sent = self.output.len(),
                Err(e) if is_passing(&e) => break,
                Err(e) => return Err(e.into()),
            }
        }
        self.output.drain(..self.sent);
        self.sent = 0;
        Ok(())
    }

    /// Whether bytes are queued: call [`Connection::flush`] when the stream is writable.
    pub fn has_unsent(&self) -> bool {
        self.sent < self.output.len()
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn is_passing(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// The user at the other end of a stream, from the kernel.
///
/// # Errors
/// If the kernel does not tell.
pub fn peer_uid(stream: &UnixStream) -> io::Result<u32> {
    Ok(getsockopt(stream, sockopt::PeerCredentials)?.uid())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Component, Path};

    use proptest::prelude::*;
    use sluice_common::environment::Environment;
    use sluice_common::id::{AttemptId, Subject};
    use sluice_common::supervision::{
        BootMillis, DeviceAccess, LaunchRecord, ResourceLimits, SUPERVISION_VERSION, SpawnSpec,
        StopSignal,
    };
    use sluice_common::time::Span;

    fn hello() -> FromSupervisor {
        FromSupervisor::Hello {
            version: SUPERVISION_VERSION,
            boot_id: "boot".parse().unwrap(),
            attempts: Vec::new(),
            capabilities: [].into(),
            carves_gpus: false,
        }
    }

    #[test]
    fn a_peer_that_never_reads_is_dropped_within_the_bound() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let mut connection = Connection::new(ours).unwrap();
        let most =
            2 * MAX_UNSENT_BYTES / frame(&hello(), MAX_SUPERVISION_FRAME_BYTES).unwrap().len();
        let error = (0..most).find_map(|_| connection.send(&hello()).err());
        assert!(
            matches!(error, Some(DisconnectReason::Unread { .. })),
            "{error:?}"
        );
        assert!(connection.output.len() <= MAX_UNSENT_BYTES);
    }

    #[test]
    fn a_peer_that_went_away_is_noticed_once_its_last_words_are_read() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut connection = Connection::new(ours).unwrap();
        let last = frame(&ToSupervisor::List, MAX_SUPERVISION_FRAME_BYTES).unwrap();
        theirs.write_all(&last).unwrap();
        drop(theirs);
        connection.send(&hello()).unwrap();
        assert!(!connection.has_unsent(), "there is nobody to send to");
        connection.fill().unwrap();
        let read = connection.take().unwrap();
        assert_eq!(read, Some(ToSupervisor::List));
        assert!(matches!(connection.fill(), Err(DisconnectReason::Closed)));
    }

    #[test]
    fn the_peer_is_who_the_kernel_says() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        assert_eq!(peer_uid(&ours).unwrap(), nix::unistd::geteuid().as_raw());
    }

    fn spawn(id: &str) -> ToSupervisor {
        ToSupervisor::Spawn(SpawnSpec {
            attempt: id.parse().unwrap(),
            command: vec!["sh".to_owned(), "-c".to_owned(), "true".to_owned()],
            env: Environment::from([("PATH".to_owned(), "/bin".to_owned())]),
            workdir: Some("/tmp".to_owned()),
            prefer_workdir: None,
            lease_until: Some(BootMillis(7)),
            lease_grace: Span::from_secs(1),
            launch_record: LaunchRecord {
                timeout: None,
                grace: Span::ZERO,
                gpus: vec![],
                processors: Default::default(),
                is_allocation: false,
            },
            subject: Subject::new("s").unwrap(),
            submitter: None,
            limits: ResourceLimits::default(),
            devices: DeviceAccess::default(),
            processors: Default::default(),
            hooks: sluice_common::template::launch::HooksAndLimits::default(),
            hook_env: Default::default(),
            wrapper: 0,
            env_file: false,
            streams: Default::default(),
            container: None,
            inputs: None,
            keep: vec![],
        })
    }

    /// The attempt that a message names.
    fn named(message: &ToSupervisor) -> Option<&AttemptId> {
        match message {
            ToSupervisor::Spawn(spec) => Some(&spec.attempt),
            ToSupervisor::Signal { attempt, .. } | ToSupervisor::Forget { attempt } => {
                Some(attempt)
            }
            _ => None,
        }
    }

    /// Feeds bytes to a connection in pieces; returns the messages decoded until it is disconnected.
    fn understood(bytes: &[u8], piece: usize) -> Vec<ToSupervisor> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut connection = Connection::new(ours).unwrap();
        let mut messages = Vec::new();
        for piece in bytes.chunks(piece) {
            theirs.write_all(piece).unwrap();
            if connection.fill().is_err() {
                return messages;
            }
            loop {
                match connection.take() {
                    Ok(Some(message)) => messages.push(message),
                    Ok(None) => break,
                    Err(_) => return messages,
                }
            }
        }
        messages
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn whatever_is_sent_what_is_understood_names_a_plain_directory(
            changes in prop::collection::vec((0_usize..400, any::<u8>()), 0..6),
            noise in prop::collection::vec(any::<u8>(), 0..64),
            piece in 1_usize..300,
        ) {
            let attempt: AttemptId = "other-step.2".parse().unwrap();
            let mut bytes = Vec::new();
            for message in [
                spawn("some-step.1"),
                ToSupervisor::Signal { attempt: attempt.clone(), signal: StopSignal::Kill },
                ToSupervisor::Forget { attempt },
            ] {
                bytes.extend(frame(&message, MAX_SUPERVISION_FRAME_BYTES).unwrap());
            }
            for (at, to) in changes {
                let at = at % bytes.len();
                bytes[at] = to;
            }
            bytes.extend(noise);
            for id in understood(&bytes, piece).iter().filter_map(named) {
                let name = id.to_string();
                let mut parts = Path::new(&name).components();
                prop_assert!(matches!(parts.next(), Some(Component::Normal(_))), "{name}");
                prop_assert!(parts.next().is_none() && !name.starts_with('.') && !name.contains('\0'), "{name}");
            }
        }
    }
}
