//! Arguments of `sluice replay`.

use std::path::PathBuf;

use super::values::step_id;

/// A data directory, and the part of its history to show.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplayArgs {
    /// Data directory of a stopped coordinator, or that of `sluice dev --data`.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Show the state after the event of this number; the last one if absent.
    #[arg(long, value_name = "SEQ")]
    pub(crate) at: Option<u64>,
    /// Show the changes after the event FROM, up to the event TO, each with its event.
    #[arg(long, num_args = 2, value_names = ["FROM", "TO"], conflicts_with = "at")]
    pub(crate) diff: Vec<u64>,
    /// Only this step.
    #[arg(long, value_name = "STEP", value_parser = step_id)]
    pub(crate) step: Option<String>,
}
