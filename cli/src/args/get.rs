//! Arguments of `sluice get`. The command checks which filters a kind has.

use std::str::FromStr;

use jiff::Timestamp;
use sluice_common::api::StepOrderKey;
use sluice_common::selector::Selector;
use sluice_common::step::WorkKind;
use sluice_common::step_names::StepNames;
use sluice_common::time::Span;

use super::kind::GetKind;
use super::step;
use super::values::step_id;
use crate::client::Since;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct GetArgs {
    /// Kind of the things to list.
    #[arg(value_enum, value_name = "KIND")]
    pub(crate) kind: GetKind,
    /// Names, or patterns of names of steps such as `train-*`; all of the kind if absent.
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Only steps, nodes, policies or platforms of this pool.
    #[arg(long, value_name = "POOL", help_heading = "Filters")]
    pub(crate) pool: Option<String>,
    /// Only steps or policies of this subject.
    #[arg(long, value_name = "SUBJECT", help_heading = "Filters")]
    pub(crate) subject: Option<String>,
    /// Only steps that you submitted; those of your subject if the cluster knows no user name of yours.
    #[arg(long, conflicts_with = "subject", help_heading = "Filters")]
    pub(crate) mine: bool,
    /// The user whose steps are selected.
    #[arg(skip)]
    pub(crate) submitted_by: Option<String>,
    /// Only steps or nodes in one of these states, separated by commas.
    #[arg(
        long,
        value_name = "STATE",
        value_delimiter = ',',
        help_heading = "Filters"
    )]
    pub(crate) state: Vec<String>,
    /// Only steps on this node, or events that name it.
    #[arg(long, value_name = "NODE", help_heading = "Filters")]
    pub(crate) node: Option<String>,
    /// Only events of this step.
    #[arg(long, value_name = "STEP", value_parser = step_id, help_heading = "Filters")]
    pub(crate) step: Option<String>,
    /// Only events of these types, separated by commas, such as `step_*,ended`; a `*` at an end stands for any rest.
    #[arg(long = "type", value_name = "TYPE", help_heading = "Filters")]
    pub(crate) types: Option<String>,
    /// Only steps with one of these names, or patterns of them such as `train-*`, separated by commas.
    #[arg(long, value_name = "NAME", help_heading = "Filters")]
    pub(crate) name: Option<StepNames>,
    /// Only steps of this kind of work.
    #[arg(long, value_name = "WORK", value_parser = step::words::<WorkKind, _>(WorkKind::ALL.map(WorkKind::as_str)), help_heading = "Filters")]
    pub(crate) work: Option<WorkKind>,
    /// Only the label of nodes with this key, also a fact below `sluice/`.
    #[arg(long, value_name = "KEY", help_heading = "Filters")]
    pub(crate) key: Option<String>,
    /// Only nodes or steps with these labels, including facts below `sluice/`: KEY=VALUE, KEY!=VALUE, KEY in (A, B),
    /// KEY notin (A, B), KEY or !KEY, separated by commas.
    #[arg(short = 'l', long, value_name = "LABEL", help_heading = "Filters")]
    pub(crate) selector: Option<Selector>,

    /// The parts of arrays too, as far as they are queued, run or are remembered as steps.
    #[arg(long, help_heading = "Filters")]
    pub(crate) parts: bool,
    /// All parts of this array, also those that have not entered the queue.
    #[arg(long, value_name = "ID", value_parser = step_id, conflicts_with = "parts", help_heading = "Filters")]
    pub(crate) array: Option<String>,
    /// Only the last N steps or events; with --sort, the first N.
    #[arg(long, value_name = "N", help_heading = "Filters")]
    pub(crate) limit: Option<usize>,
    /// All steps that the cluster remembers, also those that ended more than an hour ago.
    #[arg(long, conflicts_with = "since", help_heading = "Filters")]
    pub(crate) all: bool,
    /// Steps that had not ended at this time: a duration before now such as 2h, or a time such as
    /// 2026-01-31T08:00:00Z. For events, their number: only later ones; with `now` and --watch, only future ones.
    #[arg(long, value_name = "TIME|SEQ", help_heading = "Filters")]
    pub(crate) since: Option<GetSince>,
    /// Only steps that were submitted by this time, written as for --since.
    #[arg(long, value_name = "TIME", value_parser = moment, help_heading = "Filters")]
    pub(crate) until: Option<String>,
    /// Sort steps by submitted, started, ended, name, state, subject, pool or priority; with `-` before it, in reverse.
    #[arg(long, value_name = "KEY", value_parser = sort_key, allow_hyphen_values = true)]
    pub(crate) sort: Option<String>,
    /// Show these columns, separated by commas: titles of the table, or fields of the JSON such as .reason.code or
    /// WHY:.reason.code.
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    pub(crate) columns: Vec<String>,
    /// Show the parts of arrays below them, and steps below the first step after which they start.
    #[arg(long)]
    pub(crate) tree: bool,
    /// Leave out the line of titles.
    #[arg(long)]
    pub(crate) no_headers: bool,
    /// Show the labels of nodes or steps in a column of their own.
    #[arg(long)]
    pub(crate) show_labels: bool,
    /// Follow changes until Ctrl-C.
    #[arg(short, long)]
    pub(crate) watch: bool,
}

/// Begin of a list: a position of events, or a time for steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GetSince {
    Event(Since),
    /// A time, in the form that the API takes.
    Time(String),
}

impl FromStr for GetSince {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(time) = moment(text) {
            return Ok(GetSince::Time(time));
        }
        text.parse().map(GetSince::Event).map_err(|_| {
            format!(
                "{}; for events write the number of one, or `now`",
                not_a_time()
            )
        })
    }
}

fn not_a_time() -> &'static str {
    "write a duration such as `2h`, or a time such as `2026-01-31T08:00:00Z`"
}

/// Checks a point in time, as the API takes it.
fn moment(text: &str) -> Result<String, String> {
    let is_known = text.parse::<Span>().is_ok() || text.parse::<Timestamp>().is_ok();
    match is_known {
        true => Ok(text.to_owned()),
        false => Err(not_a_time().to_owned()),
    }
}

fn sort_key(text: &str) -> Result<String, String> {
    let word = text.strip_prefix('-').unwrap_or(text);
    let known = StepOrderKey::ALL.map(StepOrderKey::as_str);
    match known.contains(&word) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "write one of {}, with `-` before it for the reverse",
            known.join(", ")
        )),
    }
}
