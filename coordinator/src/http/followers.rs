//! How many streams of events each caller follows: every change wakes them all, so that one caller's thousands would make
//! each change late for everybody.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::error::ApiError;

/// Streams of one caller: a dashboard for each of some dozens of people, several times over.
const MAX_OF_EACH: usize = 256;
/// Streams in all.
const MAX_IN_ALL: usize = 4096;

/// The streams that are followed. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Followers(Arc<Mutex<BTreeMap<String, usize>>>);

/// One of them, for as long as it is held.
#[derive(Debug)]
pub(super) struct Following {
    followers: Followers,
    who: String,
}

impl Followers {
    /// Counts one more.
    ///
    /// # Errors
    /// Where he follows as many as he may, or all together do.
    pub(super) fn take(&self, who: &str) -> Result<Following, ApiError> {
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
        Ok(Following {
            followers: self.clone(),
            who: who.to_owned(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        // The counts are whole between any two statements that could panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Following {
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
        let mut his: Vec<Following> = (0..MAX_OF_EACH)
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
