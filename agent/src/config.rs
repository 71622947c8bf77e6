//! Reads `agent.toml` and checks it. Flags and environment variables override it.

mod changes;
mod shown;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use agent_core::DEFAULT_MOVE_LIMIT;
use serde::Deserialize;
use sluice_common::amount::parse_memory;
use sluice_common::config::{escape_controls, line_at, line_without_token, parse_error_text};
use sluice_common::error_chain::error_chain;
use sluice_common::id::{NodeName, PoolName};
use sluice_common::label::{LabelKey, LabelValue};
use sluice_common::limit::{MAX_ADDRESS_BYTES, MAX_GRACE, MAX_NODE_LABELS};
use sluice_common::port::{PortRange, PortRangeError};
use sluice_common::time::Span;
use sluice_log::{Filter, FilterError, Format};
use sluice_transport::{Peer, TlsFiles};

use crate::credentials_dir::CredentialsDir;
use crate::join::Applicant;
use crate::renewal::CertificateSource;

/// Default state directory of a packaged agent.
const DEFAULT_STATE_DIR: &str = "/var/lib/sluice/agent";
/// Default socket of a packaged supervisor.
const DEFAULT_SUPERVISOR_SOCKET: &str = "/run/sluice/supervisor/supervisor.sock";
/// Default `PATH` of steps that set none.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Drivers take seconds to free a large memory.
const DEFAULT_GPU_RELEASE_TIMEOUT: Span = Span::from_secs(30);
const MIN_GPU_RELEASE_TIMEOUT: Span = Span::from_secs(1);

/// The file as written, before any check.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawConfig {
    coordinators: Vec<String>,
    node: Option<String>,
    pool: Option<String>,
    address: Option<String>,
    labels: BTreeMap<String, String>,
    reserve: RawReserve,
    nvml_library: Option<PathBuf>,
    state_dir: Option<PathBuf>,
    supervisor_socket: Option<PathBuf>,
    path: Option<String>,
    tls: Option<RawTls>,
    join_token_file: Option<PathBuf>,
    log_format: Option<Format>,
    log_filter: Option<String>,
    gpu_release_timeout: Option<String>,
    suspend_limit: Option<String>,
    respect_foreign: Option<bool>,
    ports: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawReserve {
    cpu_count: u32,
    memory: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTls {
    ca: PathBuf,
    cert: PathBuf,
    key: PathBuf,
}

/// Values of flags and environment variables, which override the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides {
    pub(crate) coordinators: Vec<String>,
    pub(crate) node: Option<String>,
    pub(crate) pool: Option<String>,
    pub(crate) state_dir: Option<PathBuf>,
    pub(crate) supervisor_socket: Option<PathBuf>,
    pub(crate) nvml_library: Option<PathBuf>,
    pub(crate) gpu_release_timeout: Option<String>,
    pub(crate) suspend_limit: Option<String>,
    pub(crate) log_format: Option<Format>,
}

/// Resources reserved for the system and not offered to steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reserve {
    pub(crate) cpus: u32,
    pub(crate) memory_bytes: u64,
}

/// The checked config.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// `host:port` of each coordinator, tried in turn.
    pub(crate) coordinators: Vec<String>,
    /// Name of this node.
    pub(crate) node: NodeName,
    pub(crate) pool: PoolName,
    /// Address at which the other hosts of a gang reach this one.
    pub(crate) address: String,
    /// Labels, shown by the API and matched by platforms.
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) reserve: Reserve,
    /// Path of NVML; the default is the dynamic loader's choice.
    pub(crate) nvml_library: Option<PathBuf>,
    pub(crate) state_dir: PathBuf,
    /// Socket of the supervisor; the attempts' output is in `attempts/` beside it.
    pub(crate) supervisor_socket: PathBuf,
    /// `PATH` of steps that set none.
    pub(crate) path: String,
    /// Time limit for a step's GPUs to be free after its last process; then they are quarantined.
    pub(crate) gpu_release_timeout: Span,
    /// Time limit for moving GPU memory at a suspend, and for restoring it.
    pub(crate) suspend_limit: Span,
    /// Whether a GPU with foreign processes is unavailable.
    pub(crate) respect_foreign: bool,
    /// The ports that steps get.
    pub(crate) ports: PortRange,
    /// Files with the agent's certificate and key, and the cluster's authority.
    pub(crate) tls: CertificateSource,
    pub(crate) log_format: Format,
    pub(crate) log_filter: Filter,
}

/// Why a config is invalid.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("cannot read {path}", path = path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{path}: line {line}: {message}", path = path.display())]
    Parse {
        path: PathBuf,
        line: usize,
        message: String,
    },
    #[error("{key}: {message}")]
    Value { key: &'static str, message: String },
    #[error(transparent)]
    LogFilter(#[from] FilterError),
}

impl RawConfig {
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.into(),
            source,
        })?;
        toml::from_str(&text).map_err(|error| {
            let (line, quoted) = line_at(&text, error.span().map(|span| span.start));
            ConfigError::Parse {
                path: path.into(),
                line,
                message: parse_error_text(error.message(), quoted.and_then(line_without_token)),
            }
        })
    }

    /// The log format in the file. Needed before the other values are checked, to log their errors.
    pub(crate) fn log_format(&self) -> Option<Format> {
        self.log_format
    }

    /// The log filter in the file.
    pub(crate) fn log_filter(&self) -> Option<&str> {
        self.log_filter.as_deref()
    }

    /// The host's identity for joining, and the file with the join line, if the config names one.
    pub(crate) fn applicant(
        &self,
        overrides: &Overrides,
    ) -> Result<(Applicant, Option<PathBuf>), ConfigError> {
        let chosen = overrides.node.clone().or(self.node.clone());
        let pool = overrides.pool.clone().or(self.pool.clone());
        let state_dir = overrides.state_dir.clone().or(self.state_dir.clone());
        let applicant = Applicant {
            state_dir: state_dir.unwrap_or_else(|| DEFAULT_STATE_DIR.into()),
            chosen: chosen
                .map(NodeName::new)
                .transpose()
                .map_err(|e| value("node", e))?,
            host_name: host_name().ok().and_then(|name| NodeName::new(name).ok()),
            pool: pool
                .map(PoolName::new)
                .transpose()
                .map_err(|e| value("pool", e))?,
        };
        let file = self.join_token_file.clone();
        Ok((applicant, file.filter(|_| self.tls.is_none())))
    }

    /// Checks the file with `overrides`. Missing values come from when this host joined.
    pub(crate) fn check(self, overrides: Overrides) -> Result<Config, ConfigError> {
        let (applicant, file) = self.applicant(&overrides)?;
        let kept = CredentialsDir::new(&applicant.state_dir);
        let member = match self.tls {
            None if kept.is_there() => joined(&kept)?,
            Some(_) | None => (None, None),
        };
        let node = settle("node", applicant.chosen, member.0)?;
        let node = node.map_or_else(
            || NodeName::new(host_name()?).map_err(|e| value("node", e)),
            Ok,
        )?;
        // Only a host that joins requests a pool; later the coordinator knows it.
        let pool = applicant.pool.or(member.1);
        let pool = pool.unwrap_or_else(|| PoolName::new("default").expect("a constant is a name"));
        // Values that need no join are checked first.
        let address = check_address(self.address.unwrap_or_else(|| node.to_string()))?;
        let (labels, reserve) = (check_labels(self.labels)?, self.reserve.check()?);
        let log_filter = Filter::from_env_or(self.log_filter.as_deref())?;
        let gpu_release_timeout = check_limit(
            "gpu_release_timeout",
            overrides.gpu_release_timeout.or(self.gpu_release_timeout),
            DEFAULT_GPU_RELEASE_TIMEOUT,
        )?;
        let suspend_limit = check_limit(
            "suspend_limit",
            overrides.suspend_limit.or(self.suspend_limit),
            DEFAULT_MOVE_LIMIT,
        )?;
        let ports = self.ports.as_deref().map(str::parse).transpose();
        let ports = ports.map_err(|e: PortRangeError| value("ports", e))?;
        let will_join = file.is_some_and(|file| file.exists());
        let tls = check_tls(self.tls, &kept, will_join)?;
        let mut coordinators = or_file(overrides.coordinators, self.coordinators);
        if coordinators.is_empty() {
            coordinators = kept.coordinators();
        }
        Ok(Config {
            address,
            coordinators: check_coordinators(coordinators, will_join && !kept.is_there())?,
            node,
            pool,
            labels,
            reserve,
            nvml_library: overrides.nvml_library.or(self.nvml_library),
            state_dir: applicant.state_dir,
            supervisor_socket: overrides
                .supervisor_socket
                .or(self.supervisor_socket)
                .unwrap_or_else(|| DEFAULT_SUPERVISOR_SOCKET.into()),
            path: self.path.unwrap_or_else(|| DEFAULT_PATH.to_owned()),
            gpu_release_timeout,
            suspend_limit,
            respect_foreign: self.respect_foreign.unwrap_or(true),
            ports: ports.unwrap_or_default(),
            tls,
            log_format: overrides.log_format.or(self.log_format).unwrap_or_default(),
            log_filter,
        })
    }
}

/// Values for `detect`; the others may be missing or invalid.
pub(crate) fn for_detection(
    raw: RawConfig,
) -> Result<(PathBuf, Option<PathBuf>, Reserve), ConfigError> {
    let dir = raw
        .state_dir
        .filter(|dir| dir.is_dir())
        .unwrap_or_else(|| "/".into());
    Ok((dir, raw.nvml_library, raw.reserve.check()?))
}

/// Socket of the supervisor; other values may be missing or invalid.
pub(crate) fn supervisor_socket(raw: RawConfig, by_flag: Option<PathBuf>) -> PathBuf {
    let socket = by_flag.or(raw.supervisor_socket);
    socket.unwrap_or_else(|| DEFAULT_SUPERVISOR_SOCKET.into())
}

impl RawReserve {
    fn check(self) -> Result<Reserve, ConfigError> {
        let memory = self.memory.as_deref().unwrap_or("0B");
        let memory_bytes = parse_memory(memory).map_err(|e| value("reserve.memory", e))?;
        Ok(Reserve {
            cpus: self.cpu_count,
            memory_bytes,
        })
    }
}

fn value(key: &'static str, message: impl ToString) -> ConfigError {
    ConfigError::Value {
        key,
        message: escape_controls(&message.to_string()),
    }
}

/// Labels are checked here with the grammar of the API, so that the error is seen on the host.
fn check_labels(labels: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, ConfigError> {
    let count = labels.len();
    if count > MAX_NODE_LABELS {
        let message =
            format!("there are {count}, and the maximum is {MAX_NODE_LABELS}: remove some");
        return Err(value("labels", message));
    }
    for (key, label) in &labels {
        LabelKey::new(key.as_str()).map_err(|e| value("labels", e))?;
        LabelValue::new(label.as_str()).map_err(|e| value("labels", e))?;
    }
    Ok(labels)
}

fn or_file(given: Vec<String>, file: Vec<String>) -> Vec<String> {
    if given.is_empty() { file } else { given }
}

/// The address becomes part of a comma-separated list in the environment of steps.
fn check_address(address: String) -> Result<String, ConfigError> {
    let fits = (1..=MAX_ADDRESS_BYTES).contains(&address.len());
    if fits
        && address
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-._:%[]".contains(&b))
    {
        return Ok(address);
    }
    Err(ConfigError::Value {
        key: "address",
        message: format!(
            "`{}` is neither a host name nor an address: name one at which other hosts reach this one, such as \
             \"gpu-07.cluster.example\" or \"10.0.0.7\"",
            address.escape_debug()
        ),
    })
}

/// A host that is about to join gets the address from the join line.
fn check_coordinators(list: Vec<String>, will_join: bool) -> Result<Vec<String>, ConfigError> {
    if list.is_empty() && !will_join {
        return Err(value(
            "coordinators",
            "none is named: write for example coordinators = [\"coord-1:7443\"]",
        ));
    }
    let bad = list.iter().find(|a| {
        a.rsplit_once(':')
            .is_none_or(|(h, p)| h.is_empty() || p.parse::<u16>().is_err())
    });
    match bad {
        Some(address) => Err(value(
            "coordinators",
            format!("`{address}` is not an address: write HOST:PORT"),
        )),
        None => Ok(list),
    }
}

/// A shorter limit would quarantine slow GPUs; a longer one would hide hung ones.
fn check_limit(
    key: &'static str,
    written: Option<String>,
    default: Span,
) -> Result<Span, ConfigError> {
    let Some(written) = written else {
        return Ok(default);
    };
    let span: Span = written.parse().map_err(|e| value(key, e))?;
    if (MIN_GPU_RELEASE_TIMEOUT..=MAX_GRACE).contains(&span) {
        return Ok(span);
    }
    let message = format!("`{written}` is not between {MIN_GPU_RELEASE_TIMEOUT} and {MAX_GRACE}");
    Err(value(key, message))
}

fn check_tls(
    tls: Option<RawTls>,
    kept: &CredentialsDir,
    will_join: bool,
) -> Result<CertificateSource, ConfigError> {
    match tls {
        Some(tls) => Ok(CertificateSource::Given(TlsFiles {
            ca: tls.ca,
            cert: tls.cert,
            key: tls.key,
        })),
        None if kept.is_there() || will_join => Ok(CertificateSource::Joined(kept.clone())),
        None => {
            let message = "the agent has no certificate: paste the line of `sluice token create` into `sluice-agent join` on this \
                           host, or into the file that `join_token_file` names; or write tls = { ca = ..., cert = ..., key = ... } \
                           where you have certificates of your own";
            Err(value("tls", message))
        }
    }
}

/// Name and pool of this host, from when it joined.
fn joined(kept: &CredentialsDir) -> Result<(Option<NodeName>, Option<PoolName>), ConfigError> {
    let identity = kept
        .identity()
        .map_err(|error| value("tls", error_chain(&error)))?;
    let member = identity.peer_identity();
    let node = match &member.peer {
        Peer::Node(name) => NodeName::new(name.as_str()).ok(),
        Peer::Coordinator => None,
    };
    Ok((node, member.claim.pool.clone()))
}

/// A value from the config, which must be equal to the one from joining.
fn settle<T: PartialEq + Display>(
    key: &'static str,
    chosen: Option<T>,
    joined: Option<T>,
) -> Result<Option<T>, ConfigError> {
    match (chosen, joined) {
        (Some(chosen), Some(joined)) if chosen != joined => Err(value(
            key,
            format!(
                "this host has joined as `{joined}` and the config says `{chosen}`: remove `{key}`, or join again with a token for `{chosen}` (`sluice-agent join --anew`)"
            ),
        )),
        (chosen, joined) => Ok(chosen.or(joined)),
    }
}

fn host_name() -> Result<String, ConfigError> {
    let name = nix::unistd::gethostname()
        .map_err(|e| value("node", format!("the host has no name ({e}): set `node`")))?;
    Ok(name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn parse(text: &str) -> Result<Config, ConfigError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        RawConfig::read(file.path())?.check(Overrides::default())
    }

    const TLS: &str = "tls = { ca = \"ca.pem\", cert = \"node.pem\", key = \"node.key\" }\n";

    #[test]
    fn a_full_config_is_understood() {
        let text = format!(
            "coordinators = [\"a:1\", \"[::1]:2\"]\nnode = \"n1\"\npool = \"training\"\n{TLS}\
             reserve = {{ cpu_count = 2, memory = \"8GiB\" }}\n[labels]\nrack = \"7\"\n"
        );
        let config = parse(&text).unwrap();
        assert_eq!(
            (config.node.as_str(), config.pool.as_str()),
            ("n1", "training")
        );
        assert_eq!(
            config.reserve,
            Reserve {
                cpus: 2,
                memory_bytes: 8 << 30
            }
        );
        assert_eq!(config.labels["rack"], "7");
    }

    #[test]
    fn each_mistake_is_named_with_its_way_out() {
        for (text, expected) in [
            (
                "coordinators = [\"a:1\"]\nnod = \"n\"\n".to_owned(),
                "line 2: unknown key `nod`: did you mean `node`?",
            ),
            (
                "node = 5\n".to_owned(),
                "line 1: `node = 5`: invalid type: integer `5`",
            ),
            (
                format!("node = \"n\"\n{TLS}"),
                "coordinators: none is named",
            ),
            (
                format!("coordinators = [\"a\"]\nnode = \"n\"\n{TLS}"),
                "`a` is not an address: write HOST:PORT",
            ),
            (
                format!("coordinators = [\"a:1\"]\nnode = \"a/b\"\n{TLS}"),
                "node: `a/b` is not a valid node name",
            ),
            (
                format!(
                    "coordinators = [\"a:1\"]\nnode = \"n\"\nlabels = {{ zone = \"a b\" }}\n{TLS}"
                ),
                "labels: label value `a b`: ` ` may not stand in it",
            ),
            (
                format!("coordinators = [\"a:1\"]\n{TLS}reserve = {{ memory = \"8gb\" }}\n"),
                "such as `8GB`",
            ),
            (
                format!("coordinators = [\"a:1\"]\nnode = \"n\"\nports = \"80\"\n{TLS}"),
                "ports: `80` is not a range of ports: write the first and the last",
            ),
            (
                "coordinators = [\"a:1\"]\nnode = \"n\"\n".to_owned(),
                "tls: the agent has no certificate",
            ),
        ] {
            let message = parse(&text).unwrap_err().to_string();
            assert!(message.contains(expected), "{text}\n{message}");
        }
    }

    #[test]
    fn the_config_that_is_shipped_is_one() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/config/agent.toml");
        // The shipped config has no join line and no certificate.
        let raw = RawConfig::read(&path).unwrap();
        let (applicant, file) = raw.applicant(&Overrides::default()).unwrap();
        assert_eq!(applicant.state_dir, Path::new(DEFAULT_STATE_DIR));
        assert_eq!(file.unwrap(), Path::new("/var/lib/sluice/agent/join-token"));
        let dir = tempfile::tempdir().unwrap();
        let overrides = Overrides {
            state_dir: Some(dir.path().to_owned()),
            ..Overrides::default()
        };
        let error = raw.check(overrides).unwrap_err().to_string();
        assert!(error.contains("`sluice-agent join`"), "{error}");
    }

    #[test]
    fn a_host_that_will_join_when_it_starts_needs_nothing_that_joining_brings() {
        let dir = tempfile::tempdir().unwrap();
        let line = dir.path().join("line");
        let text = format!("state_dir = {:?}\njoin_token_file = {line:?}\n", dir.path());
        let told = |text: &str| parse(text).unwrap_err().to_string();
        assert!(told(&text).contains("`sluice-agent join`"));
        // Errors that do not depend on joining come first.
        let worse = format!("suspend_limit = \"soon\"\n{text}");
        assert!(told(&worse).contains("suspend_limit"));
        fs::write(&line, "a line").unwrap();
        let shown = parse(&text).unwrap().to_string();
        assert!(
            shown
                .contains("# certificate: it is issued when this host joins, at the agent's start"),
            "{shown}"
        );
        assert!(told(&worse).contains("suspend_limit"));
    }

    #[test]
    fn what_the_config_leaves_out_is_as_the_host_has_joined_and_what_it_says_must_be() {
        let dir = tempfile::tempdir().unwrap();
        let authority = sluice_transport::Authority::create("c1").unwrap();
        let (given, key) = crate::credentials_dir::tests::issued(&authority, "gpu-7");
        let at = ["coord-1:7443".to_owned()];
        CredentialsDir::new(dir.path())
            .keep(&given, &key, &at)
            .unwrap();
        let state = format!("state_dir = {:?}\n", dir.path());
        let config = parse(&state).unwrap();
        assert_eq!(
            (config.node.as_str(), &config.coordinators[..]),
            ("gpu-7", &at[..])
        );
        let error = parse(&format!("{state}node = \"other\"\n"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("has joined as `gpu-7`"), "{error}");
    }
}
