//! An established link and its streams of frames.

use std::net::SocketAddr;
use std::sync::Arc;

use quinn::{RecvStream, SendStream, VarInt};
use rustls::pki_types::CertificateDer;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sluice_codec::{FrameBuffer, frame};
use sluice_common::limit::MAX_FRAME_BYTES;

use crate::endpoint::canonical;
use crate::error::{TransportError, explain};
use crate::peer::{Peer, PeerIdentity};
use crate::settings::{MAX_REASON, READ_CHUNK_BYTES};

/// Code of an orderly close.
pub(crate) const CLOSED: VarInt = VarInt::from_u32(0);
/// Code of a stream that its writer dropped before finishing it.
const BROKEN_OFF: VarInt = VarInt::from_u32(2);

/// A verified certificate chain with the identity in it.
#[derive(Debug)]
pub(crate) struct VerifiedCertificate {
    pub(crate) member: PeerIdentity,
    pub(crate) chain: Vec<CertificateDer<'static>>,
}

/// A link to a verified peer. Clones share the link; it closes when all of them and their streams are dropped.
#[derive(Clone, Debug)]
pub struct Connection {
    quic: quinn::Connection,
    member: Arc<PeerIdentity>,
    chain: Arc<Vec<CertificateDer<'static>>>,
}

impl Connection {
    pub(crate) fn new(quic: quinn::Connection, shown: VerifiedCertificate) -> Self {
        Self {
            quic,
            member: Arc::new(shown.member),
            chain: Arc::new(shown.chain),
        }
    }

    /// The peer named in its certificate.
    pub fn peer(&self) -> &Peer {
        &self.member.peer
    }

    /// Everything that the peer's certificate states.
    pub fn peer_identity(&self) -> &PeerIdentity {
        &self.member
    }

    /// The peer's certificate and intermediate certificates.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// Current network address of the peer.
    pub fn remote_addr(&self) -> SocketAddr {
        canonical(self.quic.remote_address())
    }

    /// Opens a stream. The peer sees it once something was sent. Waits while the peer's limit of open streams is
    /// reached.
    ///
    /// # Errors
    /// If the link is lost.
    pub async fn open(&self) -> Result<(FrameWriter, FrameReader), TransportError> {
        let streams = self.quic.open_bi().await.map_err(TransportError::lost)?;
        Ok(framed(streams, MAX_FRAME_BYTES))
    }

    /// The next stream that the peer opens. Cancel-safe.
    ///
    /// # Errors
    /// If the link is lost.
    pub async fn accept(&self) -> Result<(FrameWriter, FrameReader), TransportError> {
        let streams = self.quic.accept_bi().await.map_err(TransportError::lost)?;
        Ok(framed(streams, MAX_FRAME_BYTES))
    }

    /// Closes the link at once and tells the peer why. Data in flight is lost; see [`FrameWriter::delivered`].
    pub fn close(&self, why: &str) {
        let end = why.floor_char_boundary(MAX_REASON);
        self.quic.close(CLOSED, &why.as_bytes()[..end]);
    }

    /// Waits until the link is closed and returns the reason.
    pub async fn closed(&self) -> String {
        explain(self.quic.closed().await)
    }
}

/// Wraps a stream in a frame writer and a frame reader with a limit of `most` bytes per frame.
pub(crate) fn framed(
    (send, receive): (SendStream, RecvStream),
    most: usize,
) -> (FrameWriter, FrameReader) {
    let writer = FrameWriter {
        stream: send,
        state: WriteState::Ready,
    };
    let reader = FrameReader {
        stream: receive,
        buffer: FrameBuffer::new(most),
    };
    (writer, reader)
}

/// Sending half of a stream. Must be ended by [`finish`](Self::finish): if dropped before, the reader gets an error and
/// data in flight may be lost.
#[derive(Debug)]
pub struct FrameWriter {
    stream: SendStream,
    state: WriteState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteState {
    /// All messages were sent completely.
    Ready,
    /// A message is being sent, or sending was cancelled.
    Partial,
    /// The stream was finished.
    Finished,
}

impl FrameWriter {
    /// Sends one message. Returns when it is queued for sending, which may wait for the peer to read. If cancelled, the
    /// stream cannot be used any more.
    ///
    /// # Errors
    /// If the message is too large (the stream stays usable), the link is lost, or the peer stopped reading.
    pub async fn send<T: Serialize + ?Sized>(&mut self, message: &T) -> Result<(), TransportError> {
        let bytes = frame(message, MAX_FRAME_BYTES)?;
        self.send_bytes(&bytes).await
    }

    /// Sends raw bytes. The reader must know where they begin.
    ///
    /// # Errors
    /// Same as [`send`](Self::send).
    pub async fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), TransportError> {
        if self.state != WriteState::Ready {
            return Err(TransportError::StreamFinished);
        }
        self.state = WriteState::Partial;
        self.stream
            .write_all(bytes)
            .await
            .map_err(TransportError::writing)?;
        self.state = WriteState::Ready;
        Ok(())
    }

    /// Marks the end of the stream. Data in flight is still delivered.
    pub fn finish(&mut self) {
        if self.state == WriteState::Ready {
            self.state = WriteState::Finished;
            // Fails only if the peer has already stopped the stream.
            let _ = self.stream.finish();
        }
    }

    /// Waits until the peer has received everything, after [`finish`](Self::finish), or stopped reading.
    ///
    /// # Errors
    /// If the link is lost before.
    pub async fn delivered(&mut self) -> Result<(), TransportError> {
        match self.stream.stopped().await {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err(TransportError::ReaderGone),
            Err(quinn::StoppedError::ConnectionLost(error)) => Err(TransportError::lost(error)),
            Err(quinn::StoppedError::ZeroRttRejected) => Err(TransportError::StreamFinished),
        }
    }

    /// Waits until the reader or the link is gone, for senders that are idle for a long time. Only before
    /// [`finish`](Self::finish).
    pub async fn reader_gone(&self) {
        // All outcomes (stopped, received, link lost) mean the same here.
        let _ = self.stream.stopped().await;
    }
}

impl Drop for FrameWriter {
    /// Resets an unfinished stream. Otherwise the reader would take partial output for all of it.
    fn drop(&mut self) {
        if self.state != WriteState::Finished {
            // Fails only if the stream has ended already.
            let _ = self.stream.reset(BROKEN_OFF);
        }
    }
}

/// Receiving half of a stream. Dropping it tells the sender to stop.
#[derive(Debug)]
pub struct FrameReader {
    stream: RecvStream,
    buffer: FrameBuffer,
}

impl FrameReader {
    /// The next message; `None` if the sender has finished between two messages. Cancel-safe.
    ///
    /// # Errors
    /// If the stream ends inside a message or is reset, if the link is lost, or if the data is too large or not a `T`.
    pub async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, TransportError> {
        loop {
            if let Some(message) = self.buffer.next()? {
                return Ok(Some(message));
            }
            // There is no await between taking bytes and buffering them, so cancelling loses nothing.
            match self.stream.read_chunk(READ_CHUNK_BYTES, true).await {
                Ok(Some(chunk)) => self.buffer.push(&chunk.bytes),
                Ok(None) if self.buffer.is_empty() => return Ok(None),
                Ok(None) => return Err(TransportError::TruncatedFrame),
                Err(error) => return Err(TransportError::reading(error)),
            }
        }
    }

    /// The next raw bytes, at least one and at most `max`; `None` if the sender has finished. For data after the last
    /// frame. Cancel-safe.
    ///
    /// # Errors
    /// If the stream is reset or the link is lost.
    pub async fn read_bytes(&mut self, max: usize) -> Result<Option<Vec<u8>>, TransportError> {
        let held = self.buffer.take_raw(max);
        if !held.is_empty() {
            return Ok(Some(held));
        }
        let chunk = self.stream.read_chunk(max, true).await;
        let chunk = chunk.map_err(TransportError::reading)?;
        Ok(chunk.map(|chunk| chunk.bytes.to_vec()))
    }
}
