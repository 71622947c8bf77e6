//! The command line, and the config file that it names: what was typed, checked and made into [`Options`].

mod shown;

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::PathBuf;

use lexopt::ValueExt;
use lexopt::prelude::{Long, Short, Value};
use sluice_log::{FORMAT_VARIABLE, Filter, FilterError, Format, FormatError};

use crate::config::{Config, ConfigError, Cuda, Rules};
use crate::groups::choice::{GroupOptions, Place};
use crate::hooks::Hooks;
use crate::identity::{Identities, IdentityError};
use crate::output;
use crate::seal::Terms;
use crate::upgrade;

/// Names the config where `--config` does not.
const CONFIG_VARIABLE: &str = "SLUICE_SUPERVISOR_CONFIG";

/// The flag that has the config checked, and nothing started.
const CHECK: &str = "check-config";

/// Names the driver's library, before the config does.
const CUDA_LIBRARY_VARIABLE: &str = "SLUICE_SUPERVISOR_CUDA_LIBRARY";
/// Names the tool `cuda-checkpoint`, before the config does.
const CUDA_TOOL_VARIABLE: &str = "SLUICE_SUPERVISOR_CUDA_CHECKPOINT";

/// What `--help` prints.
pub const HELP: &str = "\
Starts, watches and stops the steps of one host, on behalf of its agent.

Usage: sluice-supervisor --state-dir DIR [OPTIONS]

Options:
      --state-dir DIR     where records, output and the socket are kept
      --cgroup WHERE      the control group in which each step gets one of its own: `own` (default), the one that this
                          program is in; a path below the mount of version 2; or `none`
      --config FILE       TOML file that says who may connect, who steps run as, and their limits (docs/host.md);
                          only root, or the supervisor's own user, may be able to write it
      --check-config      read and check the config, print what it comes to, and exit
      --exit-with-stdin   when stdin ends, stop every step and exit; SIGINT is then left to the parent
      --log-format FORM   text, json or auto (default): the journal's lines under systemd, else text
      --stop-on-exit      on SIGTERM stop every step, instead of leaving them to the next supervisor
  -h, --help              print this
  -V, --version           print the version

SIGHUP has it read the config anew and become the program that is installed now; steps run on, and no end is missed.
The log goes to stderr. SLUICE_LOG filters it (error, warn, info, debug, trace, or finer), and SLUICE_LOG_FORMAT says the
form where --log-format does not. SLUICE_SUPERVISOR_CONFIG names the config where --config does not. SLUICE_SUPERVISOR_CUDA_LIBRARY
and SLUICE_SUPERVISOR_CUDA_CHECKPOINT go before `cuda_library` and `cuda_checkpoint` of the config.

`sluice-supervisor keep --help` tells of the mode that ends steps whose lease has passed if no supervisor does.
`sluice-helper checkpoint probe PID...` tells whether the memory that processes hold on GPUs can be moved here.
";

/// What the supervisor was asked to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where everything is kept.
    pub state_dir: PathBuf,
    /// Who may connect, beside root and the supervisor's own user.
    pub agent_uid: Option<u32>,
    /// How attempts are held.
    pub groups: GroupOptions,
    /// Stop everything when stdin ends.
    pub exit_with_stdin: bool,
    /// Stop everything on SIGTERM.
    pub stop_on_exit: bool,
    /// How the log is written.
    pub log_format: Format,
    /// Which lines of it are written.
    pub log_filter: Filter,
    /// What steps may do on this host.
    pub rules: Rules,
    /// What is kept of output.
    pub output: output::Rules,
    /// What moves the memory of GPUs.
    pub cuda: Cuda,
    /// Whose leases count, and for how long.
    pub leases: Terms,
    /// Where an earlier program of this process left what it knew.
    pub handover: Option<RawFd>,
    /// What runs around attempts.
    pub hooks: Hooks,
}

/// What a command line means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Work.
    Run(Options),
    /// Say whether working would come about, with a handover of this form.
    Rehearse(Options, u32),
    /// Print a text and leave.
    Print(String),
}

impl Command {
    /// How the log is to be written.
    pub fn log_format(&self) -> Format {
        match self {
            Command::Run(options) | Command::Rehearse(options, _) => options.log_format,
            Command::Print(_) => Format::default(),
        }
    }

    /// Which of its lines are written.
    pub fn log_filter(&self) -> Filter {
        match self {
            Command::Run(options) | Command::Rehearse(options, _) => options.log_filter.clone(),
            Command::Print(_) => Filter::default(),
        }
    }
}

/// Why a command line or a config means nothing.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    /// The command line is wrong.
    #[error("{0}; see `sluice-supervisor --help`")]
    Usage(#[from] lexopt::Error),
    /// The one option that must be there is not.
    #[error("--state-dir is missing: say where records, output and the socket are kept")]
    NoStateDir,
    /// The flag or the variable that says how the log is written.
    #[error("{by}: {source}")]
    LogFormat {
        /// Which.
        by: &'static str,
        /// What it says instead.
        source: FormatError,
    },
    /// The config.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// What it, or a variable, says of the log.
    #[error(transparent)]
    LogFilter(#[from] FilterError),
    /// Whom it names.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// What it says of output.
    #[error(transparent)]
    Output(#[from] output::RulesError),
}

/// Whether a command line asks for nothing but a look at the config: what is wrong is told to whoever asked, and not logged.
pub fn is_check(args: impl IntoIterator<Item = OsString>) -> bool {
    let flag = format!("--{CHECK}");
    args.into_iter().any(|arg| arg == *flag)
}

/// Reads a command line (without the program's name) and the config that it names.
///
/// # Errors
/// Where either is not understood.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command, OptionsError> {
    let mut parser = lexopt::Parser::from_args(args);
    let (mut state_dir, mut config, mut log_format) = (None, None, None);
    let mut cgroup = None;
    let (mut exit_with_stdin, mut stop_on_exit) = (false, false);
    let (mut handover, mut rehearse) = (None, None);
    let mut check_config = false;
    while let Some(arg) = parser.next()? {
        match arg {
            Long("state-dir") => state_dir = Some(PathBuf::from(parser.value()?)),
            Long("config") => config = Some(PathBuf::from(parser.value()?)),
            Long("cgroup") => cgroup = Some(parser.value()?.to_string_lossy().into_owned()),
            Long("log-format") => log_format = Some(parser.value()?.to_string_lossy().into_owned()),
            Long(CHECK) => check_config = true,
            Long("exit-with-stdin") => exit_with_stdin = true,
            Long("stop-on-exit") => stop_on_exit = true,
            // These two are said by a supervisor that upgrades itself, and by nobody else.
            Long(upgrade::HANDOVER) => handover = Some(parser.value()?.parse()?),
            Long(upgrade::REHEARSE) => rehearse = Some(parser.value()?.parse()?),
            Long("help") | Short('h') => return Ok(Command::Print(HELP.to_owned())),
            Long("version") | Short('V') => {
                let version = concat!("sluice-supervisor ", env!("CARGO_PKG_VERSION"), "\n");
                return Ok(Command::Print(version.to_owned()));
            }
            Value(_) | Long(_) | Short(_) => return Err(arg.unexpected().into()),
        }
    }
    let log_format = asked_format(log_format.as_deref())?;
    let config = config.or_else(|| std::env::var_os(CONFIG_VARIABLE).map(PathBuf::from));
    let config = config.as_deref().map(Config::read).transpose()?;
    let config = config.unwrap_or_default();
    let options = Options {
        // Of no matter to whoever checks the config alone.
        state_dir: match check_config {
            true => state_dir.unwrap_or_default(),
            false => state_dir.ok_or(OptionsError::NoStateDir)?,
        },
        agent_uid: config.agent_uid,
        groups: GroupOptions {
            place: cgroup
                .or(config.cgroup)
                .as_deref()
                .map_or(Place::Own, Place::from),
            pids_max: config.pids_max,
            devices: config.devices,
        },
        log_format: log_format.or(config.log_format).unwrap_or_default(),
        log_filter: Filter::asked(config.log_filter.as_deref())?,
        exit_with_stdin,
        stop_on_exit,
        rules: config.rules,
        output: output::Rules::new(config.output)?,
        hooks: config.hooks,
        cuda: Cuda {
            library: named(CUDA_LIBRARY_VARIABLE).or(config.cuda.library),
            tool: named(CUDA_TOOL_VARIABLE).or(config.cuda.tool),
        },
        leases: config.leases,
        handover,
    };
    if check_config {
        // Whom it names is looked up at the start, and would stop it.
        let identities = Identities::resolve(options.rules.clone(), options.agent_uid)?;
        identities.check_submitters()?;
        let warnings = identities.warnings();
        return Ok(Command::Print(shown::shown(&options, &warnings)));
    }
    Ok(match rehearse {
        Some(form) => Command::Rehearse(options, form),
        None => Command::Run(options),
    })
}

fn named(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from)
}

/// By the flag, else by the environment.
fn asked_format(flag: Option<&str>) -> Result<Option<Format>, OptionsError> {
    let told = |by| move |source| OptionsError::LogFormat { by, source };
    match flag {
        Some(text) => text.parse().map(Some).map_err(told("--log-format")),
        None => Format::from_environment().map_err(told(FORMAT_VARIABLE)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::devices::DeviceOptions;
    use std::fs;
    use std::path::Path;

    fn run(args: &[&str]) -> Result<Command, OptionsError> {
        parse(args.iter().map(OsString::from))
    }

    #[test]
    fn every_option_is_understood() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("c.toml");
        let text = "agent_uid = 7\npids_max = 9\ncgroup = \"x\"\noutput_max = \"2MiB\"\n";
        fs::write(&file, text).unwrap();
        let config = file.to_str().unwrap();
        let found = run(&[
            "--state-dir=/s",
            "--config",
            config,
            "--exit-with-stdin",
            "--stop-on-exit",
            "--log-format=json",
            "--cgroup=none",
        ]);
        let wanted = Options {
            state_dir: "/s".into(),
            agent_uid: Some(7),
            groups: GroupOptions {
                place: Place::Nowhere,
                pids_max: Some(9),
                devices: DeviceOptions::default(),
            },
            exit_with_stdin: true,
            stop_on_exit: true,
            log_format: Format::Json,
            log_filter: Filter::asked(None).unwrap(),
            rules: Rules {
                file: Some(file.clone()),
                ..Rules::default()
            },
            output: output::Rules {
                max_bytes: 2 << 20,
                ..output::Rules::default()
            },
            cuda: Cuda::default(),
            leases: Terms::default(),
            handover: None,
            hooks: Hooks::default(),
        };
        assert_eq!(found.unwrap(), Command::Run(wanted));
    }

    #[test]
    fn a_config_is_checked_without_a_state_directory() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("c.toml");
        let check = |text: &str| {
            fs::write(&file, text).unwrap();
            run(&["--check-config", "--config", file.to_str().unwrap()])
        };
        // Root needs another user for steps, and nobody else may become one.
        let own = nix::unistd::geteuid();
        let user = match own.is_root() {
            true => "\"nobody\"".to_owned(),
            false => own.to_string(),
        };
        let good = format!("default_user = {user}\nshared_users = [{user}]\npids_max = 9\n");
        let Command::Print(text) = check(&good).unwrap() else {
            panic!("it does not work, it prints");
        };
        assert!(text.contains(&format!("default_user = {user}\n")), "{text}");
        let warned = text.contains("# warning: steps of several subjects run as user");
        assert_eq!(warned, own.is_root(), "{text}");
        assert!(
            text.contains("pids_max = 9\n") && text.contains("output_max"),
            "{text}"
        );
        for (text, words) in [
            ("pids_max = 9\npids_mux = 9\n", ["line 2", "`pids_max`"]),
            (
                "log_filter = \"loud=x\"\n",
                ["log_filter: `loud=x`", "write a level"],
            ),
            (
                "default_user = \"no-such-user\"\n",
                ["default_user", "`no-such-user`"],
            ),
            (
                "as_submitter = [\"no-such-user\"]\n",
                ["as_submitter.no-such-user is `no-such-user`", "`useradd`"],
            ),
            (
                "as_submitter = [\"root\"]\nallow_root = true\n",
                ["as_submitter.root", "root"],
            ),
            (
                "as_submitter = [\"nobody\", \"nobody\"]\n",
                ["as_submitter", "`nobody` is listed twice"],
            ),
        ] {
            let error = check(text).unwrap_err().to_string();
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        }
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
    fn the_config_that_is_shipped_says_what_holds_without_one() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"));
        let path = path.join("../../packaging/config/supervisor.toml");
        let shipped = run(&["--state-dir=/s", "--config", path.to_str().unwrap()]);
        let Command::Run(mut shipped) = shipped.unwrap() else {
            panic!("it prints");
        };
        shipped.rules.file = None;
        let wanted = run(&["--state-dir=/s"]).unwrap();
        assert_eq!(Command::Run(shipped), wanted);
        let text = fs::read_to_string(path).unwrap();
        let defaults = text.replace("# output_", "output_");
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("c.toml");
        fs::write(&file, defaults).unwrap();
        let config = Config::read(&file).unwrap();
        let rules = output::Rules::new(config.output).unwrap();
        assert_eq!(rules, output::Rules::default());
    }

    #[test]
    fn a_cap_that_keeps_nothing_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("c.toml");
        fs::write(&file, "output_max = \"10B\"\n").unwrap();
        let text = run(&["--state-dir=/s", "--config", file.to_str().unwrap()]);
        let text = text.unwrap_err().to_string();
        assert!(text.contains("output_max: 10B is too little"), "{text}");
    }
}
