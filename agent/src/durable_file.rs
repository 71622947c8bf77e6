//! The agent's small files that must survive a crash of the host.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Replaces the file at `path` with `bytes`, by sync and rename: a crash leaves either the old or the new content.
///
/// # Errors
/// If it cannot be written or synced.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("json.new");
    let mut file = File::create(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    let parent = path.parent().expect("the file lies in a directory");
    File::open(parent)?.sync_all()
}
