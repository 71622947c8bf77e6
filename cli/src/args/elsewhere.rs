//! Commands of other tools that work here as they are: ZenML's `resource-pool` and `resource-request`, OSMO's `config` and
//! `resource`, `create -f` of gpuctl and kubectl. One that only reads or deletes is another spelling of a command of
//! ours; `commands/elsewhere.rs` carries out the others.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use sluice_common::state::StepState;

/// Arguments of `create -f`.
#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    /// YAML with pools, policies and steps, of Sluice or of another tool; `-` is stdin.
    #[arg(short, long, value_name = "FILE", required = true, num_args = 1..)]
    pub(crate) file: Vec<PathBuf>,
    /// Subject of steps that name none.
    #[arg(short = 'n', long, alias = "subject", value_name = "SUBJECT")]
    pub(crate) namespace: Option<String>,
    /// Change nothing, and show what would change.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ResourcePoolArgs {
    #[command(subcommand)]
    pub(crate) command: ResourcePoolCommand,
}

/// Commands of ZenML for pools and the policies in them.
#[derive(Debug, Subcommand)]
pub(crate) enum ResourcePoolCommand {
    /// Create a pool.
    Create {
        #[arg(value_name = "POOL")]
        name: String,
        /// Count units without hosts, such as licences or GPUs elsewhere: only allocations get them.
        #[arg(long)]
        no_hosts: bool,
        #[command(flatten)]
        fields: PoolFields,
    },
    /// Change keys of the capacity of a pool, and its description; 0 removes a key. Other keys stay.
    Update {
        #[arg(value_name = "POOL")]
        name: String,
        #[command(flatten)]
        fields: PoolFields,
    },
    /// Show all details of a pool.
    Describe {
        #[arg(value_name = "POOL")]
        name: String,
    },
    /// List all pools.
    List,
    /// Delete a pool, with its policies.
    Delete {
        #[arg(value_name = "POOL")]
        name: String,
        /// Not needed: nothing is asked.
        #[arg(short, long)]
        yes: bool,
    },
    /// Let a subject use a pool. A component of ZenML is a subject here.
    AttachPolicy {
        #[command(flatten)]
        policy: PolicyName,
        #[command(flatten)]
        fields: PolicyFields,
    },
    /// Change the policy of a subject in a pool. What is not named stays.
    UpdatePolicy {
        #[command(flatten)]
        policy: PolicyName,
        #[command(flatten)]
        fields: PolicyFields,
    },
    /// Delete the policy of a subject in a pool.
    DetachPolicy {
        #[command(flatten)]
        policy: PolicyName,
    },
    /// List the policies of a pool, of a subject, or all.
    ListPolicies {
        #[arg(value_name = "POOL")]
        pool: Option<String>,
        /// Only policies of this subject.
        #[arg(long, value_name = "SUBJECT")]
        component: Option<String>,
    },
    /// List the steps and allocations of a pool.
    Requests {
        #[arg(value_name = "POOL")]
        pool: String,
        /// Those that hold resources, those that wait, or all.
        #[arg(long, value_enum, default_value_t = RequestView::All)]
        view: RequestView,
    },
}

/// Fields of a pool.
#[derive(Debug, clap::Args)]
pub(crate) struct PoolFields {
    /// Units by key, in JSON or YAML, with ZenML's keys or those of policies.
    #[arg(long, value_name = "JSON")]
    pub(crate) capacity: Option<String>,
    /// Free text for people.
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
}

/// A policy, by its pool and subject.
#[derive(Debug, clap::Args)]
pub(crate) struct PolicyName {
    #[arg(value_name = "POOL")]
    pub(crate) pool: String,
    #[arg(value_name = "SUBJECT")]
    pub(crate) subject: String,
    /// Not needed: a subject has no type.
    #[arg(short = 't', long, value_name = "TYPE")]
    pub(crate) component_type: Option<String>,
}

/// Fields of a policy.
#[derive(Debug, clap::Args)]
pub(crate) struct PolicyFields {
    /// Priority of the subject; higher goes first.
    #[arg(long, value_name = "N")]
    pub(crate) priority: Option<u64>,
    /// Reserved units by key, in JSON or YAML.
    #[arg(long, value_name = "JSON")]
    pub(crate) reserved: Option<String>,
    /// Limits by key, in JSON or YAML.
    #[arg(long, value_name = "JSON")]
    pub(crate) limit: Option<String>,
}

/// Requests that are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RequestView {
    Active,
    Queued,
    All,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ResourceRequestArgs {
    #[command(subcommand)]
    pub(crate) command: ResourceRequestCommand,
}

/// Commands of ZenML for resource requests: steps and allocations.
#[derive(Debug, Subcommand)]
pub(crate) enum ResourceRequestCommand {
    /// List steps and allocations.
    List,
    /// Show all details of one.
    Describe {
        #[arg(value_name = "STEP")]
        id: String,
    },
    /// End one: its resources come back when its last process has ended.
    Delete {
        #[arg(value_name = "STEP")]
        id: String,
        /// Not needed: nothing is asked.
        #[arg(short, long)]
        yes: bool,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
}

/// Commands of OSMO for its configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Apply a JSON file with pools, pod templates or resource validations.
    Update {
        /// Type of the configuration.
        #[arg(value_enum, value_name = "TYPE", ignore_case = true)]
        kind: ConfigKind,
        /// Name of the one that the file has; without it, a map by name.
        #[arg(value_name = "NAME")]
        name: Option<String>,
        /// The file; `-` is stdin.
        #[arg(short, long, value_name = "FILE", required = true)]
        file: PathBuf,
        /// Change nothing, and show what would change.
        #[arg(long)]
        dry_run: bool,
    },
}

/// Types of configurations that have a counterpart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum ConfigKind {
    Pool,
    PodTemplate,
    ResourceValidation,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ResourceArgs {
    #[command(subcommand)]
    pub(crate) command: ResourceCommand,
}

/// Commands of OSMO for nodes.
#[derive(Debug, Subcommand)]
pub(crate) enum ResourceCommand {
    /// List nodes, or a platform of a pool with its nodes.
    List {
        /// Only nodes of these pools.
        #[arg(short, long, value_name = "POOL", num_args = 1..)]
        pool: Vec<String>,
        /// This platform of the pool that is named, with its nodes.
        #[arg(long, value_name = "PLATFORM", requires = "pool")]
        platform: Option<String>,
        /// All pools, as without it.
        #[arg(short, long, conflicts_with = "pool")]
        all: bool,
    },
    /// Show all details of a node.
    Info {
        #[arg(value_name = "NODE")]
        node: String,
    },
}

fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).into()
}

impl ResourcePoolCommand {
    /// Returns our command for the same, if it only reads or deletes.
    pub(super) fn ours(&self) -> Option<Vec<String>> {
        Some(match self {
            Self::Create { .. }
            | Self::Update { .. }
            | Self::AttachPolicy { .. }
            | Self::UpdatePolicy { .. } => return None,
            Self::Describe { name } => words(["describe", "pool", name]),
            Self::List => words(["get", "pools"]),
            Self::Delete { name, .. } => words(["delete", "pool", name]),
            Self::DetachPolicy { policy } => {
                let name = format!("{}/{}", policy.pool, policy.subject);
                words(["delete", "policy", &name])
            }
            Self::ListPolicies { pool, component } => {
                let mut line = words(["get", "policies"]);
                line.extend(pool.iter().map(|pool| format!("--pool={pool}")));
                line.extend(component.iter().map(|it| format!("--subject={it}")));
                line
            }
            Self::Requests { pool, view } => {
                let mut line = words(["get", "steps"]);
                line.push(format!("--pool={pool}"));
                line.extend(view.states().map(|states| format!("--state={states}")));
                line
            }
        })
    }
}

impl RequestView {
    fn states(self) -> Option<String> {
        let is_active = |state: &StepState| !state.is_terminal() && *state != StepState::Queued;
        match self {
            RequestView::All => None,
            RequestView::Queued => Some(StepState::Queued.as_str().to_owned()),
            RequestView::Active => {
                let states = StepState::ALL.into_iter().filter(is_active);
                let states: Vec<&str> = states.map(StepState::as_str).collect();
                Some(states.join(","))
            }
        }
    }
}

impl ResourceRequestCommand {
    /// Returns our command for the same.
    pub(super) fn ours(&self) -> Vec<String> {
        match self {
            Self::List => words(["get", "steps"]),
            Self::Describe { id } => words(["describe", "step", id]),
            Self::Delete { id, .. } => words(["cancel", id]),
        }
    }
}

impl ResourceCommand {
    /// Returns our command for the same.
    pub(super) fn ours(&self) -> Vec<String> {
        match self {
            Self::Info { node } => words(["describe", "node", node]),
            Self::List { pool, platform, .. } => match (pool.as_slice(), platform) {
                ([], _) => words(["get", "nodes"]),
                ([pool], None) => words(["get", "nodes", "--pool", pool]),
                ([pool], Some(platform)) => {
                    words(["describe", "platform", &format!("{pool}/{platform}")])
                }
                // Its error says how a platform is named.
                (_, Some(platform)) => words(["describe", "platform", platform]),
                (pools, None) => {
                    let selector = format!("--selector=sluice/pool in ({})", pools.join(", "));
                    words(["get", "nodes", &selector])
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::CommandFactory;

    use crate::args::Args;

    fn read(line: &str) -> Result<Args, clap::Error> {
        let words = std::iter::once("sluice").chain(line.split(' '));
        Args::read(words.map(OsString::from).collect())
    }

    #[test]
    fn what_only_reads_or_deletes_is_another_spelling() {
        for (theirs, ours) in [
            ("resource-pool list", "get pools"),
            (
                "-o json resource-pool describe a",
                "describe pool a -o json",
            ),
            ("resource-pool delete a --yes", "delete pool a"),
            (
                "resource-pool detach-policy a b -t step_operator",
                "delete policy a/b",
            ),
            (
                "resource-pool list-policies a --component b",
                "get policies --pool a --subject b",
            ),
            (
                "resource-pool requests a --view queued",
                "get steps --pool a --state queued",
            ),
            ("resource-pool requests a", "get steps --pool a"),
            ("resource-request list", "get steps"),
            ("resource-request describe a", "describe step a"),
            ("resource-request delete a", "cancel a"),
            ("resource list", "get nodes"),
            ("resource list --all -o wide", "get nodes -o wide"),
            ("resource list -p a", "get nodes --pool a"),
            ("resource list -p a --platform b", "describe platform a/b"),
            ("resource info a", "describe node a"),
        ] {
            let [theirs, ours] = [theirs, ours].map(|line| format!("{:?}", read(line).unwrap()));
            assert_eq!(theirs, ours);
        }
        let several = format!("{:?}", read("resource list --pool a b").unwrap());
        assert!(several.contains("sluice/pool"), "{several}");
        assert!(read("resource list --platform b").is_err());
    }

    #[test]
    fn examples_of_commands_of_other_tools_parse() {
        let command = Args::command();
        let mut checked = 0;
        for name in [
            "create",
            "resource-pool",
            "resource-request",
            "config",
            "resource",
        ] {
            let help = command.find_subcommand(name).unwrap().get_after_help();
            let help = help.map(ToString::to_string).unwrap_or_default();
            for line in help
                .lines()
                .filter_map(|line| line.strip_prefix("  sluice "))
            {
                let mut words = vec![OsString::from("sluice")];
                // Quoted words have spaces.
                for (at, part) in line.split('\'').enumerate() {
                    match at % 2 {
                        0 => words.extend(part.split_whitespace().map(OsString::from)),
                        _ => words.push(part.into()),
                    }
                }
                Args::read(words).unwrap_or_else(|error| panic!("{line}: {error}"));
                checked += 1;
            }
        }
        assert!(checked > 12, "{checked}");
    }
}
