//! Renders allocations as text.

use jiff::Timestamp;
use serde::Serialize;
use sluice_common::allocation::{AllocationState, AllocationView};
use sluice_common::api::StepView;

use super::age::age;
use super::listed::Listed;
use super::step::{gpus, node_cell};
use super::table::{Cell, Column};
use super::{or_dash, safe};
use crate::out::Tone;

/// A step that is an allocation, in a list of them.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct ListedAllocation(pub(crate) StepView);

impl Listed for ListedAllocation {
    const KIND: &'static str = "allocation";
    const COLUMNS: &'static [Column] = &[
        Column::new("ID", 20).room(13),
        Column::new("NAME", 7).text().room(12),
        Column::new("STATE", 19).room(10),
        Column::new("SUBJECT", 4).text(),
        Column::new("POOL", 5).text(),
        Column::new("NODE", 8).text().room(12),
        Column::new("GPUS", 6),
        Column::new("AGE", 9).room(5),
        Column::new("HOLDER", 3),
        Column::new("EXPIRES", 9).room(9),
    ];

    fn name(&self) -> String {
        self.0.id.clone()
    }

    fn cells(&self, now: Timestamp) -> Vec<Cell> {
        let Self(step) = self;
        let allocation = step.allocation.as_ref();
        let state = allocation.map_or(AllocationState::Lost, |it| it.state);
        let holder = allocation.and_then(|it| it.holder);
        let holder = holder.map(|holder| holder.to_string());
        let expires = allocation.and_then(|it| it.release_by.or(it.expires_at));
        vec![
            safe(&step.id).into(),
            or_dash(Some(&step.name)).into(),
            Cell::toned(tone(state), state),
            or_dash(Some(&step.subject)).into(),
            or_dash(step.pool.as_deref()).into(),
            node_cell(step).into(),
            gpus(step).into(),
            age(step.submitted_at, now).into(),
            or_dash(holder.as_deref()).into(),
            expires
                .map_or_else(|| "-".to_owned(), |at| format!("in {}", age(now, at)))
                .into(),
        ]
    }
}

fn tone(state: AllocationState) -> Tone {
    match state {
        AllocationState::Allocated => Tone::Good,
        AllocationState::Preempted
        | AllocationState::Expired
        | AllocationState::Rejected
        | AllocationState::Lost => Tone::Bad,
        AllocationState::Released => Tone::Faint,
        AllocationState::Queued | AllocationState::Preempting | AllocationState::Releasing => {
            Tone::Pending
        }
    }
}

/// Formats the state, what its holder says, and until when it lasts.
pub(crate) fn summary(allocation: &AllocationView) -> String {
    let holder = allocation.holder;
    let holder = holder.map_or_else(String::new, |holder| {
        format!(", and its holder is {holder}")
    });
    let state = allocation.state;
    match (allocation.release_by, allocation.expires_at) {
        (Some(at), _) => format!("{state}{holder}; it must be released before {at}"),
        (None, Some(at)) if lasts(state) => {
            format!("{state}{holder}; it ends at {at} unless it is renewed")
        }
        (None, _) => state.to_string(),
    }
}

fn lasts(state: AllocationState) -> bool {
    matches!(state, AllocationState::Queued | AllocationState::Allocated)
}
