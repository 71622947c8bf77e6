//! State of the current connection to a coordinator, and which orders on it are obeyed. Pure.
//!
//! ```text
//!   dialled --> Waiting --- the supervisor has answered once ---> Greeted --- welcome ---> Welcomed
//! ```
//! A connection that was replaced, lost or rejected is forgotten, and whatever still arrives on it is ignored.

use sluice_common::epoch::MAX_EPOCH;
use sluice_common::id::{AttemptId, ClusterId, Epoch};
use sluice_common::supervision::BootMillis;
use sluice_common::time::Span;
use sluice_common::wire::{ToNode, Welcome};

use crate::input::LinkId;
use crate::stop::later;

#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) id: LinkId,
    pub(crate) stage: LinkStage,
    /// Number of orders received.
    pub(crate) orders: u64,
}

impl Link {
    pub(crate) fn new(id: LinkId) -> Self {
        Self {
            id,
            stage: LinkStage::Waiting,
            orders: 0,
        }
    }

    /// Checks the next order's number. A link that loses, repeats or reorders orders is dropped.
    pub(crate) fn count(&mut self, number: u64) -> Result<(), Rejection> {
        let expected = self.orders.saturating_add(1);
        if number != expected {
            return Err(Rejection::OutOfOrder { expected, number });
        }
        self.orders = number;
        Ok(())
    }
}

/// Stage of a link.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LinkStage {
    /// The hello waits for the supervisor's first answer.
    Waiting,
    /// The hello was sent.
    Greeted {
        /// When it was sent. The coordinator received it no earlier, so the first lease may count from here.
        at: BootMillis,
    },
    /// The coordinator accepted the node.
    Welcomed {
        /// When the hello was sent.
        greeted_at: BootMillis,
        terms: LinkTerms,
    },
}

/// Terms of a welcome that concern attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkTerms {
    /// Lease of attempts, counted from the sending of an acknowledged message of the agent.
    pub(crate) lease: Span,
    /// Time limit for stopping an attempt with an expired lease.
    pub(crate) stop_limit: Span,
    /// Validity of an order to start or resume an attempt.
    pub(crate) order_limit: Span,
}

impl From<&Welcome> for LinkTerms {
    fn from(welcome: &Welcome) -> Self {
        Self {
            lease: welcome.lease,
            stop_limit: welcome.stop_limit,
            order_limit: welcome.order_limit,
        }
    }
}

impl LinkTerms {
    /// Checks the age of an order that answers this host's message of `heard`. An order that starts or
    /// resumes something is valid for a limited time: the network may delay it for minutes, and the
    /// coordinator may have started the step elsewhere meanwhile.
    pub(crate) fn check_age(
        &self,
        order: &ToNode,
        heard: BootMillis,
        now: BootMillis,
    ) -> Result<(), Rejection> {
        let attempt = match order {
            ToNode::Assign(assignment) => &assignment.attempt,
            ToNode::Resume { attempt } => attempt,
            ToNode::Stop { .. }
            | ToNode::Forget { .. }
            | ToNode::Suspend { .. }
            | ToNode::RestoreGpus { .. }
            | ToNode::ShowWarrant { .. }
            // Whatever the coordinator did meanwhile, a GPU that an attempt has is not cut.
            | ToNode::Carve(_) => return Ok(()),
        };
        if heard <= now && now < later(heard, self.order_limit) {
            return Ok(());
        }
        Err(Rejection::LateOrder {
            attempt: attempt.clone(),
            age: Span::from_millis(now.0.saturating_sub(heard.0)),
            limit: self.order_limit,
        })
    }
}

/// Why a coordinator is not obeyed. Its order was not executed, and its connection is dropped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Rejection {
    #[error(
        "the coordinator speaks for cluster `{found}`, but this host obeys cluster `{obeyed}`: correct \
         `coordinators` in the agent's config, or, to move the host, empty the agent's state directory"
    )]
    OtherCluster { found: ClusterId, obeyed: ClusterId },
    #[error(
        "the coordinator speaks with epoch {found} of cluster `{cluster}`, but this host has obeyed epoch {obeyed}: \
         an older coordinator still runs, or one was restored from a backup: stop it, or restart it until its epoch is higher"
    )]
    OldEpoch {
        cluster: ClusterId,
        found: u64,
        obeyed: u64,
    },
    #[error(
        "the coordinator speaks with epoch {found}, which no coordinator can have reached: look at its log, and at \
         `sluice-coordinator repair-epoch`"
    )]
    NoEpoch { found: u64 },
    #[error(
        "the coordinator sent an order of epoch {found}, in which it has not accepted this host"
    )]
    NotWelcomed { found: u64 },
    #[error("the coordinator sent a welcome before the hello that it answers")]
    WelcomeBeforeHello,
    #[error("the coordinator sent an order before its welcome")]
    OrderBeforeWelcome,
    #[error(
        "order {number} arrived when order {expected} was expected: orders were lost, repeated or reordered"
    )]
    OutOfOrder { expected: u64, number: u64 },
    #[error(
        "the order to start or resume {attempt} answers a report that this host sent {age} ago, and is valid for {limit}: it was delayed on the way, or one of the two programs was paused; the host ignores it, and the coordinator decides again"
    )]
    LateOrder {
        attempt: AttemptId,
        age: Span,
        limit: Span,
    },
    #[error("the supervisor answers again: the agent reconnects to report what runs")]
    SupervisorHeard,
}

/// Relation of an acceptable epoch to the highest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EpochComparison {
    /// The same epoch.
    Known,
    /// A higher epoch, to be stored before it is obeyed.
    New,
}

/// Whether a host that has obeyed `highest` may obey `epoch`.
pub(crate) fn check_epoch(
    highest: Option<&Epoch>,
    epoch: &Epoch,
) -> Result<EpochComparison, Rejection> {
    if epoch.counter > MAX_EPOCH {
        return Err(Rejection::NoEpoch {
            found: epoch.counter,
        });
    }
    let Some(highest) = highest else {
        return Ok(EpochComparison::New);
    };
    if highest.cluster != epoch.cluster {
        return Err(Rejection::OtherCluster {
            found: epoch.cluster.clone(),
            obeyed: highest.cluster.clone(),
        });
    }
    match epoch.counter.cmp(&highest.counter) {
        core::cmp::Ordering::Equal => Ok(EpochComparison::Known),
        core::cmp::Ordering::Greater => Ok(EpochComparison::New),
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
        assert_eq!(check_epoch(None, &epoch("c", 1)), Ok(EpochComparison::New));
        assert_eq!(
            check_epoch(Some(&highest), &epoch("c", 5)),
            Ok(EpochComparison::Known)
        );
        assert_eq!(
            check_epoch(Some(&highest), &epoch("c", 6)),
            Ok(EpochComparison::New)
        );
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
            (
                epoch("c", MAX_EPOCH + 1),
                "which no coordinator can have reached",
            ),
        ] {
            let message = check_epoch(Some(&highest), &refused)
                .unwrap_err()
                .to_string();
            assert!(message.contains(words), "{message}");
        }
    }
}
