//! Logs refused peers once: a refused peer dials again and again, and the log must not grow with it.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use sluice_common::id::NodeName;

/// Peers whose refusals are remembered. Beyond them all are forgotten and logged once more, so that ever new addresses
/// use no more memory.
const MAX_REMEMBERED: usize = 10_000;

/// Logged reasons of one peer. A peer that provokes ever new ones does so on purpose; after a successful link it is
/// logged again.
const MAX_REASONS: u32 = 8;

/// A node that showed a certificate, or an address that showed none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RefusedPeer {
    Node(NodeName),
    Address(IpAddr),
}

/// Last refusal of each peer, and how many were logged. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct RefusalLog(Arc<Mutex<BTreeMap<RefusedPeer, (String, u32)>>>);

impl RefusalLog {
    /// Logs a refusal: as a warning if its reason is new for the peer, else at debug level.
    pub(super) fn tell(&self, node: Option<&NodeName>, from: SocketAddr, why: &str) {
        let caller = match node {
            Some(node) => RefusedPeer::Node(node.clone()),
            None => RefusedPeer::Address(from.ip()),
        };
        let node = node.map(NodeName::as_str);
        if self.is_new(caller, why) {
            tracing::warn!(node, %from, "node refused: {why}");
        } else {
            tracing::debug!(node, %from, "node refused again: {why}");
        }
    }

    /// Forgets the refusals of a node that was accepted.
    pub(super) fn forget(&self, node: &NodeName) {
        let mut refused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        refused.remove(&RefusedPeer::Node(node.clone()));
    }

    fn is_new(&self, caller: RefusedPeer, why: &str) -> bool {
        let mut refused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.len() >= MAX_REMEMBERED && !refused.contains_key(&caller) {
            refused.clear();
        }
        let (last, count) = refused.entry(caller).or_default();
        if last == why || *count >= MAX_REASONS {
            return false;
        }
        why.clone_into(last);
        *count += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_news_once_for_each_reason_and_after_a_link() {
        let refusals = RefusalLog::default();
        let node = NodeName::new("gpu-1").unwrap();
        let is_new = |why| refusals.is_new(RefusedPeer::Node(node.clone()), why);
        assert!(is_new("too old") && !is_new("too old") && is_new("too new"));
        assert!(!is_new("too new"));
        refusals.forget(&node);
        assert!(is_new("too new"));
    }

    #[test]
    fn ever_new_reasons_of_one_caller_are_not_told_for_ever() {
        let refusals = RefusalLog::default();
        let node = NodeName::new("gpu-1").unwrap();
        let refused = (0..1000)
            .filter(|number| refusals.is_new(RefusedPeer::Node(node.clone()), &number.to_string()));
        assert_eq!(refused.count(), MAX_REASONS as usize);
    }

    #[test]
    fn many_callers_do_not_grow_the_memory() {
        let refusals = RefusalLog::default();
        for number in 0..=MAX_REMEMBERED {
            let address = IpAddr::from(u32::try_from(number).unwrap().to_be_bytes());
            assert!(refusals.is_new(RefusedPeer::Address(address), "no certificate"));
        }
        assert!(refusals.0.lock().unwrap().len() <= MAX_REMEMBERED);
    }
}
