//! Random bytes for what the API makes: ids, tokens, secrets. How they are written is that of each.

use super::error::ApiError;

/// `N` bytes that nobody can guess, for `what` (as in "a token").
///
/// # Errors
/// [`ApiError::Internal`] where the kernel has none.
pub(super) fn random_bytes<const N: usize>(what: &str) -> Result<[u8; N], ApiError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| ApiError::Internal {
        message: format!("cannot draw {what}: {error}"),
    })?;
    Ok(bytes)
}
