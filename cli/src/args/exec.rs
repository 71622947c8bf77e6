//! What is typed to be beside a step that runs: to read what it writes, or to run a program where it runs.

use super::values::step_id;

#[derive(Debug, clap::Args)]
pub(crate) struct AttachArgs {
    #[arg(value_name = "STEP", value_parser = step_id)]
    pub(crate) step: String,
    /// How many of the lines that it has written already are shown.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) tail: usize,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExecArgs {
    #[arg(value_name = "STEP", value_parser = step_id)]
    pub(crate) step: String,
    /// Of a step on several hosts: beside this part, from 0.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) rank: u32,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<String>,
}
