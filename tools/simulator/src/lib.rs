//! The simulator: the scheduler, or the whole of the coordinator's core, with simulated hosts. Reads traces and scenarios,
//! plays them and adds up what came of it; reads no clock, and draws nothing but by a seed. Decides nothing itself.
//!
//! ```text
//! trace:     file -> Sheet -> Trace -(arrivals)-> Asked -> Driver -(TraceRun)-> Log -> Report -> svg
//! scenario:  Case -(Simulation)-> End -> Difference ...
//! ```

mod driver;
mod plot;
#[expect(
    missing_docs,
    reason = "the page on simulate tells of each field by its name"
)]
mod report;
pub mod scenario;
mod sheet;
mod shuffle;
mod simulation;
mod trace;
mod trace_run;

pub use driver::{Asked, Driver, Log};
pub use plot::svg;
pub use report::{ClusterFigures, Point, Report, Waiting};
pub use sheet::{Row, Sheet, Unreadable};
pub use shuffle::arrivals;
pub use simulation::{HostSize, Impossible, Job, Simulation};
pub use trace::{Trace, TraceJob, megabytes};
pub use trace_run::{NotPut, TraceRun};
