//! What was typed after `sluice simulate`.

use std::path::PathBuf;

/// Either scenario files, or a trace with hosts to run it on.
#[derive(Debug, clap::Args)]
pub(crate) struct SimulateArgs {
    /// Scenario files, JSON; `-` is stdin.
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,

    /// Only the case with this id. May be given more than once.
    #[arg(long, value_name = "ID", help_heading = "Scenarios")]
    pub(crate) case: Vec<String>,
}
