//! Encoding of messages, and frames around them. The only crate that depends on `bincode`.
//!
//! Nothing here does I/O: async tasks and poll loops alike drive it. Callers give meaning to messages and validate
//! their fields.
//!
//! Values use `bincode`'s legacy configuration: little-endian integers of full width, lengths of 8 bytes, enums as a
//! 4-byte variant index, options as one byte. Other encoders can produce this layout, should `bincode` have to be
//! replaced. The encoding is not self-describing: types must not use serde attributes that skip, flatten or tag.
//!
//! A *frame* is a 4-byte little-endian length followed by a body of that length.

mod encoding;
mod error;
mod frame;

pub use encoding::{decode, encode};
pub use error::CodecError;
pub use frame::{FrameBuffer, PREFIX_BYTES, frame};
