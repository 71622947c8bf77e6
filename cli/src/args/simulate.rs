//! Arguments of `sluice simulate`.

use std::path::PathBuf;

use sluice_common::id::Subject;
use sluice_common::time::Span;

/// Either scenario files, or a trace of jobs and hosts to run it on.
#[derive(Debug, clap::Args)]
pub(crate) struct SimulateArgs {
    /// Scenario files, JSON; `-` is stdin.
    #[arg(
        value_name = "FILE",
        required_unless_present = "jobs",
        conflicts_with = "jobs"
    )]
    pub(crate) files: Vec<PathBuf>,

    /// Only the case with this id. May be given more than once.
    #[arg(
        long,
        value_name = "ID",
        conflicts_with = "jobs",
        help_heading = "Scenarios"
    )]
    pub(crate) case: Vec<String>,

    #[command(flatten)]
    pub(crate) trace: TraceFlags,
}

/// A trace, and its cluster.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Traces")]
pub(crate) struct TraceFlags {
    /// The jobs: a CSV file with the header of the openb or the Philly trace.
    #[arg(long, value_name = "FILE")]
    pub(crate) jobs: Option<PathBuf>,
    /// The hosts: a CSV file with the header of the openb trace, or a short form such as `64x8`, 64 hosts of 8 GPUs
    /// each; `POOL=64x8` names the pool, `64x8:H100` the model. May be given more than once.
    #[arg(long, value_name = "HOSTS", requires = "jobs")]
    pub(crate) hosts: Vec<String>,
    /// Pools, policies, platforms and other documents of `sluice apply -f`, and hosts as for `sluice dev --file`.
    /// Without it one pool is open to every subject.
    #[arg(long, value_name = "FILE", requires = "jobs")]
    pub(crate) policies: Option<PathBuf>,
    /// Stop so long after the first arrival.
    #[arg(long, value_name = "TIME", requires = "jobs")]
    pub(crate) until: Option<Span>,
    /// Let jobs come in random order, one each second, without an end, until they have asked for this many percent of
    /// the GPUs: this measures how full placement gets the cluster.
    #[arg(long, value_name = "PCT", requires = "jobs")]
    pub(crate) arrivals: Option<u64>,
    /// Seed of the random order.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "arrivals")]
    pub(crate) seed: u64,
    /// The jobs of this subject are non-preemptible: they run only inside what is reserved. May be given more than
    /// once.
    #[arg(long, value_name = "SUBJECT", requires = "jobs")]
    pub(crate) non_preemptible: Vec<Subject>,
    /// Plot allocation and queue over time into this file.
    #[arg(long, value_name = "FILE.svg", requires = "jobs")]
    pub(crate) plot: Option<PathBuf>,
}
