//! Runs the agent: its tasks, the channels between them, and what ends them.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_core::{Core, Input};
use anyhow::{Context, bail};
use sluice_common::id::BootId;
use sluice_common::inventory::Inventory;
use tokio::sync::{mpsc, watch};
use tracing::{info, warn};

use crate::config::Config;
use crate::engine::{self, Engine, EngineSignals, INBOX, PortsAndProbes};
use crate::event::Event;
use crate::execs::ExecServer;
use crate::input_fetch::{self, InputReceiver};
use crate::link::Link;
use crate::logs::{FileWatcher, Logs, WritingAttempts};
use crate::metrics::MetricReader;
use crate::ports::{PortSearch, warn_of_overlap};
use crate::probes::ProbeRunner;
use crate::reload::Reload;
use crate::renewal::CertifiedDialer;
use crate::state_files::StateFiles;
use crate::{checkpoint, detect, notify, supervisor};

/// Locks a state directory for one agent, as long as the file is open.
pub(crate) fn lock(state_dir: &Path) -> anyhow::Result<File> {
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

pub(crate) async fn serve(
    config: Config,
    reload: Reload,
    declared: Option<Inventory>,
    exit_with_stdin: bool,
) -> anyhow::Result<()> {
    let reload = reload.listen(config.clone())?;
    let dialer_source = CertifiedDialer::open(config.tls.clone())?;
    let mut host = detect::HostDetector::new(
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
    let core = Core::new(settings, kept.epoch.load()?)
        .with_gpus(kept.gpus.load())
        .with_endpoints(kept.endpoints.load());
    let live = Arc::new(WritingAttempts::default());
    let watcher = FileWatcher::start()
        .inspect_err(|error| warn!("output cannot be watched, so it is read every second: {error}"))
        .ok();
    let attempts = attempts_dir(&config);
    let (events, inbox) = mpsc::channel(INBOX);
    let execs = ExecServer::new(attempts.clone(), events.clone(), Arc::clone(&live))
        .with_address(config.address.clone());
    let logs = Logs::new(attempts.clone(), Arc::clone(&live), watcher, execs);
    let logs = Arc::new(logs);

    let (can_greet, may_dial) = watch::channel(false);
    let (looks, looks_wanted) = mpsc::channel(1);
    let checkpoints = checkpoint::watch(attempts.clone(), Arc::clone(&live), events.clone());
    let (accepted, links) = watch::channel(None);
    let dir = input_fetch::directory(&config.state_dir);
    let inputs = InputReceiver::new(dir, events.downgrade(), links);
    let probes = PortsAndProbes {
        ports: PortSearch::new(config.ports.clone()),
        probe_runner: ProbeRunner::new(attempts, Arc::clone(&live), events.downgrade()),
        metric_reader: MetricReader::new(events.downgrade()),
    };
    let signals = EngineSignals { looks, can_greet };
    let engine = Engine::new(core, identity, kept, live, signals, inputs, probes);
    if let Some(seen) = host.seen() {
        events.send(Event::Core(Input::Gpus(seen))).await?;
    }
    if !is_declared {
        events.send(Event::Core(host.conditions())).await?;
    }
    let link = Link {
        dialer_source,
        coordinators: config.coordinators,
        events: events.clone(),
        logs,
        challenges: engine.challenges(),
        accepted,
    };
    let alive = notify::notify_alive(events.clone());
    notify::notify_ready();
    tokio::select! {
        ended = engine.run(inbox) => ended.map_err(Into::into),
        () = supervisor::run(config.supervisor_socket, events.clone()) => bail!("the supervisor's task has ended"),
        () = reload.run(events.clone()) => bail!("the task that reloads the config has ended"),
        () = look(host, inventory, is_declared, events, looks_wanted) => bail!("the detector's task has ended"),
        () = checkpoints => bail!("the task that looks for checkpoints has ended"),
        () = link.run(may_dial) => bail!("the link's task has ended"),
        why = stop_asked(exit_with_stdin) => {
            info!("{}: the agent stops, its steps run on", why?);
            notify::notify_stopping();
            Ok(())
        }
        never = alive => match never {},
    }
}

/// The supervisor's directory of attempts' directories.
fn attempts_dir(config: &Config) -> PathBuf {
    let beside = config.supervisor_socket.parent();
    beside.unwrap_or(Path::new("/")).join("attempts")
}

fn settings(config: &Config, inventory: &Inventory, is_declared: bool) -> agent_core::Settings {
    warn_of_overlap(&config.ports);
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
        inputs_dir: input_fetch::directory(&config.state_dir)
            .display()
            .to_string(),
        ports: config.ports.clone(),
    }
}

async fn look(
    host: detect::HostDetector,
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
) -> anyhow::Result<engine::HostIdentity> {
    let path = "/proc/sys/kernel/random/boot_id";
    let boot_id = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    info!(
        pool = %config.pool, cpus = inventory.cpus, memory_bytes = inventory.memory_bytes,
        gpus = inventory.gpus.len(), "host detected"
    );
    inventory.notes.iter().for_each(|note| warn!("{note}"));
    Ok(engine::HostIdentity {
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

/// The inode number of a directory, which differs from that of a copy.
fn place(dir: &Path) -> anyhow::Result<String> {
    let found = fs::metadata(dir).with_context(|| format!("cannot look at {}", dir.display()))?;
    Ok(format!("{:x}-{:x}", found.dev(), found.ino()))
}

/// Waits for a reason to stop, and returns it.
async fn stop_asked(exit_with_stdin: bool) -> anyhow::Result<&'static str> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => Ok("SIGTERM"),
        _ = interrupt.recv() => Ok("SIGINT"),
        () = stdin_ends(exit_with_stdin) => Ok("the program that started it has ended"),
    }
}

/// A thread reads until the end of stdin, because tokio's standard input would keep the runtime from
/// stopping.
async fn stdin_ends(wanted: bool) {
    if !wanted {
        return std::future::pending().await;
    }
    let (ended, end) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(move || {
        // An error counts as the end.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        drop(ended);
    });
    let _ = end.await;
}
