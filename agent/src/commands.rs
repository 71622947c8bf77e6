//! The subcommands of the agent: each prints its result and exits.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail};
use sluice_common::api::HostView;

use crate::args::Args;
use crate::config::{self, ConfigError, RawConfig};
use crate::epoch::EpochFile;
use crate::serve::lock;
use crate::{detect, determined, join, supervisor};

pub(crate) fn checked(raw: Result<RawConfig, ConfigError>, args: Args) -> anyhow::Result<()> {
    let path = args.config.display().to_string();
    let config = raw?.check(args.overrides()).context(path)?;
    write!(std::io::stdout(), "{config}")?;
    Ok(())
}

pub(crate) fn print_detection(
    raw: Result<RawConfig, ConfigError>,
    args: &Args,
) -> anyhow::Result<()> {
    let (dir, library, reserve) = config::for_detection(raw?)?;
    let library = args.nvml_library.clone().or(library);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    let (inventory, readings) = runtime.block_on(async {
        let mut host = detect::HostDetector::new(dir, library, reserve);
        detect::once(&mut host).await
    });
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, &HostView::of(&inventory, Some(&readings)))?;
    writeln!(out)?;
    Ok(())
}

pub(crate) fn print_supervisor(
    raw: Result<RawConfig, ConfigError>,
    args: &Args,
) -> anyhow::Result<()> {
    let socket = config::supervisor_socket(raw?, args.supervisor_socket.clone());
    let probed = on_a_runtime()?.block_on(supervisor::probe(&socket));
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, &probed)?;
    writeln!(out)?;
    Ok(())
}

pub(crate) fn join_by_hand(
    raw: Result<RawConfig, ConfigError>,
    args: Args,
    line: Option<&str>,
    from: Option<&Path>,
    anew: bool,
) -> anyhow::Result<()> {
    let mut overrides = args.overrides();
    if let Some(path) = from {
        let agent = determined::read(path)?;
        for note in &agent.notes {
            writeln!(std::io::stderr(), "note: {}: {note}", path.display())?;
        }
        overrides.node = overrides.node.or(agent.node);
        overrides.pool = overrides.pool.or(agent.pool);
    }
    let (applicant, _) = raw?.applicant(&overrides)?;
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
        "its certificate is in {}; start the agent if it does not run",
        applicant.state_dir.join("tls").display()
    )?;
    Ok(())
}

pub(crate) fn forget_epoch(raw: Result<RawConfig, ConfigError>, args: Args) -> anyhow::Result<()> {
    let (applicant, _) = raw?.applicant(&args.overrides())?;
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

pub(crate) fn on_a_runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}
