//! Connections to ports of attempts: passes bytes between the coordinator and a program of the attempt. Each direction
//! waits for the side that it writes to, and ends by itself.
//!
//! Only a port that this host gave to the very attempt is connected to, only while the attempt runs, and only at addresses
//! of this host: the order names a port by its name alone.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sluice_common::exec::{
    ExecOrder, FrameDecoder, FrameKind, MAX_CONNECTIONS_PER_ATTEMPT, MAX_FRAME_BYTES, encode_frame,
};
use sluice_common::id::AttemptId;
use sluice_common::port::PortName;
use sluice_common::supervision::Exit;
use sluice_common::wire::LogReply;
use sluice_transport::{FrameReader, FrameWriter};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{ExecError, ExecServer};
use crate::event::{Event, ExecEvent, ExecRefusal, StartedExec};

/// Longest time to a connection with a program of this host, whose queue may be full. Shorter than the coordinator's time
/// limit for an answer.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Counts the open connections of each attempt. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub(super) struct ConnectionCounts(Arc<Mutex<BTreeMap<AttemptId, usize>>>);

/// The permit of one connection, released when it is dropped.
#[derive(Debug)]
struct ConnectionPermit {
    counts: ConnectionCounts,
    attempt: AttemptId,
}

impl ConnectionCounts {
    /// Returns a permit; `None` if the attempt has the maximum of connections.
    fn take(&self, attempt: &AttemptId) -> Option<ConnectionPermit> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(attempt.clone()).or_default();
        if *count >= MAX_CONNECTIONS_PER_ATTEMPT {
            return None;
        }
        *count += 1;
        Some(ConnectionPermit {
            counts: self.clone(),
            attempt: attempt.clone(),
        })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut counts = self.counts.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.attempt) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.attempt);
            }
        }
    }
}

impl ExecServer {
    /// Serves one connection, from the check of its caller to its end.
    pub(super) async fn connect(
        &self,
        attempt: AttemptId,
        name: &PortName,
        order: ExecOrder,
        reader: FrameReader,
        mut writer: FrameWriter,
    ) -> Result<(), ExecError> {
        let opened = match self.connections.take(&attempt) {
            Some(permit) => self
                .open_port(&attempt, name, order)
                .await?
                .map(|stream| (stream, permit)),
            None => Err(format!(
                "{MAX_CONNECTIONS_PER_ATTEMPT} connections to its ports are open, which is the maximum: close some"
            )),
        };
        let (mut stream, _permit) = match opened {
            Ok(opened) => opened,
            Err(message) => {
                writer.send(&LogReply::Refused { message }).await?;
                writer.finish();
                return Ok(());
            }
        };
        writer.send(&LogReply::From { offset: 0 }).await?;
        let carried = carry(&mut stream, reader, &mut writer).await;
        if carried.is_err() {
            // The program must not take a part for all that the caller wanted to send.
            let _it_is_closed_anyway = stream.set_zero_linger();
            return carried;
        }
        writer.finish();
        writer.delivered().await?;
        Ok(())
    }

    /// Connects to a port for a caller; the error is for the caller.
    async fn open_port(
        &self,
        attempt: &AttemptId,
        name: &PortName,
        order: ExecOrder,
    ) -> Result<Result<TcpStream, String>, ExecError> {
        if let Err(ExecRefusal { message, .. }) = self.judge(attempt, order).await? {
            return Ok(Err(message));
        }
        let gone = || Ok(Err(format!("it has no port `{name}` there now: try again")));
        let Some(port) = self.port_of(attempt, name).await? else {
            return gone();
        };
        let stream = match dial(port, &self.address).await {
            Ok(stream) => stream,
            Err(error) => return Ok(Err(unanswered(name, port, &error))),
        };
        // If the attempt has ended meanwhile, the port may be another's.
        if self.port_of(attempt, name).await? != Some(port) {
            return gone();
        }
        // Keys and short messages must not wait for more bytes.
        let _bytes_go_anyway = stream.set_nodelay(true);
        Ok(Ok(stream))
    }

    /// Asks the supervisor whether the caller may run programs beside the attempt, and so connect to its ports.
    async fn judge(
        &self,
        attempt: &AttemptId,
        order: ExecOrder,
    ) -> Result<Result<(), ExecRefusal>, ExecError> {
        let end = match self.begin(attempt.clone(), order).await? {
            Ok(StartedExec { end, .. }) => end,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let refused = |message: &str| {
            Ok(Err(ExecRefusal {
                message: message.to_owned(),
                has_ended: false,
            }))
        };
        match end.await {
            Ok(Exit::Code(0)) => Ok(Ok(())),
            Ok(Exit::StartFailed(why)) => refused(&why),
            Ok(_) | Err(_) => refused("the host's supervisor is away: try again"),
        }
    }

    async fn port_of(
        &self,
        attempt: &AttemptId,
        name: &PortName,
    ) -> Result<Option<u16>, ExecError> {
        let (answer, answered) = oneshot::channel();
        let wanted = ExecEvent::PortWanted {
            attempt: attempt.clone(),
            name: name.clone(),
            answer,
        };
        let sent = self.events.send(Event::Exec(wanted)).await;
        sent.map_err(|_| ExecError::Stopping)?;
        answered.await.map_err(|_| ExecError::Stopping)
    }
}

/// Connects to a port of this host: at its loopback addresses, or at its own address, where some programs listen alone.
async fn dial(port: u16, own: &str) -> io::Result<TcpStream> {
    let tried = async {
        let loopback = [
            IpAddr::from(Ipv4Addr::LOCALHOST),
            IpAddr::from(Ipv6Addr::LOCALHOST),
        ];
        let mut first = None;
        for ip in loopback {
            match TcpStream::connect(SocketAddr::new(ip, port)).await {
                Ok(stream) => return Ok(stream),
                Err(error) => first = first.or(Some(error)),
            }
        }
        for address in lookup_host((own, port)).await.into_iter().flatten() {
            if let Ok(stream) = connect_here(address).await {
                return Ok(stream);
            }
        }
        Err(first.unwrap_or_else(|| io::ErrorKind::ConnectionRefused.into()))
    };
    let limit = timeout(CONNECT_LIMIT, tried).await;
    limit.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Connects to an address if it is one of this host: only then can a socket of this host have it too.
async fn connect_here(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.bind(SocketAddr::new(address.ip(), 0))?;
    socket.connect(address).await
}

fn unanswered(name: &PortName, port: u16, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => format!(
            "no program listens at its port `{name}` yet: it is {port} there, which the program finds in `{}`",
            name.variable()
        ),
        io::ErrorKind::TimedOut => format!(
            "the program at its port `{name}` accepted no connection for {}s",
            CONNECT_LIMIT.as_secs()
        ),
        _ => format!("its port `{name}` cannot be connected to: {error}"),
    }
}

/// Carries both directions to their ends.
async fn carry(
    stream: &mut TcpStream,
    reader: FrameReader,
    writer: &mut FrameWriter,
) -> Result<(), ExecError> {
    let (from_program, to_program) = stream.split();
    let input = pass_input(reader, to_program);
    let output = pass_output(from_program, writer);
    tokio::try_join!(input, output).map(|_| ())
}

/// Writes what the caller sends to the program, until the caller ends it. What a program does not take any more is
/// discarded, because it may still send.
async fn pass_input(
    mut reader: FrameReader,
    mut to_program: WriteHalf<'_>,
) -> Result<(), ExecError> {
    let mut frames = FrameDecoder::default();
    let mut is_taken = true;
    while let Some(bytes) = reader.read_bytes(MAX_FRAME_BYTES).await? {
        frames.push(&bytes);
        while let Some((kind, bytes)) = frames.next_frame()? {
            match (kind, bytes.is_empty()) {
                (FrameKind::Stdin, true) => {
                    let _it_has_gone = to_program.shutdown().await;
                    return Ok(());
                }
                (FrameKind::Stdin, false) if is_taken => {
                    is_taken = to_program.write_all(&bytes).await.is_ok();
                }
                _ => {}
            }
        }
    }
    // The caller's side broke off before it had ended its input.
    Err(ExecError::Nothing)
}

/// Sends what the program sends to the caller, and its end.
async fn pass_output(
    mut from_program: ReadHalf<'_>,
    writer: &mut FrameWriter,
) -> Result<(), ExecError> {
    let mut bytes = vec![0; MAX_FRAME_BYTES];
    loop {
        let count = tokio::select! {
            read = from_program.read(&mut bytes) => read.map_err(ExecError::Streams)?,
            () = writer.reader_gone() => return Err(ExecError::Nothing),
        };
        let frame = match count {
            0 => encode_frame(FrameKind::OutputEnded, &[]),
            count => encode_frame(FrameKind::Stdout, &bytes[..count]),
        };
        writer.send_bytes(&frame).await?;
        if count == 0 {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn a_program_is_found_where_it_listens_on_this_host_and_nowhere_else() {
        for address in ["127.0.0.1:0", "127.0.0.7:0"] {
            let listener = TcpListener::bind(address).await.unwrap();
            let listens = listener.local_addr().unwrap();
            let own = listens.ip().to_string();
            let stream = dial(listens.port(), &own).await.unwrap();
            assert_eq!(stream.peer_addr().unwrap(), listens);
        }
        // An address that belongs to no host is refused before anything is sent there.
        let elsewhere = connect_here("192.0.2.1:9".parse().unwrap()).await;
        let error = elsewhere.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable, "{error}");
        let free = {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            listener.local_addr().unwrap().port()
        };
        let error = dial(free, "no-such-host.invalid").await.unwrap_err();
        let told = unanswered(&"http".parse().unwrap(), free, &error);
        let expected = format!(
            "no program listens at its port `http` yet: it is {free} there, which the program finds in `SLUICE_PORT_HTTP`"
        );
        assert_eq!(told, expected);
    }

    #[test]
    fn an_attempt_has_no_more_connections_than_the_maximum() {
        let counts = ConnectionCounts::default();
        let attempt = |id: &str| id.parse::<AttemptId>().unwrap();
        let take = || counts.take(&attempt("a.1"));
        let mut all: Vec<_> = (0..MAX_CONNECTIONS_PER_ATTEMPT).map(|_| take()).collect();
        assert!(all.iter().all(Option::is_some));
        assert!(take().is_none());
        assert!(counts.take(&attempt("b.1")).is_some());
        all.pop();
        assert!(take().is_some());
        drop(all);
        assert!(counts.0.lock().unwrap().is_empty());
    }
}
