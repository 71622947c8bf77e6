//! Which cluster to talk to and as whom: finding the context file, reading it, and seeing whether the `sluice dev` that
//! wrote it still lives. `dev` writes these files; every other command reads one.

use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Where the package of the coordinator leaves root's way in, for who has no context file of his own.
const MACHINE_CONTEXT: &str = "/etc/sluice/context.json";

/// The content of a context file. Unknown fields are passed over: a newer `dev` may have written it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ContextFile {
    /// Address of the HTTP API, such as `127.0.0.1:7070`, or `https://coord-1:7070` where it speaks TLS.
    pub(crate) http: String,
    /// What to present to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<String>,
    /// Certificates of the authorities of a coordinator that speaks TLS; a file, beside this one where it is relative.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ca: Option<PathBuf>,
    /// The certificate to present to it, and its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cert: Option<PathBuf>,
    /// The key of `cert`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<PathBuf>,
    /// On whose behalf steps are submitted where nothing else is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) subject: Option<String>,
    /// Whether steps run on this machine, so that the caller's directory means something to them.
    #[serde(default)]
    pub(crate) local: bool,
    /// The `sluice dev` that keeps this cluster alive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) dev_pid: Option<u32>,
    /// When that process started, in clock ticks since boot, so that another with its number is not taken for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) dev_start_ticks: Option<u64>,
}

/// A context file and where it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Context {
    pub(crate) path: PathBuf,
    /// What it says.
    pub(crate) file: ContextFile,
}

/// Why there is no cluster to talk to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ContextError {
    /// Nothing was named, and nothing is where it would be looked for.
    #[error(
        "no cluster to talk to: start one with `sluice dev`, or name a context file with --context or SLUICE_CONTEXT ({} does not exist)",
        path.display()
    )]
    NotFound {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// Nothing was named, and there is no home to look in.
    #[error(
        "no cluster to talk to: name a context file with --context or SLUICE_CONTEXT (neither XDG_CONFIG_HOME nor HOME is set)"
    )]
    NoHome,
    /// The file cannot be read.
    #[error("cannot read the context file {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    /// The file is no context.
    #[error("{} is not a context file: {source}", path.display())]
    Malformed {
        path: PathBuf,
        source: serde_json::Error,
    },
    /// The address is one of TLS, and there is nothing to check it by.
    #[error(
        "{} names a coordinator that speaks TLS, and no `ca` to know it by: `sluice login` writes such a file",
        path.display()
    )]
    NoAuthority {
        /// The context file.
        path: PathBuf,
    },
    /// A file that the context names cannot be read.
    #[error("cannot read {}, which the context file names: {source}", file.display())]
    File { file: PathBuf, source: io::Error },
    /// The certificates that the context names cannot be used.
    #[error("the certificates that {} names cannot be used: {message}", path.display())]
    Unusable {
        /// The context file.
        path: PathBuf,
        message: String,
    },
    /// The cluster that it names has gone.
    #[error(
        "the `sluice dev` that wrote {} (process {pid}) has ended, and its cluster with it: start it again with `sluice dev`",
        path.display()
    )]
    DevEnded {
        /// The file that it left.
        path: PathBuf,
        /// What it was.
        pid: u32,
    },
}

/// Finds and reads the context: `chosen` (by flag or `SLUICE_CONTEXT`), else the one in the user's configuration, else the
/// machine's.
pub(crate) fn load(chosen: Option<&Path>) -> Result<Context, ContextError> {
    let named = chosen.is_some();
    let path = match chosen {
        Some(path) => path.to_owned(),
        None => default_path().ok_or(ContextError::NoHome)?,
    };
    let (path, file) = match read(&path) {
        Err(ContextError::Unreadable { source, path })
            if !named && source.kind() == io::ErrorKind::NotFound =>
        {
            // Whoever may not read it is told of his own file, which is the one to write.
            let of_machine = Path::new(MACHINE_CONTEXT);
            let file = read(of_machine).map_err(|_| ContextError::NotFound { path })?;
            (of_machine.to_owned(), file)
        }
        read => (path, read?),
    };
    let context = Context { path, file };
    context.check_alive()?;
    Ok(context)
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

/// Where the context is looked for when none is named.
pub(crate) fn default_path() -> Option<PathBuf> {
    default_path_in(|name| std::env::var_os(name).map(PathBuf::from))
}

/// `XDG_CONFIG_HOME` counts only where it is absolute, as its specification has it.
fn default_path_in(env: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let config = env("XDG_CONFIG_HOME")
        .filter(|dir| dir.is_absolute())
        .or_else(|| {
            env("HOME")
                .filter(|dir| dir.is_absolute())
                .map(|home| home.join(".config"))
        })?;
    Some(config.join("sluice").join("context.json"))
}

impl Context {
    /// A file that the context names, relative to itself.
    pub(crate) fn beside(&self, file: &Path) -> PathBuf {
        let dir = self.path.parent().unwrap_or(Path::new("."));
        dir.join(file)
    }

    /// Whether the cluster can still be there: always, unless a `sluice dev` kept it and has ended.
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
    /// Whether its coordinator speaks TLS.
    pub(crate) fn is_secret(&self) -> bool {
        self.http.starts_with("https://")
    }

    /// The address without the words before it.
    pub(crate) fn authority(&self) -> &str {
        let bare = self.http.strip_prefix("https://");
        let bare = bare.or_else(|| self.http.strip_prefix("http://"));
        bare.unwrap_or(&self.http).trim_end_matches('/')
    }

    /// The host that its certificate must name.
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

    /// Writes the file whole or not at all, readable by its owner alone: it holds a token.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let dir = path.parent().unwrap_or(Path::new("."));
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)?;
        let draft = path.with_extension(format!("json.{}", std::process::id()));
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&draft)?;
        file.write_all(&serde_json::to_vec_pretty(self)?)?;
        file.write_all(b"\n")?;
        std::fs::rename(&draft, path)
    }
}

/// When a live process started, in clock ticks since boot: field 22 of its `stat`, counted after the name, which may
/// hold anything.
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
        let path = |pairs| default_path_in(env(pairs));
        let expected = Some(PathBuf::from("/c/sluice/context.json"));
        assert_eq!(path(&[("XDG_CONFIG_HOME", "/c"), ("HOME", "/h")]), expected);
        let expected = Some(PathBuf::from("/h/.config/sluice/context.json"));
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
