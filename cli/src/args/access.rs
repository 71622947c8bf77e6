//! What was typed about who may do what.

use std::path::PathBuf;

use clap::Subcommand;

#[derive(Debug, clap::Args)]
pub(crate) struct ApiTokenArgs {
    #[command(subcommand)]
    pub(crate) command: ApiTokenCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ApiTokenCommand {
    /// Make one, and print its secret, which is never shown again.
    Create(ApiTokenCreateArgs),
    List,
    /// Revoke them: nobody can call by them any more.
    #[command(visible_alias = "revoke")]
    Delete {
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct ApiTokenCreateArgs {
    /// A name for it.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// What it may do; may be given more than once.
    #[arg(long, value_name = "ROLE", required = true)]
    pub(crate) role: Vec<String>,
    /// In these pools alone; `train-*` is a pattern. May be given more than once.
    #[arg(long, value_name = "POOL")]
    pub(crate) pool: Vec<String>,
    /// For these subjects alone; `prod-*` is a pattern. May be given more than once.
    #[arg(long, value_name = "SUBJECT")]
    pub(crate) subject: Vec<String>,
    /// The user who submits what is submitted with it: a host may run those steps as its own user of that name. An admin
    /// may name anybody, everybody else themselves.
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// After how long it is worth nothing, such as 30d; never where absent.
    #[arg(long, value_name = "TIME")]
    pub(crate) ttl: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct LoginArgs {
    /// Where the API is, such as https://coord-1:7070.
    #[arg(value_name = "ADDRESS")]
    pub(crate) address: String,
    /// The authority of its certificate, for an address of https.
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// The file with the token to present; `-` is stdin.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// The certificate to present.
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// The key of that certificate.
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// On whose behalf steps are submitted where nothing else is said.
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
    /// Show whom the coordinator takes you for, and what was given to you.
    Whoami,
    /// Ask whether you may do something. Exits with 1 where you may not.
    CanI {
        /// What, such as create.
        #[arg(value_name = "VERB")]
        verb: String,
        /// To what, such as steps.
        #[arg(value_name = "RESOURCE")]
        resource: String,
        /// In this pool; in all of them where absent.
        #[arg(long, value_name = "POOL")]
        pool: Option<String>,
        /// Of this subject; of all of them where absent, but `create steps` is asked of the one that `run` submits for.
        #[arg(long, value_name = "SUBJECT")]
        subject: Option<String>,
    },
}
