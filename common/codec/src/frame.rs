//! Frames: a length of 4 bytes, little-endian, and a body of that length. Owns the prefix and the buffer in which
//! frames are put together again; whoever holds the socket moves the bytes.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::encoding::{decode, encode_after};
use crate::error::CodecError;

/// Bytes of a frame before its body.
pub const PREFIX_BYTES: usize = 4;

/// A whole frame: prefix and body. The body takes at most `max_bytes`.
///
/// # Errors
/// Where the body would be larger, or the type has no encoding.
pub fn frame<T: Serialize + ?Sized>(value: &T, max_bytes: usize) -> Result<Vec<u8>, CodecError> {
    let max_bytes = max_bytes.min(u32::MAX as usize);
    let mut bytes = encode_after(vec![0; PREFIX_BYTES], value, max_bytes)?;
    let body = u32::try_from(bytes.len() - PREFIX_BYTES).expect("a body is within its limit");
    bytes[..PREFIX_BYTES].copy_from_slice(&body.to_le_bytes());
    Ok(bytes)
}

/// Puts frames together from bytes as they arrive.
///
/// After each [`push`](Self::push), call [`next`](Self::next) until it returns `None`: then never more than one
/// incomplete frame is held, and one of an unlawful length is refused by its prefix, before anything of it is kept.
#[derive(Debug)]
pub struct FrameBuffer {
    max_bytes: usize,
    bytes: Vec<u8>,
    /// How many of `bytes` were given out already.
    start: usize,
    /// Length of the frame that ended this buffer's use.
    refused: Option<u32>,
}

impl FrameBuffer {
    /// An empty buffer for frames whose bodies take at most `max_bytes`. Allocates nothing yet.
    pub const fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            bytes: Vec::new(),
            start: 0,
            refused: None,
        }
    }

    /// Adds bytes in the order of the stream. They are dropped where an earlier frame was too large.
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

    /// The next frame's message; `None` until all of it has arrived.
    ///
    /// # Errors
    /// [`CodecError::FrameTooLarge`], now and from now on: the stream cannot be read on. Any other error is about one
    /// frame's body; that frame is gone and the next one can be read, though a peer that sends such is seldom worth it.
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

    /// Whether nothing is held: where the stream ends now, it ends between two frames.
    pub fn is_empty(&self) -> bool {
        self.refused.is_none() && self.held().is_empty()
    }

    /// Takes out up to `max` bytes as they came, for a stream that goes on without frames.
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

    /// Gives up at a prefix that announces too much, and lets go of all memory.
    fn check_announced(&mut self) {
        let too_large = |len: &u32| *len as usize > self.max_bytes;
        if let Some(len) = self.announced().filter(too_large) {
            self.refused = Some(len);
            self.bytes = Vec::new();
            self.start = 0;
        }
    }

    /// Lets an emptied buffer go, so that one large frame does not hold its memory for a connection's whole life.
    fn tidy(&mut self) {
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.bytes.shrink_to(KEPT_BYTES);
            self.start = 0;
        }
    }
}

/// Memory that an empty buffer keeps for the next frame, in bytes: enough for all but the rarest messages.
const KEPT_BYTES: usize = 16 * 1024;
