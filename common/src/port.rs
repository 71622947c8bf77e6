//! Ports of steps: the names that a step gives them, and the range from which a host takes their numbers.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::ops::RangeInclusive;
use core::str::FromStr;

use crate::error_code::ErrorCode;
use crate::field_error::FieldError;
use crate::id::{NameError, escaped};

pub use crate::id::PortName;

/// Most ports of one step on each host.
pub const MAX_PORTS: usize = 8;

/// Lowest port that needs no privilege.
const FIRST_PORT: u16 = 1024;

/// Variable of a step with its first port.
pub const PORT_VARIABLE: &str = "SLUICE_PORT";

impl PortName {
    /// Variable of a step with this port: `SLUICE_PORT_HTTP` for `http`.
    pub fn variable(&self) -> String {
        let name = self.as_str().to_ascii_uppercase().replace('-', "_");
        format!("{PORT_VARIABLE}_{name}")
    }
}

/// A clause about the ports of a step, for who named another or none.
pub fn tell_ports(step: &str, ports: &[&str]) -> String {
    match ports {
        [] => format!(
            "step `{step}` has no ports: submit it with `ports: [http]` (`--port http`), and let its program listen at the port in `{PORT_VARIABLE}`"
        ),
        ports => format!("the ports of step `{step}` are {}", ports.join(", ")),
    }
}

/// Checks the ports of a request.
///
/// # Errors
/// If a name is invalid or given twice, or if there are too many.
pub(crate) fn check_ports(names: &[String]) -> Result<Vec<PortName>, FieldError> {
    let error = |field: String, message: &dyn fmt::Display| {
        FieldError::new(ErrorCode::InvalidPorts, field, message)
    };
    if names.len() > MAX_PORTS {
        let message = format!(
            "{} ports: the maximum is {MAX_PORTS}; serve several things at one port, or split the step",
            names.len()
        );
        return Err(error("ports".to_owned(), &message));
    }
    let mut seen = BTreeSet::new();
    let checked = names.iter().enumerate().map(|(at, name)| {
        let field = || format!("ports[{at}]");
        let name: PortName = name.parse().map_err(|e: NameError| error(field(), &e))?;
        match seen.insert(name.clone()) {
            true => Ok(name),
            false => {
                let message = format!("`{name}` is given twice: give each port a name of its own");
                Err(error(field(), &message))
            }
        }
    });
    checked.collect()
}

/// Ports of a host that it gives to steps, such as `20000-29499`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortRange(RangeInclusive<u16>);

/// Error for a text that is no range of ports.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{}` is not a range of ports: write the first and the last, from 1024 to 65535, such as `20000-29499`",
    escaped(text)
)]
pub struct PortRangeError {
    /// The rejected text.
    pub text: String,
}

impl PortRange {
    /// The ports, in order.
    pub fn ports(&self) -> RangeInclusive<u16> {
        self.0.clone()
    }

    /// Whether a port belongs to the range.
    pub fn contains(&self, port: u16) -> bool {
        self.0.contains(&port)
    }
}

impl Default for PortRange {
    /// Below the ports that gangs meet at (29500 and up), Kubernetes' node ports (30000 and up) and those that Linux gives
    /// to outgoing connections (32768 and up), so that none of these takes the port of a step between its choice and its use.
    fn default() -> Self {
        Self(20_000..=29_499)
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0.start(), self.0.end())
    }
}

impl FromStr for PortRange {
    type Err = PortRangeError;

    fn from_str(text: &str) -> Result<Self, PortRangeError> {
        let port = |text: &str| {
            let number = text.parse::<u16>().ok();
            // Each port has one spelling.
            number.filter(|port| *port >= FIRST_PORT && port.to_string() == text)
        };
        let range = text.split_once('-').and_then(|(first, last)| {
            let (first, last) = (port(first.trim())?, port(last.trim())?);
            (first <= last).then_some(Self(first..=last))
        });
        range.ok_or_else(|| PortRangeError {
            text: text.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_port_has_a_short_name_and_a_variable() {
        let ports = check_ports(&names(&["http", "grpc-web2"])).unwrap();
        let variables: Vec<String> = ports.iter().map(PortName::variable).collect();
        assert_eq!(variables, ["SLUICE_PORT_HTTP", "SLUICE_PORT_GRPC_WEB2"]);
    }

    #[test]
    fn a_bad_port_is_named_with_its_place_and_what_to_write() {
        for (ports, field, part) in [
            (
                &["http", "HTTP"][..],
                "ports[1]",
                "`HTTP` is not a valid port name",
            ),
            (&[""], "ports[0]", "1 to 15 lower-case letters"),
            (&["-a"], "ports[0]", "a letter or digit first"),
            (&["a-"], "ports[0]", "a letter or digit first"),
            (&["a_b"], "ports[0]", "`a_b`"),
            (&["a\n"], "ports[0]", r"`a\n`"),
            (&["abcdefghijklmnop"], "ports[0]", "1 to 15"),
            (&["a", "b", "a"], "ports[2]", "`a` is given twice"),
            (&["a"; 9], "ports", "9 ports: the maximum is 8"),
        ] {
            let error = check_ports(&names(ports)).unwrap_err();
            assert_eq!(error.field, field, "{ports:?}");
            assert!(error.message.contains(part), "{ports:?}: {error}");
        }
    }

    #[test]
    fn a_range_names_its_first_and_last_port() {
        let range: PortRange = "20000-20002".parse().unwrap();
        assert_eq!(range.ports().count(), 3);
        assert_eq!(range.to_string(), "20000-20002");
        assert!("5000-5000".parse::<PortRange>().is_ok());
        for wrong in [
            "",
            "20000",
            "80-90",
            "9-8",
            "30000-20000",
            "1024-65536",
            "+2000-3000",
        ] {
            let error = wrong.parse::<PortRange>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{wrong}`")), "{error}");
        }
    }
}
