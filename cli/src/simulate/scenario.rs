//! Plays the cases of scenario files and prints, for each, `ok` or the differences, and its end.

mod read;

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::Serialize;
use sluice_simulator::scenario::{Case, Difference, End};

use crate::args::Format;
use crate::failure::{FAILED, Failure};
use crate::out::{Out, Tone};
use crate::render::safe;
use crate::show;

#[cfg(test)]
pub(super) use read::of_text;

/// Result of a case.
#[derive(Debug, Serialize)]
struct CaseResult {
    case: String,
    ok: bool,
    differences: Vec<Difference>,
    end: End,
}

/// Plays the cases; the exit code says whether any end differs.
pub(super) fn run(files: &[PathBuf], only: &[String], out: Out) -> Result<u8, Failure> {
    let cases = read::files(files, only)?;
    let results = cases.iter().map(play).collect::<Result<Vec<_>, _>>()?;
    match out.format() {
        Format::Table | Format::Wide => out.result(&text(&results, out))?,
        Format::Json | Format::Yaml => show::items(&results, out)?,
        Format::Name => out.result(&names(&results))?,
    }
    let differs = results.iter().any(|result| !result.ok);
    Ok(if differs { FAILED } else { 0 })
}

fn play(case: &Case) -> Result<CaseResult, Failure> {
    let end = case.play().map_err(|fault| {
        let id = case.id.escape_debug();
        Failure::Usage(format!("case `{id}`, {fault}"))
    })?;
    let differences = case.differences(&end);
    Ok(CaseResult {
        case: case.id.clone(),
        ok: differences.is_empty(),
        differences,
        end,
    })
}

/// Lists the cases that differ.
fn names(results: &[CaseResult]) -> String {
    let wrong = results.iter().filter(|result| !result.ok);
    wrong.map(|result| safe(&result.case) + "\n").collect()
}

fn text(results: &[CaseResult], out: Out) -> String {
    let width = results.iter().map(|result| result.case.len()).max();
    let width = width.unwrap_or(0);
    let lines: String = results
        .iter()
        .map(|result| one(result, width, out))
        .collect();
    format!("{lines}{}\n", summary(results))
}

fn one(result: &CaseResult, width: usize, out: Out) -> String {
    let word = if result.ok {
        out.paint(Tone::Good, "ok     ")
    } else {
        out.paint(Tone::Bad, "differs")
    };
    let case = safe(&result.case);
    let differences = result.differences.iter().map(difference);
    let line = format!("{word}  {case:width$}  {}\n", end(&result.end));
    differences.fold(line, |text, line| text + &line)
}

fn difference(difference: &Difference) -> String {
    let list = difference.list.as_str();
    let expected = listed(&difference.expected);
    let got = listed(&difference.got);
    format!("         {list}: expected {expected}; got {got}\n")
}

fn listed<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| safe(name)).collect();
    if names.is_empty() {
        return "nothing".to_owned();
    }
    names.join(", ")
}

/// Formats the end state on one line, without empty parts.
fn end(end: &End) -> String {
    let allocated = end.allocated.iter().map(|request| {
        let nodes = end.placed.get(request).map(|nodes| nodes.join("+"));
        format!("{request} on {}", nodes.unwrap_or_default())
    });
    let lists = [
        ("allocated", allocated.collect()),
        ("queued", plain(&end.queued)),
        ("preempted", plain(&end.preempted)),
        ("suspended", plain(&end.suspended)),
        ("failed", plain(&end.failed)),
        ("rejected", explained(&end.rejected, end)),
        ("policies refused", explained(&end.policy_refused, end)),
    ];
    let lists: Vec<String> = lists
        .into_iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(list, names)| format!("{list}: {}", listed(&names)))
        .collect();
    if lists.is_empty() {
        return "nothing runs, nothing waits".to_owned();
    }
    lists.join("; ")
}

fn plain(names: &BTreeSet<String>) -> Vec<String> {
    names.iter().cloned().collect()
}

fn explained(names: &BTreeSet<String>, end: &End) -> Vec<String> {
    let explained = names.iter().map(|name| match end.reasons.get(name) {
        Some(reason) => format!("{name} ({reason})"),
        None => name.clone(),
    });
    explained.collect()
}

fn summary(results: &[CaseResult]) -> String {
    let differ = results.iter().filter(|result| !result.ok).count();
    let cases = match results.len() {
        1 => "1 case".to_owned(),
        n => format!("{n} cases"),
    };
    match differ {
        0 => format!("{cases}: all ok"),
        1 => format!("{cases}: 1 differs"),
        n => format!("{cases}: {n} differ"),
    }
}
