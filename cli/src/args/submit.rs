//! Arguments of `run` and `submit`.

use std::ffi::OsString;
use std::path::PathBuf;

use super::StepFlags;
use crate::render::safe;

/// Ways to write a step after `sluice run`.
pub(super) const RUN_USAGE: &str = "\
sluice run [OPTIONS] -- CMD [ARGS]...
       sluice run [OPTIONS] SCRIPT [ARGS]...
       sluice run [OPTIONS] -f FILE [-- CMD [ARGS]...]";

/// Ways to write steps after `sluice submit`.
pub(super) const SUBMIT_USAGE: &str = "\
sluice submit [OPTIONS] -- CMD [ARGS]...
       sluice submit [OPTIONS] SCRIPT [ARGS]...
       sluice submit [OPTIONS] -f FILE [-- CMD [ARGS]...]";

/// Arguments of `run` and `submit`: a step as flags, a file or a script.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true).args(["file", "words"]))]
pub(crate) struct SubmitArgs {
    /// A YAML file of steps, `kind: step` each, or a script; `-` is stdin. Flags override what it says.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Submit nothing, and show stage by stage what would happen.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Run the step inside this allocation, with resources of it: all that it has, unless flags ask for some.
    #[arg(long = "in", value_name = "ALLOCATION", value_parser = super::values::step_id, conflicts_with = "dry_run")]
    pub(crate) allocation: Option<String>,
    #[command(flatten)]
    pub(crate) step: StepFlags,
    /// After `--`, the program and its arguments; without it, a script and its arguments, or a YAML file.
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    pub(crate) words: Vec<String>,
    /// Whether `--` stands before `words`.
    #[arg(skip)]
    pub(crate) after_dashes: bool,
    /// The command line with `--` before `words`, for errors.
    #[arg(skip)]
    pub(crate) dashed: String,
}

impl SubmitArgs {
    /// Notes whether `--` stands before the words, which are the last ones of the command line.
    pub(super) fn note_dashes(&mut self, typed: &[OsString]) {
        let (flags, words) = typed.split_at(typed.len() - self.words.len());
        self.after_dashes = !words.is_empty() && flags.last().is_some_and(|last| last == "--");
        let dashes = OsString::from("--");
        let name = OsString::from("sluice");
        let line = [&name].into_iter().chain(flags.iter().skip(1));
        let line = line.chain([&dashes]).chain(words);
        let line: Vec<String> = line.map(|word| safe(&word.to_string_lossy())).collect();
        self.dashed = line.join(" ");
    }
}
