//! What can go wrong with a link, in words for the log of whoever drives it.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use quinn::{ConnectionError, ReadError, TransportErrorCode, WriteError};
use sluice_codec::CodecError;

use crate::peer::{CertificateError, Peer};
use crate::settings::{IDLE_LIMIT, MAX_REASON};

/// Why a link could not be made, or what ended it or one of its streams.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The certificate is another member's than the one who listens or dials.
    #[error("{cert} is the certificate of {peer}: {end} needs {wanted}", cert = cert.display())]
    WrongIdentity {
        /// Where the certificate is.
        cert: PathBuf,
        /// Whose it is.
        peer: Peer,
        /// `listening` or `dialling`.
        end: &'static str,
        /// Whose it should be.
        wanted: &'static str,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address} (UDP)")]
    Bind {
        /// Which.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// There is no socket to dial from.
    #[error("cannot open a UDP socket")]
    Socket(#[source] io::Error),
    /// The address has no meaning, or no meaning now.
    #[error("cannot find the address `{address}`: write HOST:PORT")]
    Resolve {
        /// As it was given.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// Nobody has answered.
    #[error("{address} did not answer within {}s: is a coordinator listening there, on UDP?", limit.as_secs_f32())]
    NoAnswer {
        /// Who was dialled.
        address: String,
        /// For how long.
        limit: Duration,
    },
    /// Somebody answered and no link came of it.
    #[error("cannot link to {address}: {reason}")]
    Dial {
        /// Who was dialled.
        address: String,
        /// Why.
        reason: String,
    },
    /// Somebody dialled and no link came of it.
    #[error("the handshake with {address} failed: {reason}")]
    Handshake {
        /// Who dialled.
        address: SocketAddr,
        /// Why.
        reason: String,
    },
    /// The authority has issued the peer's certificate, and it stands for nobody who belongs there.
    #[error("{address} is refused")]
    Certificate {
        /// Whose certificate it is.
        address: SocketAddr,
        /// Why.
        source: CertificateError,
    },
    /// The link has ended.
    #[error("the link is lost: {reason}")]
    Lost {
        /// Why.
        reason: String,
    },
    /// A message cannot be sent, or what was received is none.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The stream has ended inside a message.
    #[error("the stream ended inside a message")]
    TruncatedFrame,
    /// The sender went away before the end of the stream.
    #[error("the other side broke the stream off")]
    StreamReset,
    /// The reader went away.
    #[error("the other side reads no more of the stream")]
    ReaderGone,
    /// The stream was finished here, or a message was only partly sent when its sending was given up.
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

/// Why a connection ended, in words. What the peer says is cut and made harmless.
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
            "the other side does not know it, perhaps it restarted".to_owned()
        }
        ConnectionError::LocallyClosed => "it was closed here".to_owned(),
        ConnectionError::VersionMismatch => {
            "the other side speaks another version of QUIC".to_owned()
        }
        ConnectionError::CidsExhausted => "there are too many connections".to_owned(),
    }
}

/// An error of the protocol itself: of TLS where the code carries a TLS alert, else of QUIC.
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

/// The first of 256 codes that carry TLS alerts (RFC 9001, 4.8).
const FIRST_TLS_CODE: u64 = 0x100;

/// The alerts (RFC 8446, 6.2) that wrong certificates cause, in words.
fn tls_words(alert: u8, whose: &str) -> String {
    match alert {
        48 => format!("{whose} certificate is of an authority that is not trusted"),
        45 => format!(
            "{whose} certificate has expired or is not valid yet: compare the clocks (`date`) of both hosts, and get a new \
             certificate where they are right"
        ),
        42 | 43 | 44 | 46 => format!("{whose} certificate is not good for this"),
        116 => format!("{whose} certificate was not shown"),
        120 => "the other side speaks another protocol".to_owned(),
        other => format!("the TLS handshake failed with alert {other}"),
    }
}

/// A peer's words as they may stand in a log.
fn harmless(words: &[u8]) -> String {
    let safe = |c: char| if c.is_control() { '?' } else { c };
    let words = String::from_utf8_lossy(words);
    words.chars().take(MAX_REASON).map(safe).collect()
}
