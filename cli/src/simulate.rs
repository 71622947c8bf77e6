//! `sluice simulate`: what the scheduler would do, asked of the scheduler itself. No cluster is needed, none is touched.
//!
//! `scenario` plays files of cases and says in what their ends differ from those that were written. All decisions are
//! those of `coordinator_core`; nothing here takes one.

mod scenario;

use crate::args::SimulateArgs;
use crate::failure::Failure;
use crate::out::Out;

/// Runs the command.
pub(crate) fn run(args: &SimulateArgs, out: Out) -> Result<u8, Failure> {
    scenario::run(&args.files, &args.case, out)
}
