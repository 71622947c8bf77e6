//! Questions that wait for the engine. They change nothing, and some are dear, so those who ask take turns: whoever asks
//! much waits for his own questions and not others for them. Of one asker a bounded number waits.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coordinator_core::{Core, NewStep};

use super::{EngineGone, ReplyFn};

/// Questions of one asker that may wait at once: more than whoever waits for the answers has a use for.
const MOST_WAITING: usize = 256;

/// Who asks, in a word that tells askers apart.
type Asker = Arc<str>;

tokio::task_local! {
    static ASKER: Asker;
}

/// Counts what `call` asks the engine as asked by `who`. What nobody is named for is asked by one more, who may have any
/// number of questions waiting.
pub async fn asked_by<F: Future>(who: &str, call: F) -> F::Output {
    ASKER.scope(Arc::from(who), call).await
}

/// Why a question has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// The engine ended first.
    #[error(transparent)]
    Gone(#[from] EngineGone),
    /// The asker has too many waiting.
    #[error(
        "{most} questions of yours wait to be answered, which are the most: ask again when some are, and fewer at once"
    )]
    TooMany {
        /// How many may wait.
        most: usize,
    },
}

/// What changes nothing.
pub(super) enum Ask {
    Read(Box<dyn FnOnce(&Core) + Send>),
    /// What a submit would come to.
    Preview {
        step: Box<NewStep>,
        reply: ReplyFn,
    },
}

/// Something that somebody asks.
pub(super) struct Question {
    pub(super) ask: Ask,
    place: Place,
}

/// How many questions of each asker wait. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Askers(Arc<Mutex<BTreeMap<Asker, usize>>>);

/// A question's place among those of its asker, as long as it waits.
struct Place {
    askers: Askers,
    asker: Option<Asker>,
}

impl Askers {
    /// A question of whoever asks in this task.
    pub(super) fn question(&self, ask: Ask) -> Result<Question, Unanswered> {
        let asker = ASKER.try_with(Clone::clone).ok();
        if let Some(asker) = &asker {
            let mut waiting = self.lock();
            let count = waiting.entry(Arc::clone(asker)).or_default();
            if *count >= MOST_WAITING {
                let most = MOST_WAITING;
                return Err(Unanswered::TooMany { most });
            }
            *count += 1;
        }
        let askers = self.clone();
        let place = Place { askers, asker };
        Ok(Question { ask, place })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Asker, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(asker) = &self.asker else { return };
        let mut waiting = self.askers.lock();
        if let Some(count) = waiting.get_mut(asker) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(asker);
            }
        }
    }
}

/// Asked, and not answered yet.
#[derive(Default)]
pub(super) struct Questions {
    by_asker: BTreeMap<Option<Asker>, VecDeque<Question>>,
    /// Those who have a question, in the order of their turns.
    turns: VecDeque<Option<Asker>>,
}

impl Questions {
    pub(super) fn push(&mut self, question: Question) {
        let asker = question.place.asker.clone();
        let own = self.by_asker.entry(asker.clone()).or_default();
        if own.is_empty() {
            self.turns.push_back(asker);
        }
        own.push_back(question);
    }

    /// The first question of whoever's turn it is.
    pub(super) fn pop(&mut self) -> Option<Ask> {
        let asker = self.turns.pop_front()?;
        let own = self.by_asker.get_mut(&asker)?;
        let question = own.pop_front();
        match own.is_empty() {
            true => {
                self.by_asker.remove(&asker);
            }
            false => self.turns.push_back(asker),
        }
        question.map(|question| question.ask)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }
}
