//! Renders steps as text.

use jiff::Timestamp;
use sluice_common::amount::MGPU;
use sluice_common::api::{ArrayView, AttemptInfo, ExitView, PlacementView, StepView};
use sluice_common::directory_refusal::DirectoryRefusal;
use sluice_common::environment::HIDDEN;
use sluice_common::keep::KeptFiles;
use sluice_common::processors::CpuMode;
use sluice_common::state::StepState;
use sluice_common::usage::Usage;

use super::age::{age, seconds};
use super::allocation::summary;
use super::amounts::bytes;
use super::document::{self, ApplyDocument};
use super::listed::Listed;
use super::sections::Sections;
use super::table::{Cell, Column};
use super::template;
use super::{amounts, or_dash, safe, shell_words};
use crate::out::{Out, Tone};

impl Listed for StepView {
    const KIND: &'static str = "step";
    const COLUMNS: &'static [Column] = &[
        Column::new("ID", 20).room(13),
        Column::new("NAME", 7).text().room(12),
        Column::new("STATE", 19).room(9),
        Column::new("SUBJECT", 4).text(),
        Column::new("POOL", 5).text(),
        Column::new("NODE", 8).text().room(12),
        Column::new("GPUS", 6),
        Column::new("AGE", 9).room(5),
        Column::new("REASON", 3).text(),
        Column::new("READY", 2).wide(),
        Column::new("ATTEMPT", 2).wide(),
        Column::new("PRIORITY", 2).wide(),
        Column::new("EXIT", 2).wide().room(4),
        Column::new("PLATFORM", 1).wide(),
        Column::new("REQUEST", 1).wide(),
        Column::new("LABELS", 10).text().labels(),
        Column::new("COMMAND", 1).wide(),
        Column::new("MESSAGE", 1).wide(),
    ];

    fn document(&self) -> Option<ApplyDocument> {
        Some(document::step(self))
    }

    fn name(&self) -> String {
        self.id.clone()
    }

    fn cells(&self, now: Timestamp) -> Vec<Cell> {
        vec![
            safe(&self.id).into(),
            or_dash(Some(&self.name)).into(),
            Cell::toned(tone(self.state), self.state),
            or_dash(Some(&self.subject)).into(),
            or_dash(self.pool.as_deref()).into(),
            node_cell(self).into(),
            gpus(self).into(),
            age(self.submitted_at, now).into(),
            reason_cell(self).into(),
            ready_cell(self).into(),
            self.attempt.to_string().into(),
            self.priority.to_string().into(),
            self.exit.as_ref().map_or("-".to_owned(), short_exit).into(),
            or_dash(self.platform.as_deref()).into(),
            amounts::amounts(&self.request).into(),
            super::node::labels(&self.labels).into(),
            or_dash(Some(&shell_words(&self.command))).into(),
            or_dash(Some(&self.reason.message)).into(),
        ]
    }
}

/// Counts the hosts on which it is ready, and those on which it is; one that waits or has ended is on none.
fn ready_cell(step: &StepView) -> String {
    let total = match step.state {
        StepState::Queued => 0,
        state if state.is_terminal() => 0,
        _ => step.placements.len(),
    };
    let ready = step.placements.iter().filter(|it| it.ready).count();
    match total {
        0 => "-".to_owned(),
        total => format!("{ready}/{total}"),
    }
}

/// The code of its reason; of an array, how many of its parts have ended.
fn reason_cell(step: &StepView) -> String {
    match &step.array {
        Some(array) => array.parts.to_string(),
        None => step.reason.code.to_string(),
    }
}

/// Formats how an attempt ended in a word: `0`, `7`, `SIGKILL` or `?`.
fn short_exit(exit: &ExitView) -> String {
    match (exit.code, exit.signal) {
        (Some(code), _) => code.to_string(),
        (None, Some(signal)) => nix::sys::signal::Signal::try_from(signal).map_or_else(
            |_| format!("signal {signal}"),
            |known| known.as_str().to_owned(),
        ),
        (None, None) => "?".to_owned(),
    }
}

/// Returns the colour of a state.
pub(crate) fn tone(state: StepState) -> Tone {
    match state {
        StepState::Succeeded | StepState::Running => Tone::Good,
        StepState::Failed | StepState::Rejected | StepState::Preempted => Tone::Bad,
        StepState::Cancelled => Tone::Faint,
        StepState::Queued
        | StepState::Allocated
        | StepState::Starting
        | StepState::Suspending
        | StepState::Suspended
        | StepState::Resuming
        | StepState::Stopping => Tone::Pending,
    }
}

/// Names the node on which a step is, or was last; one that waits is on none.
pub(crate) fn node_cell(step: &StepView) -> String {
    let placements: &[PlacementView] = match step.state {
        StepState::Queued => &[],
        _ => &step.placements,
    };
    match placements {
        [] => "-".to_owned(),
        [only] => safe(&only.node),
        [first, rest @ ..] => format!("{}+{}", safe(&first.node), rest.len()),
    }
}

/// Returns the GPUs that it asks for, over all hosts.
pub(crate) fn gpus(step: &StepView) -> String {
    let each = step.request.get(MGPU);
    amounts::cores(each.saturating_mul(u64::from(step.nodes)))
}

/// Most inputs of a step that are named.
const NAMED_INPUTS: usize = 10;

/// Names the files that it gets, with their sizes.
fn inputs(step: &StepView) -> Option<String> {
    let named = step.inputs.iter().take(NAMED_INPUTS);
    let named = named.map(|it| format!("{} ({})", safe(&it.name), bytes(it.size)));
    let more = step.inputs.len().saturating_sub(NAMED_INPUTS);
    let more = (more > 0).then(|| format!("{more} more"));
    let all: Vec<String> = named.chain(more).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

/// Names the patterns of files that its hosts keep.
fn keeps(step: &StepView) -> Option<String> {
    let patterns: Vec<String> = step.keep.iter().map(|pattern| safe(pattern)).collect();
    (!patterns.is_empty()).then(|| patterns.join(", "))
}

/// Formats what a host has kept of an attempt.
fn kept(kept: &KeptFiles) -> String {
    let files = match kept.files {
        1 => "1 file".to_owned(),
        files => format!("{files} files"),
    };
    let mut text = format!("{files}, {}", bytes(kept.bytes));
    if kept.left_out > 0 {
        text.push_str(&format!("; {} left out", kept.left_out));
    }
    match (&kept.why, kept.left_out) {
        (None, _) => text,
        (Some(why), 0 | 1) => format!("{text}: {}", safe(why)),
        (Some(why), _) => format!("{text}, such as {}", safe(why)),
    }
}

/// Formats how an attempt ended.
pub(crate) fn exit(exit: &ExitView) -> String {
    let how = match (exit.code, exit.signal) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {}", signal_name(signal)),
        (None, None) => "unknown".to_owned(),
    };
    match exit
        .message
        .as_deref()
        .filter(|message| !message.is_empty())
    {
        Some(message) if exit.code.is_none() && exit.signal.is_none() => safe(message),
        Some(message) => format!("{how} ({})", safe(message)),
        None => how,
    }
}

/// Formats `9` as `9 (SIGKILL)`.
pub(crate) fn signal_name(signal: i32) -> String {
    match nix::sys::signal::Signal::try_from(signal) {
        Ok(known) => format!("{signal} ({})", known.as_str()),
        Err(_) => signal.to_string(),
    }
}

/// Renders all details of a step.
pub(crate) fn describe(step: &StepView, now: Timestamp, out: Out) -> String {
    let command = (!step.command.is_empty()).then(|| shell_words(&step.command));
    let mut text = Sections::default();
    text.field("ID", safe(&step.id))
        .field("Name", safe(&step.name))
        .field("State", out.paint(tone(step.state), step.state))
        .field(
            "Reason",
            format!("{}: {}", step.reason.code, safe(&step.reason.message)),
        )
        .field("Subject", safe(&step.subject))
        .optional("Submitted by", step.submitted_by.as_deref().map(safe))
        .field("Pool", or_dash(step.pool.as_deref()))
        .optional("Moved", step.moved_to.is_some().then(|| moved_from(step)))
        .optional("Platform", step.platform.as_deref().map(safe))
        .optional("Allocation", step.allocation.as_ref().map(summary))
        .optional("Inside", step.inside.as_deref().map(safe))
        .optional("Command", command)
        .field("Directory", directory(step));
    if !step.labels.is_empty() {
        text.field("Labels", super::node::labels(&step.labels));
    }
    treatment(&mut text, step);
    text.field("Submitted", moment(step.submitted_at, now))
        .optional("Finished", step.finished_at.map(|at| moment(at, now)))
        .optional(
            "Took",
            step.started_at
                .zip(step.finished_at)
                .map(|(from, to)| age(from, to)),
        )
        .optional("Exit", step.exit.as_ref().map(exit));
    if !step.env.is_empty() {
        text.section("Environment", |env| {
            // Values may be secrets, and this text ends up in tickets; `-o json` has them.
            for name in step.env.keys() {
                env.line(format!("{}={HIDDEN}", safe(name)));
            }
        });
    }
    if let Some(merged) = &step.merged {
        template::merged(&mut text, merged);
    }
    let warnings: Vec<String> = step.warnings.iter().map(|it| safe(it)).collect();
    text.many("Warning", &warnings);
    attempts(&mut text, &step.attempts, now);
    text.finish()
}

/// Tells where the step works.
fn directory(step: &StepView) -> String {
    match (&step.workdir, &step.prefer_workdir) {
        (Some(dir), _) => safe(dir),
        (None, Some(dir)) => format!("{} where a host has it, else the attempt's own", safe(dir)),
        (None, None) => "the attempt's own".to_owned(),
    }
}

/// Tells of the directory that a step works in why it is not the preferred one.
pub(crate) fn instead_of_preferred(place: &str, why: DirectoryRefusal) -> String {
    format!("{place}: the preferred one {why}")
}

/// Tells why an attempt runs in a directory of its own and not in the one that the step prefers, on the first of its
/// hosts where that is so.
pub(crate) fn refused_directory(step: &StepView, attempt: &AttemptInfo) -> Option<String> {
    let mut placements = attempt.placements.iter();
    let (node, why) = placements.find_map(|it| Some((&it.node, it.workdir_refused?)))?;
    let dir = step.prefer_workdir.as_deref().unwrap_or_default();
    Some(format!(
        "{} runs in an empty directory of its own on {}: {} {why} (`--input FILE` sends files along, `--workdir DIR` insists on a directory, `--workdir none` asks for an empty one)",
        safe(&step.id),
        safe(node),
        safe(dir)
    ))
}

/// Tells where a step that was moved while it waited would have run.
fn moved_from(step: &StepView) -> String {
    let from = match step.requested_pool.as_deref() {
        Some(pool) => format!("pool {}", safe(pool)),
        None => "any of its pools".to_owned(),
    };
    format!("here while it waited; submitted to {from}")
}

/// Renders its request and options; defaults are left out.
fn treatment(text: &mut Sections, step: &StepView) {
    text.optional("Image", step.image.as_deref().map(safe));
    text.optional("Inputs", inputs(step));
    text.optional("Keeps", keeps(step));
    let names = (!step.ports.is_empty()).then(|| list(&step.ports));
    text.optional("Named ports", names);
    let on_preempt = serde_json::to_value(step.on_preempt).ok();
    let on_preempt = on_preempt
        .as_ref()
        .and_then(|value| value.as_str())
        .unwrap_or("-");
    let preemptible = match step.preemptible {
        false => "no".to_owned(),
        true => format!("yes, then {on_preempt}"),
    };
    let frozen_for = step.suspend_timeout.as_deref();
    let processors = match step.cpu_mode {
        CpuMode::Limit => None,
        CpuMode::Weight => Some("by weight: more than that while others are idle"),
        CpuMode::Pinned => Some("pinned: whole ones of its own"),
    };
    let class = step.priority_class.map(|class| class.to_string());
    let work = step.work.map(|work| work.to_string());
    text.optional("Work", work)
        .field("Resources", amounts::asked(&step.resources, &step.request))
        .optional("Processors", processors)
        .optional("Class", class)
        .optional("Hosts", (step.nodes > 1).then(|| hosts(step)))
        .optional(
            "Priority",
            (step.priority != 0).then(|| step.priority.to_string()),
        )
        .field("Preemptible", preemptible)
        .optional(
            "Frozen for",
            frozen_for.map(|most| format!("{} at most", safe(most))),
        )
        .optional(
            "Retries",
            (step.retries > 0).then(|| step.retries.to_string()),
        )
        .optional("Timeout", step.timeout.as_deref().map(safe))
        .field("Grace", safe(&step.grace_period))
        .optional("Begins", step.begin.map(|at| at.to_string()))
        .optional("Deadline", step.deadline.map(|at| at.to_string()))
        .optional("Array", step.array.as_ref().map(array))
        .optional("Failed parts", failed_parts(step))
        .optional("Part", part_of(step))
        .optional("After", after(step))
        .optional("Preempted by", step.preempted_by.as_deref().map(safe));
}

/// Renders the indexes of an array and how many parts are in which phase.
fn array(array: &ArrayView) -> String {
    let ArrayView { indexes, parts, .. } = array;
    let open = parts.open().map(|open| format!("; {open}"));
    format!("{indexes}: {parts}{}", open.unwrap_or_default())
}

fn failed_parts(step: &StepView) -> Option<String> {
    let failed = step.array.as_ref().map(|array| safe(&array.failed))?;
    (!failed.is_empty()).then_some(failed)
}

fn part_of(step: &StepView) -> Option<String> {
    let index = step.array_index?;
    Some(format!(
        "{index} of array {}",
        safe(step.part_of.as_deref()?)
    ))
}

/// Renders the steps after which it starts, and those for which it still waits.
fn after(step: &StepView) -> Option<String> {
    if step.after.is_empty() {
        return None;
    }
    let all = list(&step.after);
    Some(match step.waits_for.as_slice() {
        [] => all,
        waits if waits.len() == step.after.len() => format!("{all}: waits for all"),
        waits => format!("{all}: waits for {}", list(waits)),
    })
}

fn list(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| safe(name)).collect();
    names.join(", ")
}

fn attempts(text: &mut Sections, attempts: &[AttemptInfo], now: Timestamp) {
    if attempts.is_empty() {
        return;
    }
    text.section("Attempts", |text| {
        for attempt in attempts {
            text.section(&attempt.number.to_string(), |one| {
                describe_attempt(one, attempt, now)
            });
        }
    });
}

fn describe_attempt(text: &mut Sections, attempt: &AttemptInfo, now: Timestamp) {
    for placement in &attempt.placements {
        let gpus: Vec<String> = placement.gpus.iter().map(|uuid| safe(uuid)).collect();
        let gpus = if gpus.is_empty() {
            String::new()
        } else {
            format!(" with {}", gpus.join(" "))
        };
        text.field("Node", format!("{}{gpus}", safe(&placement.node)));
        let refused = placement.workdir_refused;
        let refused = refused.map(|why| instead_of_preferred("the attempt's own", why));
        text.optional("Directory", refused);
        text.optional("Ports", ports(placement));
        text.optional("Ready", readiness(placement));
        text.optional("Kept", placement.kept.as_ref().map(kept));
    }
    text.field("Allocated", moment(attempt.allocated_at, now))
        .optional("Started", attempt.started_at.map(|at| moment(at, now)))
        .optional("Ended", attempt.ended_at.map(|at| moment(at, now)))
        .optional("Released", attempt.released_at.map(|at| moment(at, now)))
        .optional("Exit", attempt.exit.as_ref().map(exit))
        .optional("Used", attempt.usage.and_then(|used| usage(&used)));
}

/// Names the ports of a step on a host, with the address at which they are reached.
fn ports(placement: &PlacementView) -> Option<String> {
    let address = placement.address.as_deref().unwrap_or(&placement.node);
    let ports = placement.ports.iter();
    let ports = ports.map(|(name, port)| format!("{} {}:{port}", safe(name), safe(address)));
    let ports: Vec<String> = ports.collect();
    (!ports.is_empty()).then(|| ports.join(", "))
}

/// Tells whether a step with ports or probes is ready on a host, and what its probe saw if not.
fn readiness(placement: &PlacementView) -> Option<String> {
    // Once it has ended there, the host is not named as reachable.
    let is_live = placement.address.is_some();
    match (placement.ready, &placement.probe) {
        (true, _) if placement.ports.is_empty() => None,
        (true, _) => Some("yes".to_owned()),
        (false, Some(failure)) => Some(format!(
            "no: {} probe: {}",
            failure.probe,
            safe(&failure.saw)
        )),
        (false, None) if is_live && !placement.ports.is_empty() => Some("no".to_owned()),
        (false, None) => None,
    }
}

/// Formats its usage, as far as its host reported it.
fn usage(used: &Usage) -> Option<String> {
    let amounts = [
        (used.cpu_us.map(core_seconds), "of a core"),
        (used.peak_memory_bytes.map(bytes), "of memory at most"),
        (used.read_bytes.map(bytes), "read"),
        (used.written_bytes.map(bytes), "written"),
    ];
    let known = amounts
        .into_iter()
        .filter_map(|(amount, what)| Some(format!("{} {what}", amount?)));
    Some(known.collect::<Vec<_>>().join(", ")).filter(|text| !text.is_empty())
}

/// Formats small values to the hundredth.
fn core_seconds(micros: u64) -> String {
    match micros / 1_000_000 {
        whole @ 0..120 => format!("{whole}.{:02}s", micros % 1_000_000 / 10_000),
        whole => seconds(i64::try_from(whole).unwrap_or(i64::MAX)),
    }
}

/// Formats a time and its age.
pub(crate) fn moment(at: Timestamp, now: Timestamp) -> String {
    format!("{} ({} ago)", rounded(at), age(at, now))
}

/// Formats a time to the second.
pub(crate) fn rounded(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The number of hosts of a gang, and how near to each other they are.
fn hosts(step: &StepView) -> String {
    match &step.within {
        None => step.nodes.to_string(),
        Some(within) if within.required => format!("{} within one {}", step.nodes, within.level),
        Some(within) => format!("{}, within one {} if possible", step.nodes, within.level),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::listed::table;
    use super::*;

    /// Returns the time at which all views are rendered.
    pub(crate) fn now() -> Timestamp {
        "2026-11-20T10:03:00Z".parse().unwrap()
    }

    /// Returns a step that runs on one host with two GPUs.
    pub(crate) fn running() -> StepView {
        serde_json::from_value(serde_json::json!({
            "id": "k3v9", "name": "train", "subject": "dev", "pool": "default", "platform": null,
            "state": "running", "reason": {"code": "running", "message": "its process runs"},
            "resources": {"gpu_count": 2, "cpu_count": 1.0, "memory": "2GiB"},
            "request": {"gpu": 2, "mcpu": 1000, "memory_mb": 2148, "step_run": 1},
            "command": ["python", "train.py", "--name", "a b"], "env": {"A": "x\u{1b}y"}, "workdir": "/w",
            "nodes": 1, "priority": 0,
            "placements": [{"node": "gpu-1", "gpus": ["GPU-a", "GPU-b"], "rank": 0}],
            "attempt": 1,
            "attempts": [{"number": 1, "placements": [{"node": "gpu-1", "gpus": ["GPU-a", "GPU-b"], "rank": 0}],
                          "allocated_at": "2026-11-20T10:00:01Z", "started_at": "2026-11-20T10:00:02Z",
                          "ended_at": null, "released_at": null, "exit": null}],
            "exit": null, "submitted_at": "2026-11-20T10:00:00Z", "allocated_at": "2026-11-20T10:00:01Z",
            "started_at": "2026-11-20T10:00:02Z", "finished_at": null,
            "labels": {"team": "vision"}, "retries": 0, "timeout": "2h", "grace_period": "30s", "on_preempt": "requeue", "preempted_by": null
        }))
        .unwrap()
    }

    #[test]
    fn steps_are_listed_one_a_line() {
        let mut waiting = running();
        waiting.id = "x".into();
        waiting.state = StepState::Queued;
        waiting.pool = None;
        assert_eq!(
            table(&[running(), waiting], now(), Out::plain()),
            "ID    NAME   STATE    SUBJECT  POOL     NODE   GPUS  AGE  REASON\n\
             k3v9  train  running  dev      default  gpu-1  2     3m   running\n\
             x     train  queued   dev      -        -      2     3m   running\n"
        );
    }

    #[test]
    fn a_description_tells_all() {
        let expected = "\
ID:             k3v9
Name:           train
State:          running
Reason:         running: its process runs
Subject:        dev
Pool:           default
Command:        python train.py --name 'a b'
Directory:      /w
Labels:         team=vision
Resources:      gpu=2 cpu=1 memory=2GiB
Preemptible:    yes, then requeue
Timeout:        2h
Grace:          30s
Submitted:      2026-11-20T10:00:00Z (3m ago)
Environment:
  A=***
Attempts:
  1:
    Node:       gpu-1 with GPU-a GPU-b
    Allocated:  2026-11-20T10:00:01Z (2m59s ago)
    Started:    2026-11-20T10:00:02Z (2m58s ago)
";
        assert_eq!(describe(&running(), now(), Out::plain()), expected);
    }

    #[test]
    fn what_was_used_is_told_as_far_as_it_is_known() {
        let mut step = running();
        let used = Usage {
            cpu_us: Some(1_509_999),
            peak_memory_bytes: Some(3 << 29),
            ..Usage::default()
        };
        step.attempts[0].usage = Some(used);
        let text = describe(&step, now(), Out::plain());
        let wanted = "    Used:       1.50s of a core, 1.5GiB of memory at most\n";
        assert!(text.contains(wanted), "{text}");
        step.attempts[0].usage = Some(Usage::default());
        assert!(!describe(&step, now(), Out::plain()).contains("Used"));
        assert_eq!(core_seconds(200_000_000), "3m20s");
    }

    #[test]
    fn what_was_kept_is_told_for_each_host_with_a_reason_for_the_rest() {
        let one = |files, bytes, left_out, why: Option<&str>| KeptFiles {
            files,
            bytes,
            left_out,
            why: why.map(Into::into),
        };
        let mut step = running();
        let placement = step.attempts[0].placements[0].clone();
        step.attempts[0].placements.push(placement);
        step.attempts[0].placements[1].kept = Some(one(1, 2048, 0, None));
        let text = describe(&step, now(), Out::plain());
        assert!(text.contains("\n    Kept:       1 file, 2KiB\n"), "{text}");
        assert_eq!(text.matches("Kept").count(), 1, "{text}");
        assert_eq!(
            kept(&one(12, 3, 2, Some("`a\u{1b}` was not kept"))),
            "12 files, 3B; 2 left out, such as `a\\u{1b}` was not kept"
        );
        assert_eq!(
            kept(&KeptFiles::nothing("no lease")),
            "0 files, 0B: no lease"
        );
    }

    #[test]
    fn ends_are_told_in_words() {
        let view = |code, signal, message: Option<&str>| ExitView {
            code,
            signal,
            message: message.map(Into::into),
        };
        assert_eq!(exit(&view(Some(7), None, None)), "exit code 7");
        assert_eq!(exit(&view(None, Some(9), None)), "signal 9 (SIGKILL)");
        assert_eq!(
            exit(&view(None, None, Some("no such file"))),
            "no such file"
        );
        assert_eq!(exit(&view(None, None, None)), "unknown");
        assert_eq!(signal_name(40), "40");
    }
}
