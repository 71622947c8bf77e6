//! Arguments of `sluice scale` and `sluice rollout`.

use std::time::Duration;

use clap::{Subcommand, ValueEnum};

use super::values::duration;

/// Kinds that can be scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScaleKind {
    /// A service, by its name.
    #[value(aliases = ["services", "svc"])]
    Service,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ScaleArgs {
    /// Kind of the thing.
    #[arg(value_enum, value_name = "KIND")]
    pub(crate) kind: ScaleKind,
    /// Name of the service.
    #[arg(value_name = "NAME", value_parser = service_name)]
    pub(crate) name: String,
    /// Number of replicas.
    #[arg(value_name = "N")]
    pub(crate) replicas: u64,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RolloutArgs {
    #[command(subcommand)]
    pub(crate) action: RolloutAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RolloutAction {
    /// Wait until all replicas of a service are of its latest version and ready, and say why if they are not.
    Status(RolloutStatusArgs),
    /// Go back to an earlier version of a service.
    Undo(RollbackArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct RolloutStatusArgs {
    /// Name of the service.
    #[arg(value_name = "NAME", value_parser = service_name)]
    pub(crate) name: String,
    /// Say how far it is, without waiting.
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Give up, with exit code 75, after this time.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RollbackArgs {
    /// Name of the service.
    #[arg(value_name = "NAME", value_parser = service_name)]
    pub(crate) name: String,
    /// The version to go back to; without it, the last one that differs from the present one.
    #[arg(long, value_name = "VERSION")]
    pub(crate) to: Option<u32>,
}

/// Parses a service's name, or `service/NAME` as `-o name` prints it.
fn service_name(text: &str) -> Result<String, String> {
    let kinds = ["service/", "services/", "svc/"];
    let name = kinds.iter().find_map(|kind| text.strip_prefix(kind));
    Ok(name.unwrap_or(text).to_owned())
}
