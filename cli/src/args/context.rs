//! Arguments of `context` and `logout`.

use clap::Subcommand;

use crate::context::check_name;

#[derive(Debug, clap::Args)]
pub(crate) struct ContextArgs {
    #[command(subcommand)]
    pub(crate) command: ContextCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ContextCommand {
    /// List your contexts. `*` marks the one in use.
    #[command(alias = "ls")]
    List,
    /// Use a context from now on.
    Use {
        /// Name of the context, as `list` shows it.
        #[arg(value_name = "NAME", value_parser = context_name)]
        name: String,
    },
    /// Show a context without its token: the one that commands use, or another.
    Show {
        /// Name of the context.
        #[arg(value_name = "NAME", value_parser = context_name)]
        name: Option<String>,
    },
    /// Give a context another name.
    Rename {
        /// Name that it has.
        #[arg(value_name = "OLD", value_parser = context_name)]
        old: String,
        /// Name that it gets.
        #[arg(value_name = "NEW", value_parser = context_name)]
        new: String,
    },
    /// Delete contexts. Their tokens stay good until they expire or are deleted.
    Delete {
        /// Names of the contexts.
        #[arg(value_name = "NAME", value_parser = context_name, required = true)]
        names: Vec<String>,
    },
}

/// Parses the name of a context, or `context/NAME` as `-o name` prints it.
pub(super) fn context_name(text: &str) -> Result<String, String> {
    let name = text.strip_prefix("context/").unwrap_or(text);
    check_name(name).map(|()| name.to_owned())
}
