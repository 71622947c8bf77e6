//! Turns panics of redb over damaged files into errors, without printing a panic report.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`; a panic comes back as its message.
pub(super) fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    silence_panics();
    GUARDED.set(true);
    // The closure's data is dropped with it, so nothing half-changed is seen again.
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(false);
    result.map_err(|payload| message(payload.as_ref()))
}

/// Keeps panic reports of guarded threads off stderr, once for the process; others are printed as before.
fn silence_panics() {
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
