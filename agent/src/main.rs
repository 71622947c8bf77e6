//! `sluice-agent`: tells the coordinator what this host has, runs what it is told to, and serves the output. Never
//! root: whatever needs more rights than this user has is the supervisor's.

mod checkpoint;
mod clock;
mod config;
mod detect;
mod engine;
mod epoch;
mod execs;
#[cfg(test)]
mod fuzz;
mod gpu_file;
mod join;
mod kept;
mod link;
mod logs;
mod notify;
mod reload;
mod renewal;
mod state_files;
mod supervisor;
mod told;
mod warrants;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use agent_core::{Core, Input};
use anyhow::{Context, bail};
use clap::{Parser, Subcommand};
use sluice_common::api::HostView;
use sluice_common::id::BootId;
use sluice_common::inventory::Inventory;
use sluice_log::{Filter, Format, Log, LogError};
use tokio::sync::{mpsc, watch};
use tracing::{Instrument, info, warn};

use crate::config::{Config, ConfigError, Overrides, RawConfig};
use crate::engine::{Engine, Event, INBOX};
use crate::epoch::EpochFile;
use crate::execs::Execs;
use crate::link::Link;
use crate::logs::{Live, Logs, Watcher};
use crate::reload::Reload;
use crate::renewal::Door;
use crate::state_files::StateFiles;

/// The agent of one host of a Sluice cluster.
#[derive(Parser)]
#[command(
    name = "sluice-agent",
    version,
    after_help = "SIGHUP has it read the config anew: what may change while it runs counts at once, and the log names what waits for \
                  the next start. The log goes to stderr; SLUICE_LOG filters it, before log_filter of the config."
)]
struct Args {
    #[command(subcommand)]
    command: Option<Action>,
    /// The config file.
    #[arg(
        long,
        env = "SLUICE_AGENT_CONFIG",
        default_value = "/etc/sluice/agent.toml",
        global = true
    )]
    config: PathBuf,
    /// HOST:PORT of a coordinator; may be repeated.
    #[arg(
        long = "coordinator",
        env = "SLUICE_AGENT_COORDINATORS",
        value_delimiter = ','
    )]
    coordinators: Vec<String>,
    /// This host's name.
    #[arg(long, env = "SLUICE_AGENT_NODE", global = true)]
    node: Option<String>,
    /// The pool to join.
    #[arg(long, env = "SLUICE_AGENT_POOL", global = true)]
    pool: Option<String>,
    /// Where the agent keeps its state.
    #[arg(long, env = "SLUICE_AGENT_STATE_DIR", global = true)]
    state_dir: Option<PathBuf>,
    /// Where the supervisor listens.
    #[arg(long, env = "SLUICE_AGENT_SUPERVISOR_SOCKET")]
    supervisor_socket: Option<PathBuf>,
    /// NVML's library, in place of the loader's choice.
    #[arg(long, env = "SLUICE_AGENT_NVML_LIBRARY", global = true)]
    nvml_library: Option<PathBuf>,
    /// How long the GPUs of a step may take to come free once nothing of it is left.
    #[arg(
        long,
        env = "SLUICE_AGENT_GPU_RELEASE_TIMEOUT",
        value_name = "DURATION"
    )]
    gpu_release_timeout: Option<String>,
    /// How long moving what a step holds on GPUs may take before it is frozen, and bringing it back.
    #[arg(long, env = "SLUICE_AGENT_SUSPEND_LIMIT", value_name = "DURATION")]
    suspend_limit: Option<String>,
    /// How the log on stderr is written: text, json or auto, which is the journal's form under systemd and else text.
    #[arg(
        long,
        env = sluice_log::FORMAT_VARIABLE,
        value_name = "FORMAT",
        global = true
    )]
    log_format: Option<Format>,
    /// Read and check the config, print what it comes to, and exit: 1 where something is wrong with it.
    #[arg(long)]
    check_config: bool,
    /// Report what this file declares in place of what the host has: an inventory in JSON, for trials on one machine.
    /// Refused unless every coordinator is on this machine.
    #[arg(long, hide = true)]
    declared: Option<PathBuf>,
    /// Exit when standard input ends: whoever started this agent is gone.
    #[arg(long, hide = true)]
    exit_with_stdin: bool,
}

#[derive(Subcommand)]
enum Action {
    /// Print what this host would report, as JSON, and exit. Needs no coordinator.
    Detect,
    /// Print whether this host's supervisor answers, as JSON, and exit. The agent that runs here stays connected to it.
    Supervisor,
    /// Join a cluster with the line that `sluice token create` printed. The agent starts by itself after that.
    Join {
        /// The line; standard input where it is left out or `-`, so that no list of processes shows it.
        line: Option<String>,
        /// Also where this host has joined already: it is a new one then.
        #[arg(long)]
        anew: bool,
    },
    /// Forget which epoch of its coordinator this host has obeyed, where that number is wrong. The agent must be stopped,
    /// and no replaced coordinator of the cluster may still run: the host obeys the next one that speaks to it.
    ForgetEpoch,
}

/// The config says how the log is written, and the log says what is wrong with the config: so it is read first, and
/// judged second.
fn main() -> ExitCode {
    let args = Args::parse();
    let raw = read_config(&args);
    if args.check_config {
        return told(checked(raw, args));
    }
    let log = match start_log(&args, raw.as_ref().ok()) {
        Ok(log) => log,
        Err(error) => return told(Err(error.into())),
    };
    let outcome = match args.command {
        Some(Action::Detect) => print_detection(raw, &args),
        Some(Action::Supervisor) => print_supervisor(raw, &args),
        Some(Action::Join { ref line, anew }) => {
            let line = line.clone();
            // Somebody sits there and reads it.
            return told(join_by_hand(raw, args, line.as_deref(), anew));
        }
        Some(Action::ForgetEpoch) => return told(forget_epoch(raw, args)),
        None => run(raw, args, log),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The whole chain, once, on one line.
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start_log(args: &Args, raw: Option<&RawConfig>) -> Result<Log, LogError> {
    let configured = raw.and_then(RawConfig::log_format);
    let format = args.log_format.or(configured).unwrap_or_default();
    let filter = Filter::asked(raw.and_then(RawConfig::log_filter))?;
    sluice_log::start(format, &filter)
}

fn checked(raw: Result<RawConfig, ConfigError>, args: Args) -> anyhow::Result<()> {
    let path = args.config.display().to_string();
    let config = raw?.check(overrides(args)).context(path)?;
    write!(std::io::stdout(), "{config}")?;
    Ok(())
}

fn told(outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _nobody_reads_it = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// For detection a config that is not there does not matter: it works on a host that joined nothing.
fn read_config(args: &Args) -> Result<RawConfig, ConfigError> {
    if args.command.is_some() && !args.config.exists() {
        return Ok(RawConfig::default());
    }
    RawConfig::read(&args.config)
}

fn print_detection(raw: Result<RawConfig, ConfigError>, args: &Args) -> anyhow::Result<()> {
    let (dir, library, reserve) = config::for_detection(raw?)?;
    let library = args.nvml_library.clone().or(library);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    let (inventory, readings) = runtime.block_on(async {
        let mut host = detect::Host::new(dir, library, reserve);
        detect::once(&mut host).await
    });
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, &HostView::of(&inventory, Some(&readings)))?;
    writeln!(out)?;
    Ok(())
}

fn print_supervisor(raw: Result<RawConfig, ConfigError>, args: &Args) -> anyhow::Result<()> {
    let socket = config::supervisor_socket(raw?, args.supervisor_socket.clone());
    let probed = on_a_runtime()?.block_on(supervisor::probe(&socket));
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, &probed)?;
    writeln!(out)?;
    Ok(())
}

fn run(raw: Result<RawConfig, ConfigError>, args: Args, log: Log) -> anyhow::Result<()> {
    let exit_with_stdin = args.exit_with_stdin;
    let declared_in = args.declared.clone();
    let file = args.config.clone();
    let raw = raw?;
    let overrides = overrides(args);
    join_by_config(&raw, &overrides)?;
    let config = raw.check(overrides.clone())?;
    let reload = Reload {
        file,
        overrides,
        log,
    };
    let declared = declared_in
        .map(|file| read_declared(&file, &config))
        .transpose()?;
    let _lock = lock(&config.state_dir)?;
    // Two threads: one may be deep in TLS while the other keeps the heart beating.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    // Of the highest level, so that the span is there for whatever the filter lets through.
    let span = tracing::error_span!("agent", node = %config.node);
    let serving = serve(config, reload, declared, exit_with_stdin);
    let outcome = runtime.block_on(serving.instrument(span));
    // A read of a log on a stalled disk must not keep the process.
    runtime.shutdown_background();
    outcome
}

fn overrides(args: Args) -> Overrides {
    Overrides {
        coordinators: args.coordinators,
        node: args.node,
        pool: args.pool,
        state_dir: args.state_dir,
        supervisor_socket: args.supervisor_socket,
        nvml_library: args.nvml_library,
        gpu_release_timeout: args.gpu_release_timeout,
        suspend_limit: args.suspend_limit,
        log_format: args.log_format,
    }
}

fn join_by_hand(
    raw: Result<RawConfig, ConfigError>,
    args: Args,
    line: Option<&str>,
    anew: bool,
) -> anyhow::Result<()> {
    let (applicant, _) = raw?.applicant(&overrides(args))?;
    let line = match line.filter(|line| *line != "-") {
        Some(line) => line.parse()?,
        None => join::from_stdin()?,
    };
    join::become_owner(&applicant.state_dir)?;
    let as_whom = on_a_runtime()?.block_on(join::join(&applicant, &line, anew))?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "joined as {as_whom}")?;
    writeln!(
        out,
        "what it was given is in {}; start the agent, or let it run on",
        applicant.state_dir.join("tls").display()
    )?;
    Ok(())
}

fn forget_epoch(raw: Result<RawConfig, ConfigError>, args: Args) -> anyhow::Result<()> {
    let (applicant, _) = raw?.applicant(&overrides(args))?;
    let dir = &applicant.state_dir;
    join::become_owner(dir)?;
    if !dir.exists() {
        bail!(
            "there is no {}: name the agent's directory with --state-dir or its config with --config",
            dir.display()
        );
    }
    let _lock = lock(dir)?;
    let mut out = std::io::stdout().lock();
    match EpochFile::new(dir).forget()? {
        Some(epoch) => writeln!(
            out,
            "epoch {} of cluster `{}` is forgotten; start the agent: it obeys the coordinator that it finds",
            epoch.counter, epoch.cluster
        )?,
        None => writeln!(
            out,
            "this host has obeyed no coordinator yet: nothing to forget"
        )?,
    }
    Ok(())
}

/// An agent that starts on a host which has not joined does so first, where the config names a file with a line.
fn join_by_config(raw: &RawConfig, overrides: &Overrides) -> anyhow::Result<()> {
    let (applicant, file) = raw.applicant(overrides)?;
    let has_joined = kept::Kept::new(&applicant.state_dir).is_there();
    match file.filter(|file| !has_joined && file.exists()) {
        Some(file) => Ok(on_a_runtime()?.block_on(join::join_by_file(&applicant, &file))?),
        None => Ok(()),
    }
}

fn on_a_runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

/// A host that only claims to have what it has must not take work from a real cluster.
fn read_declared(file: &Path, config: &Config) -> anyhow::Result<Inventory> {
    let away = config.coordinators.iter().find(|address| {
        let host = address
            .rsplit_once(':')
            .map_or(address.as_str(), |(host, _)| host);
        let ip = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
        !ip.map_or(host == "localhost", |ip| ip.is_loopback())
    });
    if let Some(away) = away {
        bail!(
            "--declared is for trials on one machine, and coordinator `{away}` is not on this one"
        );
    }
    let text = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} is no inventory", file.display()))
}

/// One agent for one state directory, for as long as the file is held.
fn lock(state_dir: &Path) -> anyhow::Result<File> {
    fs::create_dir_all(state_dir)
        .with_context(|| format!("cannot make {}", state_dir.display()))?;
    let path = state_dir.join("lock");
    let open = File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(&path);
    let mut file = open.with_context(|| format!("cannot open {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => {
            file.set_len(0)?;
            write!(file, "{}", std::process::id())?;
            Ok(file)
        }
        Err(fs::TryLockError::WouldBlock) => {
            let holder = fs::read_to_string(&path).unwrap_or_default();
            bail!(
                "{} is in use by another agent (pid {holder}): stop it, or give this one its own state_dir",
                state_dir.display()
            )
        }
        Err(fs::TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock {}", path.display()))
        }
    }
}

async fn serve(
    config: Config,
    reload: Reload,
    declared: Option<Inventory>,
    exit_with_stdin: bool,
) -> anyhow::Result<()> {
    let reload = reload.listen(config.clone())?;
    let door = Door::open(config.tls.clone())?;
    let mut host = detect::Host::new(
        config.state_dir.clone(),
        config.nvml_library.clone(),
        config.reserve.clone(),
    );
    let is_declared = declared.is_some();
    let inventory = match declared {
        Some(declared) => declared,
        None => detect::first(&mut host).await,
    };
    let identity = identify(&config, inventory.clone(), is_declared)?;
    let kept = StateFiles::new(&config.state_dir, identity.boot_id.clone());
    let settings = settings(&config, &inventory, is_declared);
    let core = Core::new(settings, kept.epoch.load()?).with_gpus(kept.gpus.load());
    let live = Arc::new(Live::default());
    let watcher = Watcher::start()
        .inspect_err(|error| warn!("output is followed by looking every second: {error}"))
        .ok();
    let attempts = attempts_dir(&config);
    let (events, inbox) = mpsc::channel(INBOX);
    let execs = Execs::new(attempts.clone(), events.clone());
    let logs = Logs::new(attempts.clone(), Arc::clone(&live), watcher, execs);
    let logs = Arc::new(logs);

    let (can_greet, may_dial) = watch::channel(false);
    let (looks, looks_wanted) = mpsc::channel(1);
    let checkpoints = checkpoint::watch(attempts, Arc::clone(&live), events.clone());
    let engine = Engine::new(core, identity, kept, looks, live, can_greet);
    if let Some(seen) = host.seen() {
        events.send(Event::Core(Input::Gpus(seen))).await?;
    }
    let link = Link {
        door,
        coordinators: config.coordinators,
        events: events.clone(),
        logs,
        challenges: engine.challenges(),
    };
    let alive = notify::tell_alive(events.clone());
    notify::tell_ready();
    tokio::select! {
        ended = engine.run(inbox) => ended.map_err(Into::into),
        () = supervisor::run(config.supervisor_socket, events.clone()) => bail!("the supervisor's task has ended"),
        () = reload.run(events.clone()) => bail!("the task that reads the config anew has ended"),
        () = look(host, inventory, is_declared, events, looks_wanted) => bail!("the detector's task has ended"),
        () = checkpoints => bail!("the task that looks for checkpoints has ended"),
        () = link.run(may_dial) => bail!("the link's task has ended"),
        why = stop_asked(exit_with_stdin) => {
            info!("{}: the agent stops, its steps run on", why?);
            notify::tell_stopping();
            Ok(())
        }
        never = alive => match never {},
    }
}

/// Where the supervisor has the directories of attempts.
fn attempts_dir(config: &Config) -> PathBuf {
    let beside = config.supervisor_socket.parent();
    beside.unwrap_or(Path::new("/")).join("attempts")
}

fn settings(config: &Config, inventory: &Inventory, is_declared: bool) -> agent_core::Settings {
    let topology = detect::topology::read(Path::new("/"), config.reserve.cpus, &inventory.gpus);
    agent_core::Settings {
        node: config.node.clone(),
        path: config.path.clone(),
        gpu_release_timeout: config.gpu_release_timeout,
        respect_foreign: config.respect_foreign,
        gpus_are_declared: is_declared,
        suspend_limit: config.suspend_limit,
        topology,
        attempts_dir: attempts_dir(config).display().to_string(),
    }
}

async fn look(
    host: detect::Host,
    inventory: Inventory,
    is_declared: bool,
    events: mpsc::Sender<Event>,
    wanted: mpsc::Receiver<()>,
) {
    if is_declared {
        detect::answer_for_declared(inventory, events, wanted).await;
    } else {
        detect::watch(host, inventory, events, wanted).await;
    }
}

fn identify(
    config: &Config,
    inventory: Inventory,
    is_declared: bool,
) -> anyhow::Result<engine::Identity> {
    let path = "/proc/sys/kernel/random/boot_id";
    let boot_id = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    info!(
        pool = %config.pool, cpus = inventory.cpus, memory_bytes = inventory.memory_bytes,
        gpus = inventory.gpus.len(), "host detected"
    );
    inventory.notes.iter().for_each(|note| warn!("{note}"));
    Ok(engine::Identity {
        node: config.node.clone(),
        pool: config.pool.clone(),
        labels: config.labels.clone(),
        address: config.address.clone(),
        boot_id: BootId::new(boot_id.trim())?,
        state_dir: place(&config.state_dir)?,
        inventory,
        is_declared,
    })
}

/// The number of a directory, which a copy of it beside it does not have.
fn place(dir: &Path) -> anyhow::Result<String> {
    let found = fs::metadata(dir).with_context(|| format!("cannot look at {}", dir.display()))?;
    Ok(format!("{:x}-{:x}", found.dev(), found.ino()))
}

/// Ends when somebody wants this process to end: why.
async fn stop_asked(exit_with_stdin: bool) -> anyhow::Result<&'static str> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => Ok("SIGTERM"),
        _ = interrupt.recv() => Ok("SIGINT"),
        () = stdin_ends(exit_with_stdin) => Ok("whoever started it is gone"),
    }
}

/// A thread reads until the end, because tokio's own standard input would keep the runtime from stopping.
async fn stdin_ends(wanted: bool) {
    if !wanted {
        return std::future::pending().await;
    }
    let (ended, end) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(move || {
        // Whatever stdin says, and however it ends, it has ended.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        drop(ended);
    });
    let _ = end.await;
}
