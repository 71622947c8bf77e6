//! What was typed after `sluice replay`.

use std::path::PathBuf;

use super::values::step_id;

/// A data directory, and what of its past is wanted.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplayArgs {
    /// The data directory of a coordinator that is stopped, or that of `sluice dev --data`.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// The state that the event of this number left; the last where it is left out.
    #[arg(long, value_name = "SEQ")]
    pub(crate) at: Option<u64>,
    /// What changed after the event FROM, up to the event TO, and which event did it.
    #[arg(long, num_args = 2, value_names = ["FROM", "TO"], conflicts_with = "at")]
    pub(crate) diff: Vec<u64>,
    /// Only this step.
    #[arg(long, value_name = "STEP", value_parser = step_id)]
    pub(crate) step: Option<String>,
}
