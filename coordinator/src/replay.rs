//! Shows the history of a data directory: the state at a record, or the changes between two records, with the field
//! names of the API. Reads through [`StoreHistory`] and writes nothing; the binary's `replay` prints the result as
//! JSON.

mod summary;
#[cfg(test)]
mod tests;

use std::path::Path;

use coordinator_core::{Core, LogEntry, Record, State};
use sluice_common::api::{ChangeView, ChangesView, PolicyView, ReplayView, timestamp};
use sluice_common::id::StepId;

use crate::config::{Overrides, RawConfig};
use crate::store::{HistoryError, StoreHistory};
use crate::view;

use summary::Entity;

/// Why the history cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    History(#[from] HistoryError),
    /// The records are in the wrong order.
    #[error("record {from} comes after record {to}: write the earlier one first")]
    Backwards {
        /// First record given.
        from: u64,
        /// Second record given.
        to: u64,
    },
    /// The step is not known at that record.
    #[error(
        "there is no step `{step}` at record {seq}: it was submitted later, is forgotten, or never was"
    )]
    NoStep { step: StepId, seq: u64 },
}

/// Returns the state at record `seq`, or at the last if `None`; limited to `step` if given.
///
/// # Errors
/// If the directory, the record or the step is not there.
pub fn state(
    dir: &Path,
    seq: Option<u64>,
    step: Option<&StepId>,
) -> Result<ReplayView, ReplayError> {
    let past = StoreHistory::open(dir)?;
    let seq = seq.unwrap_or(past.last());
    let (state, at) = past.fold(seq)?;
    if let Some(step) = step.filter(|step| state.step(step).is_none()) {
        let step = step.clone();
        return Err(ReplayError::NoStep { step, seq });
    }
    let empty = ReplayView {
        cluster: past.cluster().to_string(),
        seq,
        at: (seq > 0).then(|| timestamp(at)),
        first: past.first(),
        last: past.last(),
        pools: Vec::new(),
        policies: Vec::new(),
        nodes: Vec::new(),
        steps: Vec::new(),
    };
    let core = core(state);
    Ok(match step {
        Some(step) => of_step(&core, step, empty),
        None => of_all(&core, empty),
    })
}

/// Wraps a state in a core for its views. It handles no input, so its settings do not matter.
fn core(state: State) -> Core {
    let config = RawConfig::default().check(Overrides::default());
    let settings = config.expect("the defaults are a config").settings;
    Core::recover(settings, state)
}

fn of_step(core: &Core, step: &StepId, empty: ReplayView) -> ReplayView {
    let steps = core.state().step(step).into_iter();
    ReplayView {
        steps: steps.map(|step| view::step(core, step)).collect(),
        ..empty
    }
}

fn of_all(core: &Core, empty: ReplayView) -> ReplayView {
    let state = core.state();
    let nodes = state.nodes().values();
    ReplayView {
        pools: state
            .pools()
            .values()
            .map(|p| view::pool(core, p))
            .collect(),
        policies: policies(core),
        nodes: nodes.map(|node| view::node(core, node, None)).collect(),
        steps: state
            .steps()
            .values()
            .map(|step| view::step(core, step))
            .collect(),
        ..empty
    }
}

fn policies(core: &Core) -> Vec<PolicyView> {
    let pools = core.state().pools().values();
    let bound = pools.flat_map(|pool| pool.policies.keys().map(|subject| (&pool.name, subject)));
    bound
        .filter_map(|(pool, subject)| view::policy(core, pool, subject))
        .collect()
}

/// Returns the changes by the records after `from`, up to `to`; limited to `step` if given.
///
/// # Errors
/// If the directory or a record is not there.
pub fn changes(
    dir: &Path,
    from: u64,
    to: u64,
    step: Option<&StepId>,
) -> Result<ChangesView, ReplayError> {
    if from > to {
        return Err(ReplayError::Backwards { from, to });
    }
    let past = StoreHistory::open(dir)?;
    if to > past.last() {
        let last = past.last();
        return Err(HistoryError::TooNew { asked: to, last }.into());
    }
    let (mut state, _) = past.fold(from)?;
    let mut changes = Vec::new();
    let seen = past.each(from, to, |record| {
        let mut things = summary::touched(&state, &record.record);
        things.retain(|thing| step.is_none_or(|step| thing.is_step(step)));
        let before: Vec<_> = things.iter().map(|thing| thing.summary(&state)).collect();
        state.apply(record)?;
        changes.extend(differences(record, &state, things, before));
        Ok(())
    });
    seen.map_err(HistoryError::from)?;
    Ok(ChangesView {
        cluster: past.cluster().to_string(),
        from,
        to,
        changes,
    })
}

/// Returns the entities whose summary differs.
fn differences(
    record: &LogEntry,
    state: &State,
    things: Vec<Entity>,
    before: Vec<Option<String>>,
) -> Vec<ChangeView> {
    let pairs = things.into_iter().zip(before);
    let changed = pairs.filter_map(|(thing, before)| {
        let after = thing.summary(state);
        (before != after).then(|| ChangeView {
            seq: record.seq,
            at: timestamp(record.at),
            r#type: kind(&record.record),
            what: thing.to_string(),
            before,
            after,
        })
    });
    changed.collect()
}

/// Returns the record's `type`, as events name it.
fn kind(record: &Record) -> String {
    let json = serde_json::to_value(record).expect("a record is JSON in the log");
    json["type"].as_str().unwrap_or_default().to_owned()
}
