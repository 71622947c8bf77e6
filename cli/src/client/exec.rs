//! The calls that become WebSockets: to a program beside a step, to the input of a step, and to a port of a step.
//! `common/src/websocket.rs` has the messages. The HTTP library does not give away its connections, so these are made here.
//!
//! A connection is used by two threads, one for each direction: see [`SharedSocket`].

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sluice_common::api::{ErrorBody, ErrorView};
use sluice_common::error_code::ErrorCode;
use sluice_common::exec::{ExecRequest, FrameKind};
use sluice_common::websocket::{
    CallerMessage, Empty, MAX_MESSAGE_BYTES, SUBPROTOCOL, ServerMessage, data_message, split_data,
};
use socket2::{SockRef, Socket, TcpKeepalive};
use tungstenite::client::client_with_config;
use tungstenite::client::{ClientRequestBuilder, IntoClientRequest};
use tungstenite::error::ProtocolError;
use tungstenite::handshake::HandshakeError;
use tungstenite::protocol::{Role, WebSocketConfig};
use tungstenite::{Error, Message, WebSocket};
use ureq::http::{Response, Uri};

use super::error::foreign_error;
use super::{ANSWER_LIMIT, ApiError, CONNECT_LIMIT, Client, ContextTls, segment, tunnel};

/// Most bytes that are read of a refusal.
const MAX_REFUSAL_BYTES: u64 = 1024 * 1024;

/// Probes by which a silent coordinator that has gone is noticed: within a minute, because Linux sends nine.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(15))
    .with_interval(Duration::from_secs(5));

/// A connection that carries interactive streams.
pub(crate) struct ExecConnection {
    /// The first message, which is not an error.
    pub(crate) first: ServerMessage,
    pub(crate) reader: MessageReader,
    pub(crate) writer: MessageWriter,
}

/// Message of the coordinator.
pub(crate) enum StreamMessage {
    /// Data of a stream.
    Data(FrameKind, Vec<u8>),
    /// A text message.
    Control(ServerMessage),
    /// The connection has ended, for this reason if one was given.
    Closed(String),
}

/// Receiving end of a connection.
pub(crate) struct MessageReader(WebSocket<SharedSocket>);

impl MessageReader {
    /// Returns the next message.
    pub(crate) fn next(&mut self) -> io::Result<StreamMessage> {
        loop {
            let received = match self.0.read() {
                Ok(Message::Binary(message)) => split_data(&message)
                    .map(|(stream, data)| StreamMessage::Data(stream, data.to_vec())),
                Ok(Message::Text(text)) => {
                    serde_json::from_str(&text).ok().map(StreamMessage::Control)
                }
                Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => continue,
                Ok(Message::Close(frame)) => {
                    let reason = frame.map(|frame| frame.reason.to_string());
                    Some(StreamMessage::Closed(reason.unwrap_or_default()))
                }
                Err(
                    Error::ConnectionClosed
                    | Error::Protocol(ProtocolError::ResetWithoutClosingHandshake),
                ) => Some(StreamMessage::Closed(String::new())),
                Err(Error::Io(error)) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(plain(error)),
            };
            let unknown = || io::Error::other("a message is of a kind that this version lacks");
            return received.ok_or_else(unknown);
        }
    }

    /// Closes the connection for both ends.
    pub(crate) fn close(&self) {
        self.0.get_ref().close();
    }
}

/// Sending end of a connection; clones send by the same one.
#[derive(Clone)]
pub(crate) struct MessageWriter(Arc<Mutex<WebSocket<SharedSocket>>>);

impl MessageWriter {
    pub(crate) fn send_input(&self, data: &[u8]) -> io::Result<()> {
        self.write(Message::binary(data_message(FrameKind::Stdin, data)))
    }

    pub(crate) fn send(&self, message: &CallerMessage) -> io::Result<()> {
        self.write(Message::text(serde_json::to_string(message)?))
    }

    fn write(&self, message: Message) -> io::Result<()> {
        let mut socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        socket.send(message).map_err(plain)
    }

    /// Closes the connection for both ends.
    pub(crate) fn close(&self) {
        let socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        socket.get_ref().close();
    }
}

fn plain(error: Error) -> io::Error {
    match error {
        Error::Io(error) => error,
        error => io::Error::other(error),
    }
}

/// A socket of which each end of the connection has a clone. What is given to one `write` is written as a whole: the
/// library gives it whole messages, and answers to pings by the receiving end must not end up inside those of the other.
#[derive(Clone)]
struct SharedSocket {
    socket: Arc<Socket>,
    writing: Arc<Mutex<()>>,
}

impl SharedSocket {
    /// Closes the connection for both ends.
    fn close(&self) {
        let _it_is_closed = self.socket.shutdown(Shutdown::Both);
    }
}

impl Read for SharedSocket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        (&*self.socket).read(bytes)
    }
}

impl Write for SharedSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        (&*self.socket).write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Client {
    /// Starts a program beside a running step.
    pub(crate) fn exec(
        &self,
        id: &str,
        rank: u32,
        wanted: &ExecRequest,
    ) -> Result<ExecConnection, ApiError> {
        let path = format!("/v1/steps/{}/exec?rank={rank}", segment(id));
        self.websocket(&path, Some(CallerMessage::Start(wanted.clone())))
    }

    /// Starts copying files to or from an attempt of a running step.
    pub(crate) fn copy_files(
        &self,
        id: &str,
        rank: u32,
        attempt: u32,
    ) -> Result<ExecConnection, ApiError> {
        let id = segment(id);
        let path = format!("/v1/steps/{id}/exec?rank={rank}&attempt={attempt}");
        self.websocket(&path, Some(CallerMessage::CopyFiles(Empty {})))
    }

    /// Connects to the standard input of a running step, or of its rank 0.
    pub(crate) fn input(&self, id: &str) -> Result<ExecConnection, ApiError> {
        self.websocket(&format!("/v1/steps/{}/input", segment(id)), None)
    }

    /// Connects to a port of a running step.
    pub(crate) fn port(&self, id: &str, port: &str, rank: u32) -> Result<ExecConnection, ApiError> {
        let path = port_path(id, port, rank);
        self.websocket(&path, Some(CallerMessage::Connect(Empty {})))
    }

    /// Checks that the caller may connect to a port of a running step, without a connection to its program.
    pub(crate) fn check_port(&self, id: &str, port: &str, rank: u32) -> Result<(), ApiError> {
        let (_, socket) = self.shake(&port_path(id, port, rank))?;
        socket.close();
        Ok(())
    }

    /// Makes a call that becomes a WebSocket, as far as the coordinator has accepted it.
    fn shake(&self, path: &str) -> Result<(WebSocket<SharedSocket>, SharedSocket), ApiError> {
        let socket = SharedSocket {
            socket: Arc::new(self.connect().map_err(|error| self.lost(&error))?),
            writing: Arc::default(),
        };
        let request = self.websocket_request(path)?;
        let shaken = client_with_config(request, socket.clone(), Some(config()));
        let (reading, _) = shaken.map_err(|error| self.not_accepted(error, &socket))?;
        Ok((reading, socket))
    }

    /// Makes a call that becomes a WebSocket, sends the message that begins it, and waits for the first answer.
    fn websocket(
        &self,
        path: &str,
        begin: Option<CallerMessage>,
    ) -> Result<ExecConnection, ApiError> {
        let lost = |error: io::Error| self.lost(&error);
        let (reading, socket) = self.shake(path)?;
        let writing = WebSocket::from_raw_socket(socket.clone(), Role::Client, Some(config()));
        let writer = MessageWriter(Arc::new(Mutex::new(writing)));
        if let Some(message) = begin {
            writer.send(&message).map_err(lost)?;
        }
        let mut reader = MessageReader(reading);
        let first = match reader.next().map_err(lost)? {
            StreamMessage::Control(ServerMessage::Error(error)) => return Err(failed(error)),
            StreamMessage::Control(first) => first,
            StreamMessage::Data(..) => {
                return Err(self.garbled(&"a WebSocket that begins with data"));
            }
            StreamMessage::Closed(reason) => {
                let message = format!("it has closed the connection: {reason}");
                return Err(lost(io::Error::other(message)));
            }
        };
        // A program may be silent for any time.
        socket.socket.set_read_timeout(None).map_err(lost)?;
        Ok(ExecConnection {
            first,
            reader,
            writer,
        })
    }

    fn websocket_request(&self, path: &str) -> Result<impl IntoClientRequest + use<>, ApiError> {
        let file = &self.context.file;
        let uri: Result<Uri, _> = format!("ws://{}{path}", file.authority()).parse();
        let uri = uri.map_err(|error| self.garbled(&error))?;
        let request = ClientRequestBuilder::new(uri).with_sub_protocol(SUBPROTOCOL);
        Ok(match &file.token {
            None => request,
            Some(token) => request.with_header("Authorization", format!("Bearer {token}")),
        })
    }

    /// Returns the error of a call that has not become a WebSocket.
    fn not_accepted<R: tungstenite::handshake::HandshakeRole>(
        &self,
        error: HandshakeError<R>,
        socket: &SharedSocket,
    ) -> ApiError {
        match error {
            HandshakeError::Interrupted(_) => self.lost(&io::ErrorKind::TimedOut.into()),
            HandshakeError::Failure(Error::Io(error)) => self.lost(&error),
            HandshakeError::Failure(Error::Http(answer)) => self.refused(*answer, socket),
            HandshakeError::Failure(error) => self.garbled(&error),
        }
    }

    /// Reads a refusal, of which the library has read the beginning.
    fn refused(&self, answer: Response<Option<Vec<u8>>>, socket: &SharedSocket) -> ApiError {
        let status = answer.status();
        let length = answer.headers().get("content-length");
        let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        let mut body = answer.into_body().unwrap_or_default();
        let rest = length.map_or(MAX_REFUSAL_BYTES, |length| {
            length.saturating_sub(body.len() as u64)
        });
        let rest = rest.min(MAX_REFUSAL_BYTES);
        if let Err(error) = socket.clone().take(rest).read_to_end(&mut body) {
            return self.lost(&error);
        }
        ApiError::Refused {
            status: status.as_u16(),
            error: serde_json::from_slice(&body).map_or_else(
                |_| foreign_error(status, &body),
                |body: ErrorBody| body.error,
            ),
        }
    }

    fn connect(&self) -> io::Result<Socket> {
        let tcp = self.connect_tcp()?;
        let context = self.context();
        let trust = ContextTls::of(context).map_err(io::Error::other)?;
        let socket = match trust {
            None => Socket::from(tcp),
            Some(trust) => {
                let config = trust.for_connections().map_err(io::Error::other)?;
                let plain = tunnel::open(tcp, config, context.file.host(), ANSWER_LIMIT)?;
                Socket::from(OwnedFd::from(plain))
            }
        };
        socket.set_read_timeout(Some(ANSWER_LIMIT))?;
        Ok(socket)
    }

    fn connect_tcp(&self) -> io::Result<TcpStream> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name does not resolve");
        for address in self.context.file.authority().to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT_LIMIT) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    SockRef::from(&stream).set_tcp_keepalive(&KEEPALIVE)?;
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

fn config() -> WebSocketConfig {
    WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE_BYTES))
        .max_frame_size(Some(MAX_MESSAGE_BYTES))
}

fn port_path(id: &str, port: &str, rank: u32) -> String {
    format!(
        "/v1/steps/{}/ports/{}?rank={rank}",
        segment(id),
        segment(port)
    )
}

/// Returns the error by which the coordinator has ended a connection.
pub(crate) fn failed(error: ErrorView) -> ApiError {
    let codes = ErrorCode::ALL.iter();
    let known = codes.into_iter().find(|code| code.as_str() == error.code);
    ApiError::Refused {
        status: known.map_or(500, |code| code.status()),
        error,
    }
}
