//! Messages to bytes and back, and frames around them: the one place that names `bincode`.
//!
//! Whoever holds a socket drives this, in an async task or in a poll loop: nothing here does I/O. What a message means,
//! and what its fields may hold beyond their types, is left to the caller.
//!
//! The bytes of a value are those of `bincode`'s legacy configuration: integers little-endian at their full width,
//! lengths as 8 bytes, an enum as the 4-byte index of its variant, an option as one byte. That layout is plain enough
//! to be written by other encoders, which keeps a way out of a crate that is no longer developed. It is not
//! self-describing: types that travel in it carry no serde attribute that skips, flattens or tags.
//!
//! A *frame* is the length of a body as 4 bytes, little-endian, and the body.

mod encoding;
mod error;
mod frame;

pub use encoding::{decode, encode};
pub use error::CodecError;
pub use frame::{FrameBuffer, PREFIX_BYTES, frame};
