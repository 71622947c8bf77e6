//! Kinds of things, as they are typed and spoken of.

use clap::ValueEnum;

/// What can be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GetKind {
    /// What was submitted.
    #[value(aliases = ["step", "st"])]
    Steps,
    #[value(aliases = ["node", "no"])]
    Nodes,
    /// The groups of hosts.
    #[value(aliases = ["pool", "po"])]
    Pools,
    /// Who may use a pool, and how.
    #[value(aliases = ["policy", "pl"])]
    Policies,
    /// The kinds of hardware in a pool.
    #[value(aliases = ["platform", "pf"])]
    Platforms,
    /// What pools lay under steps.
    #[value(aliases = ["template", "tp"])]
    Templates,
    /// Where steps go that name no pool.
    Cluster,
    /// Documents of assertions over what is submitted.
    #[value(aliases = ["validation", "vl"])]
    Validations,
    /// What somebody may do.
    #[value(alias = "role")]
    Roles,
    /// Who has which roles.
    #[value(alias = "binding")]
    Bindings,
    /// Tokens by which programs call.
    #[value(alias = "api-token")]
    ApiTokens,
    /// By which hosts join.
    #[value(aliases = ["token"])]
    Tokens,
    /// What happened, oldest first.
    #[value(aliases = ["event", "ev"])]
    Events,
}

impl GetKind {
    /// As it is spoken of.
    pub(crate) fn plural(self) -> &'static str {
        self.names()[0]
    }

    /// Every word for it, as they stand before the `/` of a full name.
    pub(crate) fn names(self) -> &'static [&'static str] {
        match self {
            GetKind::Steps => &["steps", "step", "st"],
            GetKind::Nodes => &["nodes", "node", "no"],
            GetKind::Pools => &["pools", "pool", "po"],
            GetKind::Policies => &["policies", "policy", "pl"],
            GetKind::Platforms => &["platforms", "platform", "pf"],
            GetKind::Templates => &["templates", "template", "tp"],
            GetKind::Cluster => &["cluster"],
            GetKind::Validations => &["validations", "validation", "vl"],
            GetKind::Roles => &["roles", "role"],
            GetKind::Bindings => &["bindings", "binding"],
            GetKind::ApiTokens => &["api-tokens", "api-token"],
            GetKind::Tokens => &["tokens", "token"],
            GetKind::Events => &["events", "event", "ev"],
        }
    }
}
