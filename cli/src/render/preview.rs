//! Renders dry runs of submits: stage by stage, each check with its result.

use sluice_common::api::{CheckView, PreviewOutcome, PreviewView, StageOutcome, StageView};

use super::table::align;
use super::{or_dash, safe, shortened};
use crate::out::{Out, Tone};

/// Steps named in one line.
const NAMED_STEPS: usize = 10;

/// Renders the whole preview.
pub(crate) fn preview(preview: &PreviewView, out: Out) -> String {
    let stages: String = preview.stages.iter().map(|it| stage(it, out)).collect();
    format!("{stages}{}\n", ending(preview))
}

fn stage(stage: &StageView, out: Out) -> String {
    let (tone, word) = match stage.outcome {
        StageOutcome::Passed => (Tone::Good, "passed"),
        StageOutcome::Failed => (Tone::Bad, "failed"),
        StageOutcome::NotReached => (Tone::Faint, "not reached"),
    };
    let head = format!("{}: {}\n", stage.stage.as_str(), out.paint(tone, word));
    let lines: Vec<String> = stage.checks.iter().map(check).collect();
    head + &align(&lines)
}

/// Marks a failed check, since of several pools one may have passed it.
fn check(check: &CheckView) -> String {
    let mark = match check.outcome {
        StageOutcome::Failed => "!",
        StageOutcome::Passed | StageOutcome::NotReached => " ",
    };
    format!(
        "{mark} {}\t{}\t{}",
        or_dash(check.pool.as_deref()),
        safe(&check.about),
        safe(&check.message)
    )
}

fn ending(preview: &PreviewView) -> String {
    let reason = preview.step.as_ref().map(|step| safe(&step.reason.message));
    let why = reason.unwrap_or_default();
    let (word, more) = match preview.outcome {
        PreviewOutcome::Starts => ("it would start at once", String::new()),
        PreviewOutcome::Waits => ("it would wait", format!(": {why}")),
        PreviewOutcome::Rejected => ("it would be rejected", format!(": {why}")),
        PreviewOutcome::Refused => ("it would be refused, and not stored", String::new()),
    };
    let names = preview.preempts.iter().map(|step| safe(step));
    let preempted = match preview.preempts.is_empty() {
        true => String::new(),
        false => format!("; preempted at once: {}", shortened(names, NAMED_STEPS)),
    };
    format!("{word} (dry run){more}{preempted}")
}

#[cfg(test)]
mod tests {
    use super::super::step::tests::running;
    use super::*;

    fn view(outcome: &str, preempts: &[&str]) -> PreviewView {
        serde_json::from_value(serde_json::json!({
            "outcome": outcome, "preempts": preempts, "step": running(), "stages": [
                {"stage": "access", "outcome": "passed", "checks": [
                    {"pool": "default", "about": "policy", "outcome": "passed", "message": "`dev` may"},
                    {"pool": "closed", "about": "maintenance", "outcome": "failed", "message": "until\u{1b} noon"}]},
                {"stage": "queue", "outcome": "not_reached", "checks": []},
            ]
        }))
        .unwrap()
    }

    #[test]
    fn stages_are_told_with_what_was_looked_at() {
        let expected = "\
access: passed
  default  policy       `dev` may
! closed   maintenance  until\\u{1b} noon
queue: not reached
it would wait (dry run): its process runs; preempted at once: a, b
";
        assert_eq!(preview(&view("waits", &["a", "b"]), Out::plain()), expected);
        let text = preview(&view("starts", &[]), Out::plain());
        assert!(
            text.ends_with("it would start at once (dry run)\n"),
            "{text}"
        );
    }
}
