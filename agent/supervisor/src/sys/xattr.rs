//! The two calls that write and read an extended attribute of a directory. What one says is the business of
//! `groups::leftovers`.

use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Most bytes that are read of one: a path and some numbers.
const MAX_BYTES: usize = 8192;

/// Writes it, whether or not it was there.
///
/// # Errors
/// Where the file system keeps none, or this user may not.
#[expect(unsafe_code, reason = "setxattr has no safe form")]
pub fn set(path: &Path, name: &CStr, value: &[u8]) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: both names end with a zero and live for the call, and the value is as long as is said.
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

/// Reads it.
///
/// # Errors
/// Where there is none, it is too long, or this user may not.
#[expect(unsafe_code, reason = "getxattr has no safe form")]
pub fn get(path: &Path, name: &CStr) -> io::Result<Vec<u8>> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut value = vec![0_u8; MAX_BYTES];
    // SAFETY: both names end with a zero and live for the call, and no more is written than the buffer holds.
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
