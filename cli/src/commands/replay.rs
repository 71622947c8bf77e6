//! `sluice replay`: shows the history of a data directory, read by the coordinator's own program. No coordinator may
//! run on it.

use std::path::Path;
use std::process::{Command, Stdio};

use serde::de::DeserializeOwned;
use sluice_common::api::{ChangesView, ReplayView};

use super::sibling;
use crate::args::{Format, ReplayArgs};
use crate::failure::Failure;
use crate::out::Out;
use crate::render::replay;
use crate::show;

/// Program that reads stores.
const COORDINATOR: &str = "sluice-coordinator";

pub(crate) fn run(args: &ReplayArgs, out: Out) -> Result<u8, Failure> {
    if out.format() == Format::Name {
        let way_out = "choose -o table, json or yaml";
        return Err(Failure::Usage(format!(
            "--output: `name` does not apply to a replay: {way_out}"
        )));
    }
    let Some(coordinator) = sibling(COORDINATOR) else {
        return Err(Failure::Failed(format!(
            "{COORDINATOR} is not beside this program: install the coordinator's package, or build it with `cargo build`"
        )));
    };
    if args.diff.is_empty() {
        let view: ReplayView = ask(&coordinator, args)?;
        let text = || replay::state(&view, out);
        return shown(&view, text, out);
    }
    let view: ChangesView = ask(&coordinator, args)?;
    let text = || replay::changes(&view, out);
    shown(&view, text, out)
}

fn shown(
    view: &impl serde::Serialize,
    text: impl FnOnce() -> String,
    out: Out,
) -> Result<u8, Failure> {
    if out.format().is_text() {
        out.result(&text())?;
    } else {
        show::value(view, out)?;
    }
    Ok(0)
}

/// Runs the coordinator's program on the directory.
fn ask<T: DeserializeOwned>(coordinator: &Path, args: &ReplayArgs) -> Result<T, Failure> {
    let mut command = Command::new(coordinator);
    command.arg("replay").stdin(Stdio::null());
    if let Some(at) = args.at {
        command.arg("--at").arg(at.to_string());
    }
    if let [from, to] = args.diff[..] {
        let (from, to) = (from.to_string(), to.to_string());
        command.args(["--diff", &from, &to]);
    }
    if let Some(step) = &args.step {
        command.arg(format!("--step={step}"));
    }
    command.arg("--").arg(&args.dir);
    let said = command.output();
    let said =
        said.map_err(|e| Failure::Failed(format!("{} cannot be run: {e}", coordinator.display())))?;
    if !said.status.success() {
        return Err(refusal(&String::from_utf8_lossy(&said.stderr)));
    }
    serde_json::from_slice(&said.stdout).map_err(|e| {
        Failure::Failed(format!(
            "the output of {COORDINATOR} is not understood: {e}"
        ))
    })
}

/// Returns its message without the prefix that ours get too.
fn refusal(said: &str) -> Failure {
    let words = said.lines().find(|line| !line.is_empty());
    let words = words.map(|line| line.strip_prefix("error: ").unwrap_or(line));
    Failure::Failed(words.unwrap_or("it said nothing").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_in_the_words_of_the_reader() {
        for (said, expected) in [
            ("error: record 9 is damaged\n", "record 9 is damaged"),
            ("\nwarned\n", "warned"),
            ("", "it said nothing"),
        ] {
            assert_eq!(refusal(said).to_string(), expected);
        }
    }
}
