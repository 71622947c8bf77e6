//! Scripts that are submitted as steps: the `#SLUICE` and `#SBATCH` lines at their head, and the command that brings
//! the script's text to a host, which may share no file system with this machine.

mod sbatch;
mod slurm_options;

use std::path::Path;

use sluice_common::request::StepRequest;

use crate::args::ScriptFlags;
use crate::failure::Failure;
use crate::request_builder;
use sbatch::ScriptLines;

/// Largest script: Linux accepts 128 KiB in one argument.
const MAX_SCRIPT_BYTES: usize = 64 * 1024;

/// Beginning of the lines with flags of `sluice`.
const OWN_LINE: &str = "#SLUICE";
/// Beginning of the lines with options of Slurm's `sbatch`.
const SLURM_LINE: &str = "#SBATCH";

/// Writes the text into the step's own directory, which every attempt has, and becomes its interpreter, as Slurm does
/// with its copy. Only what a shell has built in is needed, unless a wrapper hides that directory.
const BRING: &str = "d=${SLUICE_CHECKPOINT_FILE%/*}; [ -w \"$d\" ] || d=$(mktemp -d) || exit 126; \
                     (umask 077; printf %s \"$1\" >\"$d/$0\") || exit 126; shift; exec ";

/// A script as it was when it was read.
pub(crate) struct Script {
    /// File, as messages call it.
    file: String,
    /// Name of the copy on the host.
    name: String,
    text: String,
}

/// Request of a script, with a warning about lines that have no effect.
pub(crate) struct ScriptRequest {
    pub(crate) request: StepRequest,
    pub(crate) warning: Option<String>,
}

impl Script {
    /// Whether a text is a script: it begins with `#!`.
    pub(crate) fn is_one(text: &str) -> bool {
        text.starts_with("#!")
    }

    /// File, as messages call it.
    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    /// Checks the text of a script.
    ///
    /// # Errors
    /// If it is too long, or would not run as it is.
    pub(crate) fn new(path: &Path, file: String, text: String) -> Result<Self, Failure> {
        let bytes = text.len();
        let first = text.lines().next().unwrap_or_default();
        let why = if bytes > MAX_SCRIPT_BYTES {
            format!(
                "it has {bytes} bytes, and a script is sent along up to {MAX_SCRIPT_BYTES}: put it where the hosts can read it, and write `--` before its path there"
            )
        } else if text.contains('\0') {
            "it holds a NUL byte, which no script can".to_owned()
        } else if text
            .split('\n')
            .next()
            .is_some_and(|line| line.ends_with('\r'))
        {
            "its lines end as on Windows, so no host finds its interpreter: convert it (`dos2unix`)"
                .to_owned()
        } else if interpreter(first).is_empty() {
            "its first line names no interpreter: write one, such as `#!/bin/sh`".to_owned()
        } else {
            let name = path.file_name().and_then(|name| name.to_str());
            // The marker of a checkpoint is in the same directory.
            let name = name.filter(|name| *name != "-" && *name != "checkpoint");
            let name = name.unwrap_or("script").to_owned();
            return Ok(Self { file, name, text });
        };
        Err(Failure::Failed(format!("{file}: {why}")))
    }

    /// Returns the request of the script: its command with these arguments, and what the lines at its head ask for.
    /// `#SLUICE` lines override `#SBATCH` lines, and later lines earlier ones.
    ///
    /// # Errors
    /// If a line is wrong, or asks for what cannot be had.
    pub(crate) fn request(&self, arguments: &[String]) -> Result<ScriptRequest, Failure> {
        let mut own = StepRequest::default();
        let mut slurm = ScriptLines::default();
        for (number, line) in self.head() {
            if let Some(flags) = directive(line, OWN_LINE) {
                let layer = self.own_line(number, flags)?;
                let id = layer.id.clone().or(own.id.clone());
                own = StepRequest {
                    id,
                    ..layer.over(own)
                };
            } else if let Some(options) = directive(line, SLURM_LINE) {
                let words = shlex::split(options).ok_or_else(|| self.unclosed(number))?;
                slurm.read(number, words);
            }
        }
        let translated = slurm.finish().map_err(|refused| {
            Failure::Failed(format!("{}: nothing was submitted: {refused}", self.file))
        })?;
        let request = StepRequest {
            command: self.command(arguments),
            name: Some(self.name.clone()),
            ..StepRequest::default()
        };
        let id = own.id.clone();
        let request = own.over(translated.request).over(request);
        let warnings = translated.warning.into_iter().chain(self.late_line());
        let warnings: Vec<String> = warnings.collect();
        Ok(ScriptRequest {
            request: StepRequest { id, ..request },
            warning: (!warnings.is_empty())
                .then(|| format!("{}: {}", self.file, warnings.join("; "))),
        })
    }

    /// Returns the lines before the first command, with their numbers.
    fn head(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().enumerate();
        let lines = lines.map(|(i, line)| (i + 1, line));
        lines.take_while(|(_, line)| line.trim().is_empty() || line.trim_start().starts_with('#'))
    }

    /// Warns about a line of flags below the first command.
    fn late_line(&self) -> Option<String> {
        let head = self.head().count();
        let mut lines = self.text.lines().enumerate().skip(head);
        let is_directive = |line| {
            directive(line, OWN_LINE)
                .or(directive(line, SLURM_LINE))
                .is_some()
        };
        let (at, _) = lines.find(|(_, line)| is_directive(line))?;
        Some(format!(
            "line {} stands below the first command and has no effect: move it up",
            at + 1
        ))
    }

    fn own_line(&self, number: usize, flags: &str) -> Result<StepRequest, Failure> {
        let wrong = |why: String| {
            Failure::Failed(format!("{}:{number}: {OWN_LINE} line: {why}", self.file))
        };
        let words = shlex::split(flags).ok_or_else(|| self.unclosed(number))?;
        let flags = ScriptFlags::read(words).map_err(wrong)?;
        request_builder::layer(flags).map_err(|e| wrong(e.to_string()))
    }

    fn unclosed(&self, number: usize) -> Failure {
        Failure::Failed(format!("{}:{number}: a quote is not closed", self.file))
    }

    /// Returns the command that runs the text with its interpreter and these arguments.
    fn command(&self, arguments: &[String]) -> Vec<String> {
        let first = self.text.lines().next().unwrap_or_default();
        let words = interpreter(first).into_iter().map(quoted);
        let words: Vec<String> = words.collect();
        let bring = format!("{BRING}{} \"$d/$0\" \"$@\"", words.join(" "));
        let fixed = ["/bin/sh", "-c", &bring, &self.name, &self.text];
        let fixed = fixed.map(str::to_owned);
        fixed.into_iter().chain(arguments.iter().cloned()).collect()
    }
}

/// Returns what follows the beginning of a line of flags.
fn directive<'a>(line: &'a str, beginning: &str) -> Option<&'a str> {
    let rest = line.strip_prefix(beginning)?;
    (rest.is_empty() || rest.starts_with([' ', '\t'])).then_some(rest)
}

/// Returns the interpreter in a first line and, as the kernel reads it, the rest as its one argument.
fn interpreter(line: &str) -> Vec<&str> {
    let words = line.strip_prefix("#!").unwrap_or_default().trim();
    let (program, argument) = words.split_once([' ', '\t']).unwrap_or((words, ""));
    let both = [program, argument.trim_start()];
    both.into_iter().filter(|word| !word.is_empty()).collect()
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests;
