//! Rate limits: calls of each caller, and failed authentications of each address. Beyond them the answer is 429 with
//! the time until the next try.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::error::ApiError;
use crate::rate::{Bucket, Rate};

/// Calls of one caller, for each core of the machine. The coordinator answers about as many, so this stops runaway clients
/// and is no fair share.
const CALLS: Rate = Rate {
    per_second: 5_000.0,
    burst: 10_000.0,
};
/// Wrong tokens of one address: enough for a user with an outdated token, too few for guessing.
const FAILURES: Rate = Rate {
    per_second: 2.0,
    burst: 50.0,
};
/// Callers and addresses remembered at one time.
const MAX_REMEMBERED: usize = 10_000;

/// Recent calls and failures.
#[derive(Debug)]
pub(super) struct RateLimits {
    calls: Rate,
    callers: Mutex<BTreeMap<String, Bucket>>,
    failures: Mutex<BTreeMap<IpAddr, Bucket>>,
}

impl Default for RateLimits {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
        Self {
            calls: Rate {
                per_second: CALLS.per_second * cores,
                burst: CALLS.burst * cores,
            },
            callers: Mutex::default(),
            failures: Mutex::default(),
        }
    }
}

impl RateLimits {
    /// Counts a call.
    pub(super) fn call(&self, who: &str) -> Result<(), ApiError> {
        let key = who.to_owned();
        take(&self.callers, key, self.calls).map_err(|after| limited(who, after))
    }

    /// Counts a call with an unknown credential.
    pub(super) fn failure(&self, from: IpAddr) -> Result<(), ApiError> {
        let who = from.to_canonical();
        let taken = take(&self.failures, who, FAILURES);
        taken.map_err(|after| limited(&format!("a caller with wrong tokens from {who}"), after))
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
        // A full bucket carries no information.
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
        let limits = RateLimits::default();
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
        let limits = RateLimits::default();
        for n in 0..MAX_REMEMBERED + 5 {
            limits.call(&format!("token/{n}")).unwrap();
        }
        let callers = limits.callers.lock().unwrap();
        assert!(callers.len() <= MAX_REMEMBERED, "{}", callers.len());
    }
}
