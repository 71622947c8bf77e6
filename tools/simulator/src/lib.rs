//! The simulator: the scheduler, or the whole of the coordinator's core, with simulated hosts. Reads traces and scenarios,
//! plays them and adds up what came of it; reads no clock, and draws nothing but by a seed. Decides nothing itself.
//!
//! ```text
//! trace:     file -> Sheet -> Trace -(arrivals)-> Asked -> Driver -(TraceRun)-> Log -> Report -> svg
//! scenario:  Case -(Simulation)-> End -> Difference ...
//! ```

#![allow(
    missing_docs,
    reason = "a field says by its name what it is; where it does not, it has a comment"
)]

mod csv_table;
mod driver;
mod plot;
mod report;
pub mod scenario;
mod shuffle;
mod simulation;
mod trace;
mod trace_run;

pub use csv_table::{CsvTable, Row, Unreadable};
pub use driver::{Driver, JobRequest, Log};
pub use plot::svg;
pub use report::{ClusterFigures, Point, Report, Waiting};
pub use shuffle::arrivals;
pub use simulation::{HostSize, Impossible, Job, Simulation};
pub use trace::{Trace, TraceJob, megabytes};
pub use trace_run::{SetupError, TraceRun};
