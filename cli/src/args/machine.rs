//! What is typed of the machine itself: what it has, and what would hurt on it.

use std::path::PathBuf;

#[derive(Debug, Default, clap::Args)]
pub(crate) struct DetectArgs {
    /// NVML's library, in place of the one that the agent's config names or the loader finds.
    #[arg(long, value_name = "FILE")]
    pub(crate) nvml_library: Option<PathBuf>,
    /// The agent's config, for what it keeps back and where its state is.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// The directory whose disk is looked at: where a coordinator or an agent keeps its state.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/sluice")]
    pub(crate) state_dir: PathBuf,
}
