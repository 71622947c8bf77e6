//! Whether what stands at a path can be trusted: whether anybody but root and the supervisor's own user may have had a
//! hand in it. Decides nothing; `config` and `state_dir` refuse what is not.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// May write: the group and everybody.
const OTHERS_WRITE: u32 = 0o022;

/// What is wrong with the owner or the mode of what stands at `path`, and the way out.
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
