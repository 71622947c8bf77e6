//! Reads `gateway.toml` and checks it.

use std::fmt::{self, Display};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sluice_common::access::NamePattern;
use sluice_common::config::{escape_controls, line_at, line_without_token, parse_error_text};
use sluice_common::id::NodeName;
use sluice_common::time::Span;

/// Default directory of the config, the map and the socket of HAProxy.
const DEFAULT_RUNTIME_DIR: &str = "/run/sluice-gateway";
/// Port if the config names no address.
const DEFAULT_PORT: u16 = 8080;
/// Longest `runtime_dir`: the path of a socket has at most 107 bytes.
const MAX_RUNTIME_DIR_BYTES: usize = 90;
/// Default of `max_services`.
const DEFAULT_SERVICES: usize = 32;
/// Default of `max_replicas`.
const DEFAULT_REPLICAS: usize = 64;
/// Most servers of all backends: HAProxy takes about 5 KiB of memory for each.
const MAX_SERVERS: usize = 65_536;
/// Default of `max_waiting`.
const DEFAULT_WAITING: u32 = 1_000;
/// Most requests of a service that wait: each holds a connection.
const MAX_WAITING: u32 = 10_000;
/// Default of `wait_limit`: a replica that loads a large model takes minutes.
const DEFAULT_WAIT_LIMIT: Span = Span::from_secs(5 * 60);
/// Longest `wait_limit` that makes sense: clients give up earlier.
const MAX_WAIT_LIMIT: Span = Span::from_secs(3600);

/// The file as written, before any check.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawGatewayConfig {
    name: Option<String>,
    bind: Option<Vec<String>>,
    tls_certificate: Option<PathBuf>,
    haproxy: Option<PathBuf>,
    runtime_dir: Option<PathBuf>,
    services: Option<Vec<String>>,
    subjects: Option<Vec<String>>,
    domain: Option<String>,
    max_services: Option<usize>,
    max_replicas: Option<usize>,
    max_waiting: Option<u32>,
    wait_limit: Option<String>,
}

/// The checked config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GatewayConfig {
    /// Name in reports to the coordinator.
    pub(super) name: String,
    /// Addresses at which HAProxy listens.
    pub(super) bind: Vec<SocketAddr>,
    /// Certificates and key in one PEM file; without it the gateway speaks plain HTTP.
    pub(super) tls_certificate: Option<PathBuf>,
    /// Program of HAProxy: a path, or a name that is searched for.
    pub(super) haproxy: PathBuf,
    pub(super) runtime_dir: PathBuf,
    /// Services that get requests, by name.
    pub(super) services: Vec<NamePattern>,
    /// Subjects whose services get requests.
    pub(super) subjects: Vec<NamePattern>,
    /// Domain below which each service has a host name. With an empty one, the host name is the name of the service; with none,
    /// its first label is.
    pub(super) domain: Option<String>,
    /// Number of backends.
    pub(super) max_services: usize,
    /// Number of servers of each backend.
    pub(super) max_replicas: usize,
    /// Most requests of a service that wait.
    pub(super) max_waiting: u32,
    /// Longest time that a request waits.
    pub(super) wait_limit: Span,
}

/// Why a config of the gateway cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum GatewayConfigError {
    #[error("cannot read {path}: {source}", path = path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{path}: line {line}: {message}", path = path.display())]
    Parse {
        path: PathBuf,
        line: usize,
        message: String,
    },
    #[error("{path}: {key}: {message}", path = path.display())]
    Value {
        path: PathBuf,
        key: &'static str,
        message: String,
    },
}

/// A key with a wrong value, and the way out.
type InvalidValue = (&'static str, String);

impl GatewayConfig {
    /// Reads a file.
    ///
    /// # Errors
    /// If the file cannot be read, has an unknown key or a wrong value.
    pub(super) fn read(path: &Path) -> Result<Self, GatewayConfigError> {
        let of_file = |source| GatewayConfigError::Read {
            path: path.to_owned(),
            source,
        };
        let text = std::fs::read_to_string(path).map_err(of_file)?;
        let raw: RawGatewayConfig =
            toml::from_str(&text).map_err(|error| unparsed(path, &text, &error))?;
        Self::check(raw).map_err(|(key, message)| GatewayConfigError::Value {
            path: path.to_owned(),
            key,
            message: escape_controls(&message),
        })
    }

    fn check(raw: RawGatewayConfig) -> Result<Self, InvalidValue> {
        let servers = Servers::check(raw.max_services, raw.max_replicas)?;
        Ok(Self {
            name: reporter(raw.name)?,
            bind: addresses(raw.bind)?,
            tls_certificate: raw.tls_certificate.map(certificate).transpose()?,
            haproxy: raw.haproxy.unwrap_or_else(|| "haproxy".into()),
            runtime_dir: runtime_dir(raw.runtime_dir)?,
            services: patterns("services", raw.services)?,
            subjects: patterns("subjects", raw.subjects)?,
            domain: raw.domain.map(domain).transpose()?,
            max_services: servers.backends,
            max_replicas: servers.of_backend,
            max_waiting: within(
                "max_waiting",
                raw.max_waiting.unwrap_or(DEFAULT_WAITING),
                MAX_WAITING,
            )?,
            wait_limit: wait_limit(raw.wait_limit)?,
        })
    }

    /// The end of each service's key in the map: behind the name of the service, in lower case.
    pub(super) fn suffix(&self) -> String {
        match self.domain.as_deref() {
            None | Some("") => String::new(),
            Some(domain) => format!(".{domain}"),
        }
    }
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self::check(RawGatewayConfig::default()).expect("the defaults are valid")
    }
}

fn unparsed(path: &Path, text: &str, error: &toml::de::Error) -> GatewayConfigError {
    let (line, quoted) = line_at(text, error.span().map(|span| span.start));
    GatewayConfigError::Parse {
        path: path.to_owned(),
        line,
        message: parse_error_text(error.message(), quoted.and_then(line_without_token)),
    }
}

/// Numbers of backends and of their servers.
struct Servers {
    backends: usize,
    of_backend: usize,
}

impl Servers {
    fn check(backends: Option<usize>, of_backend: Option<usize>) -> Result<Self, InvalidValue> {
        let backends = within("max_services", backends.unwrap_or(DEFAULT_SERVICES), 1_000)?;
        let of_backend = within(
            "max_replicas",
            of_backend.unwrap_or(DEFAULT_REPLICAS),
            1_000,
        )?;
        if backends * of_backend > MAX_SERVERS {
            let message = format!(
                "{of_backend} for each of {backends} services make {}: at most {MAX_SERVERS} in all; lower one of \
                 the two, or run a second gateway for other `services`",
                backends * of_backend
            );
            return Err(("max_replicas", message));
        }
        Ok(Self {
            backends,
            of_backend,
        })
    }
}

fn within<T: Copy + PartialOrd + Display + From<u8>>(
    key: &'static str,
    value: T,
    most: T,
) -> Result<T, InvalidValue> {
    match (T::from(1)..=most).contains(&value) {
        true => Ok(value),
        false => Err((key, format!("{value}: write a number from 1 to {most}"))),
    }
}

fn reporter(name: Option<String>) -> Result<String, InvalidValue> {
    let named = name.map(|name| NodeName::new(name).map_err(|e| ("name", e.to_string())));
    if let Some(name) = named.transpose()? {
        return Ok(name.to_string());
    }
    let host = nix::unistd::gethostname().unwrap_or_default();
    let host = NodeName::new(host.to_string_lossy().into_owned());
    Ok(host.map_or_else(|_| "gateway".to_owned(), |name| name.to_string()))
}

fn addresses(texts: Option<Vec<String>>) -> Result<Vec<SocketAddr>, InvalidValue> {
    let everywhere = || SocketAddr::from((Ipv4Addr::UNSPECIFIED, DEFAULT_PORT));
    let Some(texts) = texts else {
        return Ok(vec![everywhere()]);
    };
    if texts.is_empty() {
        let message = "no address: write one, such as [\":8080\"]".to_owned();
        return Err(("bind", message));
    }
    texts.iter().map(|text| address(text)).collect()
}

/// Parses `HOST:PORT`; without a host, all addresses of IPv4.
fn address(text: &str) -> Result<SocketAddr, InvalidValue> {
    let whole = match text.strip_prefix(':') {
        Some(port) => format!("{}:{port}", IpAddr::from(Ipv4Addr::UNSPECIFIED)),
        None => text.to_owned(),
    };
    let parsed = whole.parse::<SocketAddr>().ok();
    parsed.filter(|address| address.port() > 0).ok_or_else(|| {
        let message = format!(
            "`{text}` is no address with a port: write `:8080` for every address, or one such as `10.0.0.7:8080` or \
             `[::]:8080`"
        );
        ("bind", message)
    })
}

/// A path as HAProxy's config can hold it, between single quotes.
fn quotable(key: &'static str, path: PathBuf) -> Result<PathBuf, InvalidValue> {
    let path = std::path::absolute(path).map_err(|e| (key, format!("the path is invalid: {e}")))?;
    let is_plain = |text: &str| !text.contains(|c: char| c.is_control() || c == '\'');
    match path.to_str().is_some_and(is_plain) {
        true => Ok(path),
        false => {
            let shown = path.display();
            Err((
                key,
                format!("`{shown}`: use a path in UTF-8 without quotes and control characters"),
            ))
        }
    }
}

fn certificate(path: PathBuf) -> Result<PathBuf, InvalidValue> {
    const KEY: &str = "tls_certificate";
    let path = quotable(KEY, path)?;
    if let Err(error) = std::fs::File::open(&path) {
        let message = format!(
            "cannot read {}: {error}; write the path of a PEM file with the certificates and their key",
            path.display()
        );
        return Err((KEY, message));
    }
    Ok(path)
}

fn runtime_dir(path: Option<PathBuf>) -> Result<PathBuf, InvalidValue> {
    const KEY: &str = "runtime_dir";
    let path = quotable(KEY, path.unwrap_or_else(|| DEFAULT_RUNTIME_DIR.into()))?;
    match path.as_os_str().len() {
        0..=MAX_RUNTIME_DIR_BYTES => Ok(path),
        length => {
            let message = format!(
                "`{}` has {length} bytes: use a path of at most {MAX_RUNTIME_DIR_BYTES}, so that a socket has a name in it",
                path.display()
            );
            Err((KEY, message))
        }
    }
}

fn patterns(
    key: &'static str,
    texts: Option<Vec<String>>,
) -> Result<Vec<NamePattern>, InvalidValue> {
    let texts = texts.unwrap_or_else(|| vec!["*".to_owned()]);
    let parsed = texts.iter().map(|text| text.parse::<NamePattern>());
    let parsed: Result<Vec<_>, _> = parsed.collect();
    parsed.map_err(|e| (key, e.to_string()))
}

fn domain(text: String) -> Result<String, InvalidValue> {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let bare = text.to_ascii_lowercase();
    let is_closed = !bare.starts_with('.') && !bare.ends_with('.') && !bare.contains("..");
    match bare.len() <= 253 && bare.chars().all(is_part) && is_closed {
        true => Ok(bare),
        false => {
            let message =
                format!("`{text}` is no domain: write one such as `example.org`, or leave it out");
            Err(("domain", message))
        }
    }
}

fn wait_limit(text: Option<String>) -> Result<Span, InvalidValue> {
    const KEY: &str = "wait_limit";
    let Some(text) = text else {
        return Ok(DEFAULT_WAIT_LIMIT);
    };
    let span: Span = text
        .parse()
        .map_err(|e: sluice_common::time::SpanError| (KEY, e.to_string()))?;
    match (Span::from_secs(1)..=MAX_WAIT_LIMIT).contains(&span) {
        true => Ok(span),
        false => Err((
            KEY,
            format!("`{span}`: write a time between 1s and {MAX_WAIT_LIMIT}"),
        )),
    }
}

impl Display for GatewayConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |all: &[NamePattern]| {
            all.iter()
                .map(|it| it.as_str().to_owned())
                .collect::<Vec<_>>()
        };
        let bind: Vec<String> = self.bind.iter().map(ToString::to_string).collect();
        writeln!(f, "name = {:?}", self.name)?;
        writeln!(f, "bind = {bind:?}")?;
        if let Some(path) = &self.tls_certificate {
            writeln!(f, "tls_certificate = {path:?}")?;
        }
        writeln!(f, "haproxy = {:?}", self.haproxy)?;
        writeln!(f, "runtime_dir = {:?}", self.runtime_dir)?;
        writeln!(f, "services = {:?}", names(&self.services))?;
        writeln!(f, "subjects = {:?}", names(&self.subjects))?;
        if let Some(domain) = &self.domain {
            writeln!(f, "domain = {domain:?}")?;
        }
        writeln!(f, "max_services = {}", self.max_services)?;
        writeln!(f, "max_replicas = {}", self.max_replicas)?;
        writeln!(f, "max_waiting = {}", self.max_waiting)?;
        writeln!(f, "wait_limit = \"{}\"", self.wait_limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<GatewayConfig, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.toml");
        std::fs::write(&path, text).unwrap();
        GatewayConfig::read(&path).map_err(|e| e.to_string())
    }

    #[test]
    fn the_packaged_file_has_every_key_and_its_defaults() {
        let text = include_str!("../../../packaging/config/gateway.toml");
        assert_eq!(read(text).unwrap(), GatewayConfig::default());
        let is_key = |line: &&str| line.starts_with("# ") && line.contains(" = ");
        let keys: String = text
            .lines()
            .filter(is_key)
            .map(|line| format!("{}\n", &line[2..]))
            .collect();
        // The certificate is an example, and not there.
        let keys: String = keys
            .lines()
            .filter(|line| !line.starts_with("tls_certificate"))
            .map(|line| format!("{line}\n"))
            .collect();
        let set = read(&keys).unwrap();
        let shown = set.to_string();
        let page = include_str!("../../../docs/gateway.md");
        for line in shown.lines().chain(["tls_certificate = "]) {
            let key = line.split(' ').next().unwrap();
            assert!(
                text.contains(&format!("\n# {key} = ")),
                "{key} is not in the file"
            );
            assert!(
                page.contains(&format!("\n| `{key}` |")),
                "{key} is not on the page"
            );
        }
        assert_eq!(read(&shown).unwrap(), set, "what is printed is read back");
        assert_eq!(
            (set.bind, set.max_services),
            (GatewayConfig::default().bind, DEFAULT_SERVICES)
        );
    }

    #[test]
    fn a_wrong_value_is_named_with_its_field_and_the_way_out() {
        for (text, parts) in [
            (
                "max_servces = 3",
                &[
                    "line 1",
                    "unknown key `max_servces`",
                    "did you mean `max_services`?",
                ][..],
            ),
            ("max_services = 0", &["max_services: 0", "from 1 to 1000"]),
            (
                "max_services = 1000\nmax_replicas = 1000",
                &["max_replicas", "at most 65536", "second gateway"],
            ),
            ("bind = []", &["bind", "such as"]),
            ("bind = [\"8080\"]", &["bind: `8080`", "`:8080`"]),
            ("bind = [\":0\"]", &["bind: `:0`"]),
            ("bind = [\":80 ssl crt /x\"]", &["bind: `:80 ssl crt /x`"]),
            (
                "wait_limit = \"2h\"",
                &["wait_limit: `2h`", "between 1s and 1h"],
            ),
            ("wait_limit = \"soon\"", &["wait_limit", "soon"]),
            (
                "max_waiting = 10001",
                &["max_waiting: 10001", "from 1 to 10000"],
            ),
            ("domain = \"a b\"", &["domain: `a b`", "`example.org`"]),
            ("services = [\"a/b\"]", &["services", "a/b"]),
            ("name = \"a b\"", &["name", "a b"]),
            (
                "tls_certificate = \"/no/such.pem\"",
                &["tls_certificate", "/no/such.pem", "PEM file"],
            ),
            ("runtime_dir = \"/a'b\"", &["runtime_dir", "without quotes"]),
        ] {
            let refusal = read(text).unwrap_err();
            for part in parts {
                assert!(refusal.contains(part), "{text}: {refusal}");
            }
        }
        let long = format!("runtime_dir = \"/{}\"", "x".repeat(100));
        assert!(read(&long).unwrap_err().contains("at most 90"));
    }
}
