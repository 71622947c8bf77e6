//! `supervisor.toml`: who steps may run as, where, and within which limits. Read by the supervisor alone and trusted as
//! far as its file is: whoever can write it decides who becomes whom, so one that others can write is refused.
//!
//! What is written is checked here; whether the users exist and can be become is `identity`'s to find out.

mod limits;
mod submitters;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::unistd::User;
use serde::Deserialize;
use sluice_common::config::{shown, way_out};
use sluice_common::id::Subject;
use sluice_common::lease::LeaseKey;
use sluice_common::time::Span;
use sluice_log::Format;

use crate::groups::devices::{DeviceOptions, Filter};
use crate::hooks::{Hooks, RawHooks};
use crate::output;
use crate::seal::{DEFAULT_LONGEST, Terms};
use crate::trust::distrust;
use crate::uids::range::Uids;
use limits::RawLimits;
pub use limits::{Rlimit, rlimit};
use submitters::RawSubmitters;
pub use submitters::{AsSubmitter, OtherSubmitters};

/// In such a directory nobody may replace what is another's.
const STICKY: u32 = 0o1000;

/// What the file says, checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Whose agent may connect, beside root and the supervisor's own user.
    pub agent_uid: Option<u32>,
    /// How the log is written.
    pub log_format: Option<Format>,
    /// Which lines are written, as the file has it: what goes before it is the command line's to know.
    pub log_filter: Option<String>,
    /// The control group in which each step gets one of its own, as `--cgroup` says it.
    pub cgroup: Option<String>,
    /// How steps are kept from GPUs that they were not granted.
    pub devices: DeviceOptions,
    /// The most processes of one step.
    pub pids_max: Option<u32>,
    /// What moves the memory of GPUs.
    pub cuda: Cuda,
    /// What is kept of output, as written.
    pub output: output::RawRules,
    /// Whose leases count, and for how long.
    pub leases: Terms,
    /// Who steps run as, and within what.
    pub rules: Rules,
    /// What runs around attempts.
    pub hooks: Hooks,
}

/// Where this host has what moves the memory of GPUs, if not where it is looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cuda {
    /// The driver's library.
    pub library: Option<PathBuf>,
    /// The tool `cuda-checkpoint`.
    pub tool: Option<PathBuf>,
}

/// What steps may do on this host, whatever the agent says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The file that says so; none where none was named.
    pub file: Option<PathBuf>,
    /// Who steps run as whose subject is not among `users`.
    pub default_user: Option<UserRef>,
    /// Who the steps of a subject run as.
    pub users: BTreeMap<Subject, UserRef>,
    /// The users that steps of several subjects may run as.
    pub shared_users: Vec<UserRef>,
    /// The users whose own steps run as them; `None` if it does not matter who submitted a step.
    pub as_submitter: Option<AsSubmitter>,
    /// Which user ids are given to attempts for which no user is named.
    pub uid_range: UidRange,
    /// Whether any of these may be root.
    pub allow_root: bool,
    /// Where steps may work, beside their own directories; `None` is wherever their user may go.
    pub workdirs: Option<Vec<PathBuf>>,
    /// What new files are not allowed to others; `None` is as the supervisor was started.
    pub umask: Option<u32>,
    /// Limits of each process.
    pub limits: Vec<Rlimit>,
    /// Whether steps are kept from changing which project a file is counted to. No key: the file system decides.
    pub keep_projects: bool,
}

impl Rules {
    /// The file, as messages call it.
    pub fn shown_file(&self) -> String {
        let file = self.file.as_ref().map(|file| file.display().to_string());
        file.unwrap_or_else(|| "the file that --config names".to_owned())
    }
}

/// A user as an admin names it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "expected the name of a user, or its number")]
pub enum UserRef {
    /// By name.
    Name(String),
    /// By number.
    Uid(u32),
}

/// `uid_range = "none"`: no attempt gets a user id of its own.
const NO_RANGE: &str = "none";

/// Which user ids are given to attempts, each to one at a time, as the file says it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(
    untagged,
    expecting = "expected [first, last], both included, or \"none\""
)]
pub enum UidRange {
    /// The range that is set aside for it where the file says nothing.
    #[default]
    #[serde(skip)]
    Default,
    /// From the first to the last.
    Given([u32; 2]),
    /// None: then every subject needs a user.
    Word(String),
}

impl UidRange {
    /// The range; `None` where no attempt gets a user id of its own. The bounds were checked when the file was read.
    pub fn uids(&self) -> Option<Uids> {
        match self {
            UidRange::Default => Some(Uids::DEFAULT),
            UidRange::Given([first, last]) => Uids::new(*first, *last).ok(),
            UidRange::Word(_) => None,
        }
    }
}

/// What is wrong with a config.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("cannot read config {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Somebody else may have written it.
    #[error("config {}: {whose}, and it says who steps run as: {way_out}", path.display())]
    Untrusted {
        /// Which.
        path: PathBuf,
        /// What gives others a hand in it.
        whose: String,
        /// What to do.
        way_out: String,
    },
    /// It is not understood.
    #[error("config {}: line {line}: {message}", path.display())]
    Parse {
        /// Which.
        path: PathBuf,
        /// Where, counted from 1.
        line: usize,
        /// Why.
        message: String,
    },
    /// A value means nothing.
    #[error("config {}: {key}: {message}", path.display())]
    Value {
        /// Which.
        path: PathBuf,
        /// Of what.
        key: String,
        /// Why.
        message: String,
    },
}

/// The file as written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawConfig {
    agent_uid: Option<u32>,
    agent_user: Option<UserRef>,
    log_format: Option<Format>,
    log_filter: Option<String>,
    cgroup: Option<String>,
    pids_max: Option<u32>,
    output_max: Option<output::Bytes>,
    output_retention: Option<output::Length>,
    output_total_max: Option<output::Bytes>,
    keep_work: Option<output::Length>,
    min_free: Option<output::Bytes>,
    device_filter: Filter,
    gpu_devices: Vec<PathBuf>,
    cuda_library: Option<PathBuf>,
    cuda_checkpoint: Option<PathBuf>,
    lease_key: Option<String>,
    max_lease: Option<output::Length>,
    default_user: Option<UserRef>,
    users: BTreeMap<Subject, UserRef>,
    shared_users: Vec<UserRef>,
    as_submitter: Option<RawSubmitters>,
    other_submitters: Option<OtherSubmitters>,
    uid_range: UidRange,
    allow_root: bool,
    workdirs: Option<Vec<PathBuf>>,
    umask: Option<String>,
    limits: RawLimits,
    hooks: RawHooks,
}

impl Config {
    /// Reads a file that nobody but root and the supervisor's own user can have written.
    ///
    /// # Errors
    /// Where others could have, or it is not understood.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let cannot = |source| ConfigError::Read {
            path: path.to_owned(),
            source,
        };
        // Not to hang on what is no file; what it is, is looked at next.
        let mut file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path)
            .map_err(cannot)?;
        check_trust(&file, path)?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(cannot)?;
        let config = parse(&text, path)?;
        let checked = config.hooks.check_programs();
        checked.map_err(|wrong| wrong_value(path, wrong))?;
        Ok(config)
    }
}

fn parse(text: &str, path: &Path) -> Result<Config, ConfigError> {
    let raw: RawConfig = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let line = text[..at.min(text.len())].matches('\n').count() + 1;
        ConfigError::Parse {
            path: path.to_owned(),
            line,
            message: way_out(error.message(), text.lines().nth(line - 1)),
        }
    })?;
    raw.check(path).map_err(|wrong| wrong_value(path, wrong))
}

fn wrong_value(path: &Path, (key, message): Wrong) -> ConfigError {
    ConfigError::Value {
        path: path.to_owned(),
        key: shown(&key),
        message: shown(&message),
    }
}

/// A key and what is wrong with its value.
type Wrong = (String, String);

impl RawConfig {
    fn check(self, path: &Path) -> Result<Config, Wrong> {
        let umask = self.umask.as_deref().map(check_umask).transpose()?;
        let as_submitter = submitters::check(self.as_submitter, self.other_submitters)?;
        submitters::check_default(as_submitter.as_ref(), self.default_user.is_some())?;
        let rules = Rules {
            file: Some(path.to_owned()),
            default_user: self.default_user,
            users: self.users,
            shared_users: self.shared_users,
            as_submitter,
            uid_range: check_uid_range(self.uid_range)?,
            allow_root: self.allow_root,
            workdirs: self.workdirs.map(check_workdirs).transpose()?,
            umask,
            limits: self.limits.check()?,
            keep_projects: false,
        };
        Ok(Config {
            agent_uid: check_agent(self.agent_uid, self.agent_user)?,
            log_format: self.log_format,
            log_filter: self.log_filter,
            cgroup: self.cgroup,
            devices: DeviceOptions {
                filter: self.device_filter,
                gpus: self.gpu_devices,
            },
            pids_max: self.pids_max,
            cuda: Cuda {
                library: absolute("cuda_library", self.cuda_library)?,
                tool: absolute("cuda_checkpoint", self.cuda_checkpoint)?,
            },
            output: output::RawRules {
                max: self.output_max,
                keep_for: self.output_retention,
                total: self.output_total_max,
                keep_work: self.keep_work,
                min_free: self.min_free,
            },
            leases: check_leases(self.lease_key, self.max_lease)?,
            rules,
            hooks: self.hooks.check()?,
        })
    }
}

fn check_agent(uid: Option<u32>, user: Option<UserRef>) -> Result<Option<u32>, Wrong> {
    let wrong = |message| ("agent_user".to_owned(), message);
    match (uid, user) {
        (uid, None) => Ok(uid),
        (Some(_), Some(_)) => Err(wrong("agent_uid says it already: keep one".to_owned())),
        (None, Some(UserRef::Uid(uid))) => Ok(Some(uid)),
        (None, Some(UserRef::Name(name))) => match User::from_name(&name) {
            Ok(Some(user)) => Ok(Some(user.uid.as_raw())),
            Ok(None) => Err(wrong(format!(
                "this host has no user `{}`: make it (`useradd`), or name another",
                name.escape_debug()
            ))),
            Err(e) => Err(wrong(format!(
                "user `{}` cannot be looked up: {}",
                name.escape_debug(),
                e.desc()
            ))),
        },
    }
}

fn check_leases(key: Option<String>, longest: Option<output::Length>) -> Result<Terms, Wrong> {
    let wrong = |key: &str, message: &str| (key.to_owned(), message.to_owned());
    let digits = "write the 64 hexadecimal digits that the coordinator's log shows when it starts";
    let parse = |text: String| LeaseKey::parse(&text).ok_or_else(|| wrong("lease_key", digits));
    let longest = longest.map_or(DEFAULT_LONGEST, |output::Length(span)| span);
    if longest == Span::ZERO {
        return Err(wrong(
            "max_lease",
            "no step could run: write a time such as \"24h\"",
        ));
    }
    let key = key.map(parse).transpose()?;
    Ok(Terms { key, longest })
}

fn check_umask(text: &str) -> Result<u32, Wrong> {
    match u32::from_str_radix(text, 8) {
        Ok(mask @ 0..=0o777) => Ok(mask),
        Ok(_) | Err(_) => Err((
            "umask".to_owned(),
            format!(
                "`{}` is no mask: write octal digits, such as \"027\"",
                text.escape_debug()
            ),
        )),
    }
}

fn check_uid_range(range: UidRange) -> Result<UidRange, Wrong> {
    match &range {
        UidRange::Default => {}
        UidRange::Given([first, last]) => {
            let checked = Uids::new(*first, *last);
            checked.map_err(|e| ("uid_range".to_owned(), e.to_string()))?;
        }
        UidRange::Word(word) if word == NO_RANGE => {}
        UidRange::Word(word) => {
            let word = word.escape_debug();
            let message = format!("`{word}` is no range: write [first, last], or \"{NO_RANGE}\"");
            return Err(("uid_range".to_owned(), message));
        }
    }
    Ok(range)
}

fn absolute(key: &str, path: Option<PathBuf>) -> Result<Option<PathBuf>, Wrong> {
    match &path {
        Some(path) if !path.is_absolute() => Err((
            key.to_owned(),
            format!("`{}` is not absolute: begin it with `/`", path.display()),
        )),
        Some(_) | None => Ok(path),
    }
}

fn check_workdirs(paths: Vec<PathBuf>) -> Result<Vec<PathBuf>, Wrong> {
    match paths.iter().find(|path| !path.is_absolute()) {
        Some(path) => Err((
            "workdirs".to_owned(),
            format!("`{}` is not absolute: begin it with `/`", path.display()),
        )),
        None => Ok(paths),
    }
}

/// Whether what is open, and stands at `path`, can have been written by nobody but root and this process's user.
fn check_trust(file: &File, path: &Path) -> Result<(), ConfigError> {
    let cannot = |source| ConfigError::Read {
        path: path.to_owned(),
        source,
    };
    let untrusted = |(whose, way_out): (String, String)| ConfigError::Untrusted {
        path: path.to_owned(),
        whose,
        way_out,
    };
    let found = file.metadata().map_err(cannot)?;
    if !found.is_file() {
        return Err(cannot(io::Error::other("it is not a regular file")));
    }
    let own = nix::unistd::geteuid().as_raw();
    let real = fs::canonicalize(path).map_err(cannot)?;
    distrust(&found, own, &real).map_or(Ok(()), |why| Err(untrusted(why)))?;
    let dir = real
        .parent()
        .expect("a regular file stands in some directory");
    let around = fs::metadata(dir).map_err(cannot)?;
    // Whoever may replace the file need not be able to write it.
    match around.mode() & STICKY {
        0 => distrust(&around, own, dir).map_or(Ok(()), |why| Err(untrusted(why))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::resource::RLIM_INFINITY;
    use std::os::unix::fs::PermissionsExt;

    fn read(text: &str) -> Result<Rules, String> {
        parse(text, Path::new("/etc/s.toml"))
            .map(|config| config.rules)
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
        assert_eq!(rules.workdirs.unwrap(), [PathBuf::from("/data")]);
        let limits: Vec<_> = rules.limits.iter().map(|l| (l.name, l.most)).collect();
        let wanted = [
            ("nofile", 4096),
            ("core", 0),
            ("memlock", RLIM_INFINITY),
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
                "agent_user = \"no-such-user\"",
                "agent_user: this host has no user `no-such-user`",
            ),
            (
                "agent_uid = 1\nagent_user = 1",
                "agent_user: agent_uid says it already",
            ),
            ("uid_range = \"all\"", "uid_range: `all` is no range"),
            ("uid_range = 7", "expected [first, last]"),
            ("uid_range = [9, 8]", "uid_range: "),
            ("uid_range = [100000, 165535]", "uid_range: "),
            ("umask = \"999\"", "umask: `999` is no mask"),
            ("umask = \"7777\"", "umask: `7777` is no mask"),
            ("workdirs = [\"data\"]", "workdirs: `data` is not absolute"),
            (
                "workdirs = [\"a\\u001b[2J\"]",
                "workdirs: `a\\u{1b}[2J` is not absolute",
            ),
            (
                "cuda_library = \"libcuda.so.1\"",
                "cuda_library: `libcuda.so.1` is not absolute",
            ),
            (
                "[limits]\nnproc = \"8GiB\"",
                "limits.nproc: `8GiB` is no limit",
            ),
            ("[limits]\nstack = \"8 oxen\"", "limits.stack: "),
            ("[users]\n\"a/b\" = \"x\"", "line 2"),
        ] {
            let told = read(text).unwrap_err();
            assert!(
                told.starts_with("config /etc/s.toml: ") && told.contains(wanted),
                "{told}"
            );
        }
    }

    #[test]
    fn the_agent_s_user_is_found_by_name_or_number() {
        for text in ["agent_user = \"root\"", "agent_user = 0", "agent_uid = 0"] {
            let config = parse(text, Path::new("s.toml")).unwrap();
            assert_eq!(config.agent_uid, Some(0), "{text}");
        }
    }

    #[test]
    fn a_file_that_others_can_write_is_refused_with_the_way_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.toml");
        fs::write(&path, "").unwrap();
        let chmod = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap()
        };
        for (mode, refused) in [(0o600, false), (0o644, false), (0o664, true), (0o646, true)] {
            chmod(&path, mode);
            let read = Config::read(&path).map_err(|e| e.to_string());
            assert_eq!(read.is_err(), refused, "{mode:o}");
            assert!(read.err().is_none_or(|told| told.contains("`chmod go-w /")));
        }
        chmod(&path, 0o600);
        chmod(dir.path(), 0o777);
        assert!(
            Config::read(&path).is_err(),
            "the directory lets it be replaced"
        );
        chmod(dir.path(), 0o1777);
        assert!(Config::read(&path).is_ok(), "in a sticky one it cannot be");
    }

    #[test]
    fn a_file_of_another_user_is_refused() {
        if !nix::unistd::geteuid().is_root() {
            // Only root can give a file away.
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.toml");
        fs::write(&path, "").unwrap();
        std::os::unix::fs::chown(&path, Some(1234), None).unwrap();
        let told = Config::read(&path).unwrap_err().to_string();
        assert!(
            told.contains("belongs to user 1234") && told.contains("`chown root"),
            "{told}"
        );
    }

    #[test]
    fn what_is_no_file_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRUSR).unwrap();
        assert!(matches!(Config::read(&path), Err(ConfigError::Read { .. })));
        assert!(matches!(
            Config::read(dir.path()),
            Err(ConfigError::Read { .. })
        ));
    }

    #[test]
    fn what_the_docs_show_is_understood() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/host.md");
        let text = fs::read_to_string(path).unwrap();
        let shown: Vec<&str> = text.split("```toml\n").skip(1).collect();
        assert!(!shown.is_empty());
        for block in shown {
            let block = block.split("```").next().unwrap();
            // The agent's user is there once a package is installed.
            let block = block.replace("\"sluice-agent\"", "0");
            parse(&block, Path::new("docs/host.md")).unwrap();
        }
    }

    #[test]
    fn the_packaged_example_is_understood_as_it_is_and_with_every_line_of_it() {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/config/supervisor.toml");
        let text = fs::read_to_string(&path).unwrap();
        parse(&text, &path).unwrap();
        let all: String = text
            .lines()
            .map(|line| match line.strip_prefix("# ") {
                Some(key) if key.contains(" = ") || key.starts_with('[') => format!("{key}\n"),
                Some(_) | None => format!("{line}\n"),
            })
            .collect();
        let rules = parse(&all, &path).unwrap().rules;
        assert!(
            !rules.users.is_empty() && rules.limits.len() == 9,
            "{rules:?}"
        );
    }
}
