//! Carries interactive streams between a caller's WebSocket and the agent: the messages of `common/src/websocket.rs` on
//! one side, the frames of `common/src/exec.rs` on the other. The end of either side ends both: if the caller goes, the
//! agent kills the program.
//!
//! The directions are two futures, so that a caller who reads nothing can still send, and the reverse. Both wait for the
//! side that they write to, so nothing is buffered beyond a message and a frame.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::HeaderValue;
use axum::http::header::SEC_WEBSOCKET_PROTOCOL;
use axum::response::Response;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use sluice_common::exec::{
    ExecOrder, ExecProgram, ExecRequest, FrameDecoder, FrameKind, MAX_FRAME_BYTES, encode_frame,
};
use sluice_common::id::UserName;
use sluice_common::port::PortName;
use sluice_common::websocket::{
    CallerMessage, Empty, MAX_MESSAGE_BYTES, SUBPROTOCOL, ServerMessage, data_message, split_data,
};
use sluice_common::wire::LogStream;
use sluice_transport::{FrameReader, FrameWriter};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::server::create_response_with_body;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

use super::super::Api;
use super::super::access::{CloseReason, WatchedUpgrade};
use super::super::auth;
use super::super::body;
use super::super::connections::Peer;
use super::super::error::ApiError;
use super::super::params;
use super::{AgentStream, ExecTarget, reach};

/// Longest time to the message that starts a program, or connects to a port.
const START_LIMIT: Duration = Duration::from_secs(10);

/// Time in which a caller may read the last messages.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// Most bytes that wait to be sent to a caller: a frame of the host, and answers to pings.
const MAX_UNSENT_BYTES: usize = 4 * MAX_FRAME_BYTES;

type Socket = WebSocketStream<TokioIo<Upgraded>>;
type FromCaller = SplitStream<Socket>;
type ToCaller = SplitSink<Socket, Message>;

/// A call on the way to a WebSocket.
pub(super) struct Handshake {
    upgrade: WatchedUpgrade,
    answer: Response,
}

impl Handshake {
    /// Checks the headers of a call.
    pub(super) fn of(request: &mut Request) -> Result<Self, ApiError> {
        let upgrade = request.extensions_mut().remove::<WatchedUpgrade>();
        let answer = create_response_with_body(request, Body::empty);
        let (Some(upgrade), Ok(mut answer)) = (upgrade, answer) else {
            let message = format!(
                "this call is a WebSocket (RFC 6455, by HTTP/1.1): connect with a WebSocket library, and offer the subprotocol `{SUBPROTOCOL}`"
            );
            return Err(params::invalid("Upgrade", message));
        };
        if !auth::subprotocols(request.headers()).any(|offered| offered == SUBPROTOCOL) {
            let message = format!("offer the subprotocol `{SUBPROTOCOL}`, the only one");
            return Err(params::invalid("Sec-WebSocket-Protocol", message));
        }
        let agreed = HeaderValue::from_static(SUBPROTOCOL);
        answer.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, agreed);
        Ok(Self { upgrade, answer })
    }

    /// Answers that the connection is a WebSocket from now on, and serves it.
    pub(super) fn accept(self, api: Api, peer: Peer, call: StreamCall) -> Response {
        // A reader of a program's output may be slow: the program waits for him.
        peer.stall_policy.allow_stalls();
        tokio::spawn(async move {
            // The connection keeps its permit until it ends.
            let _seat = peer.permit;
            let serve = |upgraded, closed| serve(api, upgraded, closed, call);
            self.upgrade.run(serve).await;
        });
        self.answer
    }
}

/// Purpose of a WebSocket.
pub(super) enum StreamCall {
    /// Runs a program beside a step.
    Exec {
        target: ExecTarget,
        by: Option<UserName>,
    },
    /// Sends a step its input.
    Input(AgentStream),
    /// Connects to a port of a step.
    Port {
        target: ExecTarget,
        port: PortName,
        by: Option<UserName>,
    },
}

/// End of a WebSocket.
enum StreamEnd {
    /// The caller has gone.
    Gone,
    /// The last message was sent.
    Complete,
    /// The caller gets an error.
    Refused(Box<ApiError>),
    /// The connection is closed with this code and reason.
    Closed(CloseCode, &'static str),
}

impl From<ApiError> for StreamEnd {
    fn from(error: ApiError) -> Self {
        Self::Refused(Box::new(error))
    }
}

impl From<Error> for StreamEnd {
    fn from(error: Error) -> Self {
        match error {
            Error::Capacity(_) => Self::Closed(CloseCode::Size, "a message has at most 1 MiB"),
            Error::Utf8(_) => Self::Closed(CloseCode::Invalid, "a text message is not UTF-8"),
            Error::Protocol(_) => Self::Closed(CloseCode::Protocol, "this is not RFC 6455"),
            _ => Self::Gone,
        }
    }
}

/// The host's side has broken off.
const HOST_LOST: StreamEnd = StreamEnd::Closed(
    CloseCode::Error,
    "the connection to the step's host was lost, or its program has cut it",
);

async fn serve(api: Api, upgraded: Upgraded, closed: CloseReason, call: StreamCall) {
    let config = WebSocketConfig::default()
        .read_buffer_size(MAX_FRAME_BYTES)
        .write_buffer_size(0)
        .max_write_buffer_size(MAX_UNSENT_BYTES)
        .max_message_size(Some(MAX_MESSAGE_BYTES))
        .max_frame_size(Some(MAX_MESSAGE_BYTES));
    let io = TokioIo::new(upgraded);
    let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
    let (mut to_caller, mut from_caller) = socket.split();
    let end = tokio::select! {
        Ok(error) = closed => error.into(),
        end = carry(&api, call, &mut from_caller, &mut to_caller) => end.unwrap_or_else(|end| end),
        () = api.stopped() => StreamEnd::Closed(CloseCode::Away, "the coordinator is stopping"),
    };
    if let Ok(socket) = from_caller.reunite(to_caller) {
        let _the_caller_has_gone = timeout(CLOSE_LIMIT, close(socket, end)).await;
    }
}

/// Carries a call to its end. Dropping the agent's stream tells the agent to kill the program.
async fn carry(
    api: &Api,
    call: StreamCall,
    from_caller: &mut FromCaller,
    to_caller: &mut ToCaller,
) -> Result<StreamEnd, StreamEnd> {
    let agent = match call {
        StreamCall::Input(agent) => agent,
        StreamCall::Exec { target, by } => {
            let program = timeout(START_LIMIT, start(from_caller))
                .await
                .map_err(|_| StreamEnd::Closed(CloseCode::Policy, "no `start` came for 10 s"))??;
            target.check(&program, by.as_ref())?;
            let order = ExecOrder { program, by };
            reach(api, target, LogStream::Exec, Some(&order)).await?
        }
        StreamCall::Port { target, port, by } => {
            timeout(START_LIMIT, connect(from_caller))
                .await
                .map_err(|_| {
                    StreamEnd::Closed(CloseCode::Policy, "no `connect` came for 10 s")
                })??;
            let program = ExecProgram::Connect { port };
            let order = ExecOrder { program, by };
            reach(api, target, LogStream::Exec, Some(&order)).await?
        }
    };
    to_caller.send(text(&agent.first)).await?;
    if agent.first == (ServerMessage::InputEnded(Empty {})) {
        return Ok(StreamEnd::Complete);
    }
    tokio::select! {
        end = up(from_caller, agent.writer) => end,
        end = down(agent.reader, to_caller) => end,
    }
}

/// Reads the request for a program.
async fn start(from_caller: &mut FromCaller) -> Result<ExecProgram, StreamEnd> {
    let reason = "the first message is text: {\"start\":{\"command\":[...]}}";
    match first(from_caller, reason).await? {
        CallerMessage::Start(wanted) => {
            wanted.check().map_err(ApiError::Field)?;
            let ExecRequest { command, terminal } = wanted;
            Ok(ExecProgram::Command { command, terminal })
        }
        CallerMessage::CopyFiles(Empty {}) => Ok(ExecProgram::CopyFiles),
        CallerMessage::Connect(Empty {})
        | CallerMessage::Resize(_)
        | CallerMessage::EndInput(Empty {}) => Err(StreamEnd::Closed(CloseCode::Policy, reason)),
    }
}

/// Reads the request for a connection to a port.
async fn connect(from_caller: &mut FromCaller) -> Result<(), StreamEnd> {
    let reason = "the first message is text: {\"connect\":{}}";
    match first(from_caller, reason).await? {
        CallerMessage::Connect(Empty {}) => Ok(()),
        CallerMessage::Start(_)
        | CallerMessage::CopyFiles(Empty {})
        | CallerMessage::Resize(_)
        | CallerMessage::EndInput(Empty {}) => Err(StreamEnd::Closed(CloseCode::Policy, reason)),
    }
}

/// Reads the first message, which is text; `reason` tells a caller who sends data what to send.
async fn first(
    from_caller: &mut FromCaller,
    reason: &'static str,
) -> Result<CallerMessage, StreamEnd> {
    loop {
        match from_caller.next().await.ok_or(StreamEnd::Gone)?? {
            Message::Text(text) => return parsed(&text),
            Message::Binary(_) => return Err(StreamEnd::Closed(CloseCode::Policy, reason)),
            Message::Close(_) => return Err(StreamEnd::Gone),
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
        }
    }
}

fn parsed(text: &str) -> Result<CallerMessage, StreamEnd> {
    if !text.trim_start().starts_with('{') {
        let reason =
            "text is JSON such as {\"end_input\":{}}: send data in binary messages, channel first";
        return Err(StreamEnd::Closed(CloseCode::Unsupported, reason));
    }
    Ok(body::parse(text.as_bytes(), "")?)
}

/// Carries the caller's messages to the host.
async fn up(from_caller: &mut FromCaller, mut writer: FrameWriter) -> Result<StreamEnd, StreamEnd> {
    loop {
        let frames = match from_caller.next().await.ok_or(StreamEnd::Gone)?? {
            Message::Binary(message) => input_frames(&message)?,
            Message::Text(text) => match parsed(&text)? {
                CallerMessage::EndInput(Empty {}) => encode_frame(FrameKind::Stdin, &[]),
                CallerMessage::Resize(size) => encode_frame(FrameKind::Resize, &size.to_bytes()),
                CallerMessage::Start(_)
                | CallerMessage::CopyFiles(_)
                | CallerMessage::Connect(_) => {
                    let reason = "only the first message says what the call is for";
                    return Err(StreamEnd::Closed(CloseCode::Policy, reason));
                }
            },
            Message::Close(_) => return Ok(StreamEnd::Gone),
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => continue,
        };
        if writer.send_bytes(&frames).await.is_err() {
            // The program has ended: its unread input is discarded, and its exit is on the way to the caller.
            return std::future::pending().await;
        }
    }
}

/// Encodes data for standard input. An empty frame would end it, so none is made of an empty message.
fn input_frames(message: &[u8]) -> Result<Vec<u8>, StreamEnd> {
    let Some((FrameKind::Stdin, data)) = split_data(message) else {
        let reason = "a binary message begins with its channel: 0 for standard input";
        return Err(StreamEnd::Closed(CloseCode::Unsupported, reason));
    };
    let frames = data.chunks(MAX_FRAME_BYTES);
    Ok(frames
        .flat_map(|data| encode_frame(FrameKind::Stdin, data))
        .collect())
}

/// Carries the host's frames to the caller.
async fn down(mut reader: FrameReader, to_caller: &mut ToCaller) -> Result<StreamEnd, StreamEnd> {
    let mut frames = FrameDecoder::default();
    let mut output_ended = false;
    loop {
        while let Some((kind, payload)) = frames.next_frame().map_err(|_| HOST_LOST)? {
            output_ended |= kind == FrameKind::OutputEnded;
            let (message, is_last) = translated(kind, &payload).ok_or(HOST_LOST)?;
            to_caller.send(message).await?;
            if is_last {
                return Ok(StreamEnd::Complete);
            }
        }
        match reader.read_bytes(MAX_FRAME_BYTES).await {
            Ok(Some(bytes)) => frames.push(&bytes),
            // Both directions of a connection to a port have ended.
            Ok(None) if output_ended => return Ok(StreamEnd::Complete),
            Ok(None) | Err(_) => return Err(HOST_LOST),
        }
    }
}

/// Translates a frame of the host, and tells whether it is the last one; `None` if no host sends such a frame.
fn translated(kind: FrameKind, payload: &[u8]) -> Option<(Message, bool)> {
    let control = match kind {
        FrameKind::Stdout | FrameKind::Stderr => {
            return Some((Message::binary(data_message(kind, payload)), false));
        }
        FrameKind::Taken => ServerMessage::Taken(u64::from_be_bytes(payload.try_into().ok()?)),
        FrameKind::Exit => ServerMessage::Exit(serde_json::from_slice(payload).ok()?),
        FrameKind::InputEnded => ServerMessage::InputEnded(Empty {}),
        FrameKind::TakenOver => ServerMessage::TakenOver(Empty {}),
        FrameKind::OutputEnded => ServerMessage::OutputEnded(Empty {}),
        FrameKind::Stdin | FrameKind::Resize => return None,
    };
    let goes_on = matches!(
        control,
        ServerMessage::Taken(_) | ServerMessage::OutputEnded(_)
    );
    Some((text(&control), !goes_on))
}

fn text(message: &ServerMessage) -> Message {
    let json = serde_json::to_string(message);
    Message::text(json.expect("a message is plain JSON"))
}

/// Tells the caller the end, and waits until the caller has it: bytes that nobody reads make the system drop those that
/// are on their way.
async fn close(mut socket: Socket, end: StreamEnd) -> Result<(), Error> {
    let (code, reason) = match end {
        StreamEnd::Gone => {
            socket.flush().await?;
            return Ok(socket.into_inner().shutdown().await?);
        }
        StreamEnd::Complete => (CloseCode::Normal, ""),
        StreamEnd::Closed(code, reason) => (code, reason),
        StreamEnd::Refused(error) => {
            let code = error.code();
            let message = ServerMessage::Error(error.body().error);
            socket.send(text(&message)).await?;
            (CloseCode::from(4000 + code.status()), code.as_str())
        }
    };
    let reason = reason.into();
    socket.close(Some(CloseFrame { code, reason })).await?;
    let mut io = socket.into_inner();
    io.shutdown().await?;
    let mut rest = vec![0; MAX_FRAME_BYTES];
    while io.read(&mut rest).await? > 0 {}
    Ok(())
}
