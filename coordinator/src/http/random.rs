//! Random bytes for ids, tokens and secrets.

use super::error::ApiError;

/// Returns `N` unguessable bytes, for `what` (as in "a token").
///
/// # Errors
/// [`ApiError::Internal`] if the kernel has none.
pub(super) fn random_bytes<const N: usize>(what: &str) -> Result<[u8; N], ApiError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| ApiError::Internal {
        message: format!("cannot generate {what}: {error}"),
    })?;
    Ok(bytes)
}
