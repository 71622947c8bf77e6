//! Frames: a 4-byte little-endian length, followed by a body of that length. Callers move the bytes over sockets.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::encoding::{decode, encode_after};
use crate::error::CodecError;

/// Length of a frame's prefix in bytes.
pub const PREFIX_BYTES: usize = 4;

/// Encodes a whole frame with prefix. The body takes at most `max_bytes`.
///
/// # Errors
/// If the body would be larger, or the type has no encoding.
pub fn frame<T: Serialize + ?Sized>(value: &T, max_bytes: usize) -> Result<Vec<u8>, CodecError> {
    let max_bytes = max_bytes.min(u32::MAX as usize);
    let mut bytes = encode_after(vec![0; PREFIX_BYTES], value, max_bytes)?;
    let body = u32::try_from(bytes.len() - PREFIX_BYTES).expect("a body is within its limit");
    bytes[..PREFIX_BYTES].copy_from_slice(&body.to_le_bytes());
    Ok(bytes)
}

/// Assembles frames from bytes as they arrive.
///
/// After each [`push`](Self::push), call [`next`](Self::next) until it returns `None`: then at most one incomplete
/// frame is buffered, and a frame above the limit is rejected by its prefix, before its body is buffered.
#[derive(Debug)]
pub struct FrameBuffer {
    max_bytes: usize,
    bytes: Vec<u8>,
    /// Number of leading `bytes` already consumed.
    start: usize,
    /// Length of the frame that exceeded the limit.
    refused: Option<u32>,
}

impl FrameBuffer {
    /// Makes an empty buffer for bodies of at most `max_bytes`. Does not allocate.
    pub const fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            bytes: Vec::new(),
            start: 0,
            refused: None,
        }
    }

    /// Appends received bytes. Ignored after a frame that was too large.
    pub fn push(&mut self, bytes: &[u8]) {
        self.check_announced();
        if self.refused.is_some() {
            return;
        }
        self.bytes.drain(..self.start);
        self.start = 0;
        self.bytes.extend_from_slice(bytes);
        self.check_announced();
    }

    /// The next message; `None` until all of its frame has arrived.
    ///
    /// # Errors
    /// [`CodecError::FrameTooLarge`], now and on every later call, because the stream cannot be read any further. Any
    /// other error concerns one frame; the next one can be read.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator cannot choose its item's type at each step"
    )]
    pub fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, CodecError> {
        self.check_announced();
        if let Some(announced) = self.refused {
            return Err(CodecError::FrameTooLarge {
                announced,
                max: self.max_bytes,
            });
        }
        let Some(body) = self.announced().map(|len| len as usize) else {
            return Ok(None);
        };
        let Some(frame) = self.held().get(PREFIX_BYTES..PREFIX_BYTES + body) else {
            return Ok(None);
        };
        let message = decode(frame, self.max_bytes);
        self.start += PREFIX_BYTES + body;
        self.tidy();
        message.map(Some)
    }

    /// Whether nothing is buffered, so that the stream may end here.
    pub fn is_empty(&self) -> bool {
        self.refused.is_none() && self.held().is_empty()
    }

    /// Takes up to `max` unframed bytes, for streams that continue without frames.
    pub fn take_raw(&mut self, max: usize) -> Vec<u8> {
        let count = max.min(self.held().len());
        let raw = self.held()[..count].to_vec();
        self.start += count;
        self.tidy();
        raw
    }

    fn held(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Length of the next body, once its prefix has arrived.
    fn announced(&self) -> Option<u32> {
        let prefix = self.held().first_chunk::<PREFIX_BYTES>()?;
        Some(u32::from_le_bytes(*prefix))
    }

    /// Rejects a prefix above the limit and frees the buffer.
    fn check_announced(&mut self) {
        let too_large = |len: &u32| *len as usize > self.max_bytes;
        if let Some(len) = self.announced().filter(too_large) {
            self.refused = Some(len);
            self.bytes = Vec::new();
            self.start = 0;
        }
    }

    /// Shrinks an empty buffer, so that one large frame does not occupy memory for the life of a connection.
    fn tidy(&mut self) {
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.bytes.shrink_to(KEPT_BYTES);
            self.start = 0;
        }
    }
}

/// Memory that an empty buffer keeps, in bytes; enough for most messages.
const KEPT_BYTES: usize = 16 * 1024;
