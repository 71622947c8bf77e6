//! Limits how many links a node may have at one time, and how often it may link. A certificate lets its host dial as
//! often as it likes, and each link costs memory before its first message: one host could take every place.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use sluice_common::id::NodeName;

use crate::rate::{Bucket, Rate};

/// Links of one node at one time: the accepted one, one that has not ended yet, and those of copies of the host that
/// are refused.
pub(super) const MAX_LINKS_PER_NODE: usize = 8;

/// Rate at which one node may link: each link makes records, and has the scheduler look at its pool. Agents of unstable
/// networks stay below it, because they wait longer before each try.
const LINKING: Rate = Rate {
    per_second: 1.0,
    burst: 100.0,
};

/// Number of remembered nodes beyond which those without a recent link are forgotten.
const MAX_REMEMBERED: usize = 1000;

/// Why a node may not link now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LinkDenied {
    #[error("this node already has {MAX_LINKS_PER_NODE} links, which is the maximum")]
    TooMany,
    #[error("this node connects too often: it may connect once a second")]
    TooOften,
}

/// Links of all nodes that have had one lately. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct LinkPermits(Arc<Mutex<BTreeMap<NodeName, NodeLinks>>>);

#[derive(Debug)]
struct NodeLinks {
    open: usize,
    often: Bucket,
}

/// Counts one link until it is dropped.
#[derive(Debug)]
pub(super) struct LinkPermit {
    link_permits: LinkPermits,
    node: NodeName,
}

impl LinkPermits {
    /// Permits one more link of a node.
    ///
    /// # Errors
    /// If the node has as many as it may, or links too often.
    pub(super) fn take(&self, node: &NodeName) -> Result<LinkPermit, LinkDenied> {
        let now = Instant::now();
        let mut taken = self.lock();
        let links = taken.entry(node.clone()).or_insert_with(|| NodeLinks {
            open: 0,
            often: Bucket::full(LINKING, now),
        });
        if links.open >= MAX_LINKS_PER_NODE {
            return Err(LinkDenied::TooMany);
        }
        links
            .often
            .take(LINKING, now)
            .map_err(|_| LinkDenied::TooOften)?;
        links.open += 1;
        Ok(LinkPermit {
            link_permits: self.clone(),
            node: node.clone(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeName, NodeLinks>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LinkPermit {
    fn drop(&mut self) {
        let mut taken = self.link_permits.lock();
        if let Entry::Occupied(mut links) = taken.entry(self.node.clone()) {
            links.get_mut().open -= 1;
        }
        // Forgets nodes without a recent link.
        let now = Instant::now();
        if taken.len() > MAX_REMEMBERED {
            taken.retain(|_, links| links.open > 0 || !links.often.is_full(LINKING, now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> NodeName {
        NodeName::new(name).unwrap()
    }

    #[test]
    fn a_place_is_free_again_when_its_link_has_ended() {
        let link_permits = LinkPermits::default();
        let mut taken: Vec<LinkPermit> = (0..MAX_LINKS_PER_NODE)
            .map(|_| link_permits.take(&node("n")).unwrap())
            .collect();
        assert_eq!(
            link_permits.take(&node("n")).err(),
            Some(LinkDenied::TooMany)
        );
        assert!(link_permits.take(&node("m")).is_ok());
        taken.pop();
        let again = link_permits.take(&node("n"));
        assert!(again.is_ok());
        assert!(link_permits.take(&node("n")).is_err());
    }

    #[test]
    fn who_links_again_and_again_is_let_in_at_a_steady_rate_and_others_as_before() {
        let link_permits = LinkPermits::default();
        let links = (0..1000).map(|_| link_permits.take(&node("n")).err());
        let refused = links.filter(|it| *it == Some(LinkDenied::TooOften)).count();
        assert!((850..=900).contains(&refused), "{refused}");
        assert!(link_permits.take(&node("m")).is_ok());
    }

    #[test]
    fn who_is_gone_for_a_while_is_forgotten() {
        let link_permits = LinkPermits::default();
        for n in 0..MAX_REMEMBERED {
            let name = format!("n{n}");
            drop(link_permits.take(&node(&name)).unwrap());
            let long_ago = Bucket::full(LINKING, Instant::now());
            link_permits.lock().insert(
                node(&name),
                NodeLinks {
                    open: 0,
                    often: long_ago,
                },
            );
        }
        drop(link_permits.take(&node("last")).unwrap());
        assert_eq!(link_permits.lock().len(), 1);
    }
}
