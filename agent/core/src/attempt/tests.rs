//! Every phase with every event, as a table of effects.

use alloc::format;
use alloc::string::{String, ToString};

use super::*;
use sluice_common::id::Subject;
use sluice_common::keep::KeptFiles;
use sluice_common::supervision::LaunchRecord;
use sluice_common::supervision::{DeviceAccess, FreezerState, ResourceLimits};
use sluice_common::time::Time;
use sluice_common::usage::Usage;

const GRACE: Span = Span::from_secs(10);
const NOW: Now = Now {
    wall: Time::from_unix_millis(1_000_000),
    boot: BootMillis(50_000),
};

fn process() -> Process {
    Process {
        pid: 42,
        start_ticks: 4_700,
        started_at: Time::from_unix_millis(997_000),
        workdir_refused: None,
    }
}

fn host_end() -> ProcessEnd {
    ProcessEnd {
        process: Some(process()),
        exit: Exit::Code(3),
        ended_at: Time::from_unix_millis(999_000),
        usage: Usage::default(),
        kept: None,
    }
}

fn view(phase: HostPhase) -> AttemptView {
    AttemptView {
        attempt: "a.1".parse().unwrap(),
        phase,
        launch_record: LaunchRecord {
            timeout: Some(Span::from_secs(60)),
            grace: GRACE,
            gpus: vec![],
            processors: Default::default(),
            is_allocation: false,
        },
        freezer: FreezerState::Thawed,
        frozen: Default::default(),
    }
}

fn running_view() -> AttemptView {
    view(HostPhase::Running(process()))
}

fn ended_view() -> AttemptView {
    view(HostPhase::Ended(host_end()))
}

fn gone_view() -> AttemptView {
    view(HostPhase::Gone(host_end()))
}

fn starting() -> Attempt {
    Attempt::Starting {
        was_sent: true,
        awaits_inputs: false,
        spec: Box::new(SpawnSpec {
            attempt: "a.1".parse().unwrap(),
            command: vec!["true".into()],
            env: Default::default(),
            workdir: None,
            prefer_workdir: None,
            lease_until: None,
            lease_grace: GRACE,
            launch_record: running_view().launch_record,
            subject: Subject::new("s").unwrap(),
            submitter: None,
            limits: ResourceLimits::default(),
            devices: DeviceAccess::default(),
            processors: Default::default(),
            hooks: sluice_common::template::launch::HooksAndLimits::default(),
            hook_env: Default::default(),
            wrapper: 0,
            env_file: false,
            streams: Default::default(),
            container: None,
            inputs: None,
            keep: vec![],
        }),
    }
}

fn running() -> Attempt {
    Attempt::seen(NOW, &running_view()).0
}

fn asked_to_stop(process: Option<Process>) -> Attempt {
    stopping(NOW, process, StopReason::Cancelled, GRACE).0
}

fn being_killed() -> Attempt {
    stopping(NOW, Some(process()), StopReason::Cancelled, Span::ZERO).0
}

fn ended_by_itself() -> Attempt {
    Attempt::seen(NOW, &ended_view()).0
}

fn releasing_its_gpus() -> Attempt {
    Attempt::seen(NOW, &gone_view()).0
}

fn released() -> Attempt {
    let mut attempt = releasing_its_gpus();
    attempt.on_free();
    attempt
}

/// A phase in one word, with what distinguishes its variants.
fn word(phase: &AttemptPhase) -> String {
    let end = |name: &str, end: &AttemptEnd| {
        let pid = end.started.map_or(0, |started| started.pid);
        match end.stopped {
            None => format!("{name} {pid} {:?}", end.exit),
            Some(why) => format!("{name} {pid} {:?} {why:?}", end.exit),
        }
    };
    match phase {
        AttemptPhase::Starting => "starting".into(),
        AttemptPhase::Running(started) => format!("running {}", started.pid),
        AttemptPhase::Stopping { started: None, why } => format!("stopping unseen {why:?}"),
        AttemptPhase::Stopping { why, .. } => format!("stopping {why:?}"),
        AttemptPhase::Suspending(_) => "suspending".into(),
        AttemptPhase::Suspended { .. } => "suspended".into(),
        AttemptPhase::Resuming(_) => "resuming".into(),
        AttemptPhase::NotSuspended { why, .. } => format!("not suspended {why:?}"),
        AttemptPhase::Ended(found) => end("ended", found),
        AttemptPhase::Released(found) => end("released", found),
    }
}

fn words(effects: &Effects) -> String {
    let words: Vec<String> = effects
        .iter()
        .map(|effect| match effect {
            Effect::Report(phase) => word(phase),
            Effect::Signal(StopSignal::Terminate) => "TERM".to_string(),
            Effect::Signal(StopSignal::Kill) => "KILL".to_string(),
            Effect::WakeStop(at) => format!("wake {}", at.0),
            Effect::WakeTimeout(at) => format!("timeout {}", at.0),
            Effect::AwaitGpus => "gpus".to_string(),
            Effect::AwaitMoved => "moved".to_string(),
            Effect::Freeze => "freeze".to_string(),
            Effect::Thaw => "thaw".to_string(),
            Effect::WakeSuspension(at) => format!("suspension {}", at.0),
        })
        .collect();
    words.join(", ")
}

/// Applies `event` to `attempt`; returns the effects and the new phase in words.
fn happens(mut attempt: Attempt, event: impl FnOnce(&mut Attempt) -> Effects) -> (String, String) {
    let effects = event(&mut attempt);
    (words(&effects), word(&attempt.status()))
}

#[track_caller]
fn expect(
    attempt: Attempt,
    event: impl FnOnce(&mut Attempt) -> Effects,
    effects: &str,
    phase: &str,
) {
    let found = happens(attempt, event);
    assert_eq!(found, (effects.into(), phase.into()));
}

#[test]
fn a_running_view_moves_on_what_was_not_running() {
    let event = |a: &mut Attempt| a.on_view(NOW, &running_view());
    expect(
        starting(),
        event,
        "running 42, timeout 107000",
        "running 42",
    );
    expect(running(), event, "", "running 42");
    let unseen = asked_to_stop(None);
    expect(
        unseen,
        event,
        "stopping Cancelled, TERM",
        "stopping Cancelled",
    );
    let seen = asked_to_stop(Some(process()));
    expect(seen, event, "", "stopping Cancelled");
    expect(ended_by_itself(), event, "", "ended 42 Code(3)");
}

#[test]
fn a_process_that_comes_up_after_its_grace_is_killed_at_once() {
    let late = stopping(NOW, None, StopReason::Cancelled, Span::ZERO).0;
    let event = |a: &mut Attempt| a.on_view(NOW, &running_view());
    expect(
        late,
        event,
        "stopping Cancelled, KILL",
        "stopping Cancelled",
    );
}

#[test]
fn an_end_stops_what_was_left_behind() {
    let event = |a: &mut Attempt| a.on_view(NOW, &ended_view());
    let itself = "ended 42 Code(3), TERM, wake 60000";
    expect(starting(), event, itself, "ended 42 Code(3)");
    expect(running(), event, itself, "ended 42 Code(3)");
    expect(ended_by_itself(), event, "", "ended 42 Code(3)");
}

#[test]
fn an_end_under_a_stop_goes_on_with_that_stop() {
    let event = |a: &mut Attempt| a.on_view(NOW, &ended_view());
    let end = "ended 42 Code(3) Cancelled";
    expect(asked_to_stop(Some(process())), event, end, end);
    expect(being_killed(), event, end, end);
    let with_signal = "ended 42 Code(3) Cancelled, TERM";
    expect(asked_to_stop(None), event, with_signal, end);

    let mut attempt = being_killed();
    attempt.on_view(NOW, &ended_view());
    assert_eq!(words(&attempt.signal_again()), "KILL", "the stage is kept");
}

#[test]
fn nothing_left_means_ended_and_then_only_its_gpus_are_awaited() {
    let event = |a: &mut Attempt| a.on_view(NOW, &gone_view());
    let both = "ended 42 Code(3), gpus";
    expect(starting(), event, both, "ended 42 Code(3)");
    expect(running(), event, both, "ended 42 Code(3)");
    let both = "ended 42 Code(3) Cancelled, gpus";
    let end = "ended 42 Code(3) Cancelled";
    expect(asked_to_stop(None), event, both, end);
    expect(asked_to_stop(Some(process())), event, both, end);
    expect(ended_by_itself(), event, "gpus", "ended 42 Code(3)");
    expect(releasing_its_gpus(), event, "", "ended 42 Code(3)");
    expect(released(), event, "", "released 42 Code(3)");
}

#[test]
fn it_is_released_when_its_gpus_are_free_and_not_before_nothing_is_left() {
    let end = "released 42 Code(3)";
    expect(releasing_its_gpus(), Attempt::on_free, end, end);
    for attempt in [
        starting(),
        running(),
        being_killed(),
        ended_by_itself(),
        released(),
    ] {
        let stands = word(&attempt.status());
        expect(attempt, Attempt::on_free, "", &stands);
    }
}

#[test]
fn a_lost_gpu_kills_what_runs_and_leaves_what_is_stopped_already() {
    let event = |a: &mut Attempt| a.on_gpu_lost(NOW);
    let killed = "stopping GpuLost, KILL, wake 51000";
    expect(running(), event, killed, "stopping GpuLost");
    let unseen = "stopping unseen GpuLost";
    expect(
        starting(),
        event,
        "stopping unseen GpuLost, KILL, wake 51000",
        unseen,
    );
    for attempt in [
        asked_to_stop(Some(process())),
        ended_by_itself(),
        releasing_its_gpus(),
        released(),
    ] {
        let stands = word(&attempt.status());
        expect(attempt, event, "", &stands);
    }
}

#[test]
fn what_could_not_be_made_has_no_process() {
    let failed = view(HostPhase::Gone(ProcessEnd {
        process: None,
        exit: Exit::StartFailed("no such file".into()),
        ended_at: NOW.wall,
        usage: Usage::default(),
        kept: None,
    }));
    let end = "ended 0 StartFailed(\"no such file\")";
    let both = format!("{end}, gpus");
    expect(starting(), |a| a.on_view(NOW, &failed), &both, end);
}

#[test]
fn what_was_kept_after_the_end_is_reported_with_the_release() {
    let mut end = host_end();
    end.kept = Some(Box::new(KeptFiles::nothing("no lease")));
    for mut attempt in [ended_by_itself(), asked_to_stop(Some(process()))] {
        attempt.on_view(NOW, &view(HostPhase::Gone(end.clone())));
        attempt.on_free();
        let AttemptPhase::Released(last) = attempt.status() else {
            panic!("{:?}", attempt.status());
        };
        assert_eq!(last.kept, end.kept);
    }
}

#[test]
fn what_comes_back_after_its_release_is_killed_and_not_reported() {
    for view in [running_view(), ended_view()] {
        let event = |a: &mut Attempt| a.on_view(NOW, &view);
        expect(released(), event, "KILL", "released 42 Code(3)");
        expect(releasing_its_gpus(), event, "KILL", "ended 42 Code(3)");
    }
}

#[test]
fn a_stop_asks_and_sets_its_clock() {
    let event = |a: &mut Attempt| a.on_stop(NOW, StopReason::Preempted, GRACE);
    let unseen = "stopping unseen Preempted";
    expect(
        starting(),
        event,
        "stopping unseen Preempted, TERM, wake 60000",
        unseen,
    );
    let asked = "stopping Preempted, TERM, wake 60000";
    expect(running(), event, asked, "stopping Preempted");
    let at_once = |a: &mut Attempt| a.on_stop(NOW, StopReason::Preempted, Span::ZERO);
    let killed = "stopping Preempted, KILL, wake 51000";
    expect(running(), at_once, killed, "stopping Preempted");
    expect(
        starting(),
        at_once,
        "stopping unseen Preempted, KILL, wake 51000",
        unseen,
    );
}

#[test]
fn another_stop_hurries_and_never_delays_and_keeps_the_first_reason() {
    let stop =
        |secs| move |a: &mut Attempt| a.on_stop(NOW, StopReason::Drained, Span::from_secs(secs));
    let stands = "stopping Cancelled";
    let asked = || asked_to_stop(Some(process()));
    expect(asked(), stop(99), "stopping Cancelled, wake 60000", stands);
    expect(asked(), stop(2), "stopping Cancelled, wake 52000", stands);
    expect(
        asked(),
        stop(0),
        "stopping Cancelled, KILL, wake 51000",
        stands,
    );
    expect(
        being_killed(),
        stop(0),
        "stopping Cancelled, wake 51000",
        stands,
    );
    let unseen = "stopping unseen Cancelled";
    expect(
        asked_to_stop(None),
        stop(0),
        "stopping unseen Cancelled, KILL, wake 51000",
        unseen,
    );
}

#[test]
fn a_stop_of_what_has_ended_says_so_again_and_hurries_what_is_left() {
    let stop =
        |secs| move |a: &mut Attempt| a.on_stop(NOW, StopReason::Drained, Span::from_secs(secs));
    let ended = "ended 42 Code(3)";
    expect(
        ended_by_itself(),
        stop(99),
        "ended 42 Code(3), wake 60000",
        ended,
    );
    expect(
        ended_by_itself(),
        stop(0),
        "ended 42 Code(3), KILL, wake 51000",
        ended,
    );
    let released_word = "released 42 Code(3)";
    expect(released(), stop(0), released_word, released_word);
}

#[test]
fn the_stop_timer_kills_when_the_grace_has_passed_and_again_after_that() {
    let at = |boot| {
        move |a: &mut Attempt| {
            a.on_stop_timer(Now {
                boot: BootMillis(boot),
                ..NOW
            })
        }
    };
    let stands = "stopping Cancelled";
    let asked = || asked_to_stop(Some(process()));
    expect(asked(), at(59_999), "wake 60000", stands);
    expect(asked(), at(60_000), "KILL, wake 61000", stands);
    expect(being_killed(), at(50_500), "wake 51000", stands);
    expect(being_killed(), at(51_200), "KILL, wake 52200", stands);
    expect(
        asked_to_stop(None),
        at(60_000),
        "KILL, wake 61000",
        "stopping unseen Cancelled",
    );
    expect(
        ended_by_itself(),
        at(60_000),
        "KILL, wake 61000",
        "ended 42 Code(3)",
    );
    for (attempt, stands) in [
        (starting(), "starting"),
        (running(), "running 42"),
        (released(), "released 42 Code(3)"),
    ] {
        expect(attempt, at(99_999), "", stands);
    }
}

#[test]
fn a_timeout_is_a_stop_with_the_steps_own_grace() {
    let at = |boot| {
        move |a: &mut Attempt| {
            a.on_timeout_timer(Now {
                boot: BootMillis(boot),
                ..NOW
            })
        }
    };
    expect(running(), at(106_999), "timeout 107000", "running 42");
    let stopped = "stopping TimedOut, TERM, wake 117000";
    expect(running(), at(107_000), stopped, "stopping TimedOut");
    for (attempt, stands) in [
        (starting(), "starting"),
        (asked_to_stop(None), "stopping unseen Cancelled"),
        (being_killed(), "stopping Cancelled"),
        (ended_by_itself(), "ended 42 Code(3)"),
        (released(), "released 42 Code(3)"),
    ] {
        expect(attempt, at(999_999), "", stands);
    }
}

#[test]
fn an_adopted_process_has_only_the_rest_of_its_timeout() {
    for (start_ticks, timeout_at) in [(5_000, 110_000), (100, 61_000), (0, 60_000)] {
        let mut found = process();
        found.start_ticks = start_ticks;
        // The wall clock was changed meanwhile, which must not stop a step.
        found.started_at = Time::from_unix_millis(1);
        let (_, effects) = Attempt::seen(NOW, &view(HostPhase::Running(found)));
        assert_eq!(words(&effects), format!("running 42, timeout {timeout_at}"));
    }
}

#[test]
fn without_a_timeout_no_timer_is_set() {
    let mut view = running_view();
    view.launch_record.timeout = None;
    let (mut attempt, effects) = Attempt::seen(NOW, &view);
    assert_eq!(words(&effects), "running 42");
    assert_eq!(words(&attempt.on_timeout_timer(NOW)), "");
}

#[test]
fn only_a_stop_signals_again() {
    for (attempt, expected) in [
        (starting(), ""),
        (running(), ""),
        (asked_to_stop(None), "TERM"),
        (asked_to_stop(Some(process())), "TERM"),
        (being_killed(), "KILL"),
        (ended_by_itself(), "TERM"),
        (released(), ""),
    ] {
        assert_eq!(words(&attempt.signal_again()), expected, "{attempt:?}");
    }
}

#[test]
fn what_the_supervisor_has_lost_is_over_and_its_exit_unknown() {
    let event = |a: &mut Attempt| a.on_unlisted(NOW);
    expect(starting(), event, "", "starting");
    let lost = "ended 42 Unknown, gpus";
    expect(running(), event, lost, "ended 42 Unknown");
    let lost = "ended 42 Unknown Cancelled, gpus";
    expect(being_killed(), event, lost, "ended 42 Unknown Cancelled");
    let lost = "ended 0 Unknown Cancelled, gpus";
    expect(
        asked_to_stop(None),
        event,
        lost,
        "ended 0 Unknown Cancelled",
    );
    expect(ended_by_itself(), event, "gpus", "ended 42 Code(3)");
    expect(releasing_its_gpus(), event, "", "ended 42 Code(3)");
    expect(released(), event, "", "released 42 Code(3)");
}
