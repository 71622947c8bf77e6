//! Arguments that select steps, shared by `cancel`, `suspend`, `resume`, `requeue`, `delete` and `wait`.

use sluice_common::selector::Selector;
use sluice_common::state::StepState;

use super::values::{state_parser, step_id};

/// Arguments of which one is required.
const SELECTING: [&str; 7] = [
    "steps", "selector", "state", "subject", "pool", "mine", "all",
];

#[derive(Clone, Debug, clap::Args)]
#[group(required = true, multiple = true, args = SELECTING)]
pub(crate) struct StepSelector {
    /// Ids or names of steps, or patterns of them: `*` stands for any text, `?` for any character.
    #[arg(value_name = "STEP", value_parser = step_id, conflicts_with = "all")]
    pub(crate) steps: Vec<String>,
    #[command(flatten)]
    pub(crate) filters: StepFilters,
}

/// Flags that select steps.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(id = StepFilters::GROUP, multiple = true)]
pub(crate) struct StepFilters {
    /// Steps with these labels: KEY=VALUE, KEY!=VALUE, KEY in (A, B), KEY notin (A, B), KEY or !KEY, separated by
    /// commas.
    #[arg(short = 'l', long, value_name = "LABEL", help_heading = "Filters")]
    pub(crate) selector: Option<Selector>,
    /// Steps in one of these states, separated by commas.
    #[arg(long, value_name = "STATE", value_delimiter = ',', value_parser = state_parser(), help_heading = "Filters")]
    pub(crate) state: Vec<StepState>,
    /// Steps of this subject.
    #[arg(long, value_name = "SUBJECT", help_heading = "Filters")]
    pub(crate) subject: Option<String>,
    /// Steps of this pool.
    #[arg(long, value_name = "POOL", help_heading = "Filters")]
    pub(crate) pool: Option<String>,
    /// Steps that you submitted; those of your subject if the cluster knows no user name of yours.
    #[arg(long, help_heading = "Filters")]
    pub(crate) mine: bool,
    /// All steps that you may change.
    #[arg(long, help_heading = "Filters")]
    pub(crate) all: bool,
}

impl StepFilters {
    /// Name of the group of these flags.
    pub(super) const GROUP: &'static str = "filters";

    /// Whether any flag is set.
    pub(crate) fn are_set(&self) -> bool {
        self.selector.is_some()
            || !self.state.is_empty()
            || self.subject.is_some()
            || self.pool.is_some()
            || self.mine
            || self.all
    }
}

/// Flags of commands that change many steps.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct ChangeFlags {
    /// Do not ask, although patterns or filters may select many steps.
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// List the steps that it would change, and change none.
    #[arg(long)]
    pub(crate) dry_run: bool,
}
