//! The one connection that counts: how far its greeting has come, and whose word is obeyed on it. Pure.
//!
//! ```text
//!   dialled --> Waiting --- the supervisor has answered once ---> Greeted --- welcome ---> Welcomed
//! ```
//! A connection that was replaced, lost or rejected is forgotten, and whatever still arrives on it is ignored.

use sluice_common::id::{ClusterId, Epoch};
use sluice_common::supervision::BootMillis;
use sluice_common::time::Span;
use sluice_common::wire::Welcome;

use crate::input::LinkId;

/// A connection.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    /// Which.
    pub(crate) id: LinkId,
    /// How far its greeting has come.
    pub(crate) stage: LinkStage,
}

/// How far a greeting has come.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LinkStage {
    /// The hello waits for the supervisor's first word.
    Waiting,
    /// The hello went out.
    Greeted {
        /// When. The coordinator heard it no earlier, so the first lease may run from here.
        at: BootMillis,
    },
    /// The coordinator let the node in.
    Welcomed {
        /// When the hello went out.
        greeted_at: BootMillis,
        /// On which terms.
        terms: Terms,
    },
}

/// The coordinator's terms, as far as they concern attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// How long attempts run on after words of the agent that were answered, counted from their sending.
    pub(crate) lease: Span,
    /// How long stopping an attempt whose lease has passed may take.
    pub(crate) stop_limit: Span,
}

impl From<&Welcome> for Terms {
    fn from(welcome: &Welcome) -> Self {
        Self {
            lease: welcome.lease,
            stop_limit: welcome.stop_limit,
        }
    }
}

/// Why a coordinator is not obeyed; what it asked for was not done, and its connection is dropped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Rejection {
    #[error(
        "the coordinator speaks for cluster `{found}`, but this host obeys cluster `{obeyed}`: correct \
         `coordinators` in the agent's config, or, to move the host, empty the agent's state directory"
    )]
    OtherCluster { found: ClusterId, obeyed: ClusterId },
    #[error(
        "the coordinator speaks with epoch {found} of cluster `{cluster}`, but this host has obeyed epoch {obeyed}: \
         an older coordinator still runs, or one was brought back from a backup; stop it, or restart it to go above"
    )]
    OldEpoch {
        cluster: ClusterId,
        found: u64,
        obeyed: u64,
    },
    #[error("the coordinator sent a welcome before the hello that it answers")]
    WelcomeBeforeHello,
    #[error("the coordinator sent an order before its welcome")]
    OrderBeforeWelcome,
}

/// How an epoch that may be obeyed stands to the highest that was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is that one.
    Known,
    /// It is the new highest, to be made durable before it is obeyed.
    New,
}

/// Whether a host that has obeyed `highest` may obey `epoch`.
pub(crate) fn judge(highest: Option<&Epoch>, epoch: &Epoch) -> Result<Standing, Rejection> {
    let Some(highest) = highest else {
        return Ok(Standing::New);
    };
    if highest.cluster != epoch.cluster {
        return Err(Rejection::OtherCluster {
            found: epoch.cluster.clone(),
            obeyed: highest.cluster.clone(),
        });
    }
    match epoch.counter.cmp(&highest.counter) {
        core::cmp::Ordering::Equal => Ok(Standing::Known),
        core::cmp::Ordering::Greater => Ok(Standing::New),
        core::cmp::Ordering::Less => Err(Rejection::OldEpoch {
            cluster: epoch.cluster.clone(),
            found: epoch.counter,
            obeyed: highest.counter,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn epoch(cluster: &str, counter: u64) -> Epoch {
        Epoch {
            cluster: ClusterId::new(cluster).unwrap(),
            counter,
        }
    }

    #[test]
    fn an_epoch_is_obeyed_unless_it_is_older_or_of_another_cluster() {
        let highest = epoch("c", 5);
        assert_eq!(judge(None, &epoch("c", 1)), Ok(Standing::New));
        assert_eq!(judge(Some(&highest), &epoch("c", 5)), Ok(Standing::Known));
        assert_eq!(judge(Some(&highest), &epoch("c", 6)), Ok(Standing::New));
        for (refused, words) in [
            (
                epoch("c", 4),
                "epoch 4 of cluster `c`, but this host has obeyed epoch 5",
            ),
            (
                epoch("d", 5),
                "cluster `d`, but this host obeys cluster `c`",
            ),
            (epoch("d", 9), "empty the agent's state directory"),
        ] {
            let message = judge(Some(&highest), &refused).unwrap_err().to_string();
            assert!(message.contains(words), "{message}");
        }
    }
}
