//! System calls that write and read an extended attribute of a directory. `groups::leftovers` uses them.

use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Longest value that is read: a path and some numbers.
const MAX_BYTES: usize = 8192;

/// Writes an attribute, new or not.
///
/// # Errors
/// If the file system has no attributes, or this user has no permission.
#[expect(unsafe_code, reason = "setxattr has no safe form")]
pub fn set(path: &Path, name: &CStr, value: &[u8]) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: both strings end with a NUL and are valid for the call, and the length is that of the value.
    let done = unsafe {
        libc::lsetxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Reads an attribute.
///
/// # Errors
/// If it is missing or too long, or this user has no permission.
#[expect(unsafe_code, reason = "getxattr has no safe form")]
pub fn get(path: &Path, name: &CStr) -> io::Result<Vec<u8>> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut value = vec![0_u8; MAX_BYTES];
    // SAFETY: both strings end with a NUL and are valid for the call, and the call writes no more than the
    // buffer holds.
    let len = unsafe {
        libc::lgetxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_mut_ptr().cast(),
            value.len(),
        )
    };
    let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
    value.truncate(len);
    Ok(value)
}
