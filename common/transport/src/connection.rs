//! A link that is made, and its streams of frames. Owned by whoever made it; knows nothing of what messages mean.

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
/// Code of a stream that its writer dropped before its end.
const BROKEN_OFF: VarInt = VarInt::from_u32(2);

/// A verified certificate, and what it says.
#[derive(Debug)]
pub(crate) struct VerifiedCertificate {
    pub(crate) member: PeerIdentity,
    pub(crate) chain: Vec<CertificateDer<'static>>,
}

/// A link to a verified peer. Clones are the same link; it is closed when the last of them and of its streams is gone.
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

    /// Who is at the other end, as their certificate says.
    pub fn peer(&self) -> &Peer {
        &self.member.peer
    }

    /// All that their certificate says of them.
    pub fn peer_identity(&self) -> &PeerIdentity {
        &self.member
    }

    /// Their certificate, and those between it and the authority as they showed them.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// Where the other end is now.
    pub fn remote_addr(&self) -> SocketAddr {
        canonical(self.quic.remote_address())
    }

    /// Opens a stream. The peer sees it once something was sent on it. Waits while as many are open as the peer allows.
    ///
    /// # Errors
    /// Where the link is lost.
    pub async fn open(&self) -> Result<(FrameWriter, FrameReader), TransportError> {
        let streams = self.quic.open_bi().await.map_err(TransportError::lost)?;
        Ok(framed(streams, MAX_FRAME_BYTES))
    }

    /// The next stream that the peer opens. Cancelling loses none.
    ///
    /// # Errors
    /// Where the link is lost.
    pub async fn accept(&self) -> Result<(FrameWriter, FrameReader), TransportError> {
        let streams = self.quic.accept_bi().await.map_err(TransportError::lost)?;
        Ok(framed(streams, MAX_FRAME_BYTES))
    }

    /// Ends the link at once and tells the peer why. What was sent and not yet received is lost; see
    /// [`FrameWriter::delivered`].
    pub fn close(&self, why: &str) {
        let end = why.floor_char_boundary(MAX_REASON);
        self.quic.close(CLOSED, &why.as_bytes()[..end]);
    }

    /// Waits for the end of the link and says why it ended.
    pub async fn closed(&self) -> String {
        explain(self.quic.closed().await)
    }
}

/// Frames on a stream, of which at most `most` bytes each are read.
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

/// The sending half of a stream. It ends well by [`finish`](Self::finish) alone: dropped before, the reader sees that it
/// was broken off, and what was on the way may be lost.
#[derive(Debug)]
pub struct FrameWriter {
    stream: SendStream,
    state: WriteState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteState {
    /// Everything was sent whole.
    Ready,
    /// A sending is under way, or was given up.
    Partial,
    /// The end was sent.
    Finished,
}

impl FrameWriter {
    /// Sends one message. Returns when it is on its way, which takes as long as the peer takes to read what is before it.
    /// Where this is cancelled nothing more can be sent on the stream.
    ///
    /// # Errors
    /// Where the message is too large to be sent, which leaves the stream as it was; where the link is lost or the
    /// peer reads no more.
    pub async fn send<T: Serialize + ?Sized>(&mut self, message: &T) -> Result<(), TransportError> {
        let bytes = frame(message, MAX_FRAME_BYTES)?;
        self.send_bytes(&bytes).await
    }

    /// Sends bytes as they are. The reader must know where they begin.
    ///
    /// # Errors
    /// As [`send`](Self::send).
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

    /// Says that this is the end. What was sent goes on to the reader.
    pub fn finish(&mut self) {
        if self.state == WriteState::Ready {
            self.state = WriteState::Finished;
            // It fails where the stream is at its end already, by the peer's doing.
            let _ = self.stream.finish();
        }
    }

    /// Waits until the peer has received everything, after [`finish`](Self::finish), or reads no more.
    ///
    /// # Errors
    /// Where the link is lost before.
    pub async fn delivered(&mut self) -> Result<(), TransportError> {
        match self.stream.stopped().await {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err(TransportError::ReaderGone),
            Err(quinn::StoppedError::ConnectionLost(error)) => Err(TransportError::lost(error)),
            Err(quinn::StoppedError::ZeroRttRejected) => Err(TransportError::StreamFinished),
        }
    }

    /// Waits until nothing that is sent would be read any more: the reader is gone or the link is lost. For a sender
    /// who has nothing to send for a long time. Before [`finish`](Self::finish) only.
    pub async fn reader_gone(&self) {
        // Each outcome means it: stopped, all received, link lost.
        let _ = self.stream.stopped().await;
    }
}

impl Drop for FrameWriter {
    /// Left alone, the stream would end as if that were its end, and half of an output would pass for the whole.
    fn drop(&mut self) {
        if self.state != WriteState::Finished {
            // It fails where the stream is at its end already.
            let _ = self.stream.reset(BROKEN_OFF);
        }
    }
}

/// The receiving half of a stream. Dropped, it tells the sender that nothing more is read.
#[derive(Debug)]
pub struct FrameReader {
    stream: RecvStream,
    buffer: FrameBuffer,
}

impl FrameReader {
    /// The next message; `None` where the sender has finished between two messages. Cancelling loses nothing: the next
    /// call goes on where this one stopped.
    ///
    /// # Errors
    /// Where the stream ends inside a message or is broken off, where the link is lost, and where what arrives is too
    /// large or no `T`.
    pub async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, TransportError> {
        loop {
            if let Some(message) = self.buffer.next()? {
                return Ok(Some(message));
            }
            // Nothing is awaited between taking bytes from the stream and keeping them.
            match self.stream.read_chunk(READ_CHUNK_BYTES, true).await {
                Ok(Some(chunk)) => self.buffer.push(&chunk.bytes),
                Ok(None) if self.buffer.is_empty() => return Ok(None),
                Ok(None) => return Err(TransportError::TruncatedFrame),
                Err(error) => return Err(TransportError::reading(error)),
            }
        }
    }

    /// The next bytes as they are, at least one and at most `max`; `None` where the sender has finished. For what
    /// follows the last frame. Cancelling loses nothing.
    ///
    /// # Errors
    /// Where the stream is broken off or the link is lost.
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
