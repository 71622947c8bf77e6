//! Kinds of things as arguments and in messages.

use clap::ValueEnum;

/// Kinds that can be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GetKind {
    /// Steps that were submitted.
    #[value(aliases = ["step", "st"])]
    Steps,
    /// Steps without a program, which hold resources for somebody else.
    #[value(aliases = ["allocation", "al"])]
    Allocations,
    /// Steps that are kept running in a number of replicas.
    #[value(aliases = ["service", "svc"])]
    Services,
    /// Replicas of services that are ready, with their addresses.
    #[value(aliases = ["endpoint", "ep"])]
    Endpoints,
    /// Hosts that have an agent.
    #[value(aliases = ["node", "no"])]
    Nodes,
    /// The groups of hosts.
    #[value(aliases = ["pool", "po"])]
    Pools,
    /// Rights of subjects to use a pool.
    #[value(aliases = ["policy", "pl"])]
    Policies,
    /// The kinds of hardware in a pool.
    #[value(aliases = ["platform", "pf"])]
    Platforms,
    /// Defaults that pools apply to steps.
    #[value(aliases = ["template", "tp"])]
    Templates,
    /// Settings of the cluster, such as the pool of steps that name none.
    Cluster,
    /// Levels such as zone and rack, and their domains.
    Topology,
    /// Documents with assertions about submitted steps.
    #[value(aliases = ["validation", "vl"])]
    Validations,
    /// Sets of rights.
    #[value(alias = "role")]
    Roles,
    /// Roles of users and tokens.
    #[value(alias = "binding")]
    Bindings,
    /// Tokens for calls of the API.
    #[value(alias = "api-token")]
    ApiTokens,
    /// Tokens for hosts that join.
    #[value(aliases = ["token"])]
    Tokens,
    /// Labels of nodes, one a line.
    #[value(aliases = ["label"])]
    Labels,
    /// Events, oldest first.
    #[value(aliases = ["event", "ev"])]
    Events,
}

impl GetKind {
    /// Returns the plural for messages.
    pub(crate) fn plural(self) -> &'static str {
        self.names()[0]
    }

    /// Returns every name of it, as before the `/` of a full name.
    pub(crate) fn names(self) -> &'static [&'static str] {
        match self {
            GetKind::Steps => &["steps", "step", "st"],
            GetKind::Allocations => &["allocations", "allocation", "al"],
            GetKind::Services => &["services", "service", "svc"],
            GetKind::Endpoints => &["endpoints", "endpoint", "ep"],
            GetKind::Nodes => &["nodes", "node", "no"],
            GetKind::Pools => &["pools", "pool", "po"],
            GetKind::Policies => &["policies", "policy", "pl"],
            GetKind::Platforms => &["platforms", "platform", "pf"],
            GetKind::Templates => &["templates", "template", "tp"],
            GetKind::Cluster => &["cluster"],
            GetKind::Topology => &["topology"],
            GetKind::Validations => &["validations", "validation", "vl"],
            GetKind::Roles => &["roles", "role"],
            GetKind::Bindings => &["bindings", "binding"],
            GetKind::ApiTokens => &["api-tokens", "api-token"],
            GetKind::Tokens => &["tokens", "token"],
            GetKind::Labels => &["labels", "label"],
            GetKind::Events => &["events", "event", "ev"],
        }
    }
}
