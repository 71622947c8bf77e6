//! Simulates clusters: runs the scheduler alone, or the whole core of the coordinator, with simulated hosts, and
//! reports the results of traces and scenarios. Reads no clock, and draws at random only from a seed.
//!
//! ```text
//! trace:     file -> Sheet -> Trace -(arrivals)-> Asked -> Driver -(TraceRun)-> Log -> Report -> svg
//! requests:  requests of each second -(ServiceTerms)-> RequestPoint ... -> svg
//! scenario:  Case -(Simulation)-> End -> Difference ...
//! ```

#![allow(
    missing_docs,
    reason = "fields and variants alone may lack docs, if their names say enough: tidy checks the rest"
)]

mod csv_table;
mod driver;
mod plot;
mod report;
mod requests;
pub mod scenario;
mod shuffle;
mod simulation;
mod trace;
mod trace_run;

pub use csv_table::{CsvTable, Row, Unreadable};
pub use driver::{Driver, JobRequest, Log};
pub use plot::{request_svg, svg};
pub use report::{ClusterFigures, Point, Report, Waiting, WaitingOfSize};
pub use requests::{RequestPoint, ServiceTerms, busy_hour};
pub use shuffle::arrivals;
pub use simulation::{HostSize, Impossible, Job, Simulation};
pub use trace::{Trace, TraceJob, megabytes};
pub use trace_run::{SetupError, TraceRun};
