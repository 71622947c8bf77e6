//! Queues queries to the engine. Queries change nothing and some are expensive, so callers take turns: a caller with
//! many queries delays only his own. The number of waiting queries of each caller is bounded.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coordinator_core::Core;

use super::{EngineStopped, InputFn, ReplyFn};

/// Queries of one caller that may wait at one time.
const MOST_WAITING: usize = 256;

/// Name that distinguishes callers.
type CallerName = Arc<str>;

tokio::task_local! {
    static CALLER: CallerName;
}

/// Counts the queries that `call` makes as those of `who`. Queries outside of such a call share one unnamed, unlimited
/// caller.
pub async fn asked_by<F: Future>(who: &str, call: F) -> F::Output {
    CALLER.scope(Arc::from(who), call).await
}

/// Why a query has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// The engine ended first.
    #[error(transparent)]
    Gone(#[from] EngineStopped),
    /// The caller has too many queries waiting.
    #[error(
        "{most} of your queries already wait, which is the limit: retry when some are answered, with fewer at a time"
    )]
    TooMany {
        /// Maximum number of waiting queries.
        most: usize,
    },
}

/// A query, which changes nothing.
pub(super) enum Query {
    Read(Box<dyn FnOnce(&Core) + Send>),
    /// A dry run of a submit or a move.
    Preview {
        input: InputFn,
        reply: ReplyFn,
    },
}

/// A query with its place in the caller's queue.
pub(super) struct QueuedQuery {
    pub(super) ask: Query,
    permit: QueryPermit,
}

/// Number of waiting queries of each caller. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub(super) struct PendingQueries(Arc<Mutex<BTreeMap<CallerName, usize>>>);

/// Counts one waiting query of a caller until it is dropped.
struct QueryPermit {
    pending: PendingQueries,
    caller: Option<CallerName>,
}

impl PendingQueries {
    /// Makes a query of the caller whose call this task handles.
    pub(super) fn query(&self, ask: Query) -> Result<QueuedQuery, QueryError> {
        let caller = CALLER.try_with(Clone::clone).ok();
        if let Some(caller) = &caller {
            let mut waiting = self.lock();
            let count = waiting.entry(Arc::clone(caller)).or_default();
            if *count >= MOST_WAITING {
                let most = MOST_WAITING;
                return Err(QueryError::TooMany { most });
            }
            *count += 1;
        }
        let pending = self.clone();
        let permit = QueryPermit { pending, caller };
        Ok(QueuedQuery { ask, permit })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<CallerName, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for QueryPermit {
    fn drop(&mut self) {
        let Some(caller) = &self.caller else { return };
        let mut waiting = self.pending.lock();
        if let Some(count) = waiting.get_mut(caller) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(caller);
            }
        }
    }
}

/// Queries that wait for an answer.
#[derive(Default)]
pub(super) struct QueryQueue {
    by_caller: BTreeMap<Option<CallerName>, VecDeque<QueuedQuery>>,
    /// Callers with waiting queries, in the order of their turns.
    turns: VecDeque<Option<CallerName>>,
}

impl QueryQueue {
    pub(super) fn push(&mut self, query: QueuedQuery) {
        let caller = query.permit.caller.clone();
        let own = self.by_caller.entry(caller.clone()).or_default();
        if own.is_empty() {
            self.turns.push_back(caller);
        }
        own.push_back(query);
    }

    /// Removes the first query of the caller whose turn it is.
    pub(super) fn pop(&mut self) -> Option<Query> {
        let caller = self.turns.pop_front()?;
        let own = self.by_caller.get_mut(&caller)?;
        let query = own.pop_front();
        match own.is_empty() {
            true => {
                self.by_caller.remove(&caller);
            }
            false => self.turns.push_back(caller),
        }
        query.map(|query| query.ask)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }
}
