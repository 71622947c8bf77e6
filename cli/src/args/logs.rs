//! Arguments of `sluice logs`.

use super::values::{output_since, step_id};

#[derive(Debug, clap::Args)]
pub(crate) struct LogsArgs {
    /// Ids of steps or arrays, or names that no other live step has. The lines of several steps begin with their ids; an array
    /// is all of its parts.
    #[arg(value_name = "STEP", value_parser = step_id, required = true)]
    pub(crate) steps: Vec<String>,
    /// Follow the output until the steps have ended; of many, 32 at a time.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Print only stdout.
    #[arg(long, conflicts_with = "stderr")]
    pub(crate) stdout: bool,
    /// Print only stderr, on stdout.
    #[arg(long)]
    pub(crate) stderr: bool,
    /// Only the last N lines of each stream.
    #[arg(long, value_name = "N")]
    pub(crate) tail: Option<usize>,
    /// Only what was written since this time: a duration before now such as 10m, by the clock of the host, or a time such as
    /// 2026-01-31T08:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = output_since)]
    pub(crate) since: Option<String>,
    /// Begin each line with the time at which it was written, to about a second; with `-` if the host kept none.
    #[arg(long)]
    pub(crate) timestamps: bool,
    /// Number of the attempt, starting at 1; the latest if absent.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) attempt: Option<u32>,
    /// Rank of the part of a gang, starting at 0.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) rank: u32,
}
