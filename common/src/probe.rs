//! Probes of a step: how its host finds out whether it is ready and whether it still works, and what the host reports.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

use crate::error_code::ErrorCode;
use crate::field_error::FieldError;
use crate::id::AttemptId;
use crate::metric::MetricSource;
use crate::nearest::nearest;
use crate::port::PortName;
use crate::request::check_command;
use crate::shared::SharedDefault;
use crate::time::Span;

/// Longest path of an HTTP probe, in bytes.
const MAX_PATH_BYTES: usize = 500;

/// Longest command of a probe, in bytes.
const MAX_COMMAND_BYTES: usize = 4096;

/// Most failures or successes in a row that a probe may ask for.
const MAX_IN_A_ROW: u32 = 100;

/// Longest text about what a probe saw, in bytes.
pub const MAX_SAW_BYTES: usize = 300;

const DEFAULT_PERIOD: Span = Span::from_secs(2);
const DEFAULT_TIMEOUT: Span = Span::from_secs(1);
const DEFAULT_FAILURES: u32 = 3;

/// Probes of a step as written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ProbesRequest {
    /// Whether the step is ready; without it, the step is ready when it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readiness: Option<ProbeRequest>,
    /// Whether the step still works; if it does not, its host stops it, and `retries` decides whether it starts again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub liveness: Option<ProbeRequest>,
}

/// A probe as written: exactly one of `http`, `tcp` and `command`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ProbeRequest {
    /// HTTP request to the step; an answer of 200 to 399 is a success.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpProbe>,
    /// Name of the port to which the host connects; an accepted connection is a success.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<String>,
    /// Program and arguments, run inside the step as its user; exit code 0 is a success.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Time from one probe to the next, 1s to 1h; `2s` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period: Option<String>,
    /// Time after which a probe has failed, 100ms to 1m; `1s` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// Failures in a row that count, 1 to 100; 3 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failures: Option<u32>,
    /// Successes in a row that make a step ready, 1 to 100; 1 if absent. Only of `readiness`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub successes: Option<u32>,
    /// Time from the start of the process to the first probe, at most 1h; `0s` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_delay: Option<String>,
}

/// HTTP request of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct HttpProbe {
    /// Path and query, such as `/health`.
    pub path: String,
    /// Name of the port, one of the step's `ports`.
    pub port: String,
}

/// Purpose of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ProbeKind {
    /// The probe tells whether the step is ready.
    Readiness,
    /// The probe tells whether the step still works.
    Liveness,
}

impl ProbeKind {
    /// Both kinds, in display order.
    pub const ALL: [ProbeKind; 2] = [ProbeKind::Readiness, ProbeKind::Liveness];

    /// The name as the API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            ProbeKind::Readiness => "readiness",
            ProbeKind::Liveness => "liveness",
        }
    }
}

impl fmt::Display for ProbeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Checked probes of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Probes {
    /// Probe of readiness, if any.
    pub readiness: Option<Probe>,
    /// Probe of liveness, if any.
    pub liveness: Option<Probe>,
    /// Metric that the host reads while the step is ready, if any. Only replicas of a service have one.
    #[serde(default)]
    pub metric: Option<MetricSource>,
}

/// A checked probe with all defaults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Probe {
    /// Action of the host.
    pub action: ProbeAction,
    /// Time from the start of one probe to the next.
    pub period: Span,
    /// Time after which it has failed.
    pub timeout: Span,
    /// Failures in a row that count.
    pub failures: u32,
    /// Successes in a row that count.
    pub successes: u32,
    /// Time from the start of the process to the first.
    pub initial_delay: Span,
}

/// Action of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ProbeAction {
    /// Requests a path over HTTP.
    Http(HttpTarget),
    /// Connects to the port of this name.
    Tcp(PortName),
    /// Runs a program inside the step: the program and its arguments, not empty.
    Command(Vec<String>),
}

/// Path and port that a probe requests over HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HttpTarget {
    /// Path and query.
    pub path: String,
    /// Name of the port.
    pub port: PortName,
}

impl SharedDefault for Probes {
    fn default_ref() -> &'static Self {
        static DEFAULT: Probes = Probes {
            readiness: None,
            liveness: None,
            metric: None,
        };
        &DEFAULT
    }
}

impl Probes {
    /// Whether there is neither a probe nor a metric.
    pub fn is_empty(&self) -> bool {
        self.readiness.is_none() && self.liveness.is_none() && self.metric.is_none()
    }

    /// The probe of a kind.
    pub fn of(&self, kind: ProbeKind) -> Option<&Probe> {
        match kind {
            ProbeKind::Readiness => self.readiness.as_ref(),
            ProbeKind::Liveness => self.liveness.as_ref(),
        }
    }

    /// The probes as a request that means the same; `None` if there are none.
    pub fn as_written(&self) -> Option<ProbesRequest> {
        let of = |kind| self.of(kind).map(|probe| probe.as_written(kind));
        let written = ProbesRequest {
            readiness: of(ProbeKind::Readiness),
            liveness: of(ProbeKind::Liveness),
        };
        (written != ProbesRequest::default()).then_some(written)
    }

    /// Approximate size of the texts in bytes.
    pub fn weight(&self) -> usize {
        let probes = ProbeKind::ALL.into_iter().filter_map(|kind| self.of(kind));
        let weights = probes.map(|probe| match &probe.action {
            ProbeAction::Http(target) => target.path.len(),
            ProbeAction::Tcp(_) => 0,
            ProbeAction::Command(command) => command.iter().map(String::len).sum(),
        });
        let metric = self.metric.as_ref();
        let metric = metric.map(|it| it.name.as_str().len() + it.path.len() + PROBE_WEIGHT);
        weights
            .map(|bytes| bytes + PROBE_WEIGHT)
            .chain(metric)
            .sum()
    }
}

/// Bytes of a probe besides its path or command.
const PROBE_WEIGHT: usize = 128;

impl Probe {
    fn as_written(&self, kind: ProbeKind) -> ProbeRequest {
        let mut written = ProbeRequest {
            period: Some(self.period.to_string()),
            timeout: Some(self.timeout.to_string()),
            failures: Some(self.failures),
            successes: (kind == ProbeKind::Readiness).then_some(self.successes),
            initial_delay: Some(self.initial_delay.to_string()),
            ..ProbeRequest::default()
        };
        match &self.action {
            ProbeAction::Http(HttpTarget { path, port }) => {
                let (path, port) = (path.clone(), port.to_string());
                written.http = Some(HttpProbe { path, port });
            }
            ProbeAction::Tcp(port) => written.tcp = Some(port.to_string()),
            ProbeAction::Command(command) => written.command.clone_from(command),
        }
        written
    }
}

impl ProbesRequest {
    /// Lays probes over others; each is taken as a whole.
    pub(crate) fn over(own: Option<Self>, below: Option<Self>) -> Option<Self> {
        let Some(own) = own else { return below };
        let below = below.unwrap_or_default();
        Some(Self {
            readiness: own.readiness.or(below.readiness),
            liveness: own.liveness.or(below.liveness),
        })
    }
}

/// Checks the probes of a request against its ports.
///
/// # Errors
/// The first invalid field.
pub(crate) fn check_probes(
    request: Option<ProbesRequest>,
    ports: &[PortName],
) -> Result<Probes, FieldError> {
    let request = request.unwrap_or_default();
    let check = |kind, probe: Option<ProbeRequest>| {
        let checked = probe.map(|probe| ProbeFields { kind, ports }.check(probe));
        checked.transpose()
    };
    Ok(Probes {
        readiness: check(ProbeKind::Readiness, request.readiness)?,
        liveness: check(ProbeKind::Liveness, request.liveness)?,
        metric: None,
    })
}

/// Check of one probe.
struct ProbeFields<'a> {
    kind: ProbeKind,
    ports: &'a [PortName],
}

impl ProbeFields<'_> {
    fn check(&self, probe: ProbeRequest) -> Result<Probe, FieldError> {
        let second = Span::from_secs(1);
        let period = (second, Span::from_secs(3600));
        let timeout = (Span::from_millis(100), Span::from_secs(60));
        let delay = (Span::ZERO, Span::from_secs(3600));
        if self.kind == ProbeKind::Liveness && probe.successes.is_some_and(|n| n != 1) {
            let message = "only `readiness` counts successes: leave it out";
            return Err(self.error("successes", &message));
        }
        Ok(Probe {
            period: self.span("period", probe.period.as_deref(), DEFAULT_PERIOD, period)?,
            timeout: self.span(
                "timeout",
                probe.timeout.as_deref(),
                DEFAULT_TIMEOUT,
                timeout,
            )?,
            failures: self.count("failures", probe.failures, DEFAULT_FAILURES)?,
            successes: self.count("successes", probe.successes, 1)?,
            initial_delay: self.span(
                "initial_delay",
                probe.initial_delay.as_deref(),
                Span::ZERO,
                delay,
            )?,
            action: self.action(probe)?,
        })
    }

    fn action(&self, probe: ProbeRequest) -> Result<ProbeAction, FieldError> {
        let command = Some(probe.command).filter(|command| !command.is_empty());
        match (probe.http, probe.tcp, command) {
            (Some(http), None, None) => {
                self.check_path(&http.path)?;
                let port = self.port("http.port", &http.port)?;
                let path = http.path;
                Ok(ProbeAction::Http(HttpTarget { path, port }))
            }
            (None, Some(port), None) => {
                let port = self.port("tcp", &port)?;
                Ok(ProbeAction::Tcp(port))
            }
            (None, None, Some(command)) => {
                self.check_command(&command)?;
                Ok(ProbeAction::Command(command))
            }
            (None, None, None) => Err(self.error(
                "",
                &"it does nothing: write one of `http`, `tcp` and `command`, such as `http: {path: /health, port: http}`",
            )),
            (Some(_), ..) | (_, Some(_), _) => Err(self.error(
                "",
                &"it does several things: write one of `http`, `tcp` and `command`",
            )),
        }
    }

    fn error(&self, field: &str, message: &dyn fmt::Display) -> FieldError {
        let kind = self.kind;
        let field = match field {
            "" => format!("probes.{kind}"),
            field => format!("probes.{kind}.{field}"),
        };
        FieldError::new(ErrorCode::InvalidProbe, field, message)
    }

    fn span(
        &self,
        field: &str,
        text: Option<&str>,
        default: Span,
        (least, most): (Span, Span),
    ) -> Result<Span, FieldError> {
        let Some(text) = text else {
            return Ok(default);
        };
        let span: Span = text.parse().map_err(|e| self.error(field, &e))?;
        if (least..=most).contains(&span) {
            return Ok(span);
        }
        let message = format!("{span} is not between {least} and {most}");
        Err(self.error(field, &message))
    }

    fn count(&self, field: &str, count: Option<u32>, default: u32) -> Result<u32, FieldError> {
        let count = count.unwrap_or(default);
        if (1..=MAX_IN_A_ROW).contains(&count) {
            return Ok(count);
        }
        let message = format!("{count} is not between 1 and {MAX_IN_A_ROW}");
        Err(self.error(field, &message))
    }

    fn port(&self, field: &str, text: &str) -> Result<PortName, FieldError> {
        find_port(self.ports, text).map_err(|why| self.error(field, &why))
    }

    fn check_path(&self, path: &str) -> Result<(), FieldError> {
        check_http_path(path).map_err(|why| self.error("http.path", &why))
    }

    fn check_command(&self, command: &[String]) -> Result<(), FieldError> {
        let checked = check_command(command, &Default::default(), None);
        checked.map_err(|e| self.error("command", &e.message))?;
        let bytes: usize = command.iter().map(|arg| arg.len() + 1).sum();
        if bytes <= MAX_COMMAND_BYTES {
            return Ok(());
        }
        let message = format!(
            "it takes {bytes} bytes: the maximum is {MAX_COMMAND_BYTES}; put it into a script of the step"
        );
        Err(self.error("command", &message))
    }
}

/// Finds a port of a step by its name. The error is a clause for people.
pub(crate) fn find_port(ports: &[PortName], text: &str) -> Result<PortName, String> {
    let known = ports.iter().map(PortName::as_str);
    if let Some(port) = ports.iter().find(|port| port.as_str() == text) {
        return Ok(port.clone());
    }
    let shown: String = text.chars().take(30).collect();
    let shown = shown.escape_default();
    let way_out = match (nearest(text, known.clone()), ports) {
        (Some(near), _) => format!("did you mean `{near}`?"),
        (None, []) => format!("add it to `ports`, such as `ports: [{}]`", "http"),
        (None, _) => {
            let known: Vec<&str> = known.collect();
            format!("the step has {}", known.join(", "))
        }
    };
    Err(format!("`{shown}` is no port of this step: {way_out}"))
}

/// Checks a path, which is sent as it is written, so nothing in it may end the line. The error is a clause for people.
pub(crate) fn check_http_path(path: &str) -> Result<(), String> {
    let is_plain = path.bytes().all(|b| b.is_ascii_graphic());
    if path.starts_with('/') && is_plain && path.len() <= MAX_PATH_BYTES {
        return Ok(());
    }
    let shown: String = path.chars().take(60).collect();
    Err(format!(
        "`{}` is not a path: begin with `/`, and write at most {MAX_PATH_BYTES} ASCII characters without spaces",
        shown.escape_default()
    ))
}

/// Failure that a probe saw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProbeFailure {
    /// Purpose of the probe.
    pub probe: ProbeKind,
    /// One clause for people, such as `the answer was 503`.
    pub saw: String,
}

impl ProbeFailure {
    /// Makes a failure with a bounded text that steers no terminal: a step may have written it.
    pub fn new(probe: ProbeKind, saw: &str) -> Self {
        let saw = saw.to_owned();
        Self { probe, saw }.bounded()
    }

    /// Cuts a text that is too long, and what no terminal shows.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        self.saw = self.saw.replace(char::is_control, " ");
        let end = self.saw.floor_char_boundary(MAX_SAW_BYTES);
        self.saw.truncate(end);
        self
    }
}

impl fmt::Display for ProbeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.saw)
    }
}

/// Report of a host about an attempt with ports or probes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointReport {
    /// Id of the attempt.
    pub attempt: AttemptId,
    /// The ports, in the order of the step's names.
    pub ports: Vec<u16>,
    /// Whether its process runs and is ready.
    pub ready: bool,
    /// The failure that the last failed probe saw, while it is not ready or is stopped because of it.
    pub failure: Option<ProbeFailure>,
}

/// Shortest time between two records of an attempt that is not ready and whose probe fails in another way.
pub const FAILURE_AGAIN: Span = Span::from_secs(60);

/// Time from one report that an attempt is ready to the next, after `times` of them: what flaps is told ever more
/// rarely. That an attempt is no longer ready is told at once.
pub const fn ready_again_after(times: u32) -> Span {
    let times = if times > 6 { 6 } else { times };
    Span::from_secs(10 * times as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(json: &str) -> Result<Probes, FieldError> {
        let ports = ["http".parse().unwrap(), "metrics".parse().unwrap()];
        check_probes(serde_json::from_str(json).unwrap(), &ports)
    }

    #[test]
    fn a_probe_has_defaults_and_can_be_written_again() {
        let probes = checked(r#"{"readiness":{"http":{"path":"/health","port":"http"}}}"#).unwrap();
        let probe = probes.readiness.clone().unwrap();
        let expected = Probe {
            action: ProbeAction::Http(HttpTarget {
                path: "/health".to_owned(),
                port: "http".parse().unwrap(),
            }),
            period: Span::from_secs(2),
            timeout: Span::from_secs(1),
            failures: 3,
            successes: 1,
            initial_delay: Span::ZERO,
        };
        assert_eq!(probe, expected);
        for json in [
            r#"{"readiness":{"tcp":"metrics","successes":2},"liveness":{"command":["true"],"initial_delay":"1m"}}"#,
            r#"{"liveness":{"http":{"path":"/","port":"http"},"period":"1s","timeout":"100ms"}}"#,
        ] {
            let probes = checked(json).unwrap();
            let ports = ["http".parse().unwrap(), "metrics".parse().unwrap()];
            let again = check_probes(probes.as_written(), &ports).unwrap();
            assert_eq!(again, probes, "{json}");
        }
        assert_eq!(checked("{}").unwrap().as_written(), None);
    }

    #[test]
    fn a_bad_probe_is_named_with_its_field_and_what_to_write() {
        let long = "x".repeat(5000);
        let long = format!(r#"{{"readiness":{{"command":["{long}"]}}}}"#);
        for (json, field, part) in [
            (r#"{"readiness":{}}"#, "probes.readiness", "write one of"),
            (
                r#"{"liveness":{"tcp":"http","command":["a"]}}"#,
                "probes.liveness",
                "several things",
            ),
            (
                r#"{"readiness":{"tcp":"htp"}}"#,
                "probes.readiness.tcp",
                "did you mean `http`?",
            ),
            (
                r#"{"readiness":{"tcp":"x"}}"#,
                "probes.readiness.tcp",
                "the step has http, metrics",
            ),
            (
                r#"{"readiness":{"http":{"path":"/a HTTP/1.1\r\nX: y","port":"http"}}}"#,
                "probes.readiness.http.path",
                "is not a path",
            ),
            (
                r#"{"readiness":{"http":{"path":"health","port":"http"}}}"#,
                "probes.readiness.http.path",
                "begin with `/`",
            ),
            (
                r#"{"readiness":{"tcp":"http","period":"10ms"}}"#,
                "probes.readiness.period",
                "10ms is not between 1s and 1h",
            ),
            (
                r#"{"readiness":{"tcp":"http","timeout":"2m"}}"#,
                "probes.readiness.timeout",
                "2m is not between 100ms and 1m",
            ),
            (
                r#"{"readiness":{"tcp":"http","failures":0}}"#,
                "probes.readiness.failures",
                "0 is not between 1 and 100",
            ),
            (
                r#"{"liveness":{"tcp":"http","successes":2}}"#,
                "probes.liveness.successes",
                "leave it out",
            ),
            (
                r#"{"liveness":{"command":[""]}}"#,
                "probes.liveness.command",
                "the command is empty",
            ),
            (&long, "probes.readiness.command", "the maximum is 4096"),
        ] {
            let error = checked(json).unwrap_err();
            assert_eq!(error.field, field, "{json}");
            assert!(error.message.contains(part), "{json}: {error}");
        }
    }

    #[test]
    fn what_a_probe_saw_is_bounded_and_steers_no_terminal() {
        let failure = ProbeFailure::new(ProbeKind::Liveness, &"\u{1b}[2J\u{e4}".repeat(500));
        assert!(failure.saw.len() <= MAX_SAW_BYTES);
        assert!(!failure.saw.contains(char::is_control));
    }
}
