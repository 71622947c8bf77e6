//! A TLS connection as a plain socket pair: a thread encrypts and decrypts between the plain end and the connection
//! until either is closed.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

/// Bytes carried in one read.
const CHUNK_BYTES: usize = 64 * 1024;

/// Does the handshake on `tcp`, and returns the plain end.
pub(super) fn open(
    tcp: TcpStream,
    config: Arc<ClientConfig>,
    host: &str,
    limit: Duration,
) -> io::Result<UnixStream> {
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let mut session = ClientConnection::new(config, name).map_err(io::Error::other)?;
    let mut tcp = tcp;
    tcp.set_read_timeout(Some(limit))?;
    while session.is_handshaking() {
        session.complete_io(&mut tcp)?;
    }
    tcp.set_nonblocking(true)?;
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    // Ends when either end is closed, and with the process at the latest.
    thread::spawn(move || {
        let _either_end_has_gone = carry(&mut session, &mut tcp, ours);
    });
    Ok(theirs)
}

/// Decrypted bytes on their way to the plain end.
#[derive(Default)]
struct PlainBuffer {
    bytes: Vec<u8>,
    /// No more will come.
    ended: bool,
}

fn carry(
    session: &mut ClientConnection,
    tcp: &mut TcpStream,
    mut plain: UnixStream,
) -> io::Result<()> {
    let mut down = PlainBuffer::default();
    let mut up_ended = false;
    loop {
        wait(session, tcp, &plain, &down, up_ended)?;
        if !up_ended && !session.wants_write() {
            up_ended = up(session, &mut plain)?;
        }
        while session.wants_write() {
            match session.write_tls(tcp) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                written => written?,
            };
        }
        from_peer(session, tcp, &mut down)?;
        pour(&mut plain, &mut down)?;
        if down.ended && down.bytes.is_empty() {
            return plain.shutdown(std::net::Shutdown::Write);
        }
    }
}

/// Waits until a socket is ready.
fn wait(
    session: &ClientConnection,
    tcp: &TcpStream,
    plain: &UnixStream,
    down: &PlainBuffer,
    up_ended: bool,
) -> io::Result<()> {
    let mut of_tcp = PollFlags::empty();
    // While the reader takes nothing, nothing is read from the peer.
    of_tcp.set(PollFlags::POLLIN, down.bytes.is_empty() && !down.ended);
    of_tcp.set(PollFlags::POLLOUT, session.wants_write());
    let mut of_plain = PollFlags::empty();
    of_plain.set(PollFlags::POLLIN, !up_ended && !session.wants_write());
    of_plain.set(PollFlags::POLLOUT, !down.bytes.is_empty());
    let mut fds = [
        PollFd::new(tcp.as_fd(), of_tcp),
        PollFd::new(plain.as_fd(), of_plain),
    ];
    match poll(&mut fds, PollTimeout::NONE) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Encrypts bytes from the plain end; returns whether it has ended.
fn up(session: &mut ClientConnection, plain: &mut UnixStream) -> io::Result<bool> {
    let mut bytes = [0; CHUNK_BYTES];
    match plain.read(&mut bytes) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Ok(0) => {
            session.send_close_notify();
            Ok(true)
        }
        read => {
            session.writer().write_all(&bytes[..read?])?;
            Ok(false)
        }
    }
}

fn from_peer(
    session: &mut ClientConnection,
    tcp: &mut TcpStream,
    down: &mut PlainBuffer,
) -> io::Result<()> {
    if !down.bytes.is_empty() || down.ended {
        return Ok(());
    }
    match session.read_tls(tcp) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        Ok(0) => down.ended = true,
        read => {
            read?;
        }
    }
    let state = session.process_new_packets().map_err(io::Error::other)?;
    down.ended |= state.peer_has_closed();
    let mut bytes = vec![0; state.plaintext_bytes_to_read()];
    session.reader().read_exact(&mut bytes)?;
    down.bytes = bytes;
    Ok(())
}

fn pour(plain: &mut UnixStream, down: &mut PlainBuffer) -> io::Result<()> {
    while !down.bytes.is_empty() {
        match plain.write(&down.bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            written => _ = down.bytes.drain(..written?),
        }
    }
    Ok(())
}
