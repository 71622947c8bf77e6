//! The past of a data directory, in the words of the API: the state that a record left, and what changed from one record
//! to another. Reads through [`Past`], writes nothing; the binary's `replay` calls it and prints JSON.

mod standing;
#[cfg(test)]
mod tests;

use std::path::Path;

use coordinator_core::{Core, Record, Stamped, State};
use sluice_common::api::{ChangeView, ChangesView, PolicyView, ReplayView, timestamp};
use sluice_common::id::StepId;

use crate::config::{Overrides, RawConfig};
use crate::store::{Past, PastError};
use crate::view;

use standing::Thing;

/// Why nothing is told.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The directory or its store.
    #[error(transparent)]
    Past(#[from] PastError),
    /// The order is the wrong one.
    #[error("record {from} comes after record {to}: write the earlier one first")]
    Backwards {
        /// Written first.
        from: u64,
        /// Written second.
        to: u64,
    },
    /// It is not remembered at that record.
    #[error(
        "there is no step `{step}` at record {seq}: it was submitted later, is forgotten, or never was"
    )]
    NoStep {
        /// Its id.
        step: StepId,
        /// The record.
        seq: u64,
    },
}

/// The state that record `seq` left, the last where `None`; of `step` alone where one is named.
///
/// # Errors
/// Where the directory, the record or the step cannot be told of.
pub fn state(
    dir: &Path,
    seq: Option<u64>,
    step: Option<&StepId>,
) -> Result<ReplayView, ReplayError> {
    let past = Past::open(dir)?;
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

/// The core over a state, for its views: it is asked and never driven, so its terms are anybody's.
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
            .steps_after(0)
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

/// What the records after `from` changed, up to `to`; of `step` alone where one is named.
///
/// # Errors
/// Where the directory or a record cannot be told of.
pub fn changes(
    dir: &Path,
    from: u64,
    to: u64,
    step: Option<&StepId>,
) -> Result<ChangesView, ReplayError> {
    if from > to {
        return Err(ReplayError::Backwards { from, to });
    }
    let past = Past::open(dir)?;
    if to > past.last() {
        let last = past.last();
        return Err(PastError::TooNew { asked: to, last }.into());
    }
    let (mut state, _) = past.fold(from)?;
    let mut changes = Vec::new();
    let seen = past.each(from, to, |record| {
        let mut things = standing::touched(&state, &record.record);
        things.retain(|thing| step.is_none_or(|step| thing.is_step(step)));
        let before: Vec<_> = things.iter().map(|thing| thing.stands(&state)).collect();
        state.apply(record)?;
        changes.extend(differences(record, &state, things, before));
        Ok(())
    });
    seen.map_err(PastError::from)?;
    Ok(ChangesView {
        cluster: past.cluster().to_string(),
        from,
        to,
        changes,
    })
}

/// What stands otherwise than before.
fn differences(
    record: &Stamped,
    state: &State,
    things: Vec<Thing>,
    before: Vec<Option<String>>,
) -> Vec<ChangeView> {
    let pairs = things.into_iter().zip(before);
    let changed = pairs.filter_map(|(thing, before)| {
        let after = thing.stands(state);
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

/// The record's `type`, as events name it.
fn kind(record: &Record) -> String {
    let json = serde_json::to_value(record).expect("a record is JSON in the log");
    json["type"].as_str().unwrap_or_default().to_owned()
}
