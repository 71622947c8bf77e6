//! Arguments of `detect` and `doctor`, which examine this machine.

use std::path::PathBuf;

#[derive(Debug, Default, clap::Args)]
pub(crate) struct DetectArgs {
    /// NVML's library, instead of the one that the agent's config names or the loader finds.
    #[arg(long, value_name = "FILE")]
    pub(crate) nvml_library: Option<PathBuf>,
    /// The agent's config, which reserves resources and names the state directory.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// State directory of a coordinator or an agent, whose disk is checked.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/sluice")]
    pub(crate) state_dir: PathBuf,
}
