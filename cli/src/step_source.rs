//! Finds the steps that the arguments of `run` and `submit` describe: a command after `--`, a script, or the documents
//! of a file; the flags override what these say.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use sluice_common::request::{FieldError, StepRequest};

use crate::args::SubmitArgs;
use crate::documents::{self, DocumentLocation, LocatedDocument, LocatedSteps};
use crate::env_file::STDIN;
use crate::failure::Failure;
use crate::out::Out;
use crate::render::safe;
use crate::request_builder::{self, Defaults, names};
use crate::script::Script;

/// Endings of names of documents.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// The step or steps that the arguments describe.
enum StepSource {
    /// A program and its arguments.
    Command(Vec<String>),
    /// A script and its arguments.
    Script(Script, Vec<String>),
    /// The text of a file of documents, and a command that replaces the document's.
    Documents {
        text: String,
        file: String,
        command: Vec<String>,
    },
}

/// Steps that were typed, in order, and services of a file of another tool.
pub(crate) struct SubmitRequests {
    pub(crate) steps: Vec<StepRequest>,
    pub(crate) services: Vec<LocatedDocument>,
}

impl From<Vec<StepRequest>> for SubmitRequests {
    fn from(steps: Vec<StepRequest>) -> Self {
        Self {
            steps,
            services: Vec::new(),
        }
    }
}

/// Returns the steps that were typed, in order.
///
/// # Errors
/// If a file cannot be read or a value is invalid, or if a document is no step; nothing is submitted.
pub(crate) fn requests(
    args: SubmitArgs,
    defaults: &Defaults,
    out: Out,
) -> Result<Vec<StepRequest>, Failure> {
    let SubmitRequests { steps, services } = submission(args, defaults, out)?;
    match services.first() {
        None => Ok(steps),
        Some(LocatedDocument { place, .. }) => Err(Failure::Failed(format!(
            "{place}: it is a service, which does not end: hand it to `sluice apply -f`"
        ))),
    }
}

/// Returns what was typed.
///
/// # Errors
/// If a file cannot be read or a value is invalid; nothing is submitted.
pub(crate) fn submission(
    args: SubmitArgs,
    defaults: &Defaults,
    out: Out,
) -> Result<SubmitRequests, Failure> {
    match StepSource::of(&args)? {
        StepSource::Command(command) => {
            let of_command = |e: &FieldError| Failure::Usage(format!("the command: {}", e.message));
            let below = StepRequest {
                command,
                ..StepRequest::default()
            };
            let flags = flags(args)?;
            let request = request_builder::settle(flags, below, defaults, of_command)?;
            Ok(vec![request].into())
        }
        StepSource::Script(script, arguments) => {
            let below = script.request(&arguments)?;
            let of_script = |e: &FieldError| Failure::Failed(format!("{}: {e}", script.file()));
            let flags = flags(args)?;
            let request = request_builder::settle(flags, below.request, defaults, of_script)?;
            if let Some(warning) = below.warning {
                out.warning(&warning);
            }
            Ok(vec![request].into())
        }
        StepSource::Documents {
            text,
            file,
            command,
        } => {
            let (documents, services) = documents::steps(&text, &file)?;
            let flags = StepRequest {
                command,
                ..flags(args)?
            };
            check_no_services(&flags, &services)?;
            if documents.0.len() > 1 {
                check_for_all(&flags, documents.0.len(), &file)?;
            }
            let steps = from_documents(documents, &flags, defaults, out)?;
            Ok(SubmitRequests { steps, services })
        }
    }
}

/// The fields that flags set.
fn flags(args: SubmitArgs) -> Result<StepRequest, Failure> {
    Ok(StepRequest {
        inside: args.allocation,
        ..request_builder::layer(args.step)?
    })
}

impl StepSource {
    fn of(args: &SubmitArgs) -> Result<Self, Failure> {
        match &args.file {
            None if args.after_dashes => Ok(Self::Command(args.words.clone())),
            None => Self::of_words(args),
            Some(_) if !args.words.is_empty() && !args.after_dashes => Err(stray(&args.words[0])),
            Some(path) => {
                let (text, file) = read(path, args)?;
                match Script::is_one(&text) {
                    false => Ok(Self::Documents {
                        text,
                        file,
                        command: args.words.clone(),
                    }),
                    true if args.words.is_empty() => {
                        Ok(Self::Script(Script::new(path, file, text)?, Vec::new()))
                    }
                    true => Err(Failure::Usage(format!(
                        "--file: {file} is a script, and its own command: leave out --file and `--`, and write its arguments after it"
                    ))),
                }
            }
        }
    }

    /// Reads the file that the first word names; the others are its arguments.
    fn of_words(args: &SubmitArgs) -> Result<Self, Failure> {
        let [word, arguments @ ..] = args.words.as_slice() else {
            return Ok(Self::Command(Vec::new()));
        };
        let path = Path::new(word);
        if word != STDIN {
            check_is_text(path, args)?;
        }
        let (text, file) = read(path, args)?;
        if Script::is_one(&text) {
            let script = Script::new(path, file, text)?;
            return Ok(Self::Script(script, arguments.to_vec()));
        }
        check_is_document(path, args)?;
        Ok(Self::Documents {
            text,
            file,
            command: Vec::new(),
        })
    }
}

/// Reads a file, or standard input.
fn read(path: &Path, args: &SubmitArgs) -> Result<(String, String), Failure> {
    if path == Path::new(STDIN) && args.step.env_files.iter().any(|file| file == STDIN) {
        let twice = "--env-file: standard input can be read once, and --file reads it";
        return Err(Failure::Usage(twice.to_owned()));
    }
    Ok((documents::read_file(path)?, documents::shown(path)))
}

fn stray(word: &str) -> Failure {
    Failure::Usage(format!(
        "`{}` stands after --file without `--`: put `--` before a command that is to replace that of the file",
        safe(word)
    ))
}

/// Checks that the first word names a file that can be sent along.
fn check_is_text(path: &Path, args: &SubmitArgs) -> Result<(), Failure> {
    let shown = safe(&path.to_string_lossy());
    let dashed = &args.dashed;
    if !path.is_file() {
        return Err(Failure::Usage(format!(
            "`{shown}` is no file here; if it is a program of the host, put `--` before it: {dashed}"
        )));
    }
    let mut head = Vec::new();
    let opened = File::open(path).and_then(|file| file.take(4).read_to_end(&mut head));
    let is_program = opened.is_ok() && head.starts_with(b"\x7fELF");
    match is_program {
        true => Err(Failure::Usage(format!(
            "`{shown}` is a program, which is not sent along: if the host has it, put `--` before it: {dashed}"
        ))),
        false => Ok(()),
    }
}

/// Checks that a file without `#!` is one of documents, and stands alone.
fn check_is_document(path: &Path, args: &SubmitArgs) -> Result<(), Failure> {
    let shown = safe(&path.to_string_lossy());
    let ending = path.extension().and_then(|ending| ending.to_str());
    let is_document = ending.is_some_and(|ending| ENDINGS.contains(&ending));
    if !is_document && path != Path::new(STDIN) {
        return Err(Failure::Usage(format!(
            "`{shown}` is neither YAML nor a script: begin a script with its interpreter, such as `#!/bin/sh`; or, if \
             the host has it, put `--` before it: {}",
            args.dashed
        )));
    }
    match args.words.get(1) {
        None => Ok(()),
        Some(first) => Err(Failure::Usage(format!(
            "`{}` stands after `{shown}`: put flags before the file, and `--file` before it to replace its command",
            safe(first)
        ))),
    }
}

/// Builds the requests of documents, in order, with flags over each; every mistake is reported at once.
pub(crate) fn from_documents(
    (documents, notes): LocatedSteps,
    flags: &StepRequest,
    defaults: &Defaults,
    out: Out,
) -> Result<Vec<StepRequest>, Failure> {
    notes.iter().for_each(|note| out.warning(note));
    let (mut documents, places): (Vec<StepRequest>, Vec<DocumentLocation>) =
        documents.into_iter().unzip();
    for document in documents
        .iter_mut()
        .filter(|document| document.id.is_none())
    {
        document.id = Some(request_builder::fresh_id()?);
    }
    names::resolve(&mut documents).map_err(|(i, e)| {
        let place = places[i].of(Some(&e.field), &e.message);
        Failure::Failed(format!("{place}: {e}"))
    })?;
    let settle = |(document, place): (StepRequest, DocumentLocation)| {
        let elsewhere = |e: &FieldError| {
            let place = place.of(Some(&e.field), &e.message);
            Failure::Failed(format!("{place}: {e}"))
        };
        request_builder::settle(flags.clone(), document, defaults, elsewhere)
    };
    let (mut requests, mut mistakes) = (Vec::new(), Vec::new());
    for result in documents.into_iter().zip(places).map(settle) {
        match result {
            Ok(request) => requests.push(request),
            Err(Failure::Failed(mistake)) => mistakes.push(mistake),
            Err(other) => return Err(other),
        }
    }
    match mistakes.is_empty() {
        true => Ok(requests),
        false => Err(Failure::Failed(mistakes.join("\n"))),
    }
}

/// Refuses flags beside services, which they would not change.
fn check_no_services(flags: &StepRequest, services: &[LocatedDocument]) -> Result<(), Failure> {
    match services
        .first()
        .filter(|_| *flags != StepRequest::default())
    {
        None => Ok(()),
        Some(LocatedDocument { place, .. }) => Err(Failure::Usage(format!(
            "{place}: flags are for steps, and it is a service: write them into the file, and leave them out"
        ))),
    }
}

/// Refuses flags that only one of several steps can have.
fn check_for_all(flags: &StepRequest, steps: usize, file: &str) -> Result<(), Failure> {
    let own = [
        ("--id", flags.id.is_some()),
        ("the command after `--`", !flags.command.is_empty()),
    ];
    match own.into_iter().find(|(_, is_set)| *is_set) {
        None => Ok(()),
        Some((what, _)) => Err(Failure::Usage(format!(
            "{what}: {file} has {steps} steps, and only one of them can have it: write it into the file"
        ))),
    }
}

#[cfg(test)]
mod tests;
