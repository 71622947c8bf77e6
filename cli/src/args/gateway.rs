//! Arguments of `sluice gateway`.

use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(crate) struct GatewayArgs {
    /// The config file; without it, all keys have their defaults.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Check the config, print it with its defaults, and exit.
    #[arg(long)]
    pub(crate) check_config: bool,
    /// Stop when standard input ends, as `sluice dev` needs it.
    #[arg(long, hide = true)]
    pub(crate) exit_with_stdin: bool,
    /// Become this HAProxy, as a child of the gateway.
    #[arg(long, hide = true, value_name = "PROGRAM")]
    pub(crate) become_haproxy: Option<PathBuf>,
    /// Process id of that gateway.
    #[arg(long, hide = true, value_name = "PID")]
    pub(crate) parent: Option<u32>,
}
