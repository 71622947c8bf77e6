//! `sluice-coordinator`: reads flags, environment and config, sets up the log on stderr, and runs the given command.

mod maintenance;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use mimalloc::MiMalloc;
use nix::sys::prctl::set_thp_disable;
use sluice_common::credential::{Generation, NodeClaim};
use sluice_common::id::{NodeName, PoolName, StepId};
use sluice_common::time::Span;
use sluice_coordinator::config::{ConfigError, DEFAULT_DATA_DIR, Overrides, RawConfig};
use sluice_coordinator::identity::{self, ExternalCa, rollover};
use sluice_coordinator::reload::ConfigSource;
use sluice_coordinator::{replay, run};
use sluice_log::{Filter, Format, Log};
use sluice_transport::{NodeCertificateSpec, TlsFiles};

/// Halves the time of a list beside the allocator of glibc, and takes less memory.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The coordinator of a Sluice cluster. Without a command it runs.
#[derive(Parser)]
#[command(
    name = "sluice-coordinator",
    version,
    args_conflicts_with_subcommands = true,
    after_help = "SIGHUP reloads the config: what may change while it runs takes effect at once, and the log names what waits for \
                  the next start. The log goes to stderr; SLUICE_LOG filters it, before log_filter of the config."
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
    Init(InitArgs),
    /// Issue the certificate of a node: writes ca.pem, node.pem and node.key for its agent. Hosts that join by a token
    /// need none of it.
    IssueNode(IssueArgs),
    /// The authorities under which the cluster's certificates are issued.
    Ca {
        #[command(subcommand)]
        action: CaAction,
    },
    /// Issue the certificate of a user of the API: writes ca.pem, user.pem and user.key. Bindings give it rights.
    IssueUser {
        /// The user's name, as in bindings.
        name: String,
        #[command(flatten)]
        data: DataArgs,
        /// Directory for the three files.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Lifetime of the certificate. It is not renewed automatically.
        #[arg(long, value_name = "TIME", default_value = "87600h")]
        ttl: Span,
    },
    #[command(flatten)]
    Maintenance(maintenance::MaintenanceCommand),
    /// Print the history of a data directory as JSON, for `sluice replay`.
    #[command(hide = true)]
    Replay(ReplayArgs),
}

#[derive(Args)]
struct InitArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Certificate of an outside authority, in place of one of the cluster's own.
    #[arg(long, value_name = "FILE")]
    ca_cert: Option<PathBuf>,
    /// Key of that authority, with which the coordinator issues certificates.
    #[arg(long, value_name = "FILE", requires = "ca_cert", conflicts_with_all = ["cert", "key"])]
    ca_key: Option<PathBuf>,
    /// The coordinator's certificate, where the outside authority's key is not given: for servers, and naming the host
    /// coordinator.sluice.
    #[arg(long, value_name = "FILE", requires_all = ["ca_cert", "key"])]
    cert: Option<PathBuf>,
    /// Key of that certificate.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
}

#[derive(Args)]
struct IssueArgs {
    /// The node's name, as in its agent's config.
    name: NodeName,
    #[command(flatten)]
    data: DataArgs,
    /// Directory for the three files.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// The only pool that the certificate allows; any if absent.
    #[arg(long)]
    pool: Option<PoolName>,
    /// Generation of the node's access: the number that a refusal names after a revocation.
    #[arg(long, value_name = "N", default_value_t = 0)]
    generation: u64,
    /// Lifetime of the certificate. It is not renewed automatically.
    #[arg(long, value_name = "TIME", default_value = "87600h")]
    ttl: Span,
}

#[derive(Subcommand)]
enum CaAction {
    /// Make a new authority, trusted beside the old one, which issues from now on.
    Rotate {
        #[command(flatten)]
        data: DataArgs,
    },
    /// Show the trusted authorities, and which nodes connected last under each.
    List {
        #[command(flatten)]
        data: DataArgs,
    },
    /// Stop trusting an older authority.
    Retire {
        /// Beginning of its fingerprint; without it the one that does not issue.
        #[arg(value_name = "FINGERPRINT")]
        authority: Option<String>,
        #[command(flatten)]
        data: DataArgs,
        /// Even if nodes connected last under it, which must then join again.
        #[arg(long)]
        force: bool,
    },
}

#[derive(Args)]
struct ReplayArgs {
    /// The data directory; no coordinator may run in it.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Show the state at this record; the last if absent.
    #[arg(long, value_name = "SEQ")]
    at: Option<u64>,
    /// Show the changes from one record to another instead.
    #[arg(long, num_args = 2, value_names = ["FROM", "TO"], conflicts_with = "at")]
    diff: Vec<u64>,
    /// Show only this step.
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
    /// Format of the log on stderr: text, json or auto, which is the journal's form under systemd and else text.
    #[arg(
        long,
        env = sluice_log::FORMAT_VARIABLE,
        hide_env_values = true,
        value_name = "FORMAT"
    )]
    log_format: Option<Format>,
    /// Read and check the config, print what it comes to, and exit: 1 where something is wrong with it.
    #[arg(long)]
    check_config: bool,
    /// Exit when standard input ends, which it does when the parent is gone.
    #[arg(long)]
    exit_with_stdin: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.command {
        None => serve(cli.run),
        Some(Command::Init(args)) => ended(init(args)),
        Some(Command::IssueNode(args)) => ended(issue(args)),
        Some(Command::Ca { action }) => ended(ca(action)),
        Some(Command::IssueUser {
            name,
            data,
            out,
            ttl,
        }) => {
            let ttl = Duration::from_millis(ttl.millis());
            let issued = identity::issue_user(&data.data_dir, &name, ttl, &out);
            ended(issued.map_err(Into::into))
        }
        Some(Command::Maintenance(command)) => ended(maintenance::run(command)),
        Some(Command::Replay(args)) => ended(tell(&args)),
    }
}

/// Ends a command that an admin looks at: its error goes to stderr, because there is no log yet.
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

fn init(args: InitArgs) -> anyhow::Result<()> {
    let data_dir = args.data.data_dir;
    let outside = match (args.ca_cert, args.ca_key, args.cert, args.key) {
        (None, ..) => None,
        (Some(ca_cert), Some(ca_key), ..) => Some(ExternalCa::WithKey { ca_cert, ca_key }),
        (Some(ca), None, Some(cert), Some(key)) => {
            Some(ExternalCa::Issued(TlsFiles { ca, cert, key }))
        }
        (Some(_), None, ..) => anyhow::bail!(
            "--ca-cert alone is not enough: give --ca-key, and the coordinator issues certificates with it; or --cert and \
             --key, the coordinator's own, and all others come from where the authority's key is"
        ),
    };
    let cluster = match &outside {
        None => identity::init(&data_dir)?,
        Some(outside) => identity::init_with(&data_dir, outside)?,
    };
    let next = match outside {
        Some(ExternalCa::Issued(_)) => {
            "this coordinator cannot issue certificates: no host joins by token, none is renewed, and each host's comes from \
             your authority, for clients, with the URI sluice:node:NAME"
        }
        None | Some(ExternalCa::WithKey { .. }) => {
            "for each host, once the coordinator runs: sluice token create --pool default"
        }
    };
    let dir = data_dir.display();
    writeln!(io::stdout(), "cluster {cluster} is ready in {dir}\n{next}")?;
    Ok(())
}

fn issue(args: IssueArgs) -> anyhow::Result<()> {
    let terms = NodeCertificateSpec {
        node: args.name,
        claim: NodeClaim {
            pool: args.pool,
            generation: Generation::new(args.generation),
        },
        ttl: Duration::from_millis(args.ttl.millis()),
    };
    identity::issue_node(&args.data.data_dir, &terms, &args.out)?;
    Ok(())
}

fn ca(action: CaAction) -> anyhow::Result<()> {
    match action {
        CaAction::Rotate { data } => {
            let new = rollover::rotate(&data.data_dir)?;
            writeln!(
                io::stdout(),
                "authority {new} issues from now on, and the old one is still trusted\n\
                 agents that are linked learn of it within seconds and get new certificates: `sluice-coordinator ca list` \
                 shows who did\n\
                 when all have: sluice-coordinator ca retire"
            )?;
        }
        CaAction::List { data } => list(&data)?,
        CaAction::Retire {
            authority,
            data,
            force,
        } => {
            let retired = rollover::retire(&data.data_dir, authority.as_deref(), force)?;
            writeln!(io::stdout(), "authority {retired} is trusted no longer")?;
        }
    }
    Ok(())
}

fn list(data: &DataArgs) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    for it in rollover::list(&data.data_dir)? {
        let fingerprint = &it.fingerprint.to_string()[..rollover::SHORT];
        let role = match (it.issues, it.shown) {
            (true, true) => "issues",
            (true, false) => "issues; the coordinator's own is of the older one",
            (false, true) => "retiring; issued the coordinator's own",
            (false, false) => "trusted",
        };
        write!(out, "{fingerprint}  {role}  {} nodes", it.nodes.len())?;
        for name in &it.nodes {
            write!(out, " {name}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Runs the coordinator. The config is read before it is checked, because it sets the log format in which its mistakes
/// are logged.
fn serve(args: RunArgs) -> ExitCode {
    if args.check_config {
        return ended(checked(args));
    }
    let raw = match &args.config {
        Some(path) => RawConfig::load(path),
        None => Ok(RawConfig::default()),
    };
    let started = start_log(&args, raw.as_ref().ok());
    let outcome = match started {
        Ok((log, format)) => start(raw, args, log, format),
        // There is no log yet.
        Err(error) => return ended(Err(error)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Logs the whole chain of causes on one line.
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start_log(args: &RunArgs, raw: Option<&RawConfig>) -> anyhow::Result<(Log, Format)> {
    let configured = raw.and_then(RawConfig::log_format);
    let format = args.log_format.or(configured).unwrap_or_default();
    let filter = Filter::from_env_or(raw.and_then(RawConfig::log_filter))?;
    Ok((sluice_log::start(format, &filter)?, format))
}

fn checked(args: RunArgs) -> anyhow::Result<()> {
    let path = args.config.as_ref();
    let raw = path.map_or_else(|| Ok(RawConfig::default()), |path| RawConfig::load(path))?;
    let config = raw.check(args.overrides);
    // The file set the value, unless a flag or a variable overrode it.
    let config = config.with_context(|| match path {
        Some(path) => path.display().to_string(),
        None => "no config file".to_owned(),
    })?;
    write!(io::stdout(), "{config}")?;
    Ok(())
}

/// Has the kernel give this process pages of the usual size. mimalloc asks for huge ones, in which an idle coordinator
/// would keep 15 MiB more; lists of 100,000 steps take as long with either.
fn without_huge_pages() {
    if let Err(error) = set_thp_disable(true) {
        tracing::debug!("huge pages stay on, which takes more memory: {error}");
    }
}

fn start(
    raw: Result<RawConfig, ConfigError>,
    args: RunArgs,
    log: Log,
    runs_format: Format,
) -> anyhow::Result<()> {
    let config = raw?.check(args.overrides.clone())?;
    let reload = ConfigSource {
        file: args.config,
        overrides: args.overrides,
        format: args.log_format,
        runs_format,
        log,
    };
    without_huge_pages();
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let ready = |http, quic| {
        if let Err(error) = run::print_ready(http, quic) {
            tracing::warn!("nobody reads the ready line: {error}");
        }
    };
    runtime.block_on(run::run(config, reload, args.exit_with_stdin, ready))?;
    Ok(())
}
