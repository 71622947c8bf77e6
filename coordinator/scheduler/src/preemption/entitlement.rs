//! Decides whether a request that is short of CPU, memory or disk of a host, which its pool's policies do not meter,
//! may preempt a run for it. Shares do not say whose these are; the GPUs that carry them do.
//!
//! | request | preempts |
//! |---|---|
//! | inside its share of something metered, or of a higher priority, and asks for no more than its GPUs carry | runs that borrow the resource from the host's GPUs |
//! | inside its share of something metered | runs that are left over when their subject's share is filled |
//! | of a higher priority, and must borrow | any |
//! | of a higher priority, and asks for nothing metered | runs that would not be inside their share again |

use sluice_common::id::NodeName;

use crate::model::account::Account;
use crate::model::host::Host;
use crate::model::queue_order;
use crate::model::request::Run;
use crate::placement::request_in_pool::RequestInPool;
use crate::preemption::protection::Protected;

/// A run, as this rule sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResourceHolder<'a> {
    pub(crate) run: &'a Run,
    /// Priority of its subject.
    pub(crate) priority: u64,
    /// Whether it does not fit in its subject's share of something metered.
    pub(crate) is_left_over: bool,
}

impl RequestInPool<'_> {
    /// Whether the request may preempt a run for a resource that does not count in its share. `node`: the host on which
    /// it is short. `would_be_in_share`: whether the run would be inside its share again.
    pub(crate) fn may_take_unmetered(
        &self,
        holder: ResourceHolder<'_>,
        node: Option<&NodeName>,
        key: &str,
        would_be_in_share: impl FnOnce() -> bool,
    ) -> bool {
        let is_higher = self.account.priority() > holder.priority;
        let in_metered_share = self.is_in_metered_share();
        let is_borrowed = |node| self.takes_what_is_borrowed(holder.run, node, key);
        if (in_metered_share || is_higher) && node.is_some_and(is_borrowed) {
            return true;
        }
        match in_metered_share {
            true => holder.is_left_over,
            false => is_higher && (!self.is_in_share() || !would_be_in_share()),
        }
    }

    /// Protection of a run from a request that is short of a resource that is not metered; `None` if it may be preempted.
    pub(crate) fn protection_of_unmetered(
        &self,
        holder: ResourceHolder<'_>,
        account: &Account,
        key: &str,
    ) -> Option<Protected> {
        let ResourceHolder { run, priority, .. } = holder;
        let would_be_in_share = || {
            let used = account.used.saturating_sub(run.demand());
            queue_order::fits_share(self.pool, account, &run.request, &used)
        };
        let mut nodes = run.holding.iter();
        if nodes.any(|node| self.may_take_unmetered(holder, Some(node), key, would_be_in_share)) {
            return None;
        }
        let hosts = || {
            run.holding
                .iter()
                .filter_map(|node| self.pool.hosts().get(node))
        };
        let borrows = |each| {
            let mut borrowed = hosts().map(|host| self.pool.borrowed_from_gpus(host, each));
            borrowed.any(|borrowed| borrowed.get(key) > 0)
        };
        Some(match borrows(run.each()) {
            true if borrows(self.request.each) => Protected::BorrowsToo,
            true => Protected::Priority(priority),
            false if hosts().any(Host::has_gpus) => Protected::Entitled,
            false => Protected::InShare,
        })
    }

    /// Whether a run borrows a resource from the GPUs of a host, and the request asks for no more of it than its own
    /// GPUs carry.
    fn takes_what_is_borrowed(&self, run: &Run, node: &NodeName, key: &str) -> bool {
        let Some(host) = self.pool.hosts().get(node) else {
            return false;
        };
        let borrows = |each| self.pool.borrowed_from_gpus(host, each).get(key) > 0;
        borrows(run.each()) && !borrows(self.request.each)
    }
}
