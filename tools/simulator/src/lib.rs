//! The simulator: plays traces of jobs on simulated hosts, with the coordinator's own core. Reads traces, runs them and adds
//! up what came of it; reads no clock, and draws nothing but by a seed. All decisions are the core's.
//!
//! ```text
//! file -> Sheet -> Trace -(arrivals)-> Asked -> Driver -> Log -> Report -> svg
//! ```

mod driver;
mod plot;
#[expect(
    missing_docs,
    reason = "the page on simulate tells of each field by its name"
)]
mod report;
mod sheet;
mod shuffle;
mod trace;

pub use driver::{Asked, Driver, Log};
pub use plot::svg;
pub use report::{ClusterFigures, Point, Report, Waiting};
pub use sheet::{Row, Sheet, Unreadable};
pub use shuffle::arrivals;
pub use trace::{Trace, TraceJob, megabytes};
