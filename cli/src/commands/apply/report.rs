//! Report of what a command changed: line by line for people, and as one value for programs, printed at the end.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};
use sluice_common::api::{CarvePlanView, ChangeOutcome, DocumentKind, InUseView, SpecChangeView};

use super::fields;
use crate::args::Format;
use crate::client::{ApplyResult, Fields};
use crate::failure::{FAILED, Failure};
use crate::out::Out;
use crate::render::{safe, shortened};
use crate::show;

/// Steps named in one line.
const NAMED_STEPS: usize = 10;

/// Options of a change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChangeOptions {
    pub(crate) dry_run: bool,
    pub(crate) force: bool,
}

/// Outcome of a service of a file, or of its dry run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ServiceOutcome {
    pub(crate) name: String,
    pub(crate) outcome: ChangeOutcome,
    /// More about it for people.
    #[serde(skip)]
    pub(crate) note: &'static str,
}

impl ServiceOutcome {
    fn line(&self, dry_run: bool) -> String {
        let word = word(self.outcome);
        let dry = if dry_run { " (dry run)" } else { "" };
        format!("service/{} {word}{dry}{}\n", safe(&self.name), self.note)
    }
}

/// Collects what was changed.
pub(crate) struct Report {
    options: ChangeOptions,
    out: Out,
    code: u8,
    changes: Option<ApplyResult>,
    services: Vec<ServiceOutcome>,
}

impl Report {
    pub(crate) fn new(options: ChangeOptions, out: Out) -> Self {
        Self {
            options,
            out,
            code: 0,
            changes: None,
            services: Vec::new(),
        }
    }

    /// Adds what a call changed, all or nothing.
    pub(crate) fn changes(&mut self, made: ApplyResult) -> Result<(), Failure> {
        match self.out.format() {
            Format::Table | Format::Wide => self.out.result(&text(&made))?,
            Format::Name => {
                let names: String = made.changes.iter().map(|it| name(it) + "\n").collect();
                self.out.result(&names)?;
            }
            Format::Json | Format::Yaml => {}
        }
        let ChangeOptions { dry_run, force } = self.options;
        if dry_run && !force && !made.in_use.is_empty() {
            self.out.error(
                "it would be rejected, because it removes what is in use: free that first, or use --force, which stops nothing that runs",
            );
            self.code = FAILED;
        }
        self.changes = Some(made);
        Ok(())
    }

    /// Adds what was done with a service.
    pub(crate) fn service(&mut self, outcome: ServiceOutcome) -> Result<(), Failure> {
        match self.out.format() {
            Format::Table | Format::Wide => self.out.result(&outcome.line(self.options.dry_run))?,
            Format::Name => {
                let name = format!("service/{}\n", safe(&outcome.name));
                self.out.result(&name)?;
            }
            Format::Json | Format::Yaml => {}
        }
        self.services.push(outcome);
        Ok(())
    }

    /// Says what went wrong; the exit code tells it.
    pub(crate) fn failed(&mut self, message: &str) {
        self.out.error(message);
        self.code = FAILED;
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.code != 0
    }

    /// Prints the value for programs; returns the exit code.
    pub(crate) fn end(self) -> Result<u8, Failure> {
        if self.out.format().is_data() {
            show::value(&value(self.changes.as_ref(), &self.services)?, self.out)?;
        }
        Ok(self.code)
    }
}

/// Returns the fields of the changes, with a list of the services if there are any.
fn value(
    changes: Option<&ApplyResult>,
    services: &[ServiceOutcome],
) -> Result<Map<String, Value>, Failure> {
    let fields = |value: Result<Value, serde_json::Error>| {
        value.map_err(|e| Failure::Failed(format!("cannot write the result: {e}")))
    };
    let mut all = match changes.map(serde_json::to_value).map(fields).transpose()? {
        Some(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    if !services.is_empty() {
        all.insert(
            "services".to_owned(),
            fields(serde_json::to_value(services))?,
        );
    }
    Ok(all)
}

fn text(made: &ApplyResult) -> String {
    let mut lines: Vec<String> = made
        .changes
        .iter()
        .map(|it| line(it, made.dry_run))
        .collect();
    let (would, can) = match made.dry_run {
        true => ("would be", "could then"),
        false => ("was", "can now"),
    };
    for InUseView { message, steps } in &made.in_use {
        lines.push(match &steps[..] {
            [] => format!("in use: {}", safe(message)),
            steps => format!("in use: {} ({})", safe(message), named(steps)),
        });
    }
    if !made.exposed.is_empty() {
        lines.push(format!(
            "others {can} preempt {}: {}",
            count(made.exposed.len()),
            named(&made.exposed)
        ));
    }
    for it in &made.preempted {
        let (step, by) = (safe(&it.step), safe(&it.by));
        lines.push(format!("{step} {would} preempted at once, for {by}"));
    }
    if !made.rejected.is_empty() {
        let verb = match made.dry_run {
            true => "would be rejected",
            false => "rejected",
        };
        lines.push(format!(
            "{} that waited and could never start {verb}: {}",
            count(made.rejected.len()),
            named(&made.rejected)
        ));
    }
    for CarvePlanView { node, message } in &made.carvings {
        let node = node.iter().map(|node| safe(node) + ": ");
        lines.push(node.collect::<String>() + &safe(message));
    }
    lines.join("\n") + "\n"
}

fn count(n: usize) -> String {
    match n {
        1 => "one step".to_owned(),
        n => format!("{n} steps"),
    }
}

fn named(steps: &[String]) -> String {
    shortened(steps.iter().map(|step| safe(step)), NAMED_STEPS)
}

fn name(change: &SpecChangeView<Fields>) -> String {
    let pool = safe(change.pool.as_deref().unwrap_or_default());
    let own = safe(change.name.as_deref().unwrap_or_default());
    match (change.kind, &change.subject) {
        (DocumentKind::Role, _) => format!("role/{own}"),
        (DocumentKind::Binding, _) => format!("binding/{own}"),
        (DocumentKind::Cluster, _) => "cluster".to_owned(),
        (DocumentKind::Topology, _) => "topology".to_owned(),
        (DocumentKind::Validation, _) => {
            let name = change.name.as_deref().unwrap_or_default();
            format!("validation/{}", safe(name))
        }
        (DocumentKind::Template, _) => {
            let name = change.name.as_deref().unwrap_or_default();
            format!("template/{}", safe(name))
        }
        (DocumentKind::Policy, Some(subject)) => format!("policy/{pool}/{}", safe(subject)),
        (DocumentKind::Platform, _) => {
            let platform = change.platform.as_deref().unwrap_or_default();
            format!("platform/{pool}/{}", safe(platform))
        }
        (DocumentKind::Policy | DocumentKind::Pool, _) => format!("pool/{pool}"),
    }
}

fn word(outcome: ChangeOutcome) -> &'static str {
    match outcome {
        ChangeOutcome::Created => "created",
        ChangeOutcome::Changed => "changed",
        ChangeOutcome::Unchanged => "unchanged",
        ChangeOutcome::Deleted => "deleted",
    }
}

fn line(change: &SpecChangeView<Fields>, dry_run: bool) -> String {
    let word = word(change.outcome);
    let dry = if dry_run { " (dry run)" } else { "" };
    let line = format!("{} {word}{dry}", name(change));
    let (before, after) = (
        fields::of(change.before.as_ref()),
        fields::of(change.after.as_ref()),
    );
    let fields: Vec<String> = match change.outcome {
        ChangeOutcome::Created => after
            .iter()
            .map(|(key, now)| format!("{key} {now}"))
            .collect(),
        ChangeOutcome::Changed => differences(&before, &after),
        ChangeOutcome::Unchanged | ChangeOutcome::Deleted => Vec::new(),
    };
    match fields.is_empty() {
        true => line,
        false => format!("{line}: {}", fields.join(", ")),
    }
}

fn differences(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<String> {
    let mut keys: Vec<&String> = before.keys().chain(after.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    let of = |terms: &BTreeMap<String, String>, key: &String| {
        terms.get(key).cloned().unwrap_or_else(|| "none".to_owned())
    };
    let changed = keys
        .into_iter()
        .filter(|key| before.get(*key) != after.get(*key));
    changed
        .map(|key| format!("{key} {} -> {}", of(before, key), of(after, key)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn services_are_told_in_a_line_and_in_the_one_value_of_all_changes() {
        let outcome = ServiceOutcome {
            name: "web".to_owned(),
            outcome: ChangeOutcome::Changed,
            note: ": its replicas stay",
        };
        assert_eq!(
            outcome.line(false),
            "service/web changed: its replicas stay\n"
        );
        assert_eq!(
            outcome.line(true),
            "service/web changed (dry run): its replicas stay\n"
        );
        let changes: ApplyResult = serde_json::from_value(json!({"dry_run": false, "in_use": [], "exposed": [],
            "preempted": [], "rejected": [], "changes": [{"kind": "pool", "pool": "p", "outcome": "created"}]}))
        .unwrap();
        let all = Value::Object(value(Some(&changes), &[outcome]).unwrap());
        assert_eq!(
            all["services"],
            json!([{"name": "web", "outcome": "changed"}])
        );
        assert_eq!(all["changes"][0]["pool"], "p");
        assert!(value(None, &[]).unwrap().is_empty());
    }

    #[test]
    fn what_changes_is_told_field_by_field_and_then_what_it_means() {
        let made: ApplyResult = serde_json::from_value(json!({
            "dry_run": true,
            "changes": [
                {"kind": "pool", "pool": "training", "subject": null, "outcome": "created", "before": null,
                 "after": {"description": "shared", "capacity": {"gpu": 8}, "min_runtime": "0s"}},
                {"kind": "policy", "pool": "training", "subject": "prod", "outcome": "changed",
                 "before": {"priority": 5, "reserved": {"gpu": 4}, "limit": {"gpu": 6}},
                 "after": {"priority": 10, "reserved": {"gpu": 4}, "limit": {}}},
                {"kind": "policy", "pool": "training", "subject": "old", "outcome": "deleted",
                 "before": {"priority": 0, "reserved": {}, "limit": {}}, "after": null},
            ],
            "in_use": [{"message": "policy of `old`: steps run", "steps": ["x"]}],
            "exposed": ["a", "b"],
            "preempted": [{"step": "a", "by": "c"}],
            "rejected": ["d"],
        }))
        .unwrap();
        assert_eq!(
            text(&made),
            "pool/training created (dry run): capacity.gpu 8, description shared\n\
             policy/training/prod changed (dry run): limit.gpu 6 -> none, priority 5 -> 10\n\
             policy/training/old deleted (dry run)\n\
             in use: policy of `old`: steps run (x)\n\
             others could then preempt 2 steps: a, b\n\
             a would be preempted at once, for c\n\
             one step that waited and could never start would be rejected: d\n"
        );
    }
}
