//! Tests the order of calls, and the rollback for all processes if one refuses.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::*;

/// A fake driver that records calls.
#[derive(Default)]
struct FakeDriver {
    states: RefCell<BTreeMap<u32, CheckpointState>>,
    calls: RefCell<Vec<String>>,
    /// The call that is refused, such as `checkpoint 2`.
    refused: Option<&'static str>,
    /// Whether the driver cannot report states.
    hides_state: bool,
}

impl FakeDriver {
    fn go(
        &self,
        call: &str,
        pid: u32,
        from: CheckpointState,
        to: CheckpointState,
    ) -> Result<(), CheckpointError> {
        let call = format!("{call} {pid}");
        self.calls.borrow_mut().push(call.clone());
        if self.refused == Some(call.as_str()) {
            return Err(CheckpointError::Refused(format!("no {call}")));
        }
        let before = self.states.borrow_mut().insert(pid, to);
        assert_eq!(before.unwrap_or(CheckpointState::Running), from, "{call}");
        Ok(())
    }

    fn calls(&self) -> String {
        self.calls.take().join(", ")
    }
}

impl Checkpointer for FakeDriver {
    fn state(&self, pid: u32) -> Result<Option<CheckpointState>, CheckpointError> {
        let known = self.states.borrow().get(&pid).copied();
        Ok((!self.hides_state).then(|| known.unwrap_or(CheckpointState::Running)))
    }

    fn lock(&self, pid: u32) -> Result<(), CheckpointError> {
        self.go(
            "lock",
            pid,
            CheckpointState::Running,
            CheckpointState::Locked,
        )
    }

    fn checkpoint(&self, pid: u32) -> Result<(), CheckpointError> {
        self.go(
            "checkpoint",
            pid,
            CheckpointState::Locked,
            CheckpointState::Checkpointed,
        )
    }

    fn restore(&self, pid: u32) -> Result<(), CheckpointError> {
        self.go(
            "restore",
            pid,
            CheckpointState::Checkpointed,
            CheckpointState::Locked,
        )
    }

    fn unlock(&self, pid: u32) -> Result<(), CheckpointError> {
        self.go(
            "unlock",
            pid,
            CheckpointState::Locked,
            CheckpointState::Running,
        )
    }
}

#[test]
fn all_are_locked_before_the_first_is_moved_and_come_back_one_by_one() {
    let paper = FakeDriver::default();
    let lines = act(&paper, CheckpointAction::Suspend, &[1, 2]);
    assert_eq!(paper.calls(), "lock 1, lock 2, checkpoint 1, checkpoint 2");
    let moved = |line: &CheckpointResult| {
        line.state == Some(CheckpointState::Checkpointed) && line.failed.is_none()
    };
    assert!(lines.len() == 2 && lines.iter().all(moved), "{lines:?}");
    act(&paper, CheckpointAction::Suspend, &[1, 2]);
    assert_eq!(paper.calls(), "", "a repeat does nothing");
    let lines = act(&paper, CheckpointAction::Resume, &[1, 2]);
    assert_eq!(paper.calls(), "restore 1, unlock 1, restore 2, unlock 2");
    let back = |line: &CheckpointResult| line.state == Some(CheckpointState::Running);
    assert!(lines.iter().all(back), "{lines:?}");
    act(&paper, CheckpointAction::Undo, &[1, 2]);
    assert_eq!(paper.calls(), "", "there is nothing to undo");
}

#[test]
fn what_one_refuses_is_undone_for_all_in_the_opposite_order() {
    for (refused, wanted) in [
        ("lock 2", "lock 1, lock 2, unlock 1"),
        (
            "checkpoint 2",
            "lock 1, lock 2, checkpoint 1, checkpoint 2, unlock 2, restore 1, unlock 1",
        ),
    ] {
        let paper = FakeDriver {
            refused: Some(refused),
            ..FakeDriver::default()
        };
        let lines = act(&paper, CheckpointAction::Suspend, &[1, 2]);
        assert_eq!(paper.calls(), wanted);
        let why = CheckpointError::Refused(format!("no {refused}"));
        assert_eq!((lines[0].pid, &lines[0].failed), (2, &Some(why)));
        assert_eq!(lines[1].state, Some(CheckpointState::Running), "{lines:?}");
    }
}

#[test]
fn where_nobody_can_tell_only_what_is_known_to_be_moved_is_brought_back() {
    let paper = FakeDriver {
        hides_state: true,
        ..FakeDriver::default()
    };
    act(&paper, CheckpointAction::Suspend, &[1]);
    assert_eq!(paper.calls(), "lock 1, checkpoint 1");
    let lines = act(&paper, CheckpointAction::Undo, &[1]);
    assert_eq!(paper.calls(), "");
    assert!(lines[0].failed.is_some(), "{lines:?}");
    act(&paper, CheckpointAction::Resume, &[1]);
    assert_eq!(paper.calls(), "restore 1, unlock 1");
}
