//! What each event does, one a file.

pub(crate) mod start;
