//! Limits how many event streams each caller follows: every change wakes all of them, so thousands of one caller would
//! delay each change for everybody.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::error::ApiError;

/// Most streams of one caller: a dashboard for each of some dozens of people, several times over.
const MAX_OF_EACH: usize = 256;
/// Most streams of all callers.
const MAX_IN_ALL: usize = 4096;

/// Number of streams of each caller. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub(super) struct Followers(Arc<Mutex<BTreeMap<String, usize>>>);

/// Counts one stream until it is dropped.
#[derive(Debug)]
pub(super) struct FollowerPermit {
    followers: Followers,
    who: String,
}

impl Followers {
    /// Counts one more stream.
    ///
    /// # Errors
    /// If the caller, or all callers together, have as many as allowed.
    pub(super) fn take(&self, who: &str) -> Result<FollowerPermit, ApiError> {
        let mut counts = self.lock();
        let in_all: usize = counts.values().sum();
        let of_him = counts.get(who).copied().unwrap_or(0);
        if of_him >= MAX_OF_EACH || in_all >= MAX_IN_ALL {
            let who = who.to_owned();
            return Err(ApiError::TooManyFollowers {
                who,
                most: MAX_OF_EACH,
            });
        }
        counts.insert(who.to_owned(), of_him + 1);
        Ok(FollowerPermit {
            followers: self.clone(),
            who: who.to_owned(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        // No statement that could panic leaves the counts half-changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for FollowerPermit {
    fn drop(&mut self) {
        let mut counts = self.followers.lock();
        if let Some(count) = counts.get_mut(&self.who) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.who);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_his_share_and_gives_it_back() {
        let followers = Followers::default();
        let mut his: Vec<FollowerPermit> = (0..MAX_OF_EACH)
            .map(|_| followers.take("token/a").unwrap())
            .collect();
        assert!(followers.take("token/a").is_err());
        let other = followers.take("token/b").unwrap();
        his.pop();
        his.push(followers.take("token/a").unwrap());
        drop((his, other));
        assert!(followers.lock().is_empty());
    }
}
