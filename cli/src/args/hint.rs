//! Suggests what users of other tools mean by their commands. Pure.

mod elsewhere;
#[cfg(test)]
mod page;

use std::ffi::OsString;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use elsewhere::{ELSEWHERE, THINGS, TOOLS};

use super::Args;
use crate::render::safe;

/// Suggestions of the parser, which know only the letters of a word.
const BY_LETTERS: [ContextKind; 3] = [
    ContextKind::Suggested,
    ContextKind::SuggestedSubcommand,
    ContextKind::SuggestedValue,
];

/// Returns a suggestion for a wrong command line, if there is one, and takes the place of the parser's.
pub(crate) fn hint(error: &mut clap::Error, typed: &[String]) -> Option<String> {
    let hint = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            of_command(&said(error, ContextKind::InvalidSubcommand)?, typed)
        }
        ErrorKind::InvalidValue => of_thing(&said(error, ContextKind::InvalidValue)?, typed),
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
        return own(&line[1..]).or_else(|| equivalent(&line[1..]));
    }
    equivalent(line).or_else(|| {
        let (_, thing) = THINGS.iter().find(|(words, _)| words.contains(&verb))?;
        Some(told(verb, &[thing.get]))
    })
}

/// Whether a word is a command of this program.
fn is_own(word: &str) -> bool {
    Args::command().find_subcommand(word).is_some()
}

/// Returns a command line of this program that was typed after the name of another tool.
fn own(line: &[String]) -> Option<String> {
    let words = std::iter::once("sluice").chain(line.iter().map(String::as_str));
    let words: Vec<OsString> = words.map(OsString::from).collect();
    let parses = Args::read(words).is_ok();
    parses.then(|| {
        let words: Vec<String> = line.iter().map(|word| safe(word)).collect();
        format!("the same here: sluice {}", words.join(" "))
    })
}

fn equivalent(line: &[String]) -> Option<String> {
    let begins = |phrase: &str| {
        let words: Vec<&str> = phrase.split(' ').collect();
        let stands = |n: usize, word: &str| line.get(n).is_some_and(|typed| typed == word);
        let anywhere = |word: &str| word.starts_with("--") && line.iter().any(|it| it == word);
        let mut words = words.iter().enumerate();
        words.all(|(n, word)| stands(n, word) || anywhere(word))
    };
    let all = ELSEWHERE.iter();
    let all = all.flat_map(|(phrases, here)| phrases.iter().map(move |it| (*it, *here)));
    let matching = all.filter(|(phrase, _)| begins(phrase));
    let (phrase, here) = matching.max_by_key(|(phrase, _)| phrase.split(' ').count())?;
    Some(told(phrase, here))
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
mod tests {
    use super::*;

    fn error_of(line: &str) -> (Option<String>, String) {
        let typed: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let words = std::iter::once("sluice").chain(line.split(' '));
        let words = words.map(OsString::from).collect();
        let mut error = Args::read(words).expect_err(line);
        let hint = hint(&mut error, &typed);
        (hint, error.to_string())
    }

    fn told_of(line: &str) -> Option<String> {
        error_of(line).0
    }

    #[test]
    fn what_is_typed_elsewhere_is_told_by_its_name_here() {
        for (typed, here) in [
            ("squeue -u me", "`squeue`: sluice get steps"),
            (
                "sbatch job.sh",
                "`sbatch`: sluice submit SCRIPT, or sluice submit -f FILE, or sluice submit -- CMD",
            ),
            ("scancel 7", "`scancel`: sluice cancel STEP"),
            (
                "srun --gpus 1 --pty bash",
                "`srun --pty`: sluice run -it -- CMD",
            ),
            (
                "scontrol show node gpu-1",
                "`scontrol show node`: sluice describe node NODE",
            ),
            (
                "scontrol show job 7",
                "`scontrol show job`: sluice describe step STEP",
            ),
            ("create -f pool.yaml", "`create -f`: sluice apply -f FILE"),
            ("attach-policy a b", "`attach-policy`: sluice apply -f FILE"),
            ("resource list", "`resource list`: sluice get nodes"),
            (
                "config update POOL",
                "`config update`: sluice apply -f FILE",
            ),
            ("get agents", "`get agents`: sluice get nodes"),
            ("get jobs", "`get jobs`: sluice get steps"),
            (
                "describe pod a",
                "`describe pod`: sluice describe step STEP",
            ),
            ("delete pod a", "`delete pod`: sluice cancel STEP"),
            ("pods", "`pods`: sluice get steps"),
            ("nomad job run a.hcl", "`job run`: sluice submit -f FILE"),
            ("hq job cancel 1", "`job cancel`: sluice cancel STEP"),
        ] {
            let told = told_of(typed).unwrap_or_else(|| panic!("{typed}"));
            assert_eq!(told, format!("Sluice's equivalent of {here}"), "{typed}");
        }
        assert_eq!(
            told_of("kubectl get nodes -o wide").unwrap(),
            "the same here: sluice get nodes -o wide"
        );
        for typed in [
            "token update",
            "context frob",
            "frobnicate",
            "get frobs",
            "kubectl port-forward a 1:2",
            "describe frob a",
        ] {
            assert_eq!(told_of(typed), None, "{typed}");
        }
    }

    #[test]
    fn a_hint_takes_the_place_of_what_only_looks_alike() {
        let (hint, error) = error_of("attach-policy a");
        assert!(hint.is_some() && !error.contains("tip:"), "{error}");
        let (hint, error) = error_of("get agents");
        assert!(hint.is_some() && !error.contains("tip:"), "{error}");
        let (hint, error) = error_of("descibe step a");
        assert!(hint.is_none() && error.contains("'describe'"), "{error}");
    }

    #[test]
    fn every_phrase_is_no_command_of_ours_and_every_equivalent_is_one() {
        let things = THINGS
            .iter()
            .map(|(_, it)| [it.get, it.describe, it.delete]);
        let equivalents = ELSEWHERE.iter().flat_map(|(_, here)| here.iter().copied());
        for line in equivalents.chain(things.flatten()) {
            let words = line.split(' ').map(OsString::from).collect();
            if let Err(error) = Args::read(words) {
                panic!("{line}: {error}");
            }
        }
        for phrase in ELSEWHERE.iter().flat_map(|(phrases, _)| *phrases) {
            let hint = told_of(phrase).unwrap_or_else(|| panic!("{phrase} has no hint"));
            assert!(
                hint.starts_with(&format!("Sluice's equivalent of `{phrase}`")),
                "{phrase}: {hint}"
            );
        }
    }
}
