//! Frames of a copy: messages, and contents of files between them.
//!
//! ```text
//! kind (1 byte) | length (4 bytes, big-endian) | bytes
//! ```

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use serde::de::DeserializeOwned;
use sluice_codec::{decode, encode};

use crate::error::CopyError;

/// Kind of a frame with a message.
const MESSAGE: u8 = 0;

/// Kind of a frame with contents of a file.
const DATA: u8 = 1;

/// Length of a frame's header in bytes.
const HEADER_BYTES: usize = 5;

/// Largest payload of a frame, in bytes. A frame with its header fills one of `exec`.
pub(crate) const MAX_PAYLOAD_BYTES: usize = 64 * 1024 - HEADER_BYTES;

/// Receiving end of a stream of frames.
#[derive(Debug)]
pub struct CopyReader<R> {
    from: R,
    buffer: Vec<u8>,
}

impl<R: Read> CopyReader<R> {
    /// Reads frames from a byte stream.
    pub fn new(from: R) -> Self {
        Self {
            from,
            buffer: Vec::new(),
        }
    }

    /// The byte stream.
    pub fn into_inner(self) -> R {
        self.from
    }

    /// Returns the next message.
    ///
    /// # Errors
    /// If the stream ends or breaks, or if something else comes.
    pub fn message<T: DeserializeOwned>(&mut self) -> Result<T, CopyError> {
        match self.frame()? {
            MESSAGE => Contents::parse(&self.buffer),
            _ => Err(CopyError::Protocol("contents outside of a file".to_owned())),
        }
    }

    /// Returns the next piece of a file's contents.
    pub(crate) fn data(&mut self) -> Result<Contents<'_>, CopyError> {
        match self.frame()? {
            DATA => Ok(Contents::Bytes(&self.buffer)),
            _ => Ok(Contents::Message(&self.buffer)),
        }
    }

    /// Reads a frame into the buffer and returns its kind.
    fn frame(&mut self) -> Result<u8, CopyError> {
        let mut header = [0; HEADER_BYTES];
        self.from.read_exact(&mut header).map_err(CopyError::Lost)?;
        let [kind, length @ ..] = header;
        let length = u32::from_be_bytes(length) as usize;
        if !matches!(kind, MESSAGE | DATA) || length > MAX_PAYLOAD_BYTES {
            let what = format!("a frame of kind {kind} with {length} bytes");
            return Err(CopyError::Protocol(what));
        }
        self.buffer.resize(length, 0);
        let read = self.from.read_exact(&mut self.buffer);
        read.map_err(CopyError::Lost)?;
        Ok(kind)
    }
}

/// Frame between the beginning and the end of a file.
#[derive(Debug)]
pub(crate) enum Contents<'a> {
    /// Contents of the file.
    Bytes(&'a [u8]),
    /// An encoded message.
    Message(&'a [u8]),
}

impl Contents<'_> {
    /// Decodes a message.
    pub(crate) fn parse<T: DeserializeOwned>(encoded: &[u8]) -> Result<T, CopyError> {
        decode(encoded, MAX_PAYLOAD_BYTES)
            .map_err(|e| CopyError::Protocol(format!("a message that is unknown here: {e}")))
    }
}

/// Sending end of a stream of frames.
#[derive(Debug)]
pub struct CopyWriter<W> {
    to: W,
    buffer: Vec<u8>,
    /// Whether the user wants the copy to end.
    interrupted: Arc<AtomicBool>,
}

impl<W: Write> CopyWriter<W> {
    /// Writes frames to a byte stream.
    pub fn new(to: W) -> Self {
        let buffer = vec![0; HEADER_BYTES + MAX_PAYLOAD_BYTES];
        Self {
            to,
            buffer,
            interrupted: Arc::default(),
        }
    }

    /// The byte stream.
    pub fn into_inner(self) -> W {
        self.to
    }

    /// Ends a copy between two frames once this is set, so that the receiving end can still be told.
    pub fn until(mut self, interrupted: Arc<AtomicBool>) -> Self {
        self.interrupted = interrupted;
        self
    }

    /// Sends a message.
    ///
    /// # Errors
    /// If the stream breaks, or the message is too long.
    pub fn message<T: Serialize>(&mut self, message: &T) -> Result<(), CopyError> {
        let encoded = encode(message, MAX_PAYLOAD_BYTES)
            .map_err(|e| CopyError::Refused(format!("a message cannot be sent: {e}")))?;
        self.buffer[HEADER_BYTES..HEADER_BYTES + encoded.len()].copy_from_slice(&encoded);
        self.send(MESSAGE, encoded.len())
    }

    /// Sends what one read returns, at most `most` bytes; returns their number.
    pub(crate) fn data(
        &mut self,
        most: u64,
        mut read: impl FnMut(&mut [u8]) -> Result<usize, CopyError>,
    ) -> Result<usize, CopyError> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(CopyError::Interrupted);
        }
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let room = most.min(MAX_PAYLOAD_BYTES);
        let count = read(&mut self.buffer[HEADER_BYTES..HEADER_BYTES + room])?;
        if count > 0 {
            self.send(DATA, count)?;
        }
        Ok(count)
    }

    /// Waits until all frames have left.
    ///
    /// # Errors
    /// If the stream breaks.
    pub fn flush(&mut self) -> Result<(), CopyError> {
        self.to.flush().map_err(CopyError::Lost)
    }

    fn send(&mut self, kind: u8, length: usize) -> Result<(), CopyError> {
        let announced = u32::try_from(length).map_err(io::Error::other);
        self.buffer[0] = kind;
        self.buffer[1..HEADER_BYTES]
            .copy_from_slice(&announced.map_err(CopyError::Lost)?.to_be_bytes());
        let frame = &self.buffer[..HEADER_BYTES + length];
        self.to.write_all(frame).map_err(CopyError::Lost)
    }
}
