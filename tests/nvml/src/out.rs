//! Pointers that C callers pass for results and texts. Only a C caller makes one of these, and by calling promises that
//! it may be read and written as NVIDIA documents it; so all unsafe code for them is here.

use std::ffi::{CStr, c_char, c_uint};

use nvml_wrapper_sys::bindings as nvml;

use crate::{Code, INVALID_ARGUMENT, NvmlResult};

const INSUFFICIENT_SIZE: Code = nvml::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE;
const VERSION_MISMATCH: Code = nvml::nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH;

/// A pointer to a value, or to the first of several.
#[repr(transparent)]
pub struct OutPtr<T>(*mut T);

impl<T: Copy> OutPtr<T> {
    /// Writes the value there.
    pub(crate) fn put(&self, value: T) -> NvmlResult {
        self.not_null()?;
        // SAFETY: it is not null, and the caller vouches for the rest.
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// Reads the value there, for arguments that go in and out.
    pub(crate) fn get(&self) -> Result<T, Code> {
        self.not_null()?;
        // SAFETY: it is not null, and the caller has written it.
        Ok(unsafe { self.0.read() })
    }

    /// Checks a structure that begins with its version: its size in the low bytes and `version` in the top one, written
    /// by the caller, who may have left the rest unwritten.
    pub(crate) fn expect_version(&self, version: u32) -> Result<c_uint, Code> {
        self.not_null()?;
        let expected = size_of::<T>() as c_uint | version << 24;
        // SAFETY: it is not null, and such a structure begins with a c_uint that the caller has written.
        match unsafe { self.0.cast::<c_uint>().read() } == expected {
            true => Ok(expected),
            false => Err(VERSION_MISMATCH),
        }
    }

    /// Writes several values, by the usual protocol: `count` is the capacity on entry and the needed number on return.
    pub(crate) fn fill(&self, count: &OutPtr<c_uint>, values: &[T]) -> NvmlResult {
        let room = count.get()? as usize;
        count.put(values.len() as c_uint)?;
        if room < values.len() {
            return Err(INSUFFICIENT_SIZE);
        }
        self.fill_all(values)
    }

    /// Writes several values; a caller may ask for the count alone by passing no array.
    pub(crate) fn fill_or_count(&self, count: &OutPtr<c_uint>, values: &[T]) -> NvmlResult {
        match self.0.is_null() {
            true => count.put(values.len() as c_uint),
            false => self.fill(count, values),
        }
    }

    /// Writes several values into an array whose length the caller has passed, and which is long enough.
    pub(crate) fn fill_all(&self, values: &[T]) -> NvmlResult {
        if values.is_empty() {
            return Ok(());
        }
        self.not_null()?;
        // SAFETY: it is not null, and the caller vouches for the room that it has told.
        unsafe {
            self.0
                .copy_from_nonoverlapping(values.as_ptr(), values.len());
        }
        Ok(())
    }

    /// Changes several values of the caller in place.
    pub(crate) fn change_all(&self, length: usize, mut change: impl FnMut(&mut T)) -> NvmlResult {
        self.not_null()?;
        for index in 0..length {
            // SAFETY: it is not null, and the caller vouches for `length` written values.
            change(unsafe { &mut *self.0.add(index) });
        }
        Ok(())
    }

    fn not_null(&self) -> NvmlResult {
        match self.0.is_null() {
            true => Err(INVALID_ARGUMENT),
            false => Ok(()),
        }
    }
}

/// A buffer for a text.
#[repr(transparent)]
pub struct TextBuffer(*mut c_char);

impl TextBuffer {
    /// Writes a text and its NUL into the buffer of `length` bytes.
    pub(crate) fn put(&self, length: c_uint, text: &str) -> NvmlResult {
        if self.0.is_null() {
            return Err(INVALID_ARGUMENT);
        }
        if text.len() >= length as usize {
            return Err(INSUFFICIENT_SIZE);
        }
        // SAFETY: text and NUL fit into `length` bytes, which the caller vouches for.
        unsafe {
            self.0
                .copy_from_nonoverlapping(text.as_ptr().cast(), text.len());
            self.0.add(text.len()).write(0);
        }
        Ok(())
    }
}

/// A text of the caller.
#[repr(transparent)]
pub struct CallerText(*const c_char);

impl CallerText {
    /// Reads the text up to its NUL.
    pub(crate) fn text(&self) -> Result<String, Code> {
        if self.0.is_null() {
            return Err(INVALID_ARGUMENT);
        }
        // SAFETY: it is not null, and the caller vouches for the NUL.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str()
            .map(str::to_owned)
            .map_err(|_| INVALID_ARGUMENT)
    }
}

/// Returns a text with NULs for an array in a structure; a too long one is cut.
pub(crate) fn chars<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    for (to, from) in array.iter_mut().zip(text.bytes().take(N - 1)) {
        *to = from as c_char;
    }
    array
}
