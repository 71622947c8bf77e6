//! Copies a file or a directory over a byte stream, for `sluice cp`: the messages, the end that sends and the end that
//! receives. The command line runs one end, and `sluice-helper` runs the other as the step's user.
//!
//! ```text
//! sending end                                   receiving end
//! send -- TreeItem, file contents ----------->  receive
//!      <- CopyReport, if that is the helper --
//! ```
//!
//! Neither end trusts the other. Names come one component at a time, and each is opened below the directory that was
//! opened before, without following links. So no name leads out of the target, whatever the sending end sends.
//!
//! [`keep`] stores chosen files of a directory as such a stream, and [`send_stored`] sends of it what is wanted later.
//!
//! A tree is sent in the order of its names, so one [`Position`] tells what has arrived: a new connection continues there.
//! A file is written beside its target, and gets its name when it is whole.

mod error;
mod keep;
mod message;
mod receiver;
mod sender;
mod stored;
mod stream;
#[cfg(test)]
mod tests;
mod tree_writer;

pub use error::{CopyError, CopyFailure};
pub use keep::{KeepLimits, KeepReport, keep};
pub use message::{
    CopyId, CopyIssue, CopyReport, CopyRequest, CopyTarget, Destination, FilePart, FileVersion,
    Issue, MAX_DEPTH, Position, TreeItem, TreePath,
};
pub use receiver::{CopyListener, receive};
pub use sender::send;
pub use stored::send_stored;
pub use stream::{CopyReader, CopyWriter};
pub use tree_writer::{FileHeader, TreeWriter};
