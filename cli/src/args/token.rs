//! What admins type of the tokens by which hosts join.

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
    /// Make a token and print the line that a host joins by. It holds a secret and is shown this once.
    Create(TokenCreateArgs),
    /// List tokens. Their secrets are kept nowhere.
    #[command(alias = "ls")]
    List,
    /// Take tokens back. Hosts that they have let in stay.
    Revoke {
        /// Which, by the id that `list` shows.
        #[arg(value_name = "TOKEN", value_parser = token_id, required = true)]
        tokens: Vec<String>,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct TokenCreateArgs {
    /// The pool that hosts join by it; without it the one that each host's config names, or else `default`.
    #[arg(long, value_name = "POOL")]
    pub(crate) pool: Option<String>,
    /// For how long it lets hosts in.
    #[arg(long, value_name = "DURATION", value_parser = step::span, default_value = "1h")]
    pub(crate) ttl: Span,
    /// How many hosts it lets in.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) uses: u32,
    /// The only node that it lets in. It may be one that is there already: the host that had the name is out then.
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
    /// What the nodes are labelled with, KEY=VALUE; may be given more than once.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = key_value)]
    pub(crate) labels: Vec<(String, String)>,
    /// Where hosts reach the coordinator, HOST:PORT, in place of what its config says; may be given more than once.
    #[arg(long = "address", value_name = "HOST:PORT")]
    pub(crate) addresses: Vec<String>,
}

/// What can be revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RevokeKind {
    /// The access of hosts.
    #[value(aliases = ["nodes", "no"])]
    Node,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RevokeArgs {
    /// What kind of thing it is.
    #[arg(value_enum, value_name = "KIND")]
    pub(crate) kind: RevokeKind,
    #[arg(value_name = "NAME", value_parser = super::admin::node_name, required = true)]
    pub(crate) names: Vec<String>,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text
        .split_once('=')
        .ok_or_else(|| "write KEY=VALUE".to_owned())?;
    Ok((key.to_owned(), value.to_owned()))
}

/// A token by its id; `token/ID`, as `-o name` prints it, is the same.
fn token_id(text: &str) -> Result<String, String> {
    Ok(text.strip_prefix("token/").unwrap_or(text).to_owned())
}
