//! Renders the history of a data directory. Ages are those of then, so the text does not depend on the time of the
//! call.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sluice_common::amount::{Amounts, ResourceKey};
use sluice_common::api::{ChangeView, ChangesView, PolicyView, ReplayView, StepView};
use sluice_common::state::StepState;

use super::listed::{self, Listed};
use super::sections::titled;
use super::step::rounded;
use super::table::{Cell, Column, Table};
use super::{amounts, or_dash, safe};
use crate::out::Out;

const POLICIES: &[Column] = &[
    Column::new("POOL", 9).text(),
    Column::new("SUBJECT", 9).text(),
    Column::new("PRIORITY", 6),
    Column::new("RESERVED", 5).text(),
    Column::new("LIMIT", 5).text(),
    Column::new("USED", 7).text(),
];

const CHANGES: &[Column] = &[
    Column::new("SEQ", 20),
    Column::new("TIME", 5),
    Column::new("EVENT", 7),
    Column::new("WHAT", 9).text(),
    Column::new("CHANGE", 8).text(),
];

/// Renders the state after an event.
pub(crate) fn state(view: &ReplayView, out: Out) -> String {
    let then = view.at.unwrap_or(Timestamp::UNIX_EPOCH);
    let mut text = head(view);
    text += &section("Pools", &view.pools, then, out);
    text += &policies(&view.policies, out);
    text += &section("Nodes", &view.nodes, then, out);
    text += &section(&steps_title(&view.steps), &view.steps, then, out);
    text
}

fn head(view: &ReplayView) -> String {
    let when = view.at.map_or_else(
        || "before the first event".to_owned(),
        |at| format!("at event {}, {}", view.seq, rounded(at)),
    );
    format!(
        "Cluster {} {when}; events {} to {} can be replayed\n",
        safe(&view.cluster),
        view.first,
        view.last
    )
}

/// Counts the steps in each state.
fn steps_title(steps: &[StepView]) -> String {
    let count = |state: StepState| steps.iter().filter(|step| step.state == state).count();
    let counts = StepState::ALL.map(|state| (state, count(state)));
    let counts = counts.iter().filter(|(_, count)| *count > 0);
    let words: Vec<String> = counts
        .map(|(state, count)| format!("{count} {state}"))
        .collect();
    format!("Steps ({})", words.join(", "))
}

fn section<T: Listed>(title: &str, items: &[T], then: Timestamp, out: Out) -> String {
    match items {
        [] => String::new(),
        items => titled(title, &listed::table(items, then, out)),
    }
}

fn policies(policies: &[PolicyView], out: Out) -> String {
    if policies.is_empty() {
        return String::new();
    }
    let row = |policy: &PolicyView| {
        vec![
            safe(&policy.pool).into(),
            safe(&policy.subject).into(),
            policy.spec.priority.to_string().into(),
            counted(&policy.spec.reserved).into(),
            counted(&policy.spec.limit).into(),
            or_dash(Some(&amounts::amounts(&policy.used))).into(),
        ]
    };
    let rows: Vec<Vec<Cell>> = policies.iter().map(row).collect();
    titled("Policies", &Table::new(POLICIES, out).whole(&rows))
}

fn counted(by_key: &BTreeMap<ResourceKey, u64>) -> String {
    let all: Amounts = by_key.iter().map(|(key, n)| (key.clone(), *n)).collect();
    or_dash(Some(&amounts::amounts(&all)))
}

/// Renders the changes between two events.
pub(crate) fn changes(view: &ChangesView, out: Out) -> String {
    if view.changes.is_empty() {
        return format!(
            "nothing changed from event {} to event {}\n",
            view.from, view.to
        );
    }
    let row = |change: &ChangeView| {
        vec![
            change.seq.to_string().into(),
            rounded(change.at).into(),
            safe(&change.r#type).into(),
            safe(&change.what).into(),
            turn(change).into(),
        ]
    };
    let rows: Vec<Vec<Cell>> = view.changes.iter().map(row).collect();
    Table::new(CHANGES, out).whole(&rows)
}

/// Formats a change, such as `queued -> allocated on n1`.
fn turn(change: &ChangeView) -> String {
    match (&change.before, &change.after) {
        (Some(before), Some(after)) => format!("{} -> {}", safe(before), safe(after)),
        (None, Some(after)) => format!("new: {}", safe(after)),
        (Some(before), None) => format!("gone: {}", safe(before)),
        (None, None) => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::pool::tests::pool;
    use super::super::step::tests::{now, running};
    use super::*;

    fn change(seq: u64, before: Option<&str>, after: Option<&str>) -> ChangeView {
        ChangeView {
            seq,
            at: now(),
            r#type: "allocated".to_owned(),
            what: "step/k3v9".to_owned(),
            before: before.map(str::to_owned),
            after: after.map(str::to_owned),
        }
    }

    #[test]
    fn a_state_is_told_as_of_then() {
        let policy = serde_json::from_value(serde_json::json!({
            "pool": "default", "subject": "dev", "priority": 10, "reserved": {"gpu": 4}, "limit": {}, "used": {"gpu": 1}
        }));
        let view = ReplayView {
            cluster: "c1".to_owned(),
            seq: 7,
            at: Some(now()),
            first: 0,
            last: 9,
            pools: vec![pool(2, 2)],
            policies: vec![policy.unwrap()],
            nodes: Vec::new(),
            steps: vec![running()],
        };
        let expected = "\
Cluster c1 at event 7, 2026-11-20T10:03:00Z; events 0 to 9 can be replayed

Pools:
POOL     STATUS  GPU TOTAL  GPU USED  GPU FREE  NODES
default  online  4          1         3         2

Policies:
POOL     SUBJECT  PRIORITY  RESERVED  LIMIT  USED
default  dev      10        gpu=4     -      gpu=1

Steps (1 running):
";
        let text = state(&view, Out::plain());
        assert!(text.starts_with(expected), "{text}");
        assert!(
            text.ends_with("running\n") && text.contains("\nk3v9 "),
            "{text}"
        );
    }

    #[test]
    fn changes_say_from_what_to_what() {
        let mut view = ChangesView {
            cluster: "c1".to_owned(),
            from: 1,
            to: 4,
            changes: vec![
                change(2, None, Some("queued")),
                change(3, Some("queued"), Some("allocated on n\u{1b}")),
                change(4, Some("succeeded"), None),
            ],
        };
        let expected = "\
SEQ  TIME                  EVENT      WHAT       CHANGE
2    2026-11-20T10:03:00Z  allocated  step/k3v9  new: queued
3    2026-11-20T10:03:00Z  allocated  step/k3v9  queued -> allocated on n\\u{1b}
4    2026-11-20T10:03:00Z  allocated  step/k3v9  gone: succeeded
";
        assert_eq!(changes(&view, Out::plain()), expected);
        view.changes.clear();
        assert_eq!(
            changes(&view, Out::plain()),
            "nothing changed from event 1 to event 4\n"
        );
    }
}
