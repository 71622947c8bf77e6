//! Who was not let in and why, told once: whoever is refused dials again and again, and the log must not grow with it.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use sluice_common::id::NodeName;

/// Callers of whom it is remembered what was told. Beyond them all is forgotten and told once more, so that a caller
/// who comes from ever new addresses takes none of our memory.
const MAX_REMEMBERED: usize = 10_000;

/// Reasons that are told of one caller. Who finds ever new ones does so on purpose, and a link makes the next one news.
const MAX_REASONS: u32 = 8;

/// A node that showed a certificate, or an address that showed none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RefusedPeer {
    Node(NodeName),
    Address(IpAddr),
}

/// The last refusal of each caller, and how many were told. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct RefusalLog(Arc<Mutex<BTreeMap<RefusedPeer, (String, u32)>>>);

impl RefusalLog {
    /// Somebody was not let in: a warning where the reason is a new one for him, else a line for whoever debugs.
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

    /// A node was let in: a refusal after that is news.
    pub(super) fn forget(&self, node: &NodeName) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.remove(&RefusedPeer::Node(node.clone()));
    }

    fn is_new(&self, caller: RefusedPeer, why: &str) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() >= MAX_REMEMBERED && !told.contains_key(&caller) {
            told.clear();
        }
        let (last, count) = told.entry(caller).or_default();
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
        let told = (0..1000)
            .filter(|number| refusals.is_new(RefusedPeer::Node(node.clone()), &number.to_string()));
        assert_eq!(told.count(), MAX_REASONS as usize);
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
