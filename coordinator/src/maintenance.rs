//! Commands on a data directory: back it up, restore it, repair its epoch, and check all of it.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use sluice_coordinator::backup::{control, restore};
use sluice_coordinator::{repair, run};

use crate::DataArgs;

#[derive(Subcommand)]
pub(crate) enum MaintenanceCommand {
    /// Write all that the coordinator knows into one file, whether it runs or not: its store, and its keys.
    Backup(BackupArgs),
    /// Make a data directory of a backup. The coordinator that starts there recovers: it learns from its hosts what they run.
    Restore(RestoreArgs),
    /// Set the epoch of a data directory in which no coordinator runs, after a backup into it: where the coordinator refuses to
    /// start with the one that is there, or where store and warrants.key were lost and hosts have obeyed a later one.
    RepairEpoch(RepairArgs),
    /// Check every record of a data directory or a backup, and print a summary.
    Check(CheckArgs),
}

#[derive(Args)]
pub(crate) struct BackupArgs {
    /// The file, in place of what is there; for its owner alone.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    data: DataArgs,
    /// Leave out the keys: tls/ and the key of warrants. Without them hosts must join again.
    #[arg(long)]
    without_keys: bool,
}

#[derive(Args)]
pub(crate) struct RestoreArgs {
    /// The backup to restore.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    data: DataArgs,
    /// Move a store that is there aside, to before-restore-TIME in the data directory.
    #[arg(long)]
    force: bool,
}

#[derive(Args)]
pub(crate) struct RepairArgs {
    #[command(flatten)]
    data: DataArgs,
    /// The highest epoch that a host has obeyed, as the refusal names it: the coordinator goes above it.
    #[arg(long, value_name = "EPOCH")]
    above: Option<u64>,
}

#[derive(Args)]
pub(crate) struct CheckArgs {
    /// A data directory or a backup; the data directory of --data-dir without it.
    #[arg(value_name = "DIR|FILE")]
    place: Option<PathBuf>,
    #[command(flatten)]
    data: DataArgs,
}

pub(crate) fn run(operate: MaintenanceCommand) -> anyhow::Result<()> {
    match operate {
        MaintenanceCommand::Backup(args) => backup(&args),
        MaintenanceCommand::Restore(args) => restored(&args),
        MaintenanceCommand::RepairEpoch(args) => repaired(&args),
        MaintenanceCommand::Check(args) => check(&args),
    }
}

fn backup(args: &BackupArgs) -> anyhow::Result<()> {
    let keys = !args.without_keys;
    control::backup(&args.data.data_dir, &args.file, keys)?;
    let summary = control::check(&args.file)?;
    let secrets = match summary.keys.is_empty() {
        false => {
            "it holds the cluster's keys and what steps are given in their environment: who has it has the cluster"
        }
        true => {
            "it holds what steps are given in their environment, and no keys: back up tls/ and warrants.key apart"
        }
    };
    let file = args.file.display();
    writeln!(
        io::stdout(),
        "{}\n{file} is for you alone: {secrets}",
        summary
    )?;
    Ok(())
}

fn restored(args: &RestoreArgs) -> anyhow::Result<()> {
    let dir = &args.data.data_dir;
    let done = restore::restore(&args.file, dir, args.force)?;
    let mut out = io::stdout();
    writeln!(out, "{}", done.summary)?;
    if let Some(aside) = &done.aside {
        writeln!(out, "what was there is in {}", aside.display())?;
    }
    if !done.has_keys {
        writeln!(
            out,
            "the backup has no keys: put tls/ and warrants.key of the cluster into {} before the coordinator starts; else all \
             hosts must join again, and what they run is stopped",
            dir.display()
        )?;
    }
    writeln!(
        out,
        "restored in {}: the coordinator recovers when it starts, and `sluice recovery` shows how far it is",
        dir.display()
    )?;
    Ok(())
}

fn repaired(args: &RepairArgs) -> anyhow::Result<()> {
    let done = repair::repair_epoch(&args.data.data_dir, args.above)?;
    writeln!(
        io::stdout(),
        "epoch {} is set to {}; what was there is in {}, which holds the cluster's keys\n\
         start the coordinator: a host that it refuses names the command that lets it in",
        done.from,
        done.to,
        done.backup.display()
    )?;
    Ok(())
}

fn check(args: &CheckArgs) -> anyhow::Result<()> {
    let place = args.place.as_ref().unwrap_or(&args.data.data_dir);
    let summary = control::check(place)?;
    run::check_epoch(&summary.state, place)?;
    writeln!(
        io::stdout(),
        "{}\n{}: every record is whole",
        summary,
        place.display()
    )?;
    Ok(())
}
