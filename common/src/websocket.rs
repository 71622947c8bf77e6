//! Protocol of interactive streams over the API: the streams of a program beside a step, the input of a step, and a
//! connection to a port of a step. The calls are WebSockets (RFC 6455), so that browsers and other languages speak it with
//! the libraries they have.
//!
//! - Binary messages carry bytes. Their first byte is the channel: 0 is standard input, 1 standard output, 2 standard
//!   error. The rest is data. On a connection to a port, 0 is what the caller sends, and 1 what the program there sends.
//! - Text messages are JSON objects with one key: [`CallerMessage`] in one direction, [`ServerMessage`] in the other.

use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::api::ErrorView;
use crate::exec::{ExecRequest, FrameKind, WindowSize};
use crate::limit::MAX_BODY_BYTES;
use crate::supervision::Exit;

/// Name of the protocol, which a caller must offer as a subprotocol.
pub const SUBPROTOCOL: &str = "sluice.v1";

/// Beginning of a second subprotocol by which a browser, which cannot set `Authorization`, sends its token: the token in
/// base64url without padding follows.
pub const TOKEN_SUBPROTOCOL: &str = "sluice.bearer.";

/// Largest message of a caller, in bytes: a command may be as long as the body of another call.
pub const MAX_MESSAGE_BYTES: usize = MAX_BODY_BYTES;

/// Content of a message whose name says all; `{}` in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Empty {}

/// Text message of a caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum CallerMessage {
    /// Starts a program: the first message of a call for one, and of no other.
    Start(ExecRequest),
    /// Copies files, instead of starting a program: the data is that of the crate `sluice-copy`.
    CopyFiles(Empty),
    /// Connects to the port: the first message of a call for a port, and of no other.
    Connect(Empty),
    /// Gives the terminal another size.
    Resize(WindowSize),
    /// Ends standard input, or what is sent to a port. The end of the connection does not end the input of a step.
    EndInput(Empty),
}

/// Text message of the coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ServerMessage {
    /// The program has been started: the first message about it.
    Started(Empty),
    /// Number of bytes of input that the step's host has taken since the attempt began. The first message on a
    /// connection for the input of a step, which tells where the caller continues; more follow as bytes are taken.
    Taken(u64),
    /// The step takes no more input; the last message.
    InputEnded(Empty),
    /// Another caller sends the input of the step now; the last message.
    TakenOver(Empty),
    /// The connection to the port exists: the first message about it.
    Connected(Empty),
    /// The program at the port sends nothing more. The caller may still send, and ends the call by `end_input`.
    OutputEnded(Empty),
    /// The program has ended; the last message.
    Exit(Exit),
    /// The call failed or lost its right; the last message.
    Error(ErrorView),
}

/// Builds a binary message from data of a stream.
pub fn data_message(stream: FrameKind, data: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(1 + data.len());
    message.push(stream.byte());
    message.extend(data);
    message
}

/// Splits a binary message into its stream and its data; `None` if there is no such stream.
pub fn split_data(message: &[u8]) -> Option<(FrameKind, &[u8])> {
    let (channel, data) = message.split_first()?;
    let mut streams = [FrameKind::Stdin, FrameKind::Stdout, FrameKind::Stderr].into_iter();
    Some((streams.find(|stream| stream.byte() == *channel)?, data))
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn data_names_its_stream_by_the_first_byte() {
        let message = data_message(FrameKind::Stderr, b"no");
        assert_eq!(message, b"\x02no");
        assert_eq!(split_data(&message), Some((FrameKind::Stderr, &b"no"[..])));
        assert_eq!(split_data(b"\0"), Some((FrameKind::Stdin, &b""[..])));
        for message in [&b""[..], b"\x03{}", b"\x05\0\0"] {
            assert_eq!(split_data(message), None, "{message:?}");
        }
    }

    #[test]
    fn text_messages_are_objects_with_one_key() {
        let size = WindowSize {
            rows: 24,
            columns: 80,
        };
        for (message, json) in [
            (
                CallerMessage::Resize(size),
                r#"{"resize":{"rows":24,"columns":80}}"#,
            ),
            (CallerMessage::EndInput(Empty {}), r#"{"end_input":{}}"#),
            (CallerMessage::CopyFiles(Empty {}), r#"{"copy_files":{}}"#),
            (CallerMessage::Connect(Empty {}), r#"{"connect":{}}"#),
        ] {
            assert_eq!(serde_json::to_string(&message).unwrap(), json);
            assert_eq!(
                serde_json::from_str::<CallerMessage>(json).unwrap(),
                message
            );
        }
        for (message, json) in [
            (ServerMessage::Started(Empty {}), r#"{"started":{}}"#),
            (ServerMessage::Connected(Empty {}), r#"{"connected":{}}"#),
            (
                ServerMessage::OutputEnded(Empty {}),
                r#"{"output_ended":{}}"#,
            ),
            (ServerMessage::Taken(7), r#"{"taken":7}"#),
            (ServerMessage::Exit(Exit::Code(3)), r#"{"exit":{"code":3}}"#),
        ] {
            assert_eq!(serde_json::to_value(&message).unwrap().to_string(), json);
            assert_eq!(
                serde_json::from_str::<ServerMessage>(json).unwrap(),
                message
            );
        }
    }
}
