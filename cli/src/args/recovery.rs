//! What is typed of a recovery.

use clap::Subcommand;

#[derive(Debug, clap::Args)]
pub(crate) struct RecoveryArgs {
    #[command(subcommand)]
    pub(crate) action: Option<RecoveryAction>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RecoveryAction {
    /// End it before all hosts have told what they run: what waits may start at once.
    End {
        /// Also while a step may still run on a host that has not told of it.
        #[arg(long)]
        force: bool,
    },
}
