//! Arguments of `sluice get`. The command checks which filters a kind has.

use sluice_common::selector::Selector;
use sluice_common::step::WorkKind;

use super::kind::GetKind;
use super::step;
use super::values::step_id;
use crate::client::Since;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct GetArgs {
    /// Kind of the things to list.
    #[arg(value_enum, value_name = "KIND")]
    pub(crate) kind: GetKind,
    /// Names; all of the kind if absent.
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Only steps, nodes, policies or platforms of this pool.
    #[arg(long, value_name = "POOL", help_heading = "Filters")]
    pub(crate) pool: Option<String>,
    /// Only steps or policies of this subject.
    #[arg(long, value_name = "SUBJECT", help_heading = "Filters")]
    pub(crate) subject: Option<String>,
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
    /// Only steps with this name.
    #[arg(long, value_name = "NAME", help_heading = "Filters")]
    pub(crate) name: Option<String>,
    /// Only steps of this kind of work.
    #[arg(long, value_name = "WORK", value_parser = step::words::<WorkKind, _>(WorkKind::ALL.map(WorkKind::as_str)), help_heading = "Filters")]
    pub(crate) work: Option<WorkKind>,
    /// Only nodes or steps with these labels, including facts below `sluice/`: KEY=VALUE, KEY!=VALUE, KEY in (A, B),
    /// KEY notin (A, B), KEY or !KEY, separated by commas.
    #[arg(short = 'l', long, value_name = "LABEL", help_heading = "Filters")]
    pub(crate) selector: Option<Selector>,

    /// Only the last N steps or events.
    #[arg(long, value_name = "N", help_heading = "Filters")]
    pub(crate) limit: Option<usize>,
    /// Only events after this number; with `now` and --watch, only future ones.
    #[arg(long, value_name = "SEQ", help_heading = "Filters")]
    pub(crate) since: Option<Since>,
    /// Show the labels of nodes or steps in a column of their own.
    #[arg(long)]
    pub(crate) show_labels: bool,
    /// Follow changes until Ctrl-C.
    #[arg(short, long)]
    pub(crate) watch: bool,
}
