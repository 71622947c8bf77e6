//! How every daemon logs: which lines, in which form, to stderr. The daemons call [`start`] once, as soon as they know
//! the form that was asked for; what is worth a line is theirs to say, with `tracing`'s macros.
//!
//! ```text
//! SLUICE_LOG -> filter -+
//!                       +-> lines -> line | json -> stderr
//! Format -----> shape --+
//! ```
//!
//! Has no thread, no queue and no network, so that the supervisor can use it: a line is one write to stderr, and a
//! stderr that nobody reads any more is nobody's loss.

mod fields;
mod filter;
mod format;
mod json;
mod line;
mod lines;
mod time;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, Write};

use tracing_subscriber::layer::SubscriberExt;

pub use filter::{FILTER_VARIABLE, FilterError};
pub use format::{FORMAT_VARIABLE, Format, FormatError};

use lines::Lines;

/// Why nothing can be logged as was asked.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// A defect: somebody else in this process has begun already.
    #[error("the log was started twice")]
    Twice(#[from] tracing::subscriber::SetGlobalDefaultError),
}

/// Begins to log to stderr, in this form and as `SLUICE_LOG` filters. From now on a panic is a line of the log as well.
///
/// # Errors
/// Where the filter cannot be read, or this was called before.
pub fn start(format: Format) -> Result<(), LogError> {
    let filter = filter::from_environment()?;
    let lines = Lines::new(format.shape(), to_stderr);
    let subscriber = tracing_subscriber::registry().with(filter).with(lines);
    tracing::subscriber::set_global_default(subscriber)?;
    std::panic::set_hook(Box::new(|panic| {
        let trace = Backtrace::capture();
        let trace = (trace.status() == BacktraceStatus::Captured).then(|| trace.to_string());
        let at = panic.location().map(ToString::to_string);
        let said = panic
            .payload_as_str()
            .unwrap_or("for a reason that is no text");
        tracing::error!(
            at,
            backtrace = trace,
            "this program has panicked, which is a defect of it: {said}"
        );
    }));
    Ok(())
}

/// One write for each line, so that lines of several threads do not mix.
fn to_stderr(line: &[u8]) {
    let _nobody_reads_it = io::stderr().lock().write_all(line);
}
