//! Flags of a step in the `#SLUICE` lines of a script.

use clap::Parser;

use super::StepFlags;

/// The flags of one line.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
pub(crate) struct ScriptFlags {
    #[command(flatten)]
    step: StepFlags,
}

impl ScriptFlags {
    /// Parses the words of a line.
    ///
    /// # Errors
    /// In one line, without the usage that clap adds.
    pub(crate) fn read(words: Vec<String>) -> Result<StepFlags, String> {
        let parsed = Self::try_parse_from(words);
        parsed.map(|flags| flags.step).map_err(|error| {
            let text = error.to_string();
            let lines = text.lines().map(str::trim);
            let lines = lines
                .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
            let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
            let text = lines.join("; ");
            text.strip_prefix("error: ").unwrap_or(&text).to_owned()
        })
    }
}
