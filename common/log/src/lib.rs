//! Logging of the daemons: filter, format and output to stderr. A daemon calls [`start`] once, as soon as it knows the
//! configured format, and logs with `tracing`'s macros.
//!
//! ```text
//! SLUICE_LOG, config -> filter -+
//!                               +-> layer -> text | json -> stderr
//! Format ------------> resolve -+
//! ```
//!
//! The filter can change at run time; the format cannot.
//!
//! The crate uses no thread, queue or network, so that the supervisor can use it. A line is one write to stderr; errors
//! of that write are ignored.

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

/// Error while starting the log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter is invalid.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// The log was already started, which is a defect.
    #[error("the log was started twice")]
    Twice(#[from] tracing::subscriber::SetGlobalDefaultError),
}

/// Handle of the started log.
#[derive(Clone, Debug)]
pub struct Log(reload::Handle<EnvFilter, Registry>);

impl Log {
    /// Replaces the filter.
    pub fn set_filter(&self, filter: &Filter) {
        let changed = self.0.reload(filter.to_env_filter());
        changed.expect("the log lives as long as its process, and nothing in its lock panics");
    }
}

/// Starts logging to stderr. Panics are logged from now on too.
///
/// # Errors
/// If called before in this process.
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
            .unwrap_or("for a reason that is not text");
        tracing::error!(
            at,
            backtrace = trace,
            "this program has panicked, which is a defect of it: {said}"
        );
    }));
    Ok(Log(handle))
}

/// Writes a line at once, so that lines of several threads do not mix.
fn to_stderr(line: &[u8]) {
    let _nobody_reads_it = io::stderr().lock().write_all(line);
}
