//! Counts the memory that a thread holds, in front of the system's allocator, so that a decoder that trusts a peer's
//! length is noticed. It is the allocator of every test binary that links this crate.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes that this thread allocated and did not free, and their maximum since the last [`restart`].
    static HELD: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

struct CountingAllocator;

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

/// Resets the maximum. What is held now counts as nothing.
pub(crate) fn restart() {
    HELD.set((0, 0));
}

/// Returns the most bytes that this thread held since the last [`restart`].
pub(crate) fn most() -> usize {
    usize::try_from(HELD.get().1).unwrap_or(0)
}

fn count(bytes: isize) {
    // A thread that is ending has no counters any more.
    let _ = HELD.try_with(|held| {
        let (now, most) = held.get();
        held.set((now + bytes, most.max(now + bytes)));
    });
}

/// Converts a size; no allocation is larger than this type holds.
fn signed(bytes: usize) -> isize {
    isize::try_from(bytes).unwrap_or(isize::MAX)
}

#[expect(unsafe_code, reason = "an allocator can only be written so")]
// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-signed(layout.size()));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(signed(size) - signed(layout.size()));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_is_kept_when_memory_is_given_back() {
        restart();
        drop(std::hint::black_box(Vec::<u8>::with_capacity(1 << 20)));
        let kept = std::hint::black_box(Vec::<u8>::with_capacity(1 << 10));
        assert!(most() >= 1 << 20 && most() < 2 << 20, "{}", most());
        drop(kept);
    }
}
