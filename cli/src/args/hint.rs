//! Suggests what users of other tools mean by their commands. Pure.

mod arguments;
mod cluster_commands;
mod elsewhere;
#[cfg(test)]
mod foreign_pages;
mod options;
#[cfg(test)]
mod page;
mod step_commands;
mod things;

use std::ffi::OsString;

use arguments::by_arguments;
use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use elsewhere::{FlagsEffect, REASONS, SHORT_NAMES, SHORT_VERBS, TOOLS, elsewhere};
use options::OPTIONS;
use things::{CONDITIONS, THINGS};

use super::Args;
use crate::render::safe;

/// Suggestions of the parser, which know only the letters of a word.
const BY_LETTERS: [ContextKind; 4] = [
    ContextKind::Suggested,
    ContextKind::SuggestedArg,
    ContextKind::SuggestedSubcommand,
    ContextKind::SuggestedValue,
];

/// Returns a suggestion for a wrong command line, if there is one, and takes the place of the parser's.
pub(crate) fn hint(error: &mut clap::Error, typed: &[String]) -> Option<String> {
    let hint = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            of_command(&said(error, ContextKind::InvalidSubcommand)?, typed)
        }
        ErrorKind::InvalidValue => {
            let value = said(error, ContextKind::InvalidValue)?;
            by_arguments(typed)
                .or_else(|| of_thing(&value, typed))
                .or_else(|| without_kind(&value, typed))
                .or_else(|| of_condition(&value, typed))
                .or_else(|| of_format(&value, typed))
                .or_else(|| of_label(&value, typed))
        }
        ErrorKind::ValueValidation => of_priority(&said(error, ContextKind::InvalidValue)?, typed),
        ErrorKind::UnknownArgument => {
            let word = said(error, ContextKind::InvalidArg)?;
            by_arguments(typed)
                .or_else(|| of_creation(typed))
                .or_else(|| of_foreign_thing(typed))
                .or_else(|| of_option(&word, typed))
        }
        _ => None,
    }?;
    for kind in BY_LETTERS {
        error.remove(kind);
    }
    Some(hint)
}

fn said(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    }
}

/// Returns the equivalent of a command, from its first word on.
fn of_command(verb: &str, typed: &[String]) -> Option<String> {
    let at = typed.iter().position(|word| word == verb)?;
    if typed[..at].last().is_some_and(|above| is_own(above)) {
        // Below a command of this program, only a phrase from there on means the same elsewhere.
        return equivalent(&typed[at - 1..]);
    }
    let line = &typed[at..];
    if TOOLS.contains(&verb) && line.len() > 1 {
        return Some(of_tool(line));
    }
    let thing = || {
        let mut things = THINGS.iter().filter(|_| names_no_command(line.get(1)));
        let (_, thing) = things.find(|(words, _)| words.contains(&verb))?;
        Some(told(verb, &[thing.get]))
    };
    equivalent(line)
        .or_else(thing)
        .or_else(|| is_group(verb).then(|| unknown(line)))
}

/// Returns the hint for a line that begins with the name of another tool.
fn of_tool(line: &[String]) -> String {
    by_arguments(line)
        .or_else(|| own(line))
        .or_else(|| equivalent(&line[1..]))
        .unwrap_or_else(|| unknown(line))
}

/// Says that a line is no command that is known here, rather than what a part of it means.
fn unknown(line: &[String]) -> String {
    let words = line.iter().take_while(|word| !word.starts_with('-'));
    let words: Vec<String> = words.take(3).cloned().collect();
    let words = quoted(&words);
    format!("no equivalent of `{words}` is known: sluice help lists the commands")
}

/// Whether this program takes a command line.
fn is_read(line: &[&str]) -> bool {
    Args::read(line.iter().map(OsString::from).collect()).is_ok()
}

/// Whether a word is a command of this program.
fn is_own(word: &str) -> bool {
    Args::command().find_subcommand(word).is_some()
}

/// Returns a hint for words that were typed after the name of another tool: the same words, if this program takes them
/// and they mean the same, or else what is wrong about them here.
fn own(typed: &[String]) -> Option<String> {
    let line = &typed[1..];
    let words = std::iter::once("sluice").chain(line.iter().map(String::as_str));
    let words: Vec<OsString> = words.map(OsString::from).collect();
    match Args::read(words) {
        Ok(_) => equivalent(typed).or_else(|| {
            let same = quoted(line);
            Some(format!("the same here: sluice {same}"))
        }),
        Err(mut error) => {
            let kind = error.kind();
            let mut hint = || hint(&mut error, line);
            let hint = match kind {
                ErrorKind::UnknownArgument => hint().or_else(|| equivalent(typed)),
                _ => equivalent(typed).or_else(hint),
            };
            let is_here = kind != ErrorKind::InvalidSubcommand && is_own(&line[0]);
            hint.or_else(|| {
                let verb = safe(&line[0]);
                is_here.then(|| format!("`{verb}` is a command here too: sluice help {verb}"))
            })
        }
    }
}

fn quoted(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| safe(word)).collect();
    words.join(" ")
}

/// Returns the equivalent of an option of another tool, or the place of a program that was taken for an argument.
fn of_option(word: &str, typed: &[String]) -> Option<String> {
    let (at, command) = typed.iter().enumerate().find(|(_, word)| is_own(word))?;
    if command == "exec" && !word.starts_with('-') {
        let program = at + typed[at..].iter().position(|typed| typed == word)?;
        let (before, program) = typed.split_at(program);
        let (before, program) = (quoted(before), quoted(program));
        return Some(format!(
            "put `--` before the program: sluice {before} -- {program}"
        ));
    }
    // `logs -n` takes a number of lines in Docker and OSMO, and a namespace in kubectl and gpuctl.
    let value = typed.iter().skip_while(|typed| *typed != word).nth(1);
    let is_number = value.is_some_and(|value| value.parse::<u64>().is_ok());
    let meant = match (command.as_str(), word) {
        ("logs", "-n") if is_number => "--lines",
        _ => word,
    };
    let mut found = OPTIONS
        .iter()
        .filter(|(commands, _)| commands.contains(&command.as_str()))
        .flat_map(|(_, options)| options.iter());
    let (_, here) = found.find(|(words, _)| words.contains(&meant))?;
    Some(match here {
        FlagsEffect::Same(here) => told(word, &[here]),
        FlagsEffect::Needless(why) => format!("`{word}` is not needed here: {why}"),
    })
}

/// Returns the equivalent of `create` of one thing by flags, which this program does by documents.
fn of_creation(typed: &[String]) -> Option<String> {
    let at = typed.iter().position(|word| word == "create")?;
    let is_first = typed[..at].iter().all(|word| word.starts_with('-'));
    let names_thing = typed.get(at + 1).is_some_and(|word| !word.starts_with('-'));
    let line = &typed[at..];
    (is_first && names_thing).then(|| equivalent(line).unwrap_or_else(|| unknown(line)))
}

/// Returns the equivalent of a foreign kind of things after a command of this program.
fn of_foreign_thing(typed: &[String]) -> Option<String> {
    let noun = typed.iter().skip_while(|word| !is_own(word)).nth(1)?;
    let is_kind = is_read(&["sluice", "get", noun]);
    of_thing(noun, typed).filter(|_| !is_kind)
}

/// Returns the command with the kind of a thing that was named without it.
fn without_kind(name: &str, typed: &[String]) -> Option<String> {
    let at = typed.iter().position(|word| word == name)?;
    if typed[at + 1..].iter().any(|word| !word.starts_with('-')) {
        return None;
    }
    let name = safe(name);
    match typed[..at].last()?.as_str() {
        "get" if name == "all" => Some(told("get all", &["sluice get steps", "sluice get pools"])),
        "describe" => Some(format!(
            "write what it is: sluice describe step {name}, or sluice describe node {name}"
        )),
        "delete" => Some(format!(
            "write what it is, such as sluice delete pool {name}; a step is ended by sluice cancel {name}"
        )),
        _ => None,
    }
}

/// Returns the equivalent of what kubectl waits for.
fn of_condition(value: &str, typed: &[String]) -> Option<String> {
    let waits = typed.iter().any(|word| word == "wait");
    let mut known = CONDITIONS.iter();
    let (word, here) = known.find(|(word, _)| waits && word.eq_ignore_ascii_case(value))?;
    Some(told(&format!("--for {word}"), &[here]))
}

/// Returns the equivalent of `-o` with what is no format here: the columns of kubectl, or a file of a step.
fn of_format(value: &str, typed: &[String]) -> Option<String> {
    let (word, _) = value.split_once('=').unwrap_or((value, ""));
    if ["custom", "custom-columns"].contains(&word) {
        return Some(told(&format!("-o {word}"), &["--columns ID,STATE"]));
    }
    let is_submit = typed.iter().any(|word| word == "run" || word == "submit");
    let is_file = value.contains(['/', '.', '*', '%']);
    (is_submit && is_file).then(|| told("--output", &["--stdout FILE", "--keep PATTERN"]))
}

/// Returns the command with the kind of what it labels, which gpuctl leaves out.
fn of_label(value: &str, typed: &[String]) -> Option<String> {
    let at = typed.iter().position(|word| word == value)?;
    let is_thing = THINGS.iter().any(|(words, _)| words.contains(&value));
    if is_thing || typed[..at].last()? != "label" {
        return None;
    }
    let pools = |word: &String| word.starts_with("runwhere.ai/pool=");
    if typed[at..].iter().any(pools) {
        return Some(told(
            "label NODE runwhere.ai/pool=POOL",
            &[
                "sluice move node NODE --pool POOL",
                "sluice label node NODE runwhere.ai/pool=POOL",
            ],
        ));
    }
    let line = [&["label", "node"].map(str::to_owned), &typed[at..]].concat();
    let words = std::iter::once("sluice").chain(line.iter().map(String::as_str));
    match Args::read(words.map(OsString::from).collect()) {
        Ok(_) => Some(format!("write what it is: sluice {}", quoted(&line))),
        Err(mut error) => hint(&mut error, &line),
    }
}

/// Returns the class of a step for a priority that is a word, as OSMO and gpuctl have them.
fn of_priority(value: &str, typed: &[String]) -> Option<String> {
    let class = match value.to_ascii_lowercase().as_str() {
        "high" => "--priority-class high",
        "normal" | "medium" => "--priority-class normal",
        "low" => "--priority-class low",
        _ => return None,
    };
    let asks = typed.iter().any(|word| word.starts_with("--priority"));
    asks.then(|| told(&format!("--priority {}", safe(value)), &[class]))
}

/// Returns a line with the long names of its words.
fn spelled_out(line: &[String]) -> Vec<String> {
    let long = |(n, word): (usize, &String)| {
        let names: &[(&str, &str)] = if n == 0 { &SHORT_NAMES } else { &SHORT_VERBS };
        let long = names.iter().find(|(short, _)| short == word);
        long.map_or_else(|| word.clone(), |(_, long)| (*long).to_owned())
    };
    line.iter().enumerate().map(long).collect()
}

fn equivalent(line: &[String]) -> Option<String> {
    by_arguments(line)
        .or_else(|| reason(line))
        .or_else(|| best(line))
        .or_else(|| best(&spelled_out(line)).filter(|_| line.len() > 1))
}

/// Whether commands are known below a phrase: a word behind it is one of them, and no argument.
fn is_group(phrase: &str) -> bool {
    let mut all = elsewhere().flat_map(|(phrases, _)| phrases.iter());
    all.any(|it| {
        let below = it.strip_prefix(phrase).and_then(|it| it.strip_prefix(' '));
        below.is_some_and(|below| !below.starts_with('-'))
    })
}

/// Whether the word behind a phrase is not there, an option, or an id, which has digits where commands have none.
fn names_no_command(next: Option<&String>) -> bool {
    next.is_none_or(|next| next.starts_with('-') || next.contains(|c: char| c.is_ascii_digit()))
}

/// Whether a line begins with a phrase, whose options may stand anywhere.
fn begins(line: &[String], phrase: &str) -> bool {
    let stands = |n: usize, word: &str| {
        line.get(n)
            .is_some_and(|typed| typed.eq_ignore_ascii_case(word))
    };
    let anywhere = |word: &str| {
        let is_it = |typed: &String| typed.split('=').next() == Some(word);
        word.starts_with('-') && line.iter().any(is_it)
    };
    let mut words = phrase.split(' ').enumerate();
    words.all(|(n, word)| stands(n, word) || anywhere(word))
}

/// Returns why a line has no equivalent, and what to do instead.
fn reason(line: &[String]) -> Option<String> {
    let mut all = REASONS.iter();
    let (phrase, why) = all.find(|(phrase, _)| begins(line, phrase))?;
    Some(format!("no equivalent of `{phrase}`: {why}"))
}

/// Returns the equivalent of the longest phrase with which a line begins.
fn best(line: &[String]) -> Option<String> {
    let all = elsewhere();
    let all = all.flat_map(|(phrases, here)| phrases.iter().map(move |it| (*it, *here)));
    let matching = all.filter(|(phrase, _)| begins(line, phrase));
    let (phrase, here) = matching.max_by_key(|(phrase, _)| phrase.split(' ').count())?;
    let next = line.get(phrase.split(' ').count());
    (!is_group(phrase) || names_no_command(next)).then(|| told(phrase, here))
}

fn told(there: &str, here: &[&str]) -> String {
    format!("Sluice's equivalent of `{there}`: {}", here.join(", or "))
}

/// Returns the equivalent of a command with a kind of things that is called otherwise here.
fn of_thing(noun: &str, typed: &[String]) -> Option<String> {
    let (_, thing) = THINGS.iter().find(|(words, _)| words.contains(&noun))?;
    let at = typed.iter().position(|word| word == noun)?;
    let verb = typed[..at]
        .iter()
        .rev()
        .find(|word| !word.starts_with('-'))?;
    let here = match verb.as_str() {
        "get" => thing.get,
        "describe" => thing.describe,
        "delete" => thing.delete,
        _ => return None,
    };
    Some(told(&format!("{verb} {noun}"), &[here]))
}

#[cfg(test)]
mod tests;
