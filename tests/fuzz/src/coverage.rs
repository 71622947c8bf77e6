//! Records which edges of the code an input took, if the crates were compiled to count them (LLVM's SanitizerCoverage).
//! Without such a build there are no counters, and everything here is empty.
//!
//! The counters are the process's own: while one target reads them, no other may run.

use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// Start of the counters of instrumented code, and their number.
static COUNTERS: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Recent comparisons of the code: both values, and their width in bytes.
static COMPARED: [[AtomicU64; 3]; COMPARISONS] =
    [const { [const { AtomicU64::new(0) }; 3] }; COMPARISONS];
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Number of remembered comparisons: what one small input causes.
const COMPARISONS: usize = 256;

/// Whether this build counts.
pub(crate) fn is_counted() -> bool {
    COUNT.load(Ordering::Relaxed) > 0
}

/// An edge of the code, and about how often it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EdgeHit {
    pub(crate) edge: usize,
    pub(crate) often: u8,
}

/// Resets the counters.
pub(crate) fn restart() {
    counters().fill(0);
}

/// Returns the edges that were taken since the last [`restart`].
pub(crate) fn ways() -> Vec<EdgeHit> {
    let mut found = Vec::new();
    for (at, chunk) in counters().chunks(WIDE).enumerate() {
        if chunk.iter().any(|count| *count != 0) {
            let taken = chunk.iter().enumerate().filter(|(_, count)| **count != 0);
            found.extend(taken.map(|(place, count)| EdgeHit {
                edge: at * WIDE + place,
                often: scale(*count),
            }));
        }
    }
    found
}

/// Counters that are examined together: nearly all of them are 0.
const WIDE: usize = 64;

/// Buckets a count: a loop that ran 40 times is like one that ran 50 times.
fn scale(count: u8) -> u8 {
    match count {
        0..=3 => count,
        4..=7 => 4,
        8..=15 => 5,
        16..=31 => 6,
        32..=127 => 7,
        128..=255 => 8,
    }
}

#[expect(
    unsafe_code,
    reason = "the counters are a section of the linked program"
)]
fn counters() -> &'static mut [u8] {
    let (start, count) = (
        COUNTERS.load(Ordering::Relaxed),
        COUNT.load(Ordering::Relaxed),
    );
    match count {
        0 => &mut [],
        // SAFETY: the linker's section has this length and lives as long as the program. Counting threads write bytes
        // of it as racing increments do; what is read of them is a number, whichever it is.
        _ => unsafe { std::slice::from_raw_parts_mut(start, count) },
    }
}

/// Returns a recent comparison: two different values, and their width in bytes.
pub(crate) fn compared(draw: usize) -> Option<(u64, u64, usize)> {
    let [one, other, width] = &COMPARED[draw % COMPARISONS];
    let width = usize::try_from(width.load(Ordering::Relaxed)).ok()?;
    let pair = (one.load(Ordering::Relaxed), other.load(Ordering::Relaxed));
    (width > 0 && pair.0 != pair.1).then_some((pair.0, pair.1, width))
}

fn note(one: u64, other: u64, width: u64) {
    if one != other {
        let [a, b, w] = &COMPARED[NEXT.fetch_add(1, Ordering::Relaxed) % COMPARISONS];
        a.store(one, Ordering::Relaxed);
        b.store(other, Ordering::Relaxed);
        w.store(width, Ordering::Relaxed);
    }
}

/// Functions that instrumented code calls, with LLVM's names.
#[expect(
    unsafe_code,
    reason = "names that a compiler's pass calls are exported as they are"
)]
mod called {
    use super::{COUNT, COUNTERS, Ordering, note};

    #[unsafe(no_mangle)]
    extern "C" fn __sanitizer_cov_8bit_counters_init(start: *mut u8, stop: *mut u8) {
        COUNTERS.store(start, Ordering::Relaxed);
        COUNT.store(stop.addr().saturating_sub(start.addr()), Ordering::Relaxed);
    }

    macro_rules! comparisons {
        ($($name:ident: $int:ty, $width:literal;)*) => {$(
            #[unsafe(no_mangle)]
            extern "C" fn $name(one: $int, other: $int) {
                note(u64::from(one), u64::from(other), $width);
            }
        )*};
    }

    comparisons! {
        __sanitizer_cov_trace_cmp1: u8, 1;
        __sanitizer_cov_trace_cmp2: u16, 2;
        __sanitizer_cov_trace_cmp4: u32, 4;
        __sanitizer_cov_trace_cmp8: u64, 8;
        __sanitizer_cov_trace_const_cmp1: u8, 1;
        __sanitizer_cov_trace_const_cmp2: u16, 2;
        __sanitizer_cov_trace_const_cmp4: u32, 4;
        __sanitizer_cov_trace_const_cmp8: u64, 8;
    }

    /// Traces a `switch`: the number of cases, their width in bits, and the cases.
    #[unsafe(no_mangle)]
    extern "C" fn __sanitizer_cov_trace_switch(value: u64, cases: *const u64) {
        // SAFETY: the pass hands over an array of as many cases as its first number says, after two numbers.
        let all = unsafe {
            let count = usize::try_from(*cases).unwrap_or(0);
            std::slice::from_raw_parts(cases, count + 2)
        };
        // One case is enough: the next input brings another.
        if let Some(case) = all[2..].iter().find(|case| **case > value) {
            note(*case, value, all[1].div_ceil(8).clamp(1, 8));
        }
    }
}
