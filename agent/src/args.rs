//! The command line and environment of the agent.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use sluice_log::Format;

use crate::config::Overrides;

/// The agent of one host of a Sluice cluster.
#[derive(Parser)]
#[command(
    name = "sluice-agent",
    version,
    after_help = "SIGHUP reloads the config: what may change while it runs takes effect at once, and the log names what waits for \
                  the next start. The log goes to stderr; SLUICE_LOG filters it, before log_filter of the config."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// The config file.
    #[arg(
        long,
        env = "SLUICE_AGENT_CONFIG",
        default_value = "/etc/sluice/agent.toml",
        global = true
    )]
    pub(crate) config: PathBuf,
    /// HOST:PORT of a coordinator; may be repeated.
    #[arg(
        long = "coordinator",
        env = "SLUICE_AGENT_COORDINATORS",
        value_delimiter = ','
    )]
    pub(crate) coordinators: Vec<String>,
    /// This host's name.
    #[arg(long, env = "SLUICE_AGENT_NODE", global = true)]
    pub(crate) node: Option<String>,
    /// The pool to join.
    #[arg(long, env = "SLUICE_AGENT_POOL", global = true)]
    pub(crate) pool: Option<String>,
    /// State directory of the agent.
    #[arg(long, env = "SLUICE_AGENT_STATE_DIR", global = true)]
    pub(crate) state_dir: Option<PathBuf>,
    /// Path of the supervisor's socket.
    #[arg(long, env = "SLUICE_AGENT_SUPERVISOR_SOCKET")]
    pub(crate) supervisor_socket: Option<PathBuf>,
    /// NVML's library, in place of the loader's choice.
    #[arg(long, env = "SLUICE_AGENT_NVML_LIBRARY", global = true)]
    pub(crate) nvml_library: Option<PathBuf>,
    /// Longest time until the GPUs of a step are free after its last process has ended.
    #[arg(
        long,
        env = "SLUICE_AGENT_GPU_RELEASE_TIMEOUT",
        value_name = "DURATION"
    )]
    pub(crate) gpu_release_timeout: Option<String>,
    /// Longest time to move a step's data off its GPUs before it is frozen, or back when it is resumed.
    #[arg(long, env = "SLUICE_AGENT_SUSPEND_LIMIT", value_name = "DURATION")]
    pub(crate) suspend_limit: Option<String>,
    /// Format of the log on stderr: text, json or auto, which is the journal's form under systemd and else text.
    #[arg(
        long,
        env = sluice_log::FORMAT_VARIABLE,
        value_name = "FORMAT",
        global = true
    )]
    pub(crate) log_format: Option<Format>,
    /// Read and check the config, print what it comes to, and exit: 1 where something is wrong with it.
    #[arg(long)]
    pub(crate) check_config: bool,
    /// Report what this file declares in place of what the host has: an inventory in JSON, for trials on one machine.
    /// Refused unless every coordinator is on this machine.
    #[arg(long, hide = true)]
    pub(crate) declared: Option<PathBuf>,
    /// Exit when standard input ends: whoever started this agent is gone.
    #[arg(long, hide = true)]
    pub(crate) exit_with_stdin: bool,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Print what this host would report, as JSON, and exit. Needs no coordinator.
    Detect,
    /// Answer requests about the GPUs on standard input: the agent starts this process for itself.
    #[command(hide = true)]
    QueryDriver,
    /// Print whether this host's supervisor answers, as JSON, and exit. The agent that runs here stays connected to it.
    Supervisor,
    /// Join a cluster with the line that `sluice token create` printed. The agent starts by itself after that.
    Join {
        /// The line; standard input where it is left out or `-`, so that no list of processes shows it.
        line: Option<String>,
        /// The agent.yaml of a Determined agent, of which the host keeps its name and its pool.
        #[arg(long, value_name = "FILE")]
        from: Option<PathBuf>,
        /// Also where this host has joined already: it is a new one then.
        #[arg(long)]
        anew: bool,
    },
    /// Forget which epoch of its coordinator this host has obeyed, where that number is wrong. The agent must be stopped,
    /// and no replaced coordinator of the cluster may still run: the host obeys the next one that speaks to it.
    ForgetEpoch,
}

impl Args {
    /// The options that override the config.
    pub(crate) fn overrides(self) -> Overrides {
        Overrides {
            coordinators: self.coordinators,
            node: self.node,
            pool: self.pool,
            state_dir: self.state_dir,
            supervisor_socket: self.supervisor_socket,
            nvml_library: self.nvml_library,
            gpu_release_timeout: self.gpu_release_timeout,
            suspend_limit: self.suspend_limit,
            log_format: self.log_format,
        }
    }
}
