//! Arguments of `token` and `revoke`.

use clap::{Subcommand, ValueEnum};
use sluice_common::time::Span;

use super::step;

#[derive(Debug, clap::Args)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    pub(crate) action: TokenAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenAction {
    /// Create a token and print the line with which a host joins. It contains a secret and is shown this once.
    Create(TokenCreateArgs),
    /// List tokens. Their secrets are stored nowhere.
    #[command(alias = "ls")]
    List,
    /// Revoke tokens. Hosts that joined with them stay.
    Revoke {
        /// Ids of the tokens, as `list` shows them.
        #[arg(value_name = "TOKEN", value_parser = token_id, required = true)]
        tokens: Vec<String>,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct TokenCreateArgs {
    /// The pool of hosts that join with it; without it the one that each host's config names, or else `default`.
    #[arg(long, value_name = "POOL")]
    pub(crate) pool: Option<String>,
    /// Lifetime of the token.
    #[arg(long, value_name = "DURATION", value_parser = step::span, default_value = "1h")]
    pub(crate) ttl: Span,
    /// Number of hosts that it admits.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) uses: u32,
    /// The only node that it admits. It may be an existing one, whose present host is then shut out.
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
    /// Labels of the nodes, KEY=VALUE; may be given more than once.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = key_value)]
    pub(crate) labels: Vec<(String, String)>,
    /// Addresses of the coordinator for the hosts, HOST:PORT, instead of those in its config; may be given more than
    /// once.
    #[arg(long = "address", value_name = "HOST:PORT")]
    pub(crate) addresses: Vec<String>,
}

/// Kinds that can be revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RevokeKind {
    /// The access of hosts.
    #[value(aliases = ["nodes", "no"])]
    Node,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RevokeArgs {
    /// Kind of the thing.
    #[arg(value_enum, value_name = "KIND")]
    pub(crate) kind: RevokeKind,
    /// Names of the tokens.
    #[arg(value_name = "NAME", value_parser = super::admin::node_name, required = true)]
    pub(crate) names: Vec<String>,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text
        .split_once('=')
        .ok_or_else(|| "write KEY=VALUE".to_owned())?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Parses a token's id, or `token/ID` as `-o name` prints it.
fn token_id(text: &str) -> Result<String, String> {
    Ok(text.strip_prefix("token/").unwrap_or(text).to_owned())
}
