//! The coordinator's own token: whoever shows it may do everything, so its file is read as a key is, but that a group may
//! read it: files below `/etc` are root's, and the coordinator's group reads them.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{ConfigError, invalid};

const KEY: &str = "api_token_file";
/// A token that is shorter could be guessed.
const MIN_TOKEN_BYTES: usize = 16;
/// What others than the owner and the group may do, and what the group may not.
const TOO_OPEN: u32 = 0o027;

/// A secret: never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiToken(String);

impl ApiToken {
    /// The token's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for ApiToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiToken(..)")
    }
}

pub(super) fn read_token(path: &Path) -> Result<ApiToken, ConfigError> {
    let shown = path.display();
    let cannot = |error| invalid(KEY, format!("cannot read {shown}: {error}"));
    let mut file = File::open(path).map_err(cannot)?;
    // Asked of the open file, so that it is the one that is read.
    let found = file.metadata().map_err(cannot)?;
    check_access(path, found.mode() & 0o7777, found.uid())?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(cannot)?;
    let token = text.trim();
    if token.len() < MIN_TOKEN_BYTES || !token.bytes().all(|b| b.is_ascii_graphic()) {
        let message = format!(
            "{shown} does not hold a token: write one line of at least {MIN_TOKEN_BYTES} letters, digits and signs without \
             spaces"
        );
        return Err(invalid(KEY, message));
    }
    Ok(ApiToken(token.to_owned()))
}

fn check_access(path: &Path, mode: u32, owner: u32) -> Result<(), ConfigError> {
    let shown = path.display();
    let ours = nix::unistd::geteuid().as_raw();
    if mode & TOO_OPEN != 0 {
        let message = format!(
            "{shown} holds a token with which one may do everything, and others have access to it (mode {mode:04o}): run \
             `chmod 600 {shown}`"
        );
        return Err(invalid(KEY, message));
    }
    if ![owner, ours].contains(&0) && owner != ours {
        let message = format!(
            "{shown} holds a token with which one may do everything, and belongs to user {owner}, who may change it, while \
             this is user {ours}: run `chown {ours} {shown}`"
        );
        return Err(invalid(KEY, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_can_reach_is_no_secret() {
        let path = Path::new("/t");
        let ours = nix::unistd::geteuid().as_raw();
        for mode in [0o600, 0o400, 0o640, 0o440] {
            check_access(path, mode, ours).unwrap();
            check_access(path, mode, 0).unwrap();
        }
        for mode in [0o644, 0o604, 0o620, 0o660, 0o602] {
            let refused = check_access(path, mode, ours).unwrap_err().to_string();
            let told = format!("(mode {mode:04o}): run `chmod 600 /t`");
            assert!(refused.contains(&told), "{refused}");
        }
        if ours != 0 {
            let refused = check_access(path, 0o600, ours + 1).unwrap_err();
            assert!(refused.to_string().contains("chown"), "{refused}");
        }
    }
}
