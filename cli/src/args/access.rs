//! Arguments of `api-token`, `login` and `auth`.

use std::path::PathBuf;

use clap::Subcommand;

use super::context::context_name;

#[derive(Debug, clap::Args)]
pub(crate) struct ApiTokenArgs {
    #[command(subcommand)]
    pub(crate) command: ApiTokenCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ApiTokenCommand {
    /// Create a token and print its secret, which is never shown again.
    Create(ApiTokenCreateArgs),
    /// List tokens, without their secrets.
    List,
    /// Revoke tokens: calls with them are refused from then on.
    #[command(visible_alias = "revoke")]
    Delete {
        /// Names of the tokens.
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct ApiTokenCreateArgs {
    /// Name of the token.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Role of the token; may be given more than once.
    #[arg(long, value_name = "ROLE", required = true)]
    pub(crate) role: Vec<String>,
    /// In these pools alone; `train-*` is a pattern. May be given more than once.
    #[arg(long, value_name = "POOL")]
    pub(crate) pool: Vec<String>,
    /// For these subjects alone; `prod-*` is a pattern. May be given more than once.
    #[arg(long, value_name = "SUBJECT")]
    pub(crate) subject: Vec<String>,
    /// The user as whom the token submits: a host may run those steps as its own user of that name. An admin may name
    /// anybody, everybody else only themselves.
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// Lifetime, such as 30d; unlimited if absent.
    #[arg(long, value_name = "TIME")]
    pub(crate) ttl: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct LoginArgs {
    /// Address of the API, such as https://coord-1:7070.
    #[arg(value_name = "ADDRESS")]
    pub(crate) address: String,
    /// Name of the context; `default` if absent.
    #[arg(long, value_name = "NAME", value_parser = context_name)]
    pub(crate) name: Option<String>,
    /// File with the authority of its certificate, for an https address.
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// File with the token to present; `-` is stdin.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// File with the client certificate to present.
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// The key of that certificate.
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// Default subject of submitted steps.
    #[arg(long, value_name = "SUBJECT")]
    pub(crate) subject: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AuthArgs {
    #[command(subcommand)]
    pub(crate) command: AuthCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuthCommand {
    /// Show your identity to the coordinator, and your grants.
    Whoami,
    /// Ask whether you may do something. Exits with 1 if not.
    CanI {
        /// Verb, such as create.
        #[arg(value_name = "VERB")]
        verb: String,
        /// Resource, such as steps.
        #[arg(value_name = "RESOURCE")]
        resource: String,
        /// In this pool; in all of them if absent.
        #[arg(long, value_name = "POOL")]
        pool: Option<String>,
        /// Of this subject; of all of them if absent, but `create steps` asks about the one that `run` submits for.
        #[arg(long, value_name = "SUBJECT")]
        subject: Option<String>,
    },
}
