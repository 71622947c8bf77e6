//! Names and ids. Each kind has its own type and every value is valid: names become file names, environment values and
//! table cells, so they can neither climb a path nor steer a terminal. Names of up to 23 bytes are stored in place, and all
//! are copied without allocating: the scheduler compares and copies them all the time.

use core::fmt;
use core::str::FromStr;

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

/// Longest name or id, in bytes.
pub const MAX_NAME_BYTES: usize = 63;

/// Error for a text that is not a valid name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a valid {kind}: {rule}", escaped(text))]
pub struct NameError {
    /// Kind of name, such as `pool name`.
    pub kind: &'static str,
    /// The rejected text.
    pub text: String,
    /// The rule that the text breaks.
    pub rule: &'static str,
}

/// Shortens and escapes a text for a message.
pub(crate) fn escaped(text: &str) -> String {
    let mut out: String = text
        .chars()
        .take(MAX_NAME_BYTES)
        .flat_map(char::escape_default)
        .collect();
    if text.chars().count() > MAX_NAME_BYTES {
        out.push_str("...");
    }
    out
}

/// Longest user name, in bytes; email addresses fit.
pub const MAX_USER_BYTES: usize = 128;

const RULE: &str =
    "use 1 to 63 letters, digits, `-`, `_` and `.`, beginning with a letter or digit";

fn check(kind: &'static str, text: &str) -> Result<(), NameError> {
    let mut bytes = text.bytes();
    let first = bytes.next().is_some_and(|b| b.is_ascii_alphanumeric());
    let rest = bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    if first && rest && text.len() <= MAX_NAME_BYTES {
        return Ok(());
    }
    Err(NameError {
        kind,
        text: text.to_owned(),
        rule: RULE,
    })
}

/// Begins the names that stand for pools without hosts, in place of a node's.
const NO_HOST: &str = "no-host.";

/// Checks the name of a node, or the one that stands for a pool without hosts.
fn check_node(kind: &'static str, text: &str) -> Result<(), NameError> {
    check(kind, text.strip_prefix(NO_HOST).unwrap_or(text))
}

const USER_RULE: &str = "use 1 to 128 letters, digits, `-`, `_`, `.`, `@`, `+`, `:` and `|`, beginning with a letter, a digit or `_`";

fn check_user(kind: &'static str, text: &str) -> Result<(), NameError> {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let is_rest = |b: u8| is_word(b) || matches!(b, b'-' | b'.' | b'@' | b'+' | b':' | b'|');
    let first = text.bytes().next().is_some_and(is_word);
    if first && text.bytes().all(is_rest) && text.len() <= MAX_USER_BYTES {
        return Ok(());
    }
    Err(NameError {
        kind,
        text: text.to_owned(),
        rule: USER_RULE,
    })
}

/// Longest name of a port, in bytes, as IANA has it for services.
const MAX_PORT_BYTES: usize = 15;

const PORT_RULE: &str =
    "use 1 to 15 lower-case letters, digits and `-`, with a letter or digit first and last";

fn check_port(kind: &'static str, text: &str) -> Result<(), NameError> {
    let is_word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let is_inside = text.bytes().all(|b| is_word(b) || b == b'-');
    let ends = [text.bytes().next(), text.bytes().next_back()];
    let is_closed = ends.into_iter().all(|end| end.is_some_and(is_word));
    if is_inside && is_closed && text.len() <= MAX_PORT_BYTES {
        return Ok(());
    }
    Err(NameError {
        kind,
        text: text.to_owned(),
        rule: PORT_RULE,
    })
}

/// Longest name of a metric, in bytes.
const MAX_METRIC_BYTES: usize = 200;

const METRIC_RULE: &str = "use 1 to 200 letters, digits, `_` and `:`, and no digit first";

fn check_metric(kind: &'static str, text: &str) -> Result<(), NameError> {
    let is_first = |b: u8| b.is_ascii_alphabetic() || b == b'_' || b == b':';
    let is_rest = |b: u8| is_first(b) || b.is_ascii_digit();
    let first = text.bytes().next().is_some_and(is_first);
    if first && text.bytes().all(is_rest) && text.len() <= MAX_METRIC_BYTES {
        return Ok(());
    }
    Err(NameError {
        kind,
        text: text.to_owned(),
        rule: METRIC_RULE,
    })
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $kind:literal $(, $also:literal)?) => {
        name!($(#[$doc])* $type, $kind, by check $(, $also)?);
    };
    ($(#[$doc:meta])* $type:ident, $kind:literal, by $check:ident $(, $also:literal)?) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[cfg_attr(feature = "schema", schemars(with = "String"))]
        #[serde(try_from = "SmolStr", into = "SmolStr")]
        pub struct $type(SmolStr);

        impl $type {
            /// Validates `text`.
            ///
            /// # Errors
            /// If it is empty, too long or holds a character that the rule does not allow.
            pub fn new(text: impl Into<SmolStr>) -> Result<Self, NameError> {
                let text = text.into();
                let named_apart = false $(|| text == $also)?;
                if !named_apart {
                    $check($kind, &text)?;
                }
                Ok(Self(text))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl FromStr for $type {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $type {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl TryFrom<SmolStr> for $type {
            type Error = NameError;
            fn try_from(text: SmolStr) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl From<$type> for SmolStr {
            fn from(name: $type) -> SmolStr {
                name.0
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.0.into()
            }
        }
    };
}

name!(
    /// Id of a step, unique in its cluster; chosen by the client or generated by the coordinator.
    StepId, "step id");
name!(
    /// Name of a host with an agent, unique in its cluster; or what stands in its place for a pool without hosts.
    NodeName, "node name", by check_node);
name!(
    /// Name of a pool of nodes.
    PoolName, "pool name");
name!(
    /// Name of a kind of hardware, such as `h100` or `cpu`.
    PlatformName, "platform name");
name!(
    /// The party on whose behalf steps are submitted: a team, an orchestrator or a person. The policy of `*` applies to
    /// every subject without a policy of its own.
    Subject, "subject", "*");
name!(
    /// A person or program that the coordinator has authenticated, as named by a certificate, an issuer or an admin.
    UserName, "user name", by check_user);
name!(
    /// Name of a service, unique in its cluster.
    ServiceName, "service name");
name!(
    /// Name of a program that reports the load of services, such as a gateway.
    ReporterName, "name of a reporter");
name!(
    /// Name that a step gives one of its ports, such as `http`.
    PortName, "port name", by check_port);
name!(
    /// Name of a metric as Prometheus has it: letters, digits, `_` and `:`, with no digit first.
    MetricName, "metric", by check_metric);
name!(
    /// Name of a template.
    TemplateName,
    "template name"
);
name!(
    /// Random id of a cluster, generated when its data directory is created.
    ClusterId, "cluster id");
name!(
    /// Id of one boot of a host, as its kernel reports it.
    BootId, "boot id");
name!(
    /// Name of a set of validation rules.
    ValidationName, "validation name");
name!(
    /// Id of a join token; not its secret.
    JoinTokenId, "join token id");

name!(
    /// Name of a level of the topology, such as `rack`.
    LevelName, "level name");
name!(
    /// Name of a role.
    RoleName, "role name");
name!(
    /// Name of a binding.
    BindingName, "binding name");
name!(
    /// Name of an API token.
    TokenName, "token name");

impl NodeName {
    /// The name in place of a node's for what a pool without hosts grants. No host joins under such a name.
    ///
    /// # Panics
    /// Never: the name of a pool is the rest of one.
    pub fn of_pool(pool: &PoolName) -> Self {
        Self::new(format!("{NO_HOST}{pool}")).expect("the name of a pool is the rest of one")
    }

    /// Whether this is no host, but stands for a pool without hosts.
    pub fn is_of_pool(&self) -> bool {
        self.0.starts_with(NO_HOST)
    }
}

impl Subject {
    /// Stands for every subject without a policy of its own.
    pub const EVERYONE: &str = "*";

    /// Whether this is [`Self::EVERYONE`].
    pub fn is_everyone(&self) -> bool {
        self.0 == Self::EVERYONE
    }
}

/// Id of an attempt: the step's id and the attempt number. Written `ID.NUMBER`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(with = "String"))]
#[serde(try_from = "String", into = "String")]
pub struct AttemptId {
    /// Step of the attempt.
    pub step: StepId,
    /// Attempt number, starting at 1.
    pub number: u32,
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{}", self.step, self.number))
    }
}

impl FromStr for AttemptId {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let error = || NameError {
            kind: "attempt id",
            text: text.to_owned(),
            rule: "write the step's id, a dot and the number of the attempt, from 1",
        };
        let (step, digits) = text.rsplit_once('.').ok_or_else(error)?;
        let number = digits.parse::<u32>().map_err(|_| error())?;
        // Each attempt has one spelling: `a.01` and `a.+1` would name the same directory.
        if number == 0 || number.to_string() != digits {
            return Err(error());
        }
        Ok(Self {
            step: StepId::new(step)?,
            number,
        })
    }
}

impl TryFrom<String> for AttemptId {
    type Error = NameError;
    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<AttemptId> for String {
    fn from(id: AttemptId) -> String {
        id.to_string()
    }
}

/// Identifies one run of a cluster's coordinator. Each start increments the counter, so hosts obey the latest of two
/// coordinators that claim the same cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Epoch {
    /// Id of the cluster.
    pub cluster: ClusterId,
    /// Number of coordinator starts, from 1.
    pub counter: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_climb_a_path_or_move_a_cursor_are_refused() {
        for text in [
            "",
            ".",
            "..",
            "../x",
            "a/b",
            "-rf",
            "a b",
            "a\u{1b}[2J",
            "ä",
            "a\0",
            &"x".repeat(64),
        ] {
            assert!(StepId::new(text).is_err(), "{text:?}");
        }
        for text in ["a", "0", "train-1.2_b", &"x".repeat(63)] {
            assert!(StepId::new(text).is_ok(), "{text:?}");
        }
    }

    #[test]
    fn a_pool_without_hosts_has_a_name_that_no_host_has() {
        for pool in ["licences", &"x".repeat(63)] {
            let name = NodeName::of_pool(&PoolName::new(pool).unwrap());
            assert!(name.is_of_pool());
            let json = serde_json::to_string(&name).unwrap();
            assert_eq!(serde_json::from_str::<NodeName>(&json).unwrap(), name);
        }
        for text in ["no-host.", "no-host.-a", "no-host.a/b"] {
            assert!(NodeName::new(text).is_err(), "{text}");
        }
        assert!(!NodeName::new("no-hosts").unwrap().is_of_pool());
    }

    #[test]
    fn a_refusal_shows_the_text_harmlessly() {
        let message = PoolName::new("a\u{1b}[2J").unwrap_err().to_string();
        assert!(!message.contains('\u{1b}'));
        assert!(message.contains("pool name"), "{message}");
    }

    #[test]
    fn an_attempt_has_one_spelling() {
        let id: AttemptId = "train.v2.7".parse().unwrap();
        assert_eq!((id.step.as_str(), id.number), ("train.v2", 7));
        assert_eq!(id.to_string(), "train.v2.7");
        for text in [
            "train", "train.", "train.0", "train.01", "train.+1", ".1", "train.-1",
        ] {
            assert!(text.parse::<AttemptId>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_metric_has_a_name_of_prometheus() {
        for good in ["up", "vllm:num_requests_running", "_a1"] {
            assert_eq!(good.parse::<MetricName>().unwrap().as_str(), good);
        }
        let long = "x".repeat(MAX_METRIC_BYTES + 1);
        for bad in ["", "1a", "a-b", "a{b=\"c\"}", "\u{e9}", &long] {
            let error = bad.parse::<MetricName>().unwrap_err();
            assert_eq!(error.kind, "metric", "{bad}");
        }
    }
}
