//! `sluice detect`: shows what this host would report, by running the agent's own detection. No coordinator is needed.

use std::path::Path;
use std::process::{Command, Stdio};

use sluice_common::api::HostView;

use super::sibling;
use crate::args::DetectArgs;
use crate::failure::Failure;
use crate::out::Out;
use crate::render::host;
use crate::show;

/// Program that runs the detection.
pub(super) const AGENT: &str = "sluice-agent";

pub(crate) fn run(args: &DetectArgs, out: Out) -> Result<u8, Failure> {
    let Some(agent) = sibling(AGENT) else {
        return Err(Failure::Failed(format!(
            "{AGENT} is not beside this program: install the agent's package, or build it with `cargo build`"
        )));
    };
    let found = ask(&agent, args).map_err(Failure::Failed)?;
    show::one(&found, out, |found| host::describe(found, out))?;
    Ok(0)
}

/// Runs the agent's detection.
pub(super) fn ask(agent: &Path, args: &DetectArgs) -> Result<HostView, String> {
    let mut command = Command::new(agent);
    command.arg("detect").stdin(Stdio::null());
    if let Some(library) = &args.nvml_library {
        command.arg("--nvml-library").arg(library);
    }
    if let Some(config) = &args.config {
        command.arg("--config").arg(config);
    }
    let said = command.output();
    let said = said.map_err(|e| format!("{} cannot be run: {e}", agent.display()))?;
    if !said.status.success() {
        let words = String::from_utf8_lossy(&said.stderr);
        let last = words.lines().last().unwrap_or("it said nothing");
        return Err(format!("its detection failed: {last}"));
    }
    serde_json::from_slice(&said.stdout).map_err(|e| format!("its report is not understood: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detection_that_fails_is_told_in_its_own_words() {
        let ask = |agent: &str| ask(Path::new(agent), &DetectArgs::default()).unwrap_err();
        let error = ask("/does/not/exist");
        assert!(error.contains("/does/not/exist cannot be run"), "{error}");
        let error = ask("/bin/false");
        assert!(
            error.contains("its detection failed: it said nothing"),
            "{error}"
        );
    }
}
