//! Contexts: finds and reads the file that names the cluster and the caller, and checks that the `sluice dev` that
//! wrote it is alive. `dev`, `login` and `context` write these files; every other command reads one.

mod named;

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use named::write_private;
pub(crate) use named::{DEFAULT, NamedContexts, as_name, check_name, chosen_path};

/// Path at which the coordinator's package installs root's context.
const MACHINE_CONTEXT: &str = "/etc/sluice/context.json";

/// Content of a context file. Unknown fields are ignored: a newer version may have written them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ContextFile {
    /// Address of the HTTP API, such as `127.0.0.1:7070`, or `https://coord-1:7070` with TLS.
    pub(crate) http: String,
    /// Token that calls present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<String>,
    /// File with the coordinator's trusted authorities, for TLS; relative to this file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ca: Option<PathBuf>,
    /// Client certificate that calls present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cert: Option<PathBuf>,
    /// Key of `cert`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<PathBuf>,
    /// Default subject of submitted steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) subject: Option<String>,
    /// Default pool of submitted steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pool: Option<String>,
    /// Process id of the `sluice dev` that runs this cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) dev_pid: Option<u32>,
    /// Start of that process in clock ticks since boot, so that another process with its id is not taken for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) dev_start_ticks: Option<u64>,
}

/// A context file and its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Context {
    pub(crate) path: PathBuf,
    /// Content of the file.
    pub(crate) file: ContextFile,
}

/// Why no context can be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ContextError {
    /// No context was named, and the default path has none.
    #[error(
        "no cluster to talk to: start one with `sluice dev`, log in with `sluice login`, or name a context with --context or SLUICE_CONTEXT ({} does not exist)",
        path.display()
    )]
    NotFound {
        /// Path that was searched.
        path: PathBuf,
    },
    /// No context was named, and there is no home directory.
    #[error(
        "no cluster to talk to: name a context with --context or SLUICE_CONTEXT (neither XDG_CONFIG_HOME nor HOME is set)"
    )]
    NoHome,
    /// No context has this name.
    #[error("there is no context `{}`: {way_out}", name.escape_debug())]
    Unknown { name: String, way_out: String },
    /// The context is one of a running `dev`, which removes it at its end.
    #[error("context `{name}` belongs to a running `sluice dev` (process {pid}): stop that")]
    OfDev { name: String, pid: u32 },
    /// The file cannot be written or removed.
    #[error("cannot write {}: {source}", path.display())]
    Unwritable { path: PathBuf, source: io::Error },
    /// The file cannot be read.
    #[error("cannot read the context file {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    /// The file is malformed.
    #[error("{} is not a context file: {source}", path.display())]
    Malformed {
        path: PathBuf,
        source: serde_json::Error,
    },
    /// The address has TLS, and no authority is named.
    #[error(
        "{} names a coordinator that speaks TLS, and no `ca` to know it by: `sluice login` writes such a file",
        path.display()
    )]
    NoAuthority {
        /// Path of the context file.
        path: PathBuf,
    },
    /// A file that the context names cannot be read.
    #[error("cannot read {}, which the context file names: {source}", file.display())]
    File { file: PathBuf, source: io::Error },
    /// The certificates that the context names cannot be used.
    #[error("the certificates that {} names cannot be used: {message}", path.display())]
    Unusable {
        /// Path of the context file.
        path: PathBuf,
        message: String,
    },
    /// The cluster that it names has ended.
    #[error(
        "the `sluice dev` that wrote {} (process {pid}) has ended, and its cluster with it: start it again with `sluice dev`",
        path.display()
    )]
    DevEnded {
        /// Path of the file that it left.
        path: PathBuf,
        /// Process id of the ended `dev`.
        pid: u32,
    },
}

/// Finds and reads the context: `chosen` (by flag or `SLUICE_CONTEXT`), else the user's, else the machine's.
pub(crate) fn load(chosen: Option<&Path>) -> Result<Context, ContextError> {
    let path = find(chosen)?;
    let file = read(&path)?;
    let context = Context { path, file };
    context.check_alive()?;
    Ok(context)
}

/// Finds the file of the context.
///
/// # Errors
/// If there is none, or none of the chosen name.
pub(crate) fn find(chosen: Option<&Path>) -> Result<PathBuf, ContextError> {
    let contexts = NamedContexts::of_user();
    if let Some(chosen) = chosen {
        return contexts.map_or_else(|_| Ok(chosen.to_owned()), |all| chosen_path(chosen, &all));
    }
    let path = in_use(&contexts?)?;
    if path.exists() {
        return Ok(path);
    }
    // A user who may not read it is pointed to his own file.
    let of_machine = Path::new(MACHINE_CONTEXT);
    match read(of_machine) {
        Ok(_) => Ok(of_machine.to_owned()),
        Err(_) => Err(ContextError::NotFound { path }),
    }
}

/// Returns the file of the context in use. That of `default` need not exist.
fn in_use(contexts: &NamedContexts) -> Result<PathBuf, ContextError> {
    match contexts.current() {
        name if name == DEFAULT => Ok(contexts.path(&name)),
        name => contexts.existing(&name),
    }
}

/// Reads one context file.
pub(crate) fn read(path: &Path) -> Result<ContextFile, ContextError> {
    let path = || path.to_owned();
    let text = std::fs::read(path()).map_err(|source| ContextError::Unreadable {
        path: path(),
        source,
    })?;
    serde_json::from_slice(&text).map_err(|source| ContextError::Malformed {
        path: path(),
        source,
    })
}

/// Returns the folder of the user's configuration. `XDG_CONFIG_HOME` counts only if it is absolute, as its
/// specification says.
fn config_dir(env: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let config = env("XDG_CONFIG_HOME")
        .filter(|dir| dir.is_absolute())
        .or_else(|| {
            env("HOME")
                .filter(|dir| dir.is_absolute())
                .map(|home| home.join(".config"))
        })?;
    Some(config.join("sluice"))
}

impl Context {
    /// Returns the path of a file that the context names, relative to itself.
    pub(crate) fn beside(&self, file: &Path) -> PathBuf {
        let dir = self.path.parent().unwrap_or(Path::new("."));
        dir.join(file)
    }

    /// Whether the cluster can still exist: always, unless a `sluice dev` ran it and has ended.
    pub(crate) fn check_alive(&self) -> Result<(), ContextError> {
        match self.file.dev_pid {
            Some(pid) if !self.file.dev_lives() => Err(ContextError::DevEnded {
                path: self.path.clone(),
                pid,
            }),
            _ => Ok(()),
        }
    }
}

impl ContextFile {
    /// Whether the coordinator has TLS.
    pub(crate) fn is_secret(&self) -> bool {
        self.http.starts_with("https://")
    }

    /// Returns the address without the scheme.
    pub(crate) fn authority(&self) -> &str {
        let bare = self.http.strip_prefix("https://");
        let bare = bare.or_else(|| self.http.strip_prefix("http://"));
        bare.unwrap_or(&self.http).trim_end_matches('/')
    }

    /// Returns the host name that its certificate must have.
    pub(crate) fn host(&self) -> &str {
        let authority = self.authority();
        let host = authority
            .rsplit_once(':')
            .map_or(authority, |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }

    /// Whether the `sluice dev` that wrote this file still runs.
    pub(crate) fn dev_lives(&self) -> bool {
        let Some(ticks) = self.dev_pid.and_then(start_ticks) else {
            return false;
        };
        self.dev_start_ticks.is_none_or(|started| started == ticks)
    }

    /// Whether this very process wrote the file.
    pub(crate) fn is_ours(&self) -> bool {
        self.dev_pid == Some(std::process::id()) && self.dev_lives()
    }

    /// Writes the file atomically, readable by its owner alone, because it contains a token.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(self)?;
        write_private(path, &[&text[..], b"\n"].concat())
    }
}

/// Returns the start of a process in clock ticks since boot: field 22 of its `stat`, counted after the name, which may
/// contain anything.
pub(crate) fn start_ticks(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace();
    let zombie = fields.next()? == "Z";
    let ticks = fields.nth(18)?.parse().ok()?;
    (!zombie).then_some(ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<PathBuf> {
        move |name| {
            pairs
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| PathBuf::from(value))
        }
    }

    fn of_this_process() -> ContextFile {
        ContextFile {
            http: "127.0.0.1:1".into(),
            dev_pid: Some(std::process::id()),
            dev_start_ticks: start_ticks(std::process::id()),
            ..ContextFile::default()
        }
    }

    #[test]
    fn the_user_s_configuration_is_where_xdg_says() {
        let path = |pairs| config_dir(env(pairs));
        let expected = Some(PathBuf::from("/c/sluice"));
        assert_eq!(path(&[("XDG_CONFIG_HOME", "/c"), ("HOME", "/h")]), expected);
        let expected = Some(PathBuf::from("/h/.config/sluice"));
        assert_eq!(path(&[("XDG_CONFIG_HOME", "c"), ("HOME", "/h")]), expected);
        assert_eq!(path(&[("XDG_CONFIG_HOME", ""), ("HOME", "/h")]), expected);
        assert_eq!(path(&[]), None);
    }

    #[test]
    fn what_is_written_is_read_back_and_private() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deeper/context.json");
        let file = of_this_process();
        file.write(&path).unwrap();
        assert_eq!(load(Some(&path)).unwrap().file, file);
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert!(file.is_ours());
    }

    #[test]
    fn a_dead_dev_is_told_from_a_live_one_and_from_its_namesake() {
        let mut file = of_this_process();
        assert!(file.dev_lives());
        file.dev_start_ticks = file.dev_start_ticks.map(|ticks| ticks + 1);
        assert!(!file.dev_lives(), "another process with the same number");
        let context = Context {
            path: "/x".into(),
            file,
        };
        let message = context.check_alive().unwrap_err().to_string();
        assert!(
            message.contains("start it again with `sluice dev`"),
            "{message}"
        );
    }

    #[test]
    fn a_missing_or_broken_file_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("context.json");
        let message = load(Some(&path)).unwrap_err().to_string();
        assert!(
            message.contains("cannot read the context file"),
            "{message}"
        );
        std::fs::write(&path, "{").unwrap();
        let message = load(Some(&path)).unwrap_err().to_string();
        assert!(message.contains("is not a context file"), "{message}");
    }
}
