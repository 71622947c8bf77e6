//! What admins type: commands that change nodes.

use clap::ValueEnum;
use sluice_common::label::LabelChange;
use sluice_common::time::Span;
use std::time::Duration;

use super::{duration, step};

#[derive(Debug, clap::Args)]
pub(crate) struct CordonArgs {
    /// Which.
    #[arg(value_name = "NODE", value_parser = node_name, required = true)]
    pub(crate) nodes: Vec<String>,
    /// Why, for whoever wonders. Without it, what was said before stays.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct UncordonArgs {
    /// Which.
    #[arg(value_name = "NODE", value_parser = node_name, required = true)]
    pub(crate) nodes: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DrainArgs {
    /// Which.
    #[arg(value_name = "NODE", value_parser = node_name, required = true)]
    pub(crate) nodes: Vec<String>,
    /// Why, for whoever wonders. Without it, what was said before stays.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Stop after this time also the steps that are not preemptible. Without it they may end by themselves.
    #[arg(long, value_name = "DURATION", value_parser = step::span)]
    pub(crate) deadline: Option<Span>,
    /// Wait until nothing is left on them.
    #[arg(long)]
    pub(crate) wait: bool,
    /// Give up waiting, with exit code 75, after this time. The nodes go on emptying.
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "wait")]
    pub(crate) timeout: Option<Duration>,
}

/// What can be labelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Labelled {
    /// One host.
    #[value(aliases = ["nodes", "no"])]
    Node,
}

#[derive(Debug, clap::Args)]
pub(crate) struct LabelArgs {
    /// What kind of thing it is.
    #[arg(value_enum, value_name = "KIND")]
    pub(crate) kind: Labelled,
    /// Its name.
    #[arg(value_name = "NAME", value_parser = node_name)]
    pub(crate) name: String,
    /// KEY=VALUE to set a label, KEY- to take one away.
    #[arg(value_name = "KEY=VALUE|KEY-", required = true)]
    pub(crate) changes: Vec<LabelChange>,
    /// Change labels that have another value now.
    #[arg(long)]
    pub(crate) overwrite: bool,
}

/// What can be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Deletable {
    /// Hosts that are away.
    #[value(aliases = ["nodes", "no"])]
    Node,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DeleteArgs {
    /// What kind of thing it is.
    #[arg(value_enum, value_name = "KIND")]
    pub(crate) kind: Deletable,
    /// Which.
    #[arg(value_name = "NAME", value_parser = node_name, required = true)]
    pub(crate) names: Vec<String>,
    /// A node that is away and may still run steps is forgotten as soon as it is lost and they go on elsewhere.
    #[arg(long)]
    pub(crate) force: bool,
}

/// A node by its name; `node/NAME`, as `-o name` prints it, is the same.
fn node_name(text: &str) -> Result<String, String> {
    let name = ["node/", "nodes/", "no/"]
        .iter()
        .find_map(|kind| text.strip_prefix(kind));
    Ok(name.unwrap_or(text).to_owned())
}
