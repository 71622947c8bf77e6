//! `sluice-coordinator`: reads flags, environment and config, sets up the log on stderr, and runs what it is told.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use sluice_common::id::StepId;
use sluice_coordinator::config::{ConfigError, DEFAULT_DATA_DIR, Overrides, RawConfig};
use sluice_coordinator::{identity, replay, run};
use sluice_log::Format;

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
    /// Issue the certificate of a user of the API: writes ca.pem, user.pem and user.key. What it may do, bindings say.
    IssueUser {
        /// The user's name, as in bindings.
        name: String,
        #[command(flatten)]
        data: DataArgs,
        /// Directory for the three files.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Tell the past of a data directory as JSON, for `sluice replay`.
    #[command(hide = true)]
    Replay(ReplayArgs),
}

#[derive(Args)]
struct ReplayArgs {
    /// The data directory; no coordinator may run in it.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// The record whose state is told; the last where it is left out.
    #[arg(long, value_name = "SEQ")]
    at: Option<u64>,
    /// What changed from one record to another instead.
    #[arg(long, num_args = 2, value_names = ["FROM", "TO"], conflicts_with = "at")]
    diff: Vec<u64>,
    /// This step alone.
    #[arg(long, value_name = "STEP")]
    step: Option<StepId>,
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
    /// How the log on stderr is written: text, json or auto, which is the journal's form under systemd and else text.
    #[arg(
        long,
        env = sluice_log::FORMAT_VARIABLE,
        hide_env_values = true,
        value_name = "FORMAT"
    )]
    log_format: Option<Format>,
    /// Exit when standard input ends, which it does when the parent is gone.
    #[arg(long)]
    exit_with_stdin: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.command {
        None => serve(cli.run),
        Some(Command::Init { data }) => ended(init(&data)),
        Some(Command::IssueNode { name, data, out }) => {
            ended(identity::issue_node(&data.data_dir, &name, &out).map_err(Into::into))
        }
        Some(Command::IssueUser { name, data, out }) => {
            ended(identity::issue_user(&data.data_dir, &name, &out).map_err(Into::into))
        }
        Some(Command::Replay(args)) => ended(tell(&args)),
    }
}

/// For whoever looks at the command: nothing is logged yet, or at all.
fn ended(outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _nobody_reads_it = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn tell(args: &ReplayArgs) -> anyhow::Result<()> {
    let (dir, step) = (&args.dir, args.step.as_ref());
    let json = match args.diff[..] {
        [from, to] => serde_json::to_string(&replay::changes(dir, from, to, step)?)?,
        _ => serde_json::to_string(&replay::state(dir, args.at, step)?)?,
    };
    writeln!(io::stdout(), "{json}")?;
    Ok(())
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

/// The config says how the log is written, and the log says what is wrong with the config: so it is read first, and
/// judged second.
fn serve(args: RunArgs) -> ExitCode {
    let raw = match &args.config {
        Some(path) => RawConfig::load(path),
        None => Ok(RawConfig::default()),
    };
    let configured = raw.as_ref().ok().and_then(RawConfig::log_format);
    let format = args.log_format.or(configured).unwrap_or_default();
    if let Err(error) = sluice_log::start(format) {
        return ended(Err(error.into()));
    }
    match start(raw, args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The whole chain, once, on one line.
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(raw: Result<RawConfig, ConfigError>, args: RunArgs) -> anyhow::Result<()> {
    let config = raw?.check(args.overrides)?;
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let ready = |http, quic| {
        if let Err(error) = run::print_ready(http, quic) {
            tracing::warn!("nobody reads the ready line: {error}");
        }
    };
    runtime.block_on(run::run(config, args.exit_with_stdin, ready))?;
    Ok(())
}
