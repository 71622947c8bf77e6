//! `sluice-agent`: tells the coordinator what this host has, runs what it is told to, and serves the output. Never
//! root: whatever needs more rights than this user has is the supervisor's.

mod args;
mod checkpoint;
mod clock;
mod commands;
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
mod serve;
mod state_files;
mod supervisor;
mod told;
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

use crate::args::{Action, Args};
use crate::commands::on_a_runtime;
use crate::config::{Config, ConfigError, Overrides, RawConfig};
use crate::reload::Reload;
use crate::serve::{lock, serve};

/// The config says how the log is written, and the log says what is wrong with the config: so it is read first, and
/// judged second.
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
        Some(Action::Detect) => commands::print_detection(raw, &args),
        Some(Action::Supervisor) => commands::print_supervisor(raw, &args),
        Some(Action::Join { ref line, anew }) => {
            let line = line.clone();
            // Somebody sits there and reads it.
            return told(commands::join_by_hand(raw, args, line.as_deref(), anew));
        }
        Some(Action::ForgetEpoch) => return told(commands::forget_epoch(raw, args)),
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

/// For detection a config that is not there does not matter: it works on a host that joined nothing.
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

/// An agent that starts on a host which has not joined does so first, where the config names a file with a line.
fn join_by_config(raw: &RawConfig, overrides: &Overrides) -> anyhow::Result<()> {
    let (applicant, file) = raw.applicant(overrides)?;
    let has_joined = kept::Kept::new(&applicant.state_dir).is_there();
    match file.filter(|file| !has_joined && file.exists()) {
        Some(file) => Ok(on_a_runtime()?.block_on(join::join_by_file(&applicant, &file))?),
        None => Ok(()),
    }
}
