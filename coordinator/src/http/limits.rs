//! How often somebody may call, and how often an address may show what is known to nobody: beyond it the answer is 429
//! with the time after which it is worth another try.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::error::ApiError;
use crate::rate::{Bucket, Rate};

/// Calls of one caller. What a coordinator answers on a small machine is about as much, so that this is a bound for who
/// runs wild, not a share.
const CALLS: Rate = Rate {
    per_second: 2_000.0,
    burst: 10_000.0,
};
/// Wrong tokens of one address: whoever has forgotten a new one is not locked out, and nobody tries many.
const FAILURES: Rate = Rate {
    per_second: 2.0,
    burst: 50.0,
};
/// Callers and addresses that are remembered at once.
const MAX_REMEMBERED: usize = 10_000;

/// What was called lately.
#[derive(Debug, Default)]
pub(super) struct Limits {
    callers: Mutex<BTreeMap<String, Bucket>>,
    failures: Mutex<BTreeMap<IpAddr, Bucket>>,
}

impl Limits {
    /// Counts a call.
    pub(super) fn call(&self, who: &str) -> Result<(), ApiError> {
        let key = who.to_owned();
        take(&self.callers, key, CALLS).map_err(|after| limited(who, after))
    }

    /// Counts a call that shows what is known to nobody.
    pub(super) fn failure(&self, from: IpAddr) -> Result<(), ApiError> {
        let who = from.to_canonical();
        let taken = take(&self.failures, who, FAILURES);
        taken.map_err(|after| limited(&format!("whoever shows wrong tokens from {who}"), after))
    }
}

fn limited(who: &str, after: Duration) -> ApiError {
    ApiError::RateLimited {
        who: who.to_owned(),
        after_s: after.as_secs() + 1,
    }
}

fn take<K: Ord>(buckets: &Mutex<BTreeMap<K, Bucket>>, key: K, rate: Rate) -> Result<(), Duration> {
    let now = Instant::now();
    let mut buckets = buckets.lock().unwrap_or_else(PoisonError::into_inner);
    if buckets.len() >= MAX_REMEMBERED && !buckets.contains_key(&key) {
        // A bucket that is full again tells nothing.
        buckets.retain(|_, bucket| !bucket.is_full(rate, now));
        if buckets.len() >= MAX_REMEMBERED {
            buckets.pop_first();
        }
    }
    let bucket = buckets.entry(key);
    bucket
        .or_insert_with(|| Bucket::full(rate, now))
        .take(rate, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_runs_wild_is_told_when_to_come_back_and_nobody_else() {
        let limits = Limits::default();
        let from = IpAddr::from([10, 0, 0, 1]);
        let refused = (0..1000).find_map(|_| limits.failure(from).err());
        let ApiError::RateLimited { after_s, .. } = refused.unwrap() else {
            panic!("it is refused for another reason");
        };
        assert_eq!(after_s, 1);
        assert!(limits.failure([10, 0, 0, 2].into()).is_ok());
    }

    #[test]
    fn those_who_are_remembered_are_bounded() {
        let limits = Limits::default();
        for n in 0..MAX_REMEMBERED + 5 {
            limits.call(&format!("token/{n}")).unwrap();
        }
        let callers = limits.callers.lock().unwrap();
        assert!(callers.len() <= MAX_REMEMBERED, "{}", callers.len());
    }
}
