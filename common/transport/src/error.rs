//! Errors of links, worded for logs.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use quinn::{ConnectionError, ReadError, TransportErrorCode, WriteError};
use sluice_codec::CodecError;

use crate::peer::{CertificateError, Peer};
use crate::settings::{IDLE_LIMIT, MAX_REASON};

/// Error while establishing or using a link.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The certificate does not fit the end: a listener needs the coordinator's, a dialler a node's.
    #[error("{cert} is the certificate of {peer}: {end} needs {wanted}", cert = cert.display())]
    WrongIdentity {
        /// Path of the certificate.
        cert: PathBuf,
        /// Peer that it names.
        peer: Peer,
        /// Either `listening` or `dialling`.
        end: &'static str,
        /// Peer that it should name.
        wanted: &'static str,
    },
    /// The address cannot be bound.
    #[error("cannot listen on {address} (UDP)")]
    Bind {
        /// Address to listen on.
        address: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// No UDP socket is available.
    #[error("cannot open a UDP socket")]
    Socket(#[source] io::Error),
    /// The address cannot be resolved.
    #[error("cannot find the address `{address}`: write HOST:PORT")]
    Resolve {
        /// The address as given.
        address: String,
        /// Error of the resolver.
        source: io::Error,
    },
    /// The peer did not answer.
    #[error("{address} did not answer within {}s: is a coordinator listening there, on UDP?", limit.as_secs_f32())]
    NoAnswer {
        /// Address that was dialled.
        address: String,
        /// Time limit that passed.
        limit: Duration,
    },
    /// The peer answered but no link was established.
    #[error("cannot connect to {address}: {reason}")]
    Dial {
        /// Address that was dialled.
        address: String,
        /// Explanation of the failure.
        reason: String,
    },
    /// An incoming handshake failed.
    #[error("the handshake with {address} failed: {reason}")]
    Handshake {
        /// Address of the peer.
        address: SocketAddr,
        /// Explanation of the failure.
        reason: String,
    },
    /// The certificate is valid but its owner is not admitted.
    #[error("{address} was rejected")]
    Certificate {
        /// Address of the peer.
        address: SocketAddr,
        /// Reason of the refusal.
        source: CertificateError,
    },
    /// The link was closed or lost.
    #[error("the link is lost: {reason}")]
    Lost {
        /// Explanation of the loss.
        reason: String,
    },
    /// A message cannot be encoded or decoded.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The stream ended inside a message.
    #[error("the stream ended inside a message")]
    TruncatedFrame,
    /// The sender reset the stream before its end.
    #[error("the other side reset the stream")]
    StreamReset,
    /// The reader stopped reading.
    #[error("the other side stopped reading the stream")]
    ReaderGone,
    /// The stream was already finished, or sending a message was cancelled halfway.
    #[error("nothing more can be sent on this stream")]
    StreamFinished,
}

impl TransportError {
    pub(crate) fn lost(error: ConnectionError) -> Self {
        let reason = explain(error);
        Self::Lost { reason }
    }

    pub(crate) fn writing(error: WriteError) -> Self {
        match error {
            WriteError::Stopped(_) => Self::ReaderGone,
            WriteError::ConnectionLost(error) => Self::lost(error),
            WriteError::ClosedStream | WriteError::ZeroRttRejected => Self::StreamFinished,
        }
    }

    pub(crate) fn reading(error: ReadError) -> Self {
        match error {
            ReadError::Reset(_)
            | ReadError::ClosedStream
            | ReadError::IllegalOrderedRead
            | ReadError::ZeroRttRejected => Self::StreamReset,
            ReadError::ConnectionLost(error) => Self::lost(error),
        }
    }
}

/// Explains why a connection ended. Text from the peer is shortened and escaped.
pub(crate) fn explain(error: ConnectionError) -> String {
    match error {
        ConnectionError::ApplicationClosed(close) if close.reason.is_empty() => {
            "the other side closed it without a reason".to_owned()
        }
        ConnectionError::ApplicationClosed(close) => {
            format!("the other side closed it: {}", harmless(&close.reason))
        }
        ConnectionError::ConnectionClosed(close) => {
            let said = String::from_utf8_lossy(&close.reason);
            let why = protocol_error(close.error_code, &said, "this side's");
            format!("the other side refused: {why}")
        }
        ConnectionError::TransportError(error) => {
            protocol_error(error.code, &error.reason, "the other side's")
        }
        ConnectionError::TimedOut => {
            format!("nothing was heard for {}s", IDLE_LIMIT.as_secs())
        }
        ConnectionError::Reset => {
            "the other side does not know this connection; it may have restarted".to_owned()
        }
        ConnectionError::LocallyClosed => "it was closed here".to_owned(),
        ConnectionError::VersionMismatch => {
            "the other side speaks another version of QUIC".to_owned()
        }
        ConnectionError::CidsExhausted => "there are too many connections".to_owned(),
    }
}

/// Explains a protocol error: TLS if the code carries a TLS alert, else QUIC.
fn protocol_error(code: TransportErrorCode, said: &str, whose: &str) -> String {
    let detail = said.strip_prefix("invalid peer certificate: ");
    let detail = harmless(detail.unwrap_or(said).as_bytes());
    let words = match u8::try_from(u64::from(code).wrapping_sub(FIRST_TLS_CODE)) {
        Ok(alert) => tls_words(alert, whose),
        Err(_) => code.to_string(),
    };
    if detail.is_empty() {
        return words;
    }
    format!("{words} ({detail})")
}

/// First of the 256 codes that carry TLS alerts (RFC 9001, 4.8).
const FIRST_TLS_CODE: u64 = 0x100;

/// Explains the TLS alerts (RFC 8446, 6.2) that certificates cause.
fn tls_words(alert: u8, whose: &str) -> String {
    match alert {
        48 => format!("{whose} certificate was issued by an authority that is not trusted"),
        45 => format!(
            "{whose} certificate has expired or is not valid yet: compare the clocks (`date`) of both hosts, and get a new certificate if they are right"
        ),
        42 | 43 | 44 | 46 => format!("{whose} certificate is not valid for this use"),
        116 => format!("{whose} certificate is missing"),
        120 => "the other side speaks another protocol".to_owned(),
        other => format!("the TLS handshake failed with alert {other}"),
    }
}

/// Shortens a peer's text and replaces control characters.
fn harmless(words: &[u8]) -> String {
    let safe = |c: char| if c.is_control() { '?' } else { c };
    let words = String::from_utf8_lossy(words);
    words.chars().take(MAX_REASON).map(safe).collect()
}
