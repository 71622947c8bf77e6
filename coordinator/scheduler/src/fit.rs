//! What is free for a request in a pool, and the hosts that it would take of that.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use sluice_common::amount::Amounts;
use sluice_common::id::{NodeName, StepId};

use super::Market;
use super::account::Account;
use super::nomination::Kept;
use super::order::{self, Rank};
use super::platform::{self, View};
use super::pool::{Host, Pool};
use super::request::Request;
use crate::units::HostUnits;

/// Of the hosts on which a request fits, how many are weighed against each other: the tightest. So that a grant costs the
/// same in a pool of a hundred hosts and of ten thousand.
const LOOK: usize = 128;

/// A request before one of its pools.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before<'a> {
    pub(crate) market: &'a Market,
    pub(crate) pool: &'a Pool,
    pub(crate) account: &'a Account,
    pub(crate) request: &'a Request,
    /// The platform that it looks at.
    pub(crate) view: View<'a>,
}

impl Market {
    /// Whether a request fits wholly into what is unused of its subject's reserved share in a pool, and promised to no other
    /// of it.
    pub fn is_in_share(&self, pool: &Pool, request: &Request) -> bool {
        Before::of(self, pool, request).is_some_and(|before| before.is_in_share())
    }
}

impl<'a> Before<'a> {
    /// `None` where its subject has no policy there.
    pub(crate) fn of(market: &'a Market, pool: &'a Pool, request: &'a Request) -> Option<Self> {
        let account = pool.account(&request.subject)?;
        account.policy.as_ref()?;
        Some(Self {
            market,
            pool,
            account,
            request,
            view: platform::first_view(pool, request),
        })
    }

    pub(crate) fn rank(&self) -> Rank {
        order::rank(self.market, self.pool, self.account, self.request)
    }

    /// Whether it fits wholly into what is unused of its subject's reserved share and promised to no other of it.
    pub(crate) fn is_in_share(&self) -> bool {
        order::is_in_share(self.market, self.pool, self.account, self.request)
    }

    /// The keys of its demand that the pool counts, with how much it asks.
    pub(crate) fn metered(&self) -> impl Iterator<Item = (&'a str, u64)> + use<'a> {
        let pool = self.pool;
        let keys = self.request.demand.iter();
        keys.map(|(key, asked)| (key.as_str(), asked))
            .filter(|(key, _)| pool.is_metered(key))
    }

    /// Whether its subject's own policy lets it start, if `gone` of what the subject uses were not.
    pub(crate) fn is_allowed(&self, gone: &Amounts) -> bool {
        self.short_of_limit(gone).next().is_none()
            && (self.request.preemptible || self.is_in_share())
    }

    /// The keys of which it would use more than its subject's limit.
    pub(crate) fn over_limit<'b>(
        &self,
        gone: &'b Amounts,
    ) -> impl Iterator<Item = &'a str> + use<'a, 'b> {
        self.beyond_limit(gone, |_| 0)
    }

    /// Those of which it would, once others of its subject have started to whom it is promised that they will.
    pub(crate) fn short_of_limit<'b>(
        &self,
        gone: &'b Amounts,
    ) -> impl Iterator<Item = &'a str> + use<'a, 'b> {
        let before = *self;
        self.beyond_limit(gone, move |key| before.promised_of(key))
    }

    fn beyond_limit<'b, F: Fn(&str) -> u64>(
        &self,
        gone: &'b Amounts,
        promised: F,
    ) -> impl Iterator<Item = &'a str> + use<'a, 'b, F> {
        let account = self.account;
        let limited = self.metered().filter(move |(key, asked)| {
            let policy = account.policy.as_ref();
            policy
                .and_then(|policy| policy.limit(key))
                .is_some_and(|limit| {
                    let used = account.used.get(key).saturating_sub(gone.get(key));
                    let used = used.saturating_add(promised(key));
                    used.saturating_add(*asked) > limit
                })
        });
        limited.map(|(key, _)| key)
    }

    /// What others are promised: what it may not take at all, and what it may take only as backfill to whom. A soft
    /// promise binds those behind it alone.
    pub(crate) fn promises(&self) -> Promises {
        let mut firm = Kept::default();
        for step in self
            .pool
            .firm
            .iter()
            .filter(|step| **step != self.request.step)
        {
            self.add(step, &mut firm);
        }
        let soft = self.pool.soft.as_ref().filter(|step| self.is_behind(step));
        let soft = soft.map(|step| {
            let mut with_soft = firm.clone();
            self.add(step, &mut with_soft);
            (step.clone(), with_soft)
        });
        let head = soft.as_ref();
        let head = head.and_then(|(step, _)| self.market.nomination(step));
        Promises {
            is_coming: head.is_some_and(|promise| self.market.is_coming(promise)),
            firm,
            soft,
        }
    }

    fn add(&self, step: &StepId, kept: &mut Kept) {
        let request = self.market.request(step);
        let nomination = self.market.nomination(step);
        if let (Some(request), Some(nomination)) = (request, nomination) {
            kept.add(self.market, request, nomination);
        }
    }

    /// All that is firmly promised to others, what the runs that go for it still hold included: who waits for the end of
    /// these too has only the rest of them.
    pub(crate) fn promised_in_full(&self) -> Kept {
        let others = self.pool.firm.iter();
        let mut kept = Kept::default();
        for step in others.filter(|step| **step != self.request.step) {
            if let Some(request) = self.market.request(step)
                && let Some(nomination) = self.market.nomination(step)
            {
                kept.add_in_full(self.market, request, nomination);
            }
        }
        kept
    }

    fn is_behind(&self, step: &StepId) -> bool {
        if *step == self.request.step {
            return false;
        }
        let other = self.market.request(step);
        let other = other.and_then(|other| Before::of(self.market, self.pool, other));
        other.is_some_and(|other| other.rank() < self.rank())
    }

    /// How much of a declared key is free, with `kept` kept for others.
    pub(crate) fn free_of(&self, key: &str, kept: &Kept) -> Option<u64> {
        let declared = self.pool.declared(key)?;
        let taken = self.pool.used().get(key).saturating_add(kept.pool.get(key));
        Some(declared.saturating_sub(taken))
    }

    fn pool_covers(&self, kept: &Kept) -> bool {
        let mut keys = self.request.demand.iter();
        keys.all(|(key, asked)| {
            self.free_of(key.as_str(), kept)
                .is_none_or(|free| asked <= free)
        })
    }

    /// The hosts that fit it best out of what is free beyond `kept`, as many as it needs: those that it does not shun, then
    /// those where it strands the fewest GPUs, and of these the tightest.
    pub(crate) fn hosts(&self, kept: &Kept) -> Option<Vec<NodeName>> {
        if !self.pool_covers(kept) {
            return None;
        }
        if let Some(resumes) = &self.request.resumes {
            let own = Vec::from([resumes.node.clone()]);
            return self.fits_on(&own, kept).then_some(own);
        }
        let each = self.request.each;
        let appetite = &self.pool.appetite;
        let wanted = self.request.hosts as usize;
        let looked_at = if appetite.is_unknown() {
            wanted.saturating_add(self.request.shuns.len())
        } else {
            wanted.max(LOOK)
        };
        let kept_on = |node| {
            let host = self.pool.hosts().get(node);
            host.map_or(HostUnits::default(), |host| kept.on(node, host, self.view))
        };
        let left = |(node, free): (&'a NodeName, HostUnits)| (node, free.less(kept_on(node)));
        let fitting = self.covering(&self.shelf().free).map(left);
        let fitting = fitting.filter(|(_, free)| free.cover(each)).take(looked_at);
        let shuns = |node: &NodeName| self.request.shuns.contains(node);
        let offers =
            fitting.map(|(node, free)| ((shuns(node), appetite.stranded_by(each, free)), node));
        let mut offers: Vec<((bool, i128), &NodeName)> = offers.collect();
        // They came tightest first, and of those that strand alike they stay so.
        offers.sort_by_key(|(worth, _)| *worth);
        let hosts: Vec<NodeName> = offers
            .into_iter()
            .take(wanted)
            .map(|(_, node)| node.clone())
            .collect();
        (hosts.len() == wanted).then_some(hosts)
    }

    /// Whether enough open hosts are large enough, however full they are.
    pub(crate) fn has_large_hosts(&self) -> bool {
        if let Some(resumes) = &self.request.resumes {
            return self.could_hold(core::slice::from_ref(&resumes.node));
        }
        let wanted = self.request.hosts as usize;
        let large = self.covering(&self.shelf().open);
        large.take(wanted).count() == wanted
    }

    /// Whether exactly these hosts have enough free beyond `kept`.
    pub(crate) fn fits_on(&self, hosts: &[NodeName], kept: &Kept) -> bool {
        let covers = |node: &NodeName| {
            let host = self.pool.hosts().get(node).filter(|host| host.open);
            let host = host.filter(|_| self.may_be_on(node));
            let fits = host.is_some_and(|host| {
                let free = host.free_seen(self.view, HostUnits::default());
                let kept = kept.on(node, host, self.view);
                free.less(kept).cover(self.request.each)
            });
            fits && self.own_gpus_taken(node, kept, |_| false) == 0
        };
        self.pool_covers(kept) && hosts.iter().all(covers)
    }

    /// Whether the hosts take work and are large enough, however full they are, and its view is one that it still asks for:
    /// the default platform of a pool may be another now.
    pub(crate) fn could_hold(&self, hosts: &[NodeName]) -> bool {
        let asked = self.pool.wanted(self.request);
        let asks = self.view.map_or(asked.is_empty(), |view| {
            asked.is_empty() || asked.contains(view)
        });
        let asks = asks || self.request.resumes.is_some();
        asks && hosts.iter().all(|node| {
            let host = self.pool.hosts().get(node);
            let large = |host: &Host| host.fit_seen(self.view).cover(self.request.each);
            host.is_some_and(|host| host.open && large(host)) && self.may_be_on(node)
        })
    }

    /// The free place that it would take now by the first of its views that has one, if its own policy lets it.
    pub(crate) fn place(&self) -> Option<Room<'a>> {
        self.each_view().find_map(|before| {
            let (hosts, around) = before.room()?;
            Some(Room {
                hosts,
                around,
                view: before.view,
            })
        })
    }

    /// The free place that it would take now, if its own policy lets it, and around whom it would be granted.
    fn room(&self) -> Option<(Vec<NodeName>, BTreeSet<StepId>)> {
        if !self.is_allowed(&Amounts::new()) {
            return None;
        }
        let promises = self.promises();
        if let Some(hosts) = self.hosts(promises.all()) {
            return Some((hosts, BTreeSet::new()));
        }
        let (head, _) = promises
            .soft
            .as_ref()
            .filter(|_| promises.may_be_passed(self.request))?;
        let hosts = self.hosts(&promises.firm)?;
        Some((hosts, BTreeSet::from([head.clone()])))
    }

    /// The first request of its own subject ahead of it that waits for the subject's limit: a grant past it is backfill
    /// to it, where it can be made to give way.
    pub(crate) fn passes(&self) -> Option<StepId> {
        if !self.request.preemptible {
            return None;
        }
        let own = self.rank();
        let heads = self.account.line.heads();
        let ahead = heads.filter_map(|step| {
            let other = Before::of(self.market, self.pool, self.market.request(step)?)?;
            let rank = other.rank();
            let waits = other.over_limit(&Amounts::new()).next().is_some();
            (rank < own && waits).then(|| (rank, step.clone()))
        });
        ahead.min().map(|(_, step)| step)
    }
}

/// A free place for a request.
#[derive(Clone, Debug)]
pub(crate) struct Room<'a> {
    pub(crate) hosts: Vec<NodeName>,
    /// Around whom it would be granted.
    pub(crate) around: BTreeSet<StepId>,
    /// By which platform it was found.
    pub(crate) view: View<'a>,
}

/// What is promised to others than a request.
#[derive(Clone, Debug)]
pub(crate) struct Promises {
    /// To those that nobody may take from.
    pub(crate) firm: Kept,
    /// To the head that goes before it, with the firm ones added.
    pub(crate) soft: Option<(StepId, Kept)>,
    /// Whether all that the head waits for is being released.
    is_coming: bool,
}

impl Promises {
    /// Whether a request may be granted around the head: one that can be made to give way. Not where the head is about to
    /// start, for it would have to at once, and the head would wait for that.
    pub(crate) fn may_be_passed(&self, request: &Request) -> bool {
        request.preemptible && !self.is_coming
    }

    /// All of it.
    pub(crate) fn all(&self) -> &Kept {
        self.soft.as_ref().map_or(&self.firm, |(_, kept)| kept)
    }
}
