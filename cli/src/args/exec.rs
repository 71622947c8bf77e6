//! Arguments of `attach`, `exec`, `open` and `cp`.

use super::values::step_id;

#[derive(Debug, clap::Args)]
pub(crate) struct AttachArgs {
    /// Id of the step, or its name if no other live step has it.
    #[arg(value_name = "STEP", value_parser = step_id)]
    pub(crate) step: String,
    /// Lines of earlier output to show.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) tail: usize,
    /// Use the step's terminal, which `sluice run -it` gave it; `-it` is the same. Enter, ~ and . leave.
    #[arg(long)]
    pub(crate) terminal: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExecArgs {
    /// Id of the step, or its name if no other live step has it.
    #[arg(value_name = "STEP", value_parser = step_id)]
    pub(crate) step: String,
    /// Rank of the part of a gang, starting at 0.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) rank: u32,
    /// Give the program a terminal; `-it` is the same. Enter, ~ and . end it.
    #[arg(long)]
    pub(crate) terminal: bool,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct OpenArgs {
    /// Id or name of the step, id of a replica, or name of the service; service/NAME is always the service.
    #[arg(value_name = "TARGET")]
    pub(crate) target: String,
    /// Name of the port; the first one of the step if absent.
    #[arg(value_name = "PORT-NAME")]
    pub(crate) port_name: Option<String>,
    /// Port of this machine to listen at; a free one if absent.
    #[arg(long, value_name = "LOCAL", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: Option<u16>,
    /// Rank of the part of a gang, starting at 0.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) rank: u32,
    /// Open no browser; without it, `xdg-open` opens one if there is a terminal and a display.
    #[arg(long)]
    pub(crate) no_browser: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CopyArgs {
    /// File or directory to copy: STEP:PATH in a running step, or of what was kept of one; or a path of this machine.
    #[arg(value_name = "SOURCE")]
    pub(crate) source: String,
    /// Path that the copy gets, or an existing directory to put it into.
    #[arg(value_name = "TARGET")]
    pub(crate) target: String,
    /// Rank of the part of a gang, starting at 0.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) rank: u32,
}
