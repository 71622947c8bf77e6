//! Checks whether users other than root and the supervisor's own could have written a file. `config` and
//! `state_dir` reject such files.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Write permission for the group or for all.
const OTHERS_WRITE: u32 = 0o022;

/// The problem with the owner or mode of the file at `path`, and what to do; `None` if there is none.
pub fn untrusted_reason(found: &Metadata, own: u32, path: &Path) -> Option<(String, String)> {
    let path = path.display();
    if found.uid() != 0 && found.uid() != own {
        return Some((
            format!("{path} belongs to user {}", found.uid()),
            format!("`chown root {path}`"),
        ));
    }
    (found.mode() & OTHERS_WRITE != 0).then(|| {
        (
            format!("{path} can be written by others"),
            format!("`chmod go-w {path}`"),
        )
    })
}
