//! How every daemon logs: which lines, in which form, to stderr. The daemons call [`start`] once, as soon as they know
//! the form that was asked for; what is worth a line is theirs to say, with `tracing`'s macros.
//!
//! ```text
//! SLUICE_LOG, config -> filter -+
//!                               +-> lines -> line | json -> stderr
//! Format -------------> shape --+
//! ```
//!
//! The filter may be another later; the form stays.
//!
//! Has no thread, no queue and no network, so that the supervisor can use it: a line is one write to stderr, and a
//! stderr that nobody reads any more is nobody's loss.

mod fields;
mod filter;
mod format;
mod json;
mod layer;
mod text;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, Write};

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{EnvFilter, Registry, reload};

pub use filter::{FILTER_VARIABLE, Filter, FilterError};
pub use format::{FORMAT_VARIABLE, Format, FormatError};

use layer::LineLayer;

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

/// A log that was started.
#[derive(Clone, Debug)]
pub struct Log(reload::Handle<EnvFilter, Registry>);

impl Log {
    /// Filters by another filter from now on.
    pub fn set_filter(&self, filter: &Filter) {
        let changed = self.0.reload(filter.to_env_filter());
        changed.expect("the log lives as long as its process, and nothing in its lock panics");
    }
}

/// Begins to log to stderr, in this form and by this filter. From now on a panic is a line of the log as well.
///
/// # Errors
/// Where this was called before.
pub fn start(format: Format, filter: &Filter) -> Result<Log, LogError> {
    let (filter, handle) = reload::Layer::new(filter.to_env_filter());
    let lines = LineLayer::new(format.resolve(), to_stderr);
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
    Ok(Log(handle))
}

/// One write for each line, so that lines of several threads do not mix.
fn to_stderr(line: &[u8]) {
    let _nobody_reads_it = io::stderr().lock().write_all(line);
}
