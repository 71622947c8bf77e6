//! Arguments of commands that change nodes and documents.

use clap::{Subcommand, ValueEnum};
use sluice_common::label::LabelChange;
use sluice_common::time::Span;
use std::path::PathBuf;
use std::time::Duration;

use super::selection::StepFilters;
use super::step;
use super::values::{duration, step_id};

#[derive(Debug, clap::Args)]
pub(crate) struct CordonArgs {
    /// Names of the nodes.
    #[arg(value_name = "NODE", value_parser = node_name, required = true)]
    pub(crate) nodes: Vec<String>,
    /// Reason, shown to users. Without it, an earlier reason stays.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Cordon only this GPU, by its index or UUID. A step that runs on it runs on.
    #[arg(long, value_name = "GPU")]
    pub(crate) gpu: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct UncordonArgs {
    /// Names of the nodes.
    #[arg(value_name = "NODE", value_parser = node_name, required = true)]
    pub(crate) nodes: Vec<String>,
    /// Uncordon only this GPU, by its index or UUID. Without it cordoned GPUs stay so. A failed GPU is examined, and
    /// granted again if it answers.
    #[arg(long, value_name = "GPU")]
    pub(crate) gpu: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DrainArgs {
    /// Names of the nodes.
    #[arg(value_name = "NODE", value_parser = node_name, required = true)]
    pub(crate) nodes: Vec<String>,
    /// Reason, shown to users. Without it, an earlier reason stays.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Stop non-preemptible steps too after this time. Without it they may end by themselves.
    #[arg(long, value_name = "DURATION", value_parser = step::span)]
    pub(crate) deadline: Option<Span>,
    /// Wait until the nodes are empty.
    #[arg(long)]
    pub(crate) wait: bool,
    /// Give up waiting, with exit code 75, after this time. The drain goes on.
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "wait")]
    pub(crate) timeout: Option<Duration>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct MoveArgs {
    #[command(subcommand)]
    pub(crate) kind: MoveKind,
}

/// Kinds that can be moved to another pool.
#[derive(Debug, Subcommand)]
pub(crate) enum MoveKind {
    /// Move nodes, after draining each.
    #[command(aliases = ["nodes", "no"])]
    Node(MoveNodeArgs),
    /// Move steps while they wait. Each keeps its place.
    #[command(alias = "steps")]
    Step(MoveStepArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct MoveStepArgs {
    /// Ids of the steps.
    #[arg(value_name = "STEP", value_parser = step_id, required = true)]
    pub(crate) steps: Vec<String>,
    /// Pool to move them to.
    #[arg(long, value_name = "POOL")]
    pub(crate) pool: String,
    /// Show what would come of it, and move nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct MoveNodeArgs {
    /// Names of the nodes.
    #[arg(value_name = "NODE", value_parser = node_name, required = true)]
    pub(crate) nodes: Vec<String>,
    /// Pool to move them to.
    #[arg(long, value_name = "POOL")]
    pub(crate) pool: String,
    /// Reason, shown to users. Without it, an earlier reason stays.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Stop non-preemptible steps too after this time. Without it they may end by themselves.
    #[arg(long, value_name = "DURATION", value_parser = step::span)]
    pub(crate) deadline: Option<Span>,
    /// Wait until the nodes have moved.
    #[arg(long)]
    pub(crate) wait: bool,
    /// Give up waiting, with exit code 75, after this time. The drain goes on, and the nodes move then.
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "wait")]
    pub(crate) timeout: Option<Duration>,
}

/// Kinds that can be labelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LabelKind {
    #[value(aliases = ["nodes", "no"])]
    Node,
}

#[derive(Debug, clap::Args)]
pub(crate) struct LabelArgs {
    /// Kind of the thing.
    #[arg(value_enum, value_name = "KIND")]
    pub(crate) kind: LabelKind,
    /// Name of the node.
    #[arg(value_name = "NAME", value_parser = node_name)]
    pub(crate) name: String,
    /// KEY=VALUE sets a label, KEY- removes it.
    #[arg(value_name = "KEY=VALUE|KEY-", required = true)]
    pub(crate) changes: Vec<LabelChange>,
    /// Change labels that have another value.
    #[arg(long)]
    pub(crate) overwrite: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ApplyArgs {
    /// YAML with documents, such as pools and policies; `-` is stdin.
    #[arg(short, long, value_name = "FILE", required = true)]
    pub(crate) file: Vec<PathBuf>,
    /// Change nothing; show what would change, who could then be preempted, and which queued steps would be rejected.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Apply the change although steps use what it takes away. No running step is stopped.
    #[arg(long)]
    pub(crate) force: bool,
}

/// Kinds that can be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeleteKind {
    /// Steps that have ended, by id, name or pattern, or by filters.
    #[value(aliases = ["steps"])]
    Step,
    /// Services, whose replicas are then drained and stopped.
    #[value(aliases = ["services", "svc"])]
    Service,
    /// Lost or disconnected hosts.
    #[value(aliases = ["nodes", "no"])]
    Node,
    /// Pools without hosts, with their policies.
    #[value(aliases = ["pools", "po"])]
    Pool,
    /// Policies, by POOL/SUBJECT.
    #[value(aliases = ["policies", "pl"])]
    Policy,
    /// Validations that no pool names.
    #[value(aliases = ["validations", "vl"])]
    Validation,
    /// Platforms that pools declare, by POOL/PLATFORM.
    #[value(aliases = ["platforms", "pf"])]
    Platform,
    /// Templates that no pool names.
    #[value(aliases = ["templates", "tp"])]
    Template,
    /// Roles that no binding names.
    #[value(alias = "roles")]
    Role,
    /// Bindings of members to roles.
    #[value(alias = "bindings")]
    Binding,
    /// API tokens, which are then refused.
    #[value(alias = "api-tokens")]
    ApiToken,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DeleteArgs {
    /// Kind of the thing.
    #[arg(value_enum, value_name = "KIND", required_unless_present = "file")]
    pub(crate) kind: Option<DeleteKind>,
    /// Names; of a policy POOL/SUBJECT, of a platform POOL/PLATFORM.
    #[arg(value_name = "NAME", value_parser = any_name, required_unless_present_any = ["file", StepFilters::GROUP], conflicts_with = "all")]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) filters: StepFilters,
    /// Do not ask, although patterns or filters may select many steps.
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// The pools, policies and templates of this YAML file, all of them or none; `-` is stdin.
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["kind", "names"])]
    pub(crate) file: Option<PathBuf>,
    /// Delete nothing, and show the effects. For pools, policies and steps.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Of a disconnected node that may still run steps: forget it as soon as it is lost and they are requeued. Of pools
    /// and policies: delete them although steps use them; no running step is stopped.
    #[arg(long)]
    pub(crate) force: bool,
}

/// Parses a name, or `KIND/NAME` as `-o name` prints it.
fn any_name(text: &str) -> Result<String, String> {
    let kinds = [
        "step/",
        "steps/",
        "service/",
        "services/",
        "svc/",
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

/// Parses a node's name, or `node/NAME` as `-o name` prints it.
pub(super) fn node_name(text: &str) -> Result<String, String> {
    let name = ["node/", "nodes/", "no/"]
        .iter()
        .find_map(|kind| text.strip_prefix(kind));
    Ok(name.unwrap_or(text).to_owned())
}
