//! Arguments of `sluice recovery`.

use clap::Subcommand;

#[derive(Debug, clap::Args)]
pub(crate) struct RecoveryArgs {
    #[command(subcommand)]
    pub(crate) action: Option<RecoveryAction>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RecoveryAction {
    /// End it before all hosts have reported what they run: queued steps may start at once.
    End {
        /// Even if a step may still run on a host that has not reported it.
        #[arg(long)]
        force: bool,
    },
}
