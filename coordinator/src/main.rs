//! `sluice-coordinator`: reads flags, environment and config, sets up the log on stderr, and runs what it is told.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Parser, Subcommand, ValueEnum};
use sluice_coordinator::config::{DEFAULT_DATA_DIR, Overrides, RawConfig};
use sluice_coordinator::{identity, run};
use tracing_subscriber::EnvFilter;

/// The coordinator of a Sluice cluster. Without a command it runs.
#[derive(Parser)]
#[command(
    name = "sluice-coordinator",
    version,
    args_conflicts_with_subcommands = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Subcommand)]
enum Command {
    /// Make a cluster: its id, its authority and the coordinator's certificate, below the data directory.
    Init {
        #[command(flatten)]
        data: DataArgs,
    },
    /// Issue the certificate of a node: writes ca.pem, node.pem and node.key for its agent.
    IssueNode {
        /// The node's name, as in its agent's config.
        name: String,
        #[command(flatten)]
        data: DataArgs,
        /// Directory for the three files.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
}

#[derive(Args)]
struct DataArgs {
    /// The coordinator's data directory.
    #[arg(long, env = "SLUICE_DATA_DIR", hide_env_values = true, value_name = "DIR", default_value = DEFAULT_DATA_DIR)]
    data_dir: PathBuf,
}

#[derive(Args)]
struct RunArgs {
    /// The config, coordinator.toml; flags and SLUICE_* variables override it.
    #[arg(
        long,
        env = "SLUICE_CONFIG",
        hide_env_values = true,
        value_name = "FILE"
    )]
    config: Option<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
    /// How the log on stderr is written.
    #[arg(
        long,
        env = "SLUICE_LOG_FORMAT",
        hide_env_values = true,
        default_value = "text"
    )]
    log_format: LogFormat,
    /// Exit when standard input ends, which it does when the parent is gone.
    #[arg(long)]
    exit_with_stdin: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.command {
        None => start(cli.run),
        Some(Command::Init { data }) => init(&data),
        Some(Command::IssueNode { name, data, out }) => {
            identity::issue_node(&data.data_dir, &name, &out).map_err(Into::into)
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _nobody_reads_it = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn init(data: &DataArgs) -> anyhow::Result<()> {
    let dir = data.data_dir.display();
    let cluster = identity::init(&data.data_dir)?;
    writeln!(
        io::stdout(),
        "cluster {cluster} is ready in {dir}\n\
         for each host: sluice-coordinator issue-node NAME --data-dir {dir} --out DIR"
    )?;
    Ok(())
}

fn start(args: RunArgs) -> anyhow::Result<()> {
    log_to_stderr(args.log_format)?;
    let raw = match &args.config {
        Some(path) => RawConfig::load(path)?,
        None => RawConfig::default(),
    };
    let config = raw.check(args.overrides)?;
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let ready = |http, quic| {
        if let Err(error) = run::print_ready(http, quic) {
            tracing::warn!("nobody reads the ready line: {error}");
        }
    };
    runtime.block_on(run::run(config, args.exit_with_stdin, ready))?;
    Ok(())
}

/// `SLUICE_LOG`, else `RUST_LOG`, says what is logged.
fn log_to_stderr(format: LogFormat) -> anyhow::Result<()> {
    let name = match std::env::var_os("SLUICE_LOG") {
        Some(_) => "SLUICE_LOG",
        None => "RUST_LOG",
    };
    let filter = match std::env::var(name) {
        Ok(text) => EnvFilter::try_new(text).with_context(|| format!("{name} is no filter"))?,
        Err(_) => EnvFilter::new("info"),
    };
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr);
    match format {
        LogFormat::Text => log
            .with_ansi(io::IsTerminal::is_terminal(&io::stderr()))
            .init(),
        LogFormat::Json => log.json().init(),
    }
    Ok(())
}
