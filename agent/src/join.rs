//! Joins a cluster with the join line that an admin pastes. The coordinator first proves that it is the one that the line
//! names; then the host sends the secret of the line, and gets a certificate for the key that it has generated.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::unistd::{geteuid, setgid, setgroups, setuid};
use sluice_common::id::{NodeName, PoolName};
use sluice_common::join::{Credentials, JoinReply, JoinRequest};
use sluice_transport::join_line::MAX_LINE_CHARS;
use sluice_transport::{
    AuthorityError, Backoff, JoinDialer, JoinLine, JoinLineError, JoiningPeer, SigningRequest,
    TransportError,
};
use tokio::time::timeout;
use tracing::{info, warn};

use crate::credentials_dir::{CredentialsDir, CredentialsError};

/// Time limit of the coordinator's answer; it commits a record first, which takes long on a busy disk.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);

/// The host that joins, by config and flags.
#[derive(Clone, Debug)]
pub(crate) struct Applicant {
    pub(crate) state_dir: PathBuf,
    /// The configured node name.
    pub(crate) chosen: Option<NodeName>,
    /// The host name, if it is a valid node name.
    pub(crate) host_name: Option<NodeName>,
    /// The configured pool.
    pub(crate) pool: Option<PoolName>,
}

/// Why this host could not join.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JoinError {
    #[error("cannot read the join line from {from}")]
    Read { from: String, source: io::Error },
    #[error(transparent)]
    Line(#[from] JoinLineError),
    #[error(
        "this host's name cannot be a node's: choose one with --node NAME, or `node` in the agent's config"
    )]
    Name,
    #[error(
        "the join line is for node `{only}` alone, and this host is configured as node `{chosen}`: remove `node` from the agent's config, or create a token for `{chosen}`"
    )]
    OtherNode { only: NodeName, chosen: NodeName },
    #[error("this host has already joined, as {as_whom}: to join again with this line, add --anew")]
    Joined { as_whom: String },
    #[error(transparent)]
    Key(#[from] AuthorityError),
    #[error(transparent)]
    Link(#[from] TransportError),
    #[error("the coordinator did not answer within {}s", ANSWER_WITHIN.as_secs())]
    NoAnswer,
    #[error("the coordinator rejected this host: {message}")]
    Refused { message: String, later: bool },
    #[error(transparent)]
    CredentialsDir(#[from] CredentialsError),
    #[error("cannot switch to the user who owns {}, who must be able to renew the files in it", dir.display())]
    Become { dir: PathBuf, source: Errno },
}

impl JoinError {
    /// Whether a retry may succeed without a change.
    fn may_pass(&self) -> bool {
        match self {
            Self::Link(_) | Self::NoAnswer => true,
            Self::Refused { later, .. } => *later,
            Self::Read { .. }
            | Self::Line(_)
            | Self::Name
            | Self::OtherNode { .. }
            | Self::Joined { .. }
            | Self::Key(_)
            | Self::CredentialsDir(_)
            | Self::Become { .. } => false,
        }
    }
}

/// Reads the line from standard input, so that process lists do not show it.
pub(crate) fn from_stdin() -> Result<JoinLine, JoinError> {
    read("standard input", io::stdin().lock())
}

fn from_file(path: &Path) -> Result<JoinLine, JoinError> {
    let from = path.display().to_string();
    let file = fs::File::open(path).map_err(|source| JoinError::Read {
        from: from.clone(),
        source,
    })?;
    read(&from, file)
}

fn read(from: &str, source: impl Read) -> Result<JoinLine, JoinError> {
    let mut text = String::new();
    let most = u64::try_from(2 * MAX_LINE_CHARS).unwrap_or(u64::MAX);
    let read = source.take(most).read_to_string(&mut text);
    read.map_err(|source| JoinError::Read {
        from: from.to_owned(),
        source,
    })?;
    Ok(text.parse()?)
}

/// Switches from root to the owner of the state directory: the owner may have placed links there to files of
/// others, and must be able to renew the certificate. A missing directory will be root's.
pub(crate) fn become_owner(state_dir: &Path) -> Result<(), JoinError> {
    let Ok(owner) = fs::metadata(state_dir) else {
        return Ok(());
    };
    if !geteuid().is_root() || owner.uid() == 0 {
        return Ok(());
    }
    let gone = setgroups(&[]).and_then(|()| setgid(owner.gid().into()));
    let gone = gone.and_then(|()| setuid(owner.uid().into()));
    gone.map_err(|source| JoinError::Become {
        dir: state_dir.to_owned(),
        source,
    })
}

/// Joins with this line; returns the node's name and pool for people.
pub(crate) async fn join(
    applicant: &Applicant,
    line: &JoinLine,
    anew: bool,
) -> Result<String, JoinError> {
    let kept = CredentialsDir::new(&applicant.state_dir);
    if kept.is_there()
        && !anew
        && let Ok(identity) = kept.identity()
    {
        let as_whom = identity.peer().to_string();
        return Err(JoinError::Joined { as_whom });
    }
    let node = name(applicant, line)?;
    let (key, request) = SigningRequest::make()?;
    let request = JoinRequest {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        secret: line.secret.clone(),
        node,
        pool: applicant.pool.clone(),
        request,
    };
    let given = ask(line, &request).await?;
    kept.keep(&given, &key, &line.addresses)?;
    let identity = kept.identity().map_err(CredentialsError::Unusable)?;
    let member = identity.peer_identity();
    let pool = member.claim.pool.as_ref();
    let pool = pool.map_or_else(String::new, |pool| format!(" of pool {pool}"));
    let cluster = member.cluster.as_ref();
    let cluster = cluster.map_or_else(String::new, |cluster| format!(" in cluster {cluster}"));
    Ok(format!("{}{pool}{cluster}", member.peer))
}

/// The configured name, else the line's, else the host name.
fn name(applicant: &Applicant, line: &JoinLine) -> Result<NodeName, JoinError> {
    let chosen = applicant.chosen.clone();
    match (chosen, line.node.clone()) {
        (Some(chosen), Some(only)) if chosen != only => Err(JoinError::OtherNode { only, chosen }),
        (Some(name), _) | (None, Some(name)) => Ok(name),
        (None, None) => applicant.host_name.clone().ok_or(JoinError::Name),
    }
}

/// Tries each address in turn. A refusal is final.
async fn ask(line: &JoinLine, request: &JoinRequest) -> Result<Credentials, JoinError> {
    let dialer = JoinDialer::new(line.authority)?;
    let mut outcome = Err(JoinError::NoAnswer);
    for address in &line.addresses {
        outcome = match dialer.dial(address).await {
            Ok(stranger) => {
                let answered = timeout(ANSWER_WITHIN, talk(&stranger, request)).await;
                stranger.close("");
                answered.unwrap_or(Err(JoinError::NoAnswer))
            }
            Err(error) => Err(error.into()),
        };
        match &outcome {
            Ok(_) | Err(JoinError::Refused { .. }) => break,
            Err(_) => {}
        }
    }
    dialer.close().await;
    outcome
}

async fn talk(stranger: &JoiningPeer, request: &JoinRequest) -> Result<Credentials, JoinError> {
    let (mut out, mut answer) = stranger.open().await?;
    out.send(request).await?;
    out.finish();
    match answer.next().await? {
        Some(JoinReply::Joined(given)) => Ok(given),
        Some(JoinReply::Refused { message, later }) => Err(JoinError::Refused { message, later }),
        None => Err(JoinError::NoAnswer),
    }
}

/// Joins with the line in a file, when an agent starts for the first time; waits for a coordinator that is
/// not reachable yet. Then removes the file, because the secret is not needed any more.
pub(crate) async fn join_by_file(applicant: &Applicant, path: &Path) -> Result<(), JoinError> {
    let line = from_file(path)?;
    let mut backoff = Backoff::new();
    loop {
        match join(applicant, &line, false).await {
            Ok(as_whom) => {
                info!("joined as {as_whom}");
                break;
            }
            Err(error) if error.may_pass() => {
                warn!(
                    "not joined yet: {}",
                    sluice_common::error_chain::error_chain(&error)
                );
                tokio::time::sleep(backoff.next(getrandom::u64().unwrap_or(0))).await;
            }
            Err(error) => return Err(error),
        }
    }
    match fs::remove_file(path).or_else(|_| fs::write(path, b"")) {
        Ok(()) => info!("{} is no longer needed and was removed", path.display()),
        Err(error) => warn!(
            "{} holds a secret that is no longer needed, and cannot be removed ({error}): remove it",
            path.display()
        ),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_common::credential::Fingerprint;
    use sluice_common::join::JoinSecret;

    fn line(node: Option<&str>) -> JoinLine {
        JoinLine {
            addresses: vec!["127.0.0.1:1".to_owned()],
            authority: Fingerprint::new([1; 32]),
            secret: JoinSecret([2; 32]),
            node: node.map(|name| NodeName::new(name).unwrap()),
        }
    }

    fn applicant(chosen: Option<&str>, host_name: Option<&str>) -> Applicant {
        let name = |name: Option<&str>| name.map(|name| NodeName::new(name).unwrap());
        Applicant {
            state_dir: "/nonexistent".into(),
            chosen: name(chosen),
            host_name: name(host_name),
            pool: None,
        }
    }

    #[test]
    fn a_name_that_was_chosen_goes_before_the_line_s_and_that_before_the_host_s() {
        let named = |chosen, line_s| {
            let name = name(&applicant(chosen, Some("host")), &line(line_s));
            name.map(|name| name.to_string())
        };
        assert_eq!(named(None, None).unwrap(), "host");
        assert_eq!(named(None, Some("a")).unwrap(), "a");
        assert_eq!(named(Some("b"), None).unwrap(), "b");
        assert_eq!(named(Some("a"), Some("a")).unwrap(), "a");
        let error = named(Some("b"), Some("a")).unwrap_err().to_string();
        assert!(error.contains("node `a` alone"), "{error}");
        let error = name(&applicant(None, None), &line(None)).unwrap_err();
        assert!(error.to_string().contains("--node NAME"), "{error}");
    }

    #[test]
    fn what_is_no_line_or_half_of_one_is_told_so_before_anybody_is_asked() {
        let whole = line(None).to_string();
        assert_eq!(read("x", whole.as_bytes()).unwrap(), line(None));
        let half = read("x", &whole.as_bytes()[..50]).unwrap_err().to_string();
        assert!(half.contains("is cut off: it has 50 characters"), "{half}");
        let other = read("x", &b"hello"[..]).unwrap_err().to_string();
        assert!(other.contains("`sluice token create`"), "{other}");
        let missing = from_file(Path::new("/nonexistent/token")).unwrap_err();
        assert!(
            missing.to_string().contains("/nonexistent/token"),
            "{missing}"
        );
    }
}
