//! What admins type: commands that change nodes.

use clap::ValueEnum;
use sluice_common::label::LabelChange;
use sluice_common::time::Span;
use std::path::PathBuf;
use std::time::Duration;

use super::step;
use super::values::duration;

#[derive(Debug, clap::Args)]
pub(crate) struct CordonArgs {
    #[arg(value_name = "NODE", value_parser = node_name, required = true)]
    pub(crate) nodes: Vec<String>,
    /// Why, for whoever wonders. Without it, what was said before stays.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Close only this GPU, by its index or UUID. A step that runs on it goes on.
    #[arg(long, value_name = "GPU")]
    pub(crate) gpu: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct UncordonArgs {
    #[arg(value_name = "NODE", value_parser = node_name, required = true)]
    pub(crate) nodes: Vec<String>,
    /// Open only this GPU, by its index or UUID. Without it closed GPUs stay closed. One that failed is looked at, and is
    /// granted again if it answers.
    #[arg(long, value_name = "GPU")]
    pub(crate) gpu: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DrainArgs {
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

#[derive(Debug, clap::Args)]
pub(crate) struct MoveArgs {
    /// What kind of thing it is.
    #[arg(value_enum, value_name = "KIND")]
    pub(crate) kind: LabelKind,
    #[arg(value_name = "NODE", value_parser = node_name, required = true)]
    pub(crate) nodes: Vec<String>,
    #[arg(long, value_name = "POOL")]
    pub(crate) pool: String,
    /// Why, for whoever wonders. Without it, what was said before stays.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Stop after this time also the steps that are not preemptible. Without it they may end by themselves.
    #[arg(long, value_name = "DURATION", value_parser = step::span)]
    pub(crate) deadline: Option<Span>,
    /// Wait until they are there.
    #[arg(long)]
    pub(crate) wait: bool,
    /// Give up waiting, with exit code 75, after this time. The nodes go on emptying, and move then.
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "wait")]
    pub(crate) timeout: Option<Duration>,
}

/// What can be labelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LabelKind {
    #[value(aliases = ["nodes", "no"])]
    Node,
}

#[derive(Debug, clap::Args)]
pub(crate) struct LabelArgs {
    /// What kind of thing it is.
    #[arg(value_enum, value_name = "KIND")]
    pub(crate) kind: LabelKind,
    #[arg(value_name = "NAME", value_parser = node_name)]
    pub(crate) name: String,
    /// KEY=VALUE to set a label, KEY- to take one away.
    #[arg(value_name = "KEY=VALUE|KEY-", required = true)]
    pub(crate) changes: Vec<LabelChange>,
    /// Change labels that have another value now.
    #[arg(long)]
    pub(crate) overwrite: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ApplyArgs {
    /// YAML with documents of kind pool and policy; `-` is stdin.
    #[arg(short, long, value_name = "FILE", required = true)]
    pub(crate) file: Vec<PathBuf>,
    /// Change nothing, and show what would change, whom others could preempt then, and which waiting steps would be
    /// rejected.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Make the change though somebody uses what it takes away. Nothing that runs is stopped by it.
    #[arg(long)]
    pub(crate) force: bool,
}

/// What can be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeleteKind {
    /// Hosts that are away.
    #[value(aliases = ["nodes", "no"])]
    Node,
    /// Pools without hosts, with their policies.
    #[value(aliases = ["pools", "po"])]
    Pool,
    /// Policies, by POOL/SUBJECT.
    #[value(aliases = ["policies", "pl"])]
    Policy,
    /// Documents of assertions that no pool names.
    #[value(aliases = ["validations", "vl"])]
    Validation,
    /// Platforms that pools declare, by POOL/PLATFORM.
    #[value(aliases = ["platforms", "pf"])]
    Platform,
    /// Templates that no pool names.
    #[value(aliases = ["templates", "tp"])]
    Template,
    /// Roles that nobody has.
    #[value(alias = "roles")]
    Role,
    #[value(alias = "bindings")]
    Binding,
    /// API tokens: nobody can call by them any more.
    #[value(alias = "api-tokens")]
    ApiToken,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DeleteArgs {
    /// What kind of thing it is.
    #[arg(value_enum, value_name = "KIND", required_unless_present = "file")]
    pub(crate) kind: Option<DeleteKind>,
    /// Which; of a policy POOL/SUBJECT, of a platform POOL/PLATFORM.
    #[arg(value_name = "NAME", value_parser = any_name, required_unless_present = "file")]
    pub(crate) names: Vec<String>,
    /// The pools, policies and templates of this YAML file, all of them or none; `-` is stdin.
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["kind", "names"])]
    pub(crate) file: Option<PathBuf>,
    /// Delete nothing, and show what it would mean. For pools and policies.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Of a node that is away and may still run steps: forget it as soon as it is lost and they go on elsewhere. Of
    /// pools and policies: delete them though steps use them; nothing that runs is stopped by it.
    #[arg(long)]
    pub(crate) force: bool,
}

/// A thing by its name; `KIND/NAME`, as `-o name` prints it, is the same.
fn any_name(text: &str) -> Result<String, String> {
    let kinds = [
        "pool/",
        "pools/",
        "po/",
        "policy/",
        "policies/",
        "pl/",
        "validation/",
        "validations/",
        "vl/",
        "platform/",
        "platforms/",
        "pf/",
        "template/",
        "templates/",
        "tp/",
        "role/",
        "binding/",
        "api-token/",
    ];
    match kinds.iter().find_map(|kind| text.strip_prefix(kind)) {
        Some(name) => Ok(name.to_owned()),
        None => node_name(text),
    }
}

/// A node by its name; `node/NAME`, as `-o name` prints it, is the same.
pub(super) fn node_name(text: &str) -> Result<String, String> {
    let name = ["node/", "nodes/", "no/"]
        .iter()
        .find_map(|kind| text.strip_prefix(kind));
    Ok(name.unwrap_or(text).to_owned())
}
