//! Checks that this host's supervisor answers. The agent's program asks, because it knows the socket and the protocol;
//! a running agent stays connected.

use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;

use super::check::Check;
use crate::commands::detect::AGENT;
use crate::commands::sibling;

/// Path of the agent's config on a host that runs steps.
const AGENT_CONFIG: &str = "/etc/sluice/agent.toml";

const NAME: &str = "supervisor";

/// Output of the agent's program.
#[derive(Debug, Deserialize)]
struct SupervisorProbe {
    socket: String,
    state: String,
    why: Option<String>,
}

/// Returns none if the agent's program is missing, which has a check of its own.
pub(super) fn check() -> Option<Check> {
    let agent = sibling(AGENT)?;
    Some(match ask(&agent) {
        Ok(probed) => judged(&probed, Path::new(AGENT_CONFIG).exists()),
        Err(error) => Check::warn(
            NAME,
            format!("it could not be asked: {error}"),
            "run `sluice-agent supervisor` as root to see more",
        ),
    })
}

fn ask(agent: &Path) -> Result<SupervisorProbe, String> {
    let mut command = Command::new(agent);
    let said = command.arg("supervisor").stdin(Stdio::null()).output();
    let said = said.map_err(|e| format!("{} cannot be run: {e}", agent.display()))?;
    if !said.status.success() {
        let words = String::from_utf8_lossy(&said.stderr);
        return Err(words.lines().last().unwrap_or("no reason given").to_owned());
    }
    serde_json::from_slice(&said.stdout).map_err(|e| format!("the answer is not understood: {e}"))
}

fn judged(probed: &SupervisorProbe, has_config: bool) -> Check {
    let socket = &probed.socket;
    let why = probed.why.clone().unwrap_or_default();
    let start = "start it: `systemctl start sluice-supervisor`; `journalctl -u sluice-supervisor` says why it is not there";
    match probed.state.as_str() {
        "answers" => Check::ok(NAME, format!("answers at {socket}")),
        "missing" if !has_config => Check::ok(
            NAME,
            format!("none: there is no {AGENT_CONFIG}, so this host runs no steps"),
        ),
        "missing" => Check::fail(NAME, format!("there is no socket at {socket}"), start),
        "refused" => Check::fail(
            NAME,
            format!("nothing listens at {socket}: its process has ended"),
            start,
        ),
        "silent" => Check::fail(
            NAME,
            format!(
                "accepts connections at {socket} but does not answer: its process is stopped or stuck"
            ),
            "restart it: `systemctl restart sluice-supervisor`; steps run on meanwhile",
        ),
        "other_version" => Check::fail(
            NAME,
            why,
            "install agent and supervisor from one release, then `systemctl reload sluice-supervisor`",
        ),
        "not_permitted" => Check::warn(
            NAME,
            format!("this user may not ask it at {socket}"),
            "run `sluice doctor` as root",
        ),
        _ => Check::fail(NAME, why, start),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::CheckStatus;
    use super::*;

    fn judge(state: &str, has_config: bool) -> Check {
        let probed = SupervisorProbe {
            socket: "/run/s".into(),
            state: state.into(),
            why: Some("it speaks version 9".into()),
        };
        judged(&probed, has_config)
    }

    #[test]
    fn each_way_in_which_it_is_away_has_a_way_out() {
        assert_eq!(judge("answers", true).verdict, CheckStatus::Ok);
        assert_eq!(judge("missing", false).verdict, CheckStatus::Ok);
        for state in [
            "missing",
            "refused",
            "silent",
            "other_version",
            "unreachable",
        ] {
            let check = judge(state, true);
            assert_eq!(check.verdict, CheckStatus::Fail, "{state}");
            assert!(check.cure.unwrap().contains("systemctl"), "{state}");
        }
        assert_eq!(judge("not_permitted", true).verdict, CheckStatus::Warn);
    }

    #[test]
    fn an_agent_that_cannot_be_asked_is_told() {
        assert!(ask(Path::new("/does/not/exist")).is_err());
        assert!(ask(Path::new("/bin/false")).is_err());
        assert!(ask(Path::new("/bin/true")).is_err());
    }
}
