//! Parses `supervisor.toml` for the supervisor, which opens the file and checks its owner and permissions.
//! This module checks the values; [`crate::users`] checks that the users exist, and the supervisor checks
//! that hook programs can be trusted.

mod limits;
mod render;
mod submitters;

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::Path;

use nix::unistd::User;
use serde::Deserialize;
use sluice_codec::{decode, encode};
use sluice_common::amount::parse_memory;
use sluice_common::config;
use sluice_common::id::Subject;
use sluice_common::lease::LeaseKey;
use sluice_common::supervisor_config::{
    CarveRules, CheckedConfig, ConfigFileError, DeviceFilterChoice, HealthCheck, HostHooks,
    LeaseRules, MAX_ANSWER_BYTES, OtherSubmitters, OutputRetention, StepRules, SupervisorConfig,
    UidRangeSetting, UserRef,
};
use sluice_common::time::{Span, SpanError};
use sluice_log::Format;

use limits::RawLimits;
use submitters::RawSubmitters;

/// Default time between two health checks.
const DEFAULT_INTERVAL: Span = Span::from_secs(60);

/// Shortest time between two health checks.
const MIN_INTERVAL: Span = Span::from_secs(1);

/// `uid_range = "none"`: attempts get no user ids of their own.
const NO_RANGE: &str = "none";

/// Parses the file at standard input, and answers the config or the mistake in it.
///
/// # Errors
/// If the answer cannot be written.
pub(crate) fn read() -> io::Result<()> {
    let mut text = String::new();
    let config = match io::stdin().read_to_string(&mut text) {
        Ok(_) => parse(&text).and_then(with_agent),
        Err(e) => Err(ConfigFileError::Unreadable(e.to_string())),
    };
    let answer = encode(&config, MAX_ANSWER_BYTES).map_err(io::Error::other)?;
    io::stdout().write_all(&answer)
}

/// Prints the effective config, which the supervisor sends to standard input.
///
/// # Errors
/// If standard input has none, or standard output is closed.
pub(crate) fn show() -> io::Result<()> {
    let mut asked = Vec::new();
    io::stdin().read_to_end(&mut asked)?;
    let checked: CheckedConfig = decode(&asked, MAX_ANSWER_BYTES).map_err(io::Error::other)?;
    io::stdout().write_all(render::render(&checked).as_bytes())
}

/// Replaces the name of the agent's user by its number.
fn with_agent(mut config: SupervisorConfig) -> Result<SupervisorConfig, ConfigFileError> {
    if let Some(UserRef::Name(name)) = &config.agent {
        config.agent = Some(UserRef::Uid(uid_of(name)?));
    }
    Ok(config)
}

fn uid_of(name: &str) -> Result<u32, ConfigFileError> {
    let shown = name.escape_debug();
    let message = match User::from_name(name) {
        Ok(Some(user)) => return Ok(user.uid.as_raw()),
        Ok(None) => {
            format!("this host has no user `{shown}`: create it (`useradd`), or name another")
        }
        Err(e) => format!("user `{shown}` cannot be looked up: {}", e.desc()),
    };
    Err(ConfigFileError::value("agent_user", message))
}

/// The file as written, before any check.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawConfig {
    agent_uid: Option<u32>,
    agent_user: Option<RawUser>,
    log_format: Option<Format>,
    log_filter: Option<String>,
    cgroup: Option<String>,
    pids_max: Option<u32>,
    output_max: Option<ByteAmount>,
    output_retention: Option<ConfigDuration>,
    output_total_max: Option<ByteAmount>,
    keep_max: Option<ByteAmount>,
    keep_work: Option<ConfigDuration>,
    min_free: Option<ByteAmount>,
    device_filter: DeviceFilterChoice,
    gpu_devices: Vec<String>,
    cuda_library: Option<String>,
    cuda_checkpoint: Option<String>,
    carve_gpus: bool,
    carve_timeout: Option<ConfigDuration>,
    nvml_library: Option<String>,
    lease_key: Option<String>,
    max_lease: Option<ConfigDuration>,
    default_user: Option<RawUser>,
    users: BTreeMap<Subject, RawUser>,
    shared_users: Vec<RawUser>,
    as_submitter: Option<RawSubmitters>,
    other_submitters: Option<OtherSubmitters>,
    uid_range: Option<RawRange>,
    allow_root: bool,
    workdirs: Option<Vec<String>>,
    umask: Option<String>,
    limits: RawLimits,
    hooks: RawHooks,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected the name of a user, or its number")]
enum RawUser {
    Name(String),
    Uid(u32),
}

impl From<RawUser> for UserRef {
    fn from(raw: RawUser) -> Self {
        match raw {
            RawUser::Name(name) => UserRef::Name(name),
            RawUser::Uid(uid) => UserRef::Uid(uid),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "expected [first, last], both included, or \"none\""
)]
enum RawRange {
    Given([u32; 2]),
    Keyword(String),
}

/// The table `[hooks]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawHooks {
    prolog: Option<String>,
    epilog: Option<String>,
    timeout: Option<ConfigDuration>,
    prolog_failures_max: Option<u32>,
    health_check: Option<String>,
    health_interval: Option<ConfigDuration>,
    health_failures_max: Option<u32>,
}

/// A number of bytes, written as `"1GiB"`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
struct ByteAmount(u64);

impl TryFrom<String> for ByteAmount {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        parse_memory(&text).map(Self).map_err(|e| e.to_string())
    }
}

/// A duration, written as `"7d"`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
struct ConfigDuration(Span);

impl TryFrom<String> for ConfigDuration {
    type Error = SpanError;

    fn try_from(text: String) -> Result<Self, SpanError> {
        text.parse().map(Self)
    }
}

fn parse(text: &str) -> Result<SupervisorConfig, ConfigFileError> {
    let raw: RawConfig = toml::from_str(text).map_err(|error| {
        let (line, quoted) = config::line_at(text, error.span().map(|span| span.start));
        ConfigFileError::Line {
            line: line as u64,
            message: config::parse_error_text(error.message(), quoted),
        }
    })?;
    raw.check()
}

impl RawConfig {
    fn check(self) -> Result<SupervisorConfig, ConfigFileError> {
        let umask = self.umask.as_deref().map(check_umask).transpose()?;
        self.check_paths()?;
        let as_submitter = submitters::check(self.as_submitter, self.other_submitters)?;
        submitters::check_default(as_submitter.as_ref(), self.default_user.is_some())?;
        let users = self.users.into_iter();
        let shared = self.shared_users.into_iter();
        let steps = StepRules {
            default_user: self.default_user.map(UserRef::from),
            users: users
                .map(|(subject, user)| (subject, user.into()))
                .collect(),
            shared_users: shared.map(UserRef::from).collect(),
            as_submitter,
            uid_range: check_uid_range(self.uid_range)?,
            allow_root: self.allow_root,
            workdirs: self.workdirs,
            umask,
            limits: self.limits.check()?,
            ..StepRules::default()
        };
        let default = OutputRetention::default();
        let amount = |raw: Option<ByteAmount>| raw.map(|ByteAmount(amount)| amount);
        let length = |raw: Option<ConfigDuration>| raw.map(|ConfigDuration(span)| span);
        Ok(SupervisorConfig {
            agent: check_agent(self.agent_uid, self.agent_user)?,
            log_format: self.log_format.map(|format| format.to_string()),
            log_filter: self.log_filter,
            cgroup: self.cgroup,
            pids_max: self.pids_max,
            device_filter: self.device_filter,
            gpu_devices: self.gpu_devices,
            cuda_library: self.cuda_library,
            cuda_checkpoint: self.cuda_checkpoint,
            carving: CarveRules {
                is_allowed: self.carve_gpus,
                library: self.nvml_library,
                limit: length(self.carve_timeout).unwrap_or(CarveRules::default().limit),
            },
            output: OutputRetention {
                max_bytes: amount(self.output_max).unwrap_or(default.max_bytes),
                keep_for: length(self.output_retention).unwrap_or(default.keep_for),
                total_bytes: amount(self.output_total_max).unwrap_or(default.total_bytes),
                kept_bytes: amount(self.keep_max).unwrap_or(default.kept_bytes),
                keep_work: length(self.keep_work).unwrap_or(default.keep_work),
                min_free: amount(self.min_free),
            },
            leases: check_leases(self.lease_key, length(self.max_lease))?,
            steps,
            hooks: self.hooks.check()?,
        })
    }
}

impl RawConfig {
    fn check_paths(&self) -> Result<(), ConfigFileError> {
        let workdirs = self.workdirs.iter().flatten();
        let workdirs = workdirs.map(|path| ("workdirs", path.as_str()));
        let nvidia = [
            ("cuda_library", self.cuda_library.as_deref()),
            ("cuda_checkpoint", self.cuda_checkpoint.as_deref()),
            ("nvml_library", self.nvml_library.as_deref()),
        ];
        let nvidia = nvidia
            .into_iter()
            .filter_map(|(key, path)| Some((key, path?)));
        workdirs.chain(nvidia).try_for_each(check_absolute)
    }
}

fn check_agent(
    uid: Option<u32>,
    user: Option<RawUser>,
) -> Result<Option<UserRef>, ConfigFileError> {
    match (uid, user) {
        (Some(_), Some(_)) => Err(ConfigFileError::value(
            "agent_user",
            "agent_uid sets the same: keep one of the two",
        )),
        (uid, user) => Ok(user.map(UserRef::from).or(uid.map(UserRef::Uid))),
    }
}

fn check_leases(key: Option<String>, longest: Option<Span>) -> Result<LeaseRules, ConfigFileError> {
    let digits = "write the 64 hexadecimal digits that the coordinator's log shows when it starts";
    let parse = |text: String| {
        LeaseKey::parse(&text).ok_or_else(|| ConfigFileError::value("lease_key", digits))
    };
    let longest = longest.unwrap_or(LeaseRules::default().longest);
    if longest == Span::ZERO {
        return Err(ConfigFileError::value(
            "max_lease",
            "no step could run: write a time such as \"24h\"",
        ));
    }
    let key = key.map(parse).transpose()?;
    Ok(LeaseRules { key, longest })
}

fn check_umask(text: &str) -> Result<u32, ConfigFileError> {
    match u32::from_str_radix(text, 8) {
        Ok(mask @ 0..=0o777) => Ok(mask),
        Ok(_) | Err(_) => Err(ConfigFileError::value(
            "umask",
            format!(
                "`{}` is not a mask: write octal digits, such as \"027\"",
                text.escape_debug()
            ),
        )),
    }
}

/// Checks the range itself; [`crate::users`] checks that its ids are free.
fn check_uid_range(range: Option<RawRange>) -> Result<UidRangeSetting, ConfigFileError> {
    let wrong = |message| ConfigFileError::value("uid_range", message);
    let range = match range {
        None => UidRangeSetting::Default,
        Some(RawRange::Given(bounds)) => UidRangeSetting::Given(bounds),
        Some(RawRange::Keyword(word)) if word == NO_RANGE => UidRangeSetting::Nothing,
        Some(RawRange::Keyword(word)) => {
            let word = word.escape_debug();
            let message =
                format!("`{word}` is not a range: write [first, last], or \"{NO_RANGE}\"");
            return Err(wrong(message));
        }
    };
    range.uids().map_err(|e| wrong(e.to_string()))?;
    Ok(range)
}

fn check_absolute((key, path): (&str, &str)) -> Result<(), ConfigFileError> {
    match Path::new(path).is_absolute() {
        true => Ok(()),
        false => Err(ConfigFileError::value(
            key,
            format!("`{path}` is not an absolute path: begin it with `/`"),
        )),
    }
}

impl RawHooks {
    fn check(self) -> Result<HostHooks, ConfigFileError> {
        let counts = [
            ("prolog_failures_max", self.prolog_failures_max),
            ("health_failures_max", self.health_failures_max),
        ];
        if let Some((key, _)) = counts.iter().find(|(_, count)| *count == Some(0)) {
            let key = format!("hooks.{key}");
            return Err(ConfigFileError::value(&key, "the minimum is 1"));
        }
        let default = HostHooks::default();
        let timeout = self
            .timeout
            .map_or(default.timeout, |ConfigDuration(span)| span);
        let interval = self.health_interval;
        let interval = interval.map_or(DEFAULT_INTERVAL, |ConfigDuration(span)| span);
        if interval < MIN_INTERVAL {
            let message =
                format!("{interval} would keep the host busy: the minimum is {MIN_INTERVAL}");
            return Err(ConfigFileError::value("hooks.health_interval", message));
        }
        Ok(HostHooks {
            prolog: self.prolog,
            epilog: self.epilog,
            timeout,
            failures_max: self.prolog_failures_max.unwrap_or(default.failures_max),
            health_check: self.health_check.map(|program| HealthCheck {
                program,
                timeout,
                interval,
                failures_max: self.health_failures_max.unwrap_or(1),
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_fuzz::Fuzz;
    use std::fs;

    pub(super) fn read(text: &str) -> Result<StepRules, String> {
        parse(text)
            .map(|config| config.steps)
            .map_err(|e| e.to_string())
    }

    #[test]
    fn a_full_config_is_understood() {
        let rules = read(
            "agent_uid = 7\ndefault_user = \"nobody\"\numask = \"027\"\nworkdirs = [\"/data\"]\n\
             [users]\nprod = \"prod\"\nbatch = 1001\n\
             [limits]\nnofile = 4096\ncore = 0\nmemlock = \"unlimited\"\nstack = \"8MiB\"\n",
        )
        .unwrap();
        assert_eq!(rules.default_user, Some(UserRef::Name("nobody".to_owned())));
        assert_eq!(
            rules.users[&Subject::new("batch").unwrap()],
            UserRef::Uid(1001)
        );
        assert_eq!((rules.umask, rules.allow_root), (Some(0o027), false));
        assert_eq!(rules.workdirs.unwrap(), ["/data"]);
        let limits: Vec<_> = rules
            .limits
            .iter()
            .map(|(name, most)| (name.as_str(), *most))
            .collect();
        let wanted = [
            ("nofile", 4096),
            ("core", 0),
            ("memlock", u64::MAX),
            ("stack", 8 << 20),
        ];
        assert_eq!(limits, wanted);
    }

    #[test]
    fn each_mistake_is_named_with_its_way_out() {
        for (text, wanted) in [
            (
                "default_usr = \"x\"",
                "line 1: unknown key `default_usr`: did you mean `default_user`?",
            ),
            (
                "\n[limits]\nnofiles = 1",
                "line 3: unknown key `nofiles`: did you mean `nofile`?",
            ),
            (
                "default_user = true",
                "expected the name of a user, or its number",
            ),
            (
                "agent_uid = 1\nagent_user = 1",
                "agent_user: agent_uid sets the same",
            ),
            ("uid_range = \"all\"", "uid_range: `all` is not a range"),
            ("uid_range = 7", "expected [first, last]"),
            ("uid_range = [9, 8]", "uid_range: "),
            ("uid_range = [100000, 165535]", "uid_range: "),
            ("umask = \"999\"", "umask: `999` is not a mask"),
            ("umask = \"7777\"", "umask: `7777` is not a mask"),
            (
                "workdirs = [\"data\"]",
                "workdirs: `data` is not an absolute path",
            ),
            (
                "workdirs = [\"a\\u001b[2J\"]",
                "workdirs: `a\\u{1b}[2J` is not an absolute path",
            ),
            (
                "cuda_library = \"libcuda.so.1\"",
                "cuda_library: `libcuda.so.1` is not an absolute path",
            ),
            (
                "[limits]\nnproc = \"8GiB\"",
                "limits.nproc: `8GiB` is not a limit",
            ),
            ("[limits]\nstack = \"8 oxen\"", "limits.stack: "),
            ("[users]\n\"a/b\" = \"x\"", "line 2"),
        ] {
            let told = read(text).unwrap_err();
            assert!(told.contains(wanted), "{told}");
        }
    }

    #[test]
    fn the_agent_s_user_is_found_by_name_or_number() {
        let read = |text| parse(text).and_then(with_agent);
        for text in ["agent_user = \"root\"", "agent_user = 0", "agent_uid = 0"] {
            assert_eq!(read(text).unwrap().agent, Some(UserRef::Uid(0)), "{text}");
        }
        let told = read("agent_user = \"no-such-user\"").unwrap_err();
        let wanted = "agent_user: this host has no user `no-such-user`";
        assert!(told.to_string().starts_with(wanted), "{told}");
    }

    #[test]
    fn what_is_understood_comes_over_as_it_is_and_what_is_wrong_steers_no_terminal() {
        let words = [
            "agent_uid = ",
            "default_user = ",
            "allow_root = true",
            "uid_range = [",
            "shared_users = [\"nobody\"]",
            "umask = \"027\"",
            "workdirs = [\"/data\"]",
            "[users]",
            "[limits]",
            "nofile = ",
            "\"unlimited\"",
            "\"8MiB\"",
            "[hooks]",
            "prolog = \"/bin/true\"",
            "log_filter = \"info,a[b{c=d}]=trace\"",
            "[cuda]",
            "'''",
            "\"\"\"",
            "1979-05-27T07:32:00Z",
            "inf",
            "[[a]]",
            "a.b = ",
        ];
        Fuzz::new("supervisor-config").words(&words).run(|input| {
            let Ok(text) = std::str::from_utf8(input) else {
                return;
            };
            let found = parse(text);
            if let Err(mistake) = &found {
                let said = mistake.to_string();
                assert!(!said.chars().any(char::is_control), "{said:?}");
            }
            let answer = encode(&found, MAX_ANSWER_BYTES).unwrap();
            assert_eq!(decode(&answer, MAX_ANSWER_BYTES), Ok(found));
        });
    }

    #[test]
    fn a_config_is_shown_as_the_file_would_write_it() {
        let text = "agent_uid = 7\nlog_filter = \"warn\"\npids_max = 9\numask = \"027\"\nworkdirs = [\"/a\"]\n\
            carve_gpus = true\ncarve_timeout = \"2m\"\n\
            keep_work = \"1h\"\nmin_free = \"1MiB\"\nuid_range = \"none\"\nshared_users = [\"x\", 3]\n\
            other_submitters = \"as_usual\"\ndefault_user = \"x\"\nas_submitter = { b = 1001 }\n\
            [users]\nprod = \"p\"\n[limits]\ncore = 0\n[hooks]\nprolog = \"/p\"\n";
        let mut config = parse(text).unwrap();
        config.steps.file = Some("/etc/s.toml".to_owned());
        let checked = CheckedConfig {
            config,
            warnings: vec!["beware".to_owned()],
        };
        let wanted = "# config = \"/etc/s.toml\"\nlog_filter = \"warn\"\ncgroup = \"own\"\nagent_uid = 7\npids_max = 9\n\
            default_user = \"x\"\numask = \"027\"\nworkdirs = [\"/a\"]\ncarve_gpus = true\n\
            carve_timeout = \"2m\"\nprolog = \"/p\"\nmax_lease = \"1d\"\n\
            allow_root = false\noutput_max = \"1073741824B\"\noutput_retention = \"7d\"\n\
            output_total_max = \"68719476736B\"\nkeep_max = \"1073741824B\"\nkeep_work = \"1h\"\nmin_free = \"1048576B\"\n\
            uid_range = \"none\"\nshared_users = [\"x\", 3]\nas_submitter = { \"b\" = 1001 }\n\
            other_submitters = \"as_usual\"\nusers.\"prod\" = \"p\"\nlimits.core = 0\n# warning: beware\n";
        assert_eq!(render::render(&checked), wanted);
    }

    #[test]
    fn what_the_docs_show_is_understood() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let mut shown = 0;
        for page in fs::read_dir(docs).unwrap() {
            let text = fs::read_to_string(page.unwrap().path()).unwrap_or_default();
            for block in text.split("```toml\n").skip(1) {
                let block = block.split("```").next().unwrap();
                parse(block).unwrap_or_else(|e| panic!("{e:?}: {block}"));
                shown += 1;
            }
        }
        assert!(shown >= 5, "{shown}");
    }

    #[test]
    fn the_packaged_example_is_understood_as_it_is_and_with_every_line_of_it() {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/config/supervisor.toml");
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(parse(&text).unwrap(), SupervisorConfig::default());
        let all: String = text
            .lines()
            .map(|line| match line.strip_prefix("# ") {
                Some(key) if key.contains(" = ") || key.starts_with('[') => format!("{key}\n"),
                Some(_) | None => format!("{line}\n"),
            })
            .collect();
        let rules = parse(&all).unwrap().steps;
        assert!(
            !rules.users.is_empty() && rules.limits.len() == 9,
            "{rules:?}"
        );
    }
}
