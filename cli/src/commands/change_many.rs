//! `sluice cancel`, `suspend`, `resume`, `requeue` and `delete` of the steps that patterns or filters select: one call of the
//! API.
//!
//! On a terminal it asks before it changes more than one step. Without a terminal it needs `--yes`, whatever the filters
//! select at the moment: a script never hangs, and never fails only on the day when two steps match.

use std::io::{self, BufRead, IsTerminal};

use sluice_common::api::{StepFilter, StepOutcomeView, StepsActionRequest, StepsActionView};

use super::{outage_note, selection};
use crate::args::{ChangeFlags, Format, StepSelector};
use crate::client::{Client, RetryLimit, StepAction};
use crate::failure::{FAILED, Failure};
use crate::out::Out;
use crate::render::safe;
use crate::render::step::tone;
use crate::show;

pub(crate) fn run(
    client: &Client,
    action: StepAction,
    wanted: &StepSelector,
    flags: ChangeFlags,
    out: Out,
) -> Result<u8, Failure> {
    let can_ask = out.is_watched() && io::stdin().is_terminal();
    if !flags.dry_run && !flags.yes && !can_ask {
        return Err(Failure::Usage(
            "patterns and filters may select many steps, and there is no terminal to ask: add --yes, or --dry-run to \
             see which"
                .to_owned(),
        ));
    }
    let filter = wanted.filter(client)?;
    let found = call(client, action, true, &filter, out)?;
    if found.matched == 0 {
        out.notice(&format!(
            "no step matches {}",
            safe(&selection::in_words(&filter))
        ));
    }
    if flags.dry_run || found.matched == 0 {
        return show_all(&found, None, out);
    }
    if found.matched > 1 && !flags.yes && !agreed(action, found.matched, out)? {
        return Err(Failure::Failed("nothing was changed".to_owned()));
    }
    let changed = call(client, action, false, &filter, out)?;
    show_all(&changed, Some(action), out)
}

/// Makes the call until it has reached the end, and adds up the answers.
fn call(
    client: &Client,
    action: StepAction,
    dry_run: bool,
    filter: &StepFilter,
    out: Out,
) -> Result<StepsActionView, Failure> {
    let mut request = StepsActionRequest {
        filter: filter.clone(),
        all: *filter == StepFilter::default(),
        cursor: None,
    };
    let mut sum = StepsActionView::default();
    loop {
        let part = || client.act_on_steps(action, dry_run, &request);
        let part = client.keep_trying(RetryLimit::CHANGE, outage_note(out), part)?;
        sum.matched += part.matched;
        sum.failed += part.failed;
        sum.steps.extend(part.steps);
        if part.next_cursor.is_none() {
            return Ok(sum);
        }
        request.cursor = part.next_cursor;
    }
}

/// Asks on the terminal, and takes everything but a yes for a no.
fn agreed(action: StepAction, count: u64, out: Out) -> Result<bool, Failure> {
    let verb = action.verb();
    let verb = verb[..1].to_uppercase() + &verb[1..];
    out.ask(&format!("{verb} {count} steps? [y/N] "));
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).map_err(|error| {
        Failure::Failed(format!(
            "cannot read the answer, so nothing was changed: {error}"
        ))
    })?;
    Ok(matches!(line.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// Lists the steps as they are after the action, or without one as they are now.
fn show_all(
    answer: &StepsActionView,
    done_by: Option<StepAction>,
    out: Out,
) -> Result<u8, Failure> {
    let (failed, done): (Vec<_>, Vec<_>) =
        answer.steps.iter().partition(|step| step.error.is_some());
    match out.format() {
        Format::Json | Format::Yaml => show::value(answer, out)?,
        Format::Table | Format::Wide => {
            let lines: String = done
                .iter()
                .map(|step| line(step, done_by, out) + "\n")
                .collect();
            out.result(&lines)?;
        }
        Format::Name => {
            let names = done.iter().map(|step| format!("step/{}\n", safe(&step.id)));
            out.result(&names.collect::<String>())?;
        }
    }
    for step in &failed {
        let why = step
            .error
            .as_ref()
            .map_or("", |error| error.message.as_str());
        out.error(&format!("{}: {why}", step.id));
    }
    let hidden = answer.matched.saturating_sub(answer.steps.len() as u64);
    if hidden > 0 && out.format().is_line_by_line() {
        out.notice(&format!("and {hidden} more steps"));
    }
    Ok(if answer.failed > 0 { FAILED } else { 0 })
}

fn line(step: &StepOutcomeView, done_by: Option<StepAction>, out: Out) -> String {
    if done_by == Some(StepAction::Delete) {
        return format!("step/{} deleted", safe(&step.id));
    }
    let state = out.paint(tone(step.state), step.state);
    let held = if step.held { " (held)" } else { "" };
    format!("{} {state}{held}", safe(&step.id))
}
