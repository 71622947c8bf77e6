//! Every path through suspend and resume, by orders and views.

use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::id::AttemptId;
use sluice_common::supervision::{LaunchRecord, StopSignal};
use sluice_common::time::Time;

use super::*;

const GRACE: Span = Span::from_secs(10);

fn now(boot: u64) -> Now {
    Now {
        wall: Time::from_unix_millis(1_000_000 + boot),
        boot: BootMillis(boot),
    }
}

fn process() -> Process {
    Process {
        pid: 7,
        start_ticks: 100,
        started_at: Time::from_unix_millis(1_001_000),
        workdir_refused: None,
    }
}

fn view(freezer: FreezerState) -> AttemptView {
    AttemptView {
        attempt: AttemptId {
            step: "a".parse().unwrap(),
            number: 1,
        },
        phase: HostPhase::Running(process()),
        launch_record: LaunchRecord {
            timeout: Some(Span::from_secs(60)),
            grace: GRACE,
            gpus: Vec::new(),
            processors: Default::default(),
            is_allocation: false,
        },
        freezer,
        frozen: Default::default(),
    }
}

/// An attempt that has run since 1 s and has a timeout of 60 s.
const HOLDING: Option<GpuHolding> = Some(GpuHolding {
    room_mb: 100,
    limit: Span::from_secs(5),
});

fn running() -> Attempt {
    Attempt::seen(now(1000), &view(FreezerState::Thawed)).0
}

/// An attempt that is frozen since 11 s.
fn frozen() -> Attempt {
    let mut attempt = running();
    attempt.on_suspend(now(11_000), None);
    attempt.on_view(now(11_000), &view(FreezerState::Frozen));
    attempt
}

fn in_words(effects: &Effects) -> Vec<String> {
    let words = effects.iter().map(|effect| match effect {
        Effect::Report(phase) => match phase {
            AttemptPhase::Running(_) => String::from("running"),
            AttemptPhase::Suspending(_) => String::from("suspending"),
            AttemptPhase::Suspended { .. } => String::from("suspended"),
            AttemptPhase::Resuming(_) => String::from("resuming"),
            AttemptPhase::NotSuspended { why, .. } => alloc::format!("not suspended: {why:?}"),
            AttemptPhase::Stopping { why, .. } => alloc::format!("stopping: {why:?}"),
            AttemptPhase::Starting | AttemptPhase::Ended(_) | AttemptPhase::Released(_) => {
                alloc::format!("{phase:?}")
            }
        },
        Effect::Freeze => String::from("freeze"),
        Effect::Thaw => String::from("thaw"),
        Effect::Signal(StopSignal::Kill) => String::from("KILL"),
        Effect::Signal(StopSignal::Terminate) => String::from("TERM"),
        Effect::WakeSuspension(at) => alloc::format!("look at {}", at.0),
        Effect::WakeTimeout(at) => alloc::format!("timeout at {}", at.0),
        Effect::WakeStop(at) => alloc::format!("stop at {}", at.0),
        Effect::AwaitGpus => String::from("await GPUs"),
        Effect::AwaitMoved => String::from("await moved"),
    });
    words.collect()
}

#[test]
fn it_is_frozen_and_brought_back_and_its_time_stands_still_meanwhile() {
    let mut attempt = running();
    let effects = attempt.on_suspend(now(11_000), None);
    assert_eq!(
        in_words(&effects),
        ["suspending", "freeze", "look at 41000"]
    );
    let effects = attempt.on_view(now(11_005), &view(FreezerState::Freezing));
    assert!(effects.is_empty());
    let effects = attempt.on_view(now(11_009), &view(FreezerState::Frozen));
    assert_eq!(in_words(&effects), ["suspended"]);
    assert_eq!(attempt.on_timeout_timer(now(61_000)), Effects::new());
    let effects = attempt.on_resume(now(3_600_000));
    assert_eq!(in_words(&effects), ["resuming", "thaw", "look at 3630000"]);
    let effects = attempt.on_view(now(3_600_004), &view(FreezerState::Thawed));
    // Ten of its sixty seconds were used before.
    assert_eq!(in_words(&effects), ["running", "timeout at 3650004"]);
}

#[test]
fn repeats_report_and_change_nothing() {
    let mut attempt = frozen();
    let before = attempt.clone();
    assert_eq!(
        in_words(&attempt.on_suspend(now(12_000), None)),
        ["suspended"]
    );
    assert_eq!(attempt, before);
    let mut attempt = running();
    assert_eq!(in_words(&attempt.on_resume(now(2000))), ["running"]);
    assert_eq!(attempt, running());
}

#[test]
fn an_order_to_the_contrary_waits_for_the_answer_to_the_first() {
    let mut attempt = running();
    attempt.on_suspend(now(11_000), None);
    assert_eq!(in_words(&attempt.on_resume(now(11_001))), ["suspending"]);
    let effects = attempt.on_view(now(11_002), &view(FreezerState::Frozen));
    assert_eq!(in_words(&effects), ["resuming", "thaw", "look at 41002"]);
    assert_eq!(
        in_words(&attempt.on_suspend(now(11_003), None)),
        ["resuming"]
    );
    let effects = attempt.on_view(now(11_004), &view(FreezerState::Thawed));
    assert_eq!(
        in_words(&effects),
        ["suspending", "freeze", "look at 41004"]
    );
}

#[test]
fn what_cannot_be_frozen_says_why_and_runs_on() {
    for (refusal, why) in [
        (FreezeRefusal::Unsupported, SuspendFailure::NoFreezer),
        (
            FreezeRefusal::Failed("no such group".into()),
            SuspendFailure::Refused("no such group".into()),
        ),
    ] {
        let mut attempt = running();
        attempt.on_suspend(now(11_000), None);
        let view = view(FreezerState::Refused(refusal));
        let effects = attempt.on_view(now(11_001), &view);
        assert_eq!(
            in_words(&effects),
            [alloc::format!("not suspended: {why:?}")]
        );
        let effects = attempt.on_stop(now(12_000), StopReason::NotSuspended, GRACE);
        let words = ["stopping: NotSuspended", "thaw", "TERM", "stop at 22000"];
        assert_eq!(in_words(&effects), words);
    }
    let mut attempt = running();
    attempt.on_suspend(now(11_000), HOLDING);
    let why = SuspendFailure::NoCheckpoint;
    let effects = attempt.on_suspension(|it| it.on_unmovable(now(11_000), why));
    assert_eq!(in_words(&effects), ["not suspended: NoCheckpoint"]);
    assert_eq!(
        in_words(&attempt.on_resume(now(11_000))),
        ["running", "timeout at 61000"]
    );
}

#[test]
fn neither_way_takes_for_ever() {
    let mut attempt = running();
    attempt.on_suspend(now(11_000), None);
    let early = attempt.on_suspension_timer(now(40_999));
    assert_eq!(in_words(&early), ["look at 41000"]);
    let late = attempt.on_suspension_timer(now(41_000));
    assert_eq!(in_words(&late), ["thaw", "not suspended: TimedOut"]);

    let mut attempt = frozen();
    attempt.on_resume(now(20_000));
    let late = attempt.on_suspension_timer(now(50_000));
    let words = "not suspended: NotResumed(\"it did not run again within 30s\")";
    assert_eq!(in_words(&late), [words]);
}

#[test]
fn what_is_frozen_is_killed_at_once_and_what_is_not_yet_is_thawed_first() {
    let effects = frozen().on_stop(now(12_000), StopReason::Cancelled, GRACE);
    assert_eq!(
        in_words(&effects),
        ["stopping: Cancelled", "KILL", "stop at 13000"]
    );
    let mut attempt = running();
    attempt.on_suspend(now(11_000), None);
    let effects = attempt.on_stop(now(12_000), StopReason::Cancelled, GRACE);
    let words = ["stopping: Cancelled", "thaw", "TERM", "stop at 22000"];
    assert_eq!(in_words(&effects), words);
}

#[test]
fn an_agent_that_begins_anew_takes_over_what_is_frozen() {
    let (attempt, effects) = Attempt::seen(now(30_000), &view(FreezerState::Frozen));
    assert_eq!(in_words(&effects), ["suspended"]);
    assert_eq!(attempt.signal_again(), Effects::new());
    let (mut attempt, effects) = Attempt::seen(now(30_000), &view(FreezerState::Freezing));
    assert_eq!(in_words(&effects), ["suspending", "look at 60000"]);
    assert_eq!(in_words(&attempt.signal_again()), ["freeze"]);
    let effects = attempt.on_view(now(30_001), &view(FreezerState::Frozen));
    assert_eq!(in_words(&effects), ["suspended"]);
}

#[test]
fn an_agent_that_begins_anew_counts_no_time_in_which_it_was_frozen() {
    let mut met = view(FreezerState::Thawed);
    met.frozen.before = Span::from_secs(100);
    let (_, effects) = Attempt::seen(now(150_000), &met);
    assert_eq!(in_words(&effects), ["running", "timeout at 161000"]);
    met.freezer = FreezerState::Frozen;
    met.frozen.since = Some(BootMillis(141_000));
    let (mut attempt, _) = Attempt::seen(now(999_000), &met);
    attempt.on_resume(now(1_000_000));
    let effects = attempt.on_view(now(1_000_001), &view(FreezerState::Thawed));
    assert_eq!(in_words(&effects), ["running", "timeout at 1020001"]);
}

#[test]
fn what_somebody_else_thaws_is_frozen_again_and_what_he_freezes_is_thawed() {
    let mut attempt = frozen();
    let effects = attempt.on_view(now(12_000), &view(FreezerState::Thawed));
    assert_eq!(in_words(&effects), ["freeze"]);
    assert!(matches!(attempt.status(), AttemptPhase::Suspended { .. }));
    let effects = running().on_view(now(12_000), &view(FreezerState::Frozen));
    assert_eq!(in_words(&effects), ["thaw"]);
}

#[test]
fn what_is_asked_to_end_is_thawed_though_the_first_word_was_lost() {
    let mut attempt = running();
    attempt.on_suspend(now(11_000), None);
    attempt.on_stop(now(12_000), StopReason::Cancelled, GRACE);
    for freezer in [
        FreezerState::Freezing,
        FreezerState::Frozen,
        FreezerState::Moved(MovedMemory::default()),
    ] {
        let effects = attempt.on_view(now(13_000), &view(freezer));
        assert_eq!(in_words(&effects), ["thaw"]);
    }
    let effects = attempt.on_view(now(13_000), &view(FreezerState::Thawed));
    assert_eq!(effects, []);
    attempt.on_stop_timer(now(22_000));
    let effects = attempt.on_view(now(22_000), &view(FreezerState::Frozen));
    assert_eq!(effects, [], "what is killed dies frozen");
}

fn moved() -> FreezerState {
    FreezerState::Moved(MovedMemory {
        pids: alloc::vec![7],
        bytes: 5_000_001,
    })
}

#[test]
fn what_held_gpus_is_frozen_when_they_were_seen_free_and_not_before() {
    let mut attempt = running();
    let effects = attempt.on_suspend(now(11_000), HOLDING);
    assert_eq!(
        in_words(&effects),
        ["suspending", "freeze", "look at 51000"]
    );
    let effects = attempt.on_view(now(11_001), &view(FreezerState::Moving));
    assert_eq!(in_words(&effects), [""; 0]);
    let effects = attempt.on_view(now(11_002), &view(moved()));
    assert_eq!(in_words(&effects), ["await moved"]);
    let effects = attempt.on_suspension(Suspension::on_moved);
    assert_eq!(in_words(&effects), ["suspended"]);
    let AttemptPhase::Suspended { moved_mb, .. } = attempt.status() else {
        panic!("{attempt:?}");
    };
    assert_eq!(moved_mb, 6, "it is rounded up");
    assert!(attempt.is_away());
    let effects = attempt.on_resume(now(12_000));
    assert_eq!(in_words(&effects), ["resuming", "thaw", "look at 52000"]);
    let effects = attempt.on_view(now(12_001), &view(FreezerState::Restoring));
    assert_eq!(in_words(&effects), [""; 0]);
    let effects = attempt.on_view(now(12_002), &view(FreezerState::Thawed));
    assert_eq!(in_words(&effects), ["running", "timeout at 62002"]);
}

#[test]
fn gpus_that_do_not_come_free_undo_it_and_what_does_not_come_back_is_told() {
    let mut attempt = running();
    attempt.on_suspend(now(11_000), HOLDING);
    attempt.on_view(now(11_002), &view(moved()));
    let late = attempt.on_suspension_timer(now(51_000));
    assert_eq!(in_words(&late), ["thaw", "not suspended: GpusBusy"]);
    let mut attempt = running();
    attempt.on_suspend(now(11_000), HOLDING);
    attempt.on_view(now(11_002), &view(moved()));
    attempt.on_suspension(Suspension::on_moved);
    attempt.on_resume(now(12_000));
    let why = FreezeRefusal::NotRestored("no".into());
    let effects = attempt.on_view(now(12_001), &view(FreezerState::Refused(why)));
    assert_eq!(in_words(&effects), ["not suspended: NotResumed(\"no\")"]);
}

#[test]
fn one_that_is_wanted_back_meanwhile_comes_back_without_a_look_at_its_gpus() {
    let mut attempt = running();
    attempt.on_suspend(now(11_000), HOLDING);
    attempt.on_resume(now(11_001));
    let effects = attempt.on_view(now(11_002), &view(moved()));
    assert_eq!(in_words(&effects), ["resuming", "thaw", "look at 51002"]);
}

#[test]
fn a_new_agent_takes_over_what_is_on_its_way_to_or_from_its_gpus() {
    let met = |freezer| {
        let mut view = view(freezer);
        view.launch_record.gpus = alloc::vec![String::from("GPU-a")];
        in_words(&Attempt::seen(now(30_000), &view).1)
    };
    assert_eq!(met(moved()), ["await moved"]);
    assert_eq!(met(FreezerState::Moving), ["suspending", "look at 300000"]);
    assert_eq!(met(FreezerState::Restoring), ["resuming", "look at 300000"]);
}
