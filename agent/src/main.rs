//! The binary `sluice-agent`: reports the host's inventory to the coordinator, passes its orders to the
//! supervisor, and serves output. Never runs as root: the supervisor does what needs more permissions.

mod args;
mod checkpoint;
mod clock;
mod commands;
mod config;
mod credentials_dir;
mod detect;
mod determined;
mod durable_file;
mod endpoint_files;
mod engine;
mod epoch;
mod event;
mod execs;
#[cfg(test)]
mod fuzz;
mod gpu_file;
mod gpu_usage;
mod input_fetch;
mod inputs;
mod join;
mod kept;
mod link;
mod log_dedup;
mod logs;
mod metrics;
mod notify;
mod ports;
mod probes;
mod reload;
mod renewal;
mod serve;
mod state_files;
mod supervisor;
mod usage;
mod warrants;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Parser;
use sluice_common::inventory::Inventory;
use sluice_log::{Filter, Log, LogError};
use tracing::Instrument;

use crate::args::{Args, Command};
use crate::commands::on_a_runtime;
use crate::config::{Config, ConfigError, Overrides, RawConfig};
use crate::reload::Reload;
use crate::serve::{lock, serve};

/// The config determines the log's format, and errors in the config are logged: so the file is parsed first,
/// and checked after the log is set up.
fn main() -> ExitCode {
    let args = Args::parse();
    let raw = read_config(&args);
    if args.check_config {
        return told(commands::checked(raw, args));
    }
    let log = match start_log(&args, raw.as_ref().ok()) {
        Ok(log) => log,
        Err(error) => return told(Err(error.into())),
    };
    let outcome = match args.command {
        Some(Command::Detect) => commands::print_detection(raw, &args),
        Some(Command::QueryDriver) => detect::query_driver(args.nvml_library),
        Some(Command::Supervisor) => commands::print_supervisor(raw, &args),
        Some(Command::Join {
            ref line,
            ref from,
            anew,
        }) => {
            let (line, from) = (line.clone(), from.clone());
            // Prints the result for a person at a terminal.
            let from = from.as_deref();
            return told(commands::join_by_hand(
                raw,
                args,
                line.as_deref(),
                from,
                anew,
            ));
        }
        Some(Command::ForgetEpoch) => return told(commands::forget_epoch(raw, args)),
        None => run(raw, args, log),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The whole error chain on one line.
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start_log(args: &Args, raw: Option<&RawConfig>) -> Result<Log, LogError> {
    let configured = raw.and_then(RawConfig::log_format);
    let format = args.log_format.or(configured).unwrap_or_default();
    let filter = Filter::from_env_or(raw.and_then(RawConfig::log_filter))?;
    sluice_log::start(format, &filter)
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

/// Detection works without a config, on a host that has not joined.
fn read_config(args: &Args) -> Result<RawConfig, ConfigError> {
    if args.command.is_some() && !args.config.exists() {
        return Ok(RawConfig::default());
    }
    RawConfig::read(&args.config)
}

fn run(raw: Result<RawConfig, ConfigError>, args: Args, log: Log) -> anyhow::Result<()> {
    let exit_with_stdin = args.exit_with_stdin;
    let declared_in = args.declared.clone();
    let file = args.config.clone();
    let raw = raw?;
    let overrides = args.overrides();
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
    // Two threads: one may be busy with TLS while the other sends heartbeats.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    // Error level, so that the span exists under every filter.
    let span = tracing::error_span!("agent", node = %config.node);
    let serving = serve(config, reload, declared, exit_with_stdin);
    let outcome = runtime.block_on(serving.instrument(span));
    // A read on a stalled disk must not delay the exit.
    runtime.shutdown_background();
    outcome
}

/// A host with a declared inventory must not take work from a real cluster.
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
    serde_json::from_slice(&text).with_context(|| format!("{} is not an inventory", file.display()))
}

/// Joins before the start if the host has not joined and the config names a file with a join line.
fn join_by_config(raw: &RawConfig, overrides: &Overrides) -> anyhow::Result<()> {
    let (applicant, file) = raw.applicant(overrides)?;
    let has_joined = credentials_dir::CredentialsDir::new(&applicant.state_dir).is_there();
    match file.filter(|file| !has_joined && file.exists()) {
        Some(file) => Ok(on_a_runtime()?.block_on(join::join_by_file(&applicant, &file))?),
        None => Ok(()),
    }
}
