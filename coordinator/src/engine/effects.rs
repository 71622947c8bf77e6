//! Outputs of the core, until they are committed and carried out.

use std::time::{Duration, Instant};

use coordinator_core::{Answer, LogEntry, ReplyId, SessionId};
use sluice_common::wire::{Command, HelloReply};

/// Time that records wait for others if no message or answer depends on them: a short step starts and ends within it, and
/// costs one commit less. A commit of the start alone would hold up the report of the end, and with it the next step.
pub(super) const RECORD_DELAY: Duration = Duration::from_millis(10);

/// A message to a session, in order.
#[derive(Debug)]
pub enum ToSession {
    /// The answer to the hello.
    HelloReply(HelloReply),
    /// An order for the agent.
    Command(Command),
    /// Ends the link at once, with a reason. Overtakes queued messages, and is never in the queue itself.
    Cut(String),
}

/// Outputs of the core that wait for a commit, in the order in which they take effect.
#[derive(Default)]
pub(super) struct Effects {
    records: Vec<LogEntry>,
    /// When the records may wait no longer; `None` if there are none.
    commit_by: Option<Instant>,
    pub(super) sends: Vec<(SessionId, ToSession)>,
    pub(super) replies: Vec<(ReplyId, Answer)>,
}

impl Effects {
    pub(super) fn record(&mut self, record: LogEntry) {
        self.commit_by
            .get_or_insert_with(|| Instant::now() + RECORD_DELAY);
        self.records.push(record);
    }

    pub(super) fn records(&self) -> &[LogEntry] {
        &self.records
    }

    pub(super) fn take_records(&mut self) -> Vec<LogEntry> {
        self.commit_by = None;
        std::mem::take(&mut self.records)
    }

    /// Time until they are due at the latest; `None` if nothing waits.
    pub(super) fn due_in(&self) -> Option<Duration> {
        let at_once = !self.sends.is_empty() || !self.replies.is_empty();
        let later = |by: Instant| by.saturating_duration_since(Instant::now());
        match at_once {
            true => Some(Duration::ZERO),
            false => self.commit_by.map(later),
        }
    }

    /// Whether they are to be carried out now.
    pub(super) fn are_due(&self) -> bool {
        self.due_in() == Some(Duration::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use coordinator_core::Record;
    use sluice_common::id::ServiceName;
    use sluice_common::time::Time;

    use super::*;

    fn record() -> LogEntry {
        let service = ServiceName::new("s").unwrap();
        LogEntry {
            seq: 1,
            at: Time::default(),
            record: Record::ServiceDeleting { service },
        }
    }

    #[test]
    fn records_wait_for_others_unless_somebody_waits_for_them() {
        let mut effects = Effects::default();
        assert_eq!(effects.due_in(), None);
        effects.record(record());
        let first = effects.commit_by;
        effects.record(record());
        assert!(effects.commit_by == first && effects.due_in() <= Some(RECORD_DELAY));
        let answer = Answer::Submitted(Vec::new());
        effects.replies.push((ReplyId(1), answer));
        assert!(effects.are_due());
        effects.replies.clear();
        let cut = ToSession::Cut(String::new());
        effects.sends.push((SessionId(1), cut));
        assert!(effects.are_due());
        effects.sends.clear();
        assert_eq!(effects.take_records().len(), 2);
        assert!(effects.due_in().is_none() && effects.records().is_empty());
        effects.record(record());
        effects.commit_by = Some(Instant::now());
        assert!(effects.are_due());
    }
}
