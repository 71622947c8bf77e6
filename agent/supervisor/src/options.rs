//! The command line and the config file that it names, parsed and checked into [`Options`].

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::PathBuf;

use lexopt::ValueExt;
use lexopt::prelude::{Long, Short, Value};
use sluice_common::supervisor_config::{
    CarveRules, CheckedConfig, HostHooks, LeaseRules, OutputRetention, StepRules, SupervisorConfig,
    UserRef,
};
use sluice_log::{FORMAT_VARIABLE, Filter, FilterError, Format, FormatError};

use crate::config::{self, ConfigError, Cuda};
use crate::groups::devices::DeviceOptions;
use crate::groups::options::{GroupOptions, ParentGroup};
use crate::identity::{Identities, IdentityError};
use crate::{output, upgrade};

/// Environment variable with the config's path, if `--config` is not given.
const CONFIG_VARIABLE: &str = "SLUICE_SUPERVISOR_CONFIG";

/// Flag to check the config and start nothing.
const CHECK: &str = "check-config";

/// Environment variable with the path of the driver's library; takes precedence over the config.
const CUDA_LIBRARY_VARIABLE: &str = "SLUICE_SUPERVISOR_CUDA_LIBRARY";
/// Environment variable with the path of `cuda-checkpoint`; takes precedence over the config.
const CUDA_TOOL_VARIABLE: &str = "SLUICE_SUPERVISOR_CUDA_CHECKPOINT";

/// The text of `--help`.
pub const HELP: &str = "\
Starts, watches and stops the steps of one host, on behalf of its agent.

Usage: sluice-supervisor --state-dir DIR [OPTIONS]

Options:
      --state-dir DIR     where records, output and the socket are kept
      --cgroup WHERE      the control group in which each step gets one of its own: `own` (default), the one that this
                          program is in; a path below the mount of version 2; or `none`
      --config FILE       TOML file that says who may connect, who steps run as, and their limits (docs/host.md);
                          only root, or the supervisor's own user, may be able to write it
      --check-config      check the config, print the settings in effect, and exit
      --exit-with-stdin   when stdin ends, stop every step and exit; SIGINT is then left to the parent
      --log-format FORM   text, json or auto (default): the journal's lines under systemd, else text
      --stop-on-exit      on SIGTERM stop every step, instead of leaving them to the next supervisor
  -h, --help              print this
  -V, --version           print the version

SIGHUP reloads the config and replaces the running program by the installed one; steps run on, and no exit is missed.
The log goes to stderr. SLUICE_LOG filters it (error, warn, info, debug, trace, or finer), and SLUICE_LOG_FORMAT says the
form where --log-format does not. SLUICE_SUPERVISOR_CONFIG names the config where --config does not. SLUICE_SUPERVISOR_CUDA_LIBRARY
and SLUICE_SUPERVISOR_CUDA_CHECKPOINT go before `cuda_library` and `cuda_checkpoint` of the config.

`sluice-supervisor keep --help` describes the mode that stops steps with an expired lease if no supervisor does.
`sluice-helper checkpoint probe PID...` tells whether the memory that processes hold on GPUs can be moved here.
";

/// Options of the supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub state_dir: PathBuf,
    /// A user who may connect, in addition to root and the supervisor's own user.
    pub agent_uid: Option<u32>,
    /// Config of control groups.
    pub groups: GroupOptions,
    /// Stop everything when stdin ends.
    pub exit_with_stdin: bool,
    /// Stop everything on SIGTERM.
    pub stop_on_exit: bool,
    pub log_format: Format,
    pub log_filter: Filter,
    /// Rules for users and directories of steps.
    pub rules: StepRules,
    /// Bounds and retention of output.
    pub output: OutputRetention,
    /// Paths of NVIDIA's library and tool.
    pub cuda: Cuda,
    pub carving: CarveRules,
    /// Rules for leases.
    pub leases: LeaseRules,
    /// Descriptor with the handover of an earlier program in this process.
    pub handover: Option<RawFd>,
    /// The admin's hooks.
    pub hooks: HostHooks,
}

/// A parsed command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Run the supervisor.
    Run(Options),
    /// Check whether a start would succeed, with a handover of this version.
    Rehearse(Options, u32),
    /// Print a text and exit.
    Print(String),
}

impl Command {
    /// Format of the log.
    pub fn log_format(&self) -> Format {
        match self {
            Command::Run(options) | Command::Rehearse(options, _) => options.log_format,
            Command::Print(_) => Format::default(),
        }
    }

    /// Filter of the log.
    pub fn log_filter(&self) -> Filter {
        match self {
            Command::Run(options) | Command::Rehearse(options, _) => options.log_filter.clone(),
            Command::Print(_) => Filter::default(),
        }
    }
}

/// Why a command line or a config is invalid.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    #[error("{0}; see `sluice-supervisor --help`")]
    Usage(#[from] lexopt::Error),
    /// The option `--state-dir` is missing.
    #[error("--state-dir is missing: say where records, output and the socket are kept")]
    NoStateDir,
    /// The log format is invalid.
    #[error("{by}: {source}")]
    LogFormat {
        /// The flag or variable with the value.
        by: &'static str,
        source: FormatError,
    },
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The log filter in the config or the environment is invalid.
    #[error(transparent)]
    LogFilter(#[from] FilterError),
    /// A configured user cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The rules for output are invalid.
    #[error(transparent)]
    Output(#[from] output::OutputRulesError),
}

/// Whether the command line asks only for a check of the config; errors then go to the terminal and not to
/// the log.
pub fn is_check(args: impl IntoIterator<Item = OsString>) -> bool {
    let flag = format!("--{CHECK}");
    args.into_iter().any(|arg| arg == *flag)
}

/// The command line before any check.
#[derive(Debug, Default)]
struct RawOptions {
    state_dir: Option<PathBuf>,
    config: Option<PathBuf>,
    cgroup: Option<String>,
    log_format: Option<String>,
    check_config: bool,
    exit_with_stdin: bool,
    stop_on_exit: bool,
    handover: Option<RawFd>,
    rehearse: Option<u32>,
}

/// Parses a command line without the program's name, and the config that it names.
///
/// # Errors
/// If either is invalid.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command, OptionsError> {
    let mut parser = lexopt::Parser::from_args(args);
    let mut typed = RawOptions::default();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("state-dir") => typed.state_dir = Some(PathBuf::from(parser.value()?)),
            Long("config") => typed.config = Some(PathBuf::from(parser.value()?)),
            Long("cgroup") => typed.cgroup = Some(parser.value()?.to_string_lossy().into_owned()),
            Long("log-format") => {
                typed.log_format = Some(parser.value()?.to_string_lossy().into_owned());
            }
            Long(CHECK) => typed.check_config = true,
            Long("exit-with-stdin") => typed.exit_with_stdin = true,
            Long("stop-on-exit") => typed.stop_on_exit = true,
            // Only a supervisor that upgrades itself uses these two flags.
            Long(upgrade::HANDOVER) => typed.handover = Some(parser.value()?.parse()?),
            Long(upgrade::REHEARSE) => typed.rehearse = Some(parser.value()?.parse()?),
            Long("help") | Short('h') => return Ok(Command::Print(HELP.to_owned())),
            Long("version") | Short('V') => {
                let version = concat!("sluice-supervisor ", env!("CARGO_PKG_VERSION"), "\n");
                return Ok(Command::Print(version.to_owned()));
            }
            Value(_) | Long(_) | Short(_) => return Err(arg.unexpected().into()),
        }
    }
    let log_format = asked_format(typed.log_format.as_deref())?;
    let config = typed.config.clone();
    let config = config.or_else(|| std::env::var_os(CONFIG_VARIABLE).map(PathBuf::from));
    let config = config.as_deref().map(config::read).transpose()?;
    let mut config = config.unwrap_or_default();
    config.cgroup = typed.cgroup.take().or(config.cgroup);
    let (check_config, rehearse) = (typed.check_config, typed.rehearse);
    let options = options(typed, log_format, config.clone())?;
    if check_config {
        return Ok(Command::Print(check(&options, config)?));
    }
    Ok(match rehearse {
        Some(form) => Command::Rehearse(options, form),
        None => Command::Run(options),
    })
}

fn options(
    typed: RawOptions,
    log_format: Option<Format>,
    config: SupervisorConfig,
) -> Result<Options, OptionsError> {
    let format_of_config = config.log_format.map(|text| text.parse());
    let format_of_config = format_of_config
        .transpose()
        .map_err(wrong_format("log_format"))?;
    Ok(Options {
        // Unused if only the config is checked.
        state_dir: match typed.check_config {
            true => typed.state_dir.unwrap_or_default(),
            false => typed.state_dir.ok_or(OptionsError::NoStateDir)?,
        },
        agent_uid: config.agent.as_ref().and_then(UserRef::uid),
        groups: GroupOptions {
            parent: config
                .cgroup
                .as_deref()
                .map_or(ParentGroup::OwnGroup, ParentGroup::from),
            pids_max: config.pids_max,
            devices: DeviceOptions {
                filter: config.device_filter,
                gpus: config.gpu_devices.into_iter().map(PathBuf::from).collect(),
            },
        },
        log_format: log_format.or(format_of_config).unwrap_or_default(),
        log_filter: Filter::from_env_or(config.log_filter.as_deref())?,
        exit_with_stdin: typed.exit_with_stdin,
        stop_on_exit: typed.stop_on_exit,
        rules: config.steps,
        output: output::check(config.output)?,
        hooks: config.hooks,
        cuda: Cuda {
            library: named(CUDA_LIBRARY_VARIABLE).or(config.cuda_library.map(PathBuf::from)),
            tool: named(CUDA_TOOL_VARIABLE).or(config.cuda_checkpoint.map(PathBuf::from)),
        },
        carving: config.carving,
        leases: config.leases,
        handover: typed.handover,
    })
}

/// Looks up the configured users, because a failure would stop a start too; returns the effective config.
fn check(options: &Options, config: SupervisorConfig) -> Result<String, OptionsError> {
    let identities = Identities::resolve(options.rules.clone(), options.agent_uid)?;
    identities.check_submitters()?;
    let shown = |path: &PathBuf| path.display().to_string();
    let checked = CheckedConfig {
        config: SupervisorConfig {
            log_filter: Some(options.log_filter.to_string()),
            cuda_library: options.cuda.library.as_ref().map(shown),
            cuda_checkpoint: options.cuda.tool.as_ref().map(shown),
            ..config
        },
        warnings: identities.warnings,
    };
    Ok(config::show(&checked)?)
}

fn named(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from)
}

/// The flag, else the environment variable.
fn asked_format(flag: Option<&str>) -> Result<Option<Format>, OptionsError> {
    match flag {
        Some(text) => text.parse().map(Some).map_err(wrong_format("--log-format")),
        None => Format::from_environment().map_err(wrong_format(FORMAT_VARIABLE)),
    }
}

fn wrong_format(by: &'static str) -> impl Fn(FormatError) -> OptionsError {
    move |source| OptionsError::LogFormat { by, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn run(args: &[&str]) -> Result<Command, OptionsError> {
        parse(args.iter().map(OsString::from))
    }

    #[test]
    fn every_option_is_understood() {
        let found = run(&[
            "--state-dir=/s",
            "--exit-with-stdin",
            "--stop-on-exit",
            "--log-format=json",
            "--cgroup=none",
        ]);
        let wanted = Options {
            state_dir: "/s".into(),
            agent_uid: None,
            groups: GroupOptions {
                parent: ParentGroup::Nowhere,
                pids_max: None,
                devices: DeviceOptions::default(),
            },
            exit_with_stdin: true,
            stop_on_exit: true,
            log_format: Format::Json,
            log_filter: Filter::from_env_or(None).unwrap(),
            rules: StepRules::default(),
            output: OutputRetention::default(),
            cuda: Cuda::default(),
            carving: CarveRules::default(),
            leases: LeaseRules::default(),
            handover: None,
            hooks: HostHooks::default(),
        };
        assert_eq!(found.unwrap(), Command::Run(wanted));
    }

    fn typed() -> RawOptions {
        RawOptions {
            state_dir: Some("/s".into()),
            ..RawOptions::default()
        }
    }

    #[test]
    fn a_config_says_what_the_command_line_does_not() {
        let mut config = SupervisorConfig {
            agent: Some(UserRef::Uid(7)),
            cgroup: Some("x".to_owned()),
            pids_max: Some(9),
            log_format: Some("json".to_owned()),
            gpu_devices: vec!["/dev/x".to_owned()],
            ..SupervisorConfig::default()
        };
        config.output.max_bytes = 2 << 20;
        let found = options(typed(), None, config.clone()).unwrap();
        assert_eq!((found.agent_uid, found.log_format), (Some(7), Format::Json));
        assert_eq!(found.groups.parent, ParentGroup::from("x"));
        assert_eq!(found.groups.pids_max, Some(9));
        assert_eq!(found.groups.devices.gpus, [Path::new("/dev/x")]);
        assert_eq!(found.output.max_bytes, 2 << 20);
        let found = options(typed(), Some(Format::Text), config).unwrap();
        assert_eq!(found.log_format, Format::Text);
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (args, word) in [
            (&["--state-dri", "/s"][..], "--state-dri"),
            (&[][..], "--state-dir"),
            (&["--state-dir"][..], "--state-dir"),
            (&["--state-dir", "/s", "more"][..], "more"),
            (&["--log-format", "xml"][..], "--log-format: `xml`"),
            (
                &["--state-dir", "/s", "--config", "/no/such"][..],
                "/no/such",
            ),
        ] {
            let text = run(args).unwrap_err().to_string();
            assert!(text.contains(word), "{text}");
        }
    }

    #[test]
    fn a_cap_that_keeps_nothing_is_refused() {
        let mut config = SupervisorConfig::default();
        config.output.max_bytes = 10;
        let text = options(typed(), None, config).unwrap_err().to_string();
        assert!(text.contains("output_max: 10B is too little"), "{text}");
    }
}
