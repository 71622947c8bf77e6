//! Lists of steps: recent ones unless the caller asks for more.

use std::collections::BTreeMap;

use sluice_common::api::{Page, StepFilter, StepView};
use sluice_common::selector::Selector;
use sluice_common::step_names::StepNames;

use super::kinds::{Gettable, HasLabels};
use crate::args::{GetArgs, GetSince};
use crate::client::{ApiError, Client};
use crate::out::Out;

/// Time for which a step is listed after its end, unless the caller asks for more.
pub(super) const RECENT: &str = "1h";

/// Returns the selected steps; without `--sort` in the order of submission.
fn steps(client: &Client, args: &GetArgs) -> Result<Page<StepView>, ApiError> {
    let since = match &args.since {
        Some(GetSince::Time(time)) => Some(time.clone()),
        Some(GetSince::Event(_)) | None => {
            let all = args.all || args.array.is_some();
            (!all).then(|| RECENT.to_owned())
        }
    };
    let filter = StepFilter {
        name: args.name.as_ref().map(StepNames::to_string),
        state: Some(args.state.join(",")).filter(|states| !states.is_empty()),
        subject: args.subject.clone(),
        submitted_by: args.submitted_by.clone(),
        pool: args.pool.clone(),
        node: args.node.clone(),
        work: args.work.map(|work| work.to_string()),
        labels: args.selector.as_ref().map(Selector::to_string),
        since,
        until: args.until.clone(),
        array: args.array.clone(),
        parts: (args.parts || args.tree).then(|| "true".to_owned()),
        ..StepFilter::default()
    };
    match (&args.sort, args.limit) {
        (Some(sort), limit) => client.sorted_steps(&filter, sort, limit),
        (None, None) => client.sorted_steps(&filter, "submitted", None),
        (None, limit) => {
            let mut last = client.sorted_steps(&filter, "-submitted", limit)?;
            last.items.reverse();
            Ok(last)
        }
    }
}

/// Puts each step below the array of which it is a part, or else below the first step after which it starts, and draws
/// the lines to it before its id, as `tree` does. Steps on the same level stay in their order.
fn as_tree(steps: &[StepView]) -> Vec<StepView> {
    let places: BTreeMap<&str, usize> = (steps.iter().enumerate())
        .map(|(place, step)| (step.id.as_str(), place))
        .collect();
    let mut below: BTreeMap<Option<usize>, Vec<usize>> = BTreeMap::new();
    for (place, step) in steps.iter().enumerate() {
        let first = step.after.first();
        let first = first.map(|after| after.split(':').next().unwrap_or(after));
        let parent = step.part_of.as_deref().or(first);
        // A step comes after those on which it depends, so that there is no circle.
        let parent = parent.and_then(|id| places.get(id).copied());
        below
            .entry(parent.filter(|parent| *parent < place))
            .or_default()
            .push(place);
    }
    let mut tree = Vec::with_capacity(steps.len());
    // The next step to add comes last.
    let mut open = children(&below, None, "");
    while let Some(ChildRow { place, line, lines }) = open.pop() {
        let id = format!("{line}{}", steps[place].id);
        tree.push(StepView {
            id,
            ..steps[place].clone()
        });
        open.extend(children(&below, Some(place), &lines));
    }
    tree
}

/// A step in a tree, and the lines drawn before it.
struct ChildRow {
    place: usize,
    /// Text before its id.
    line: String,
    /// Text before the lines of the steps below it.
    lines: String,
}

/// The steps below `parent`, the last first.
fn children(
    below: &BTreeMap<Option<usize>, Vec<usize>>,
    parent: Option<usize>,
    lines: &str,
) -> Vec<ChildRow> {
    let places = below.get(&parent).into_iter().flatten().rev();
    let nodes = places.enumerate().map(|(nth, place)| {
        let (line, under) = match (parent, nth) {
            (None, _) => ("", ""),
            (Some(_), 0) => ("└─ ", "   "),
            (Some(_), _) => ("├─ ", "│  "),
        };
        ChildRow {
            place: *place,
            line: format!("{lines}{line}"),
            lines: format!("{lines}{under}"),
        }
    });
    nodes.collect()
}

impl Gettable for StepView {
    fn known(_client: &Client) -> Vec<String> {
        Vec::new()
    }
    const OWN_EVENTS: bool = true;

    fn all(client: &Client, args: &GetArgs) -> Result<Vec<Self>, ApiError> {
        Ok(steps(client, args)?.items)
    }

    fn listed(client: &Client, args: &GetArgs, out: Out) -> Result<Vec<Self>, ApiError> {
        let Page {
            items, left_out, ..
        } = steps(client, args)?;
        let left_out = left_out.filter(|count| *count > 0 && args.limit.is_none());
        if let Some(count) = left_out.filter(|_| args.since.is_none()) {
            out.aside(&format!(
                "{count} steps that ended more than an hour ago are left out: --all shows them"
            ));
        }
        Ok(match args.tree && out.format().is_text() {
            true => as_tree(&items),
            false => items,
        })
    }

    fn one(client: &Client, name: &str) -> Result<Self, ApiError> {
        client.step_called(name)
    }

    fn fits(&self, args: &GetArgs) -> bool {
        let is = |wanted: &Option<String>, has: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| has == Some(wanted))
        };
        let named = |names: &StepNames| names.select(&self.id, &self.name);
        let on = |node: &String| self.placements.iter().any(|place| place.node == *node);
        let state = self.state.to_string();
        let is_listed = match &self.part_of {
            Some(array) => args.parts || args.node.is_some() || args.array.as_ref() == Some(array),
            None => args.array.is_none(),
        };
        is_listed
            && (args.state.is_empty() || args.state.contains(&state))
            && args.name.as_ref().is_none_or(named)
            && is(&args.subject, Some(&self.subject))
            && is(&args.submitted_by, self.submitted_by.as_deref())
            && is(&args.pool, self.pool.as_deref())
            && args.work.is_none_or(|work| self.work == Some(work))
            && self.has_labels(args)
            && args.node.as_ref().is_none_or(on)
    }
}

impl HasLabels for StepView {
    fn labels(&self) -> &BTreeMap<String, String> {
        &self.labels
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::step::tests::running;

    #[test]
    fn a_tree_has_lines_to_each_step() {
        let step = |id: &str, part_of: Option<&str>, after: &[&str]| StepView {
            id: id.to_owned(),
            part_of: part_of.map(str::to_owned),
            after: after.iter().map(|it| (*it).to_owned()).collect(),
            ..running()
        };
        let steps = [
            step("sweep", None, &[]),
            step("sweep.0", Some("sweep"), &[]),
            step("sweep.1", Some("sweep"), &[]),
            step("other", None, &[]),
            step("score", None, &["sweep.0:any"]),
            step("plot", None, &["score"]),
            step("mail", None, &["plot"]),
            step("report", None, &["sweep.0", "score"]),
            step("lost", None, &["forgotten"]),
        ];
        let tree: Vec<String> = as_tree(&steps).into_iter().map(|step| step.id).collect();
        assert_eq!(
            tree,
            [
                "sweep",
                "├─ sweep.0",
                "│  ├─ score",
                "│  │  └─ plot",
                "│  │     └─ mail",
                "│  └─ report",
                "└─ sweep.1",
                "other",
                "lost",
            ]
        );
    }
}
