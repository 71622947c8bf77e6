//! A value that is derived from the rest of the state, and kept until that changes. An optimisation only; decides nothing.

use core::cell::OnceCell;
use core::fmt;

/// A derived value, once it was asked for. Two are equal whatever they hold, and a copy is empty.
pub(crate) struct Cached<T>(OnceCell<T>);

impl<T> Cached<T> {
    /// The value; `derive` derives it from the state as it is.
    pub(crate) fn get_or_derive(&self, derive: impl FnOnce() -> T) -> &T {
        self.0.get_or_init(derive)
    }

    /// The same if the value may be missing; then the next call derives it again.
    pub(crate) fn get_or_try_derive(&self, derive: impl FnOnce() -> Option<T>) -> Option<&T> {
        if self.0.get().is_none() {
            let value = derive()?;
            return Some(self.0.get_or_init(|| value));
        }
        self.0.get()
    }

    /// Forgets the value, because the state changes.
    pub(crate) fn clear(&mut self) {
        self.0.take();
    }
}

impl<T> Default for Cached<T> {
    fn default() -> Self {
        Self(OnceCell::new())
    }
}

impl<T> Clone for Cached<T> {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl<T> PartialEq for Cached<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Eq for Cached<T> {}

impl<T> fmt::Debug for Cached<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cached")
    }
}
