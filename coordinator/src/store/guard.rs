//! redb trusts its pages more than a damaged file deserves and may panic over one. Here such a panic becomes an error,
//! without the report that a panic prints.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`; a panic in it comes back as its message.
pub(super) fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    hush();
    GUARDED.set(true);
    // What the closure touched is dropped with it; nothing half-changed is seen again.
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(false);
    result.map_err(|payload| message(payload.as_ref()))
}

/// Keeps the panic report of guarded threads off stderr, once for the process, and leaves all others as they were.
fn hush() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !GUARDED.get() {
                before(info);
            }
        }));
    });
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "it cannot be read".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_comes_back_as_its_message() {
        assert_eq!(guarded(|| 7), Ok(7));
        let error = guarded::<()>(|| panic!("page {} is not a page", 3));
        assert_eq!(error, Err("page 3 is not a page".to_owned()));
    }
}
