//! The coordinator's own token, from the configured file or generated in the data directory. It permits everything, so
//! its file is checked like a key file, except that the group may read it: files below `/etc` belong to root, and the
//! coordinator's group reads them.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sluice_common::hex;
use sluice_transport::files::write_private;

use super::{ConfigError, invalid};

const KEY: &str = "api_token_file";
/// Shortest token; a shorter one could be guessed.
const MIN_TOKEN_BYTES: usize = 16;
/// Mode bits that the file must not have: any access of others, write access of the group.
const TOO_OPEN: u32 = 0o027;
/// File name of the generated token in the data directory.
const OWN_TOKEN: &str = "api-token";
/// Random bytes of a generated token.
const DRAWN_BYTES: usize = 32;

/// A secret token, never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiToken(String);

impl ApiToken {
    /// Returns the token's bytes.
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
    // Checked on the open file, so that it is the one that is read.
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

/// Reads the token in this data directory, and makes one if there is none. Returns it with its path.
///
/// # Errors
/// If it cannot be written or read, or others have access to it.
pub(crate) fn own_token(data_dir: &Path) -> Result<(ApiToken, PathBuf), ConfigError> {
    let path = data_dir.join(OWN_TOKEN);
    let cannot = |error: &dyn std::fmt::Display| {
        let message = format!("cannot make {}: {error}", path.display());
        invalid(KEY, message)
    };
    if !path.try_exists().map_err(|error| cannot(&error))? {
        let mut drawn = [0; DRAWN_BYTES];
        getrandom::fill(&mut drawn).map_err(|error| cannot(&error))?;
        let text = format!("{}\n", hex::encode(&drawn));
        write_private(&path, &text).map_err(|error| cannot(&error))?;
    }
    read_token(&path).map(|token| (token, path))
}

fn check_access(path: &Path, mode: u32, owner: u32) -> Result<(), ConfigError> {
    let shown = path.display();
    let ours = nix::unistd::geteuid().as_raw();
    if mode & TOO_OPEN != 0 {
        let message = format!(
            "{shown} holds a token that may do everything, and others have access to it (mode {mode:04o}): run \
             `chmod 600 {shown}`"
        );
        return Err(invalid(KEY, message));
    }
    if ![owner, ours].contains(&0) && owner != ours {
        let message = format!(
            "{shown} holds a token that may do everything, and belongs to user {owner}, who may change it, while this is user {ours}: run `chown {ours} {shown}`"
        );
        return Err(invalid(KEY, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_made_once_and_only_for_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let (made, path) = own_token(dir.path()).unwrap();
        assert_eq!(made.as_bytes().len(), 2 * DRAWN_BYTES);
        let mode = path.metadata().unwrap().mode() & 0o7777;
        assert_eq!(mode, 0o600);
        assert_eq!(own_token(dir.path()).unwrap().0, made);
        let other = tempfile::tempdir().unwrap();
        assert_ne!(own_token(other.path()).unwrap().0, made);
    }

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
            let expected = format!("(mode {mode:04o}): run `chmod 600 /t`");
            assert!(refused.contains(&expected), "{refused}");
        }
        if ours != 0 {
            let refused = check_access(path, 0o600, ours + 1).unwrap_err();
            assert!(refused.to_string().contains("chown"), "{refused}");
        }
    }
}
