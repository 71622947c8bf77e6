//! Arguments of `sluice bench`.

use std::time::Duration;

use super::values::duration;

/// Amounts are bounded, so that a mistyped number does not flood a cluster that others use.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct BenchArgs {
    /// Steps to submit in one batch.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) steps: u32,
    /// Steps to submit one after another, each when the one before has ended.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) rounds: u32,
    /// Clients that submit at the same time.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) clients: u32,
    /// Most time for each measurement: what has not ended by then is cancelled.
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = duration)]
    pub(crate) limit: Duration,
    /// The pool for the steps.
    #[arg(short, long, value_name = "POOL")]
    pub(crate) pool: Option<String>,
    /// The subject that is charged.
    #[arg(long, value_name = "SUBJECT")]
    pub(crate) subject: Option<String>,
}
