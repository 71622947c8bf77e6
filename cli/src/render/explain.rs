//! Renders explanations: the answer in the first line, then the facts, then what would help.

use jiff::Timestamp;
use sluice_common::amount::table::DocumentAmount;
use sluice_common::api::{
    AttemptOutcomeView, AwaitedRunView, ExplainView, FairShareView, HolderView, HoldingView,
    KeyUsageView, NominationView, PoolExplanation, ReplicaView, ServiceView,
};
use sluice_common::quantity::{figure, quantity, resource_noun};
use sluice_common::state::StepState;

use super::step::{exit, instead_of_preferred, moment, rounded, tone};
use super::{safe, shortened};
use crate::out::Out;

/// Most named holders of a scarce resource.
const MAX_HOLDERS: usize = 5;

#[derive(Default)]
struct Lines(String);

impl Lines {
    fn put(&mut self, depth: usize, line: impl AsRef<str>) {
        self.0.push_str(&"  ".repeat(depth));
        self.0.push_str(line.as_ref());
        self.0.push('\n');
    }
}

/// Renders why a step is in its state.
pub(crate) fn explain(view: &ExplainView, now: Timestamp, out: Out) -> String {
    let mut lines = Lines::default();
    let state = out.paint(tone(view.state), view.state);
    let why = safe(&view.reason.message);
    let head = format!(
        "{} is {state} ({}): {why}",
        safe(&view.id),
        view.reason.code
    );
    lines.put(0, head);
    if let Some(pool) = &view.moved_to {
        let pool = safe(pool);
        lines.put(1, format!("moved to pool {pool} while it waited"));
    }
    for pool in &view.pools {
        waiting(&mut lines, pool, view);
    }
    for refusal in &view.refused {
        let message = safe(&refusal.message);
        lines.put(1, format!("pool {}: {message}", safe(&refusal.pool)));
    }
    if let Some(holding) = &view.holding {
        held(&mut lines, view.state, holding, now);
    }
    attempts(&mut lines, view, now);
    lines.0
}

/// The replicas that are not ready, and are not being stopped.
pub(crate) fn not_ready(view: &ServiceView) -> impl Iterator<Item = &ReplicaView> {
    let members = view.members.iter();
    members.filter(|it| !it.ready && it.stops_at.is_none())
}

/// Renders why a service is in its state: the number of its replicas, its change of version, and what its replicas wait for.
pub(crate) fn service(
    view: &ServiceView,
    replicas: &[ExplainView],
    now: Timestamp,
    out: Out,
) -> String {
    let mut lines = Lines::default();
    let message = safe(&view.message);
    lines.put(
        0,
        format!(
            "service/{} is {}: {message}",
            safe(&view.name),
            view.state.as_str()
        ),
    );
    if let Some(scaling) = &view.autoscaling {
        lines.put(1, format!("number of replicas: {}", safe(&scaling.message)));
    }
    if let Some(at) = view.restart_at {
        lines.put(
            1,
            format!("the next replica starts at {at} at the earliest"),
        );
    }
    if let Some(last) = &view.last_failure {
        let (id, message) = (safe(&last.id), safe(&last.message));
        lines.put(1, format!("last failure: {id} at {}: {message}", last.at));
    }
    for replica in replicas {
        for line in explain(replica, now, out).lines() {
            lines.put(1, line);
        }
    }
    let others = not_ready(view).count().saturating_sub(replicas.len());
    if others > 0 {
        lines.put(
            1,
            format!(
                "{others} more are not ready: `sluice describe service {}`",
                safe(&view.name)
            ),
        );
    }
    lines.0
}

fn waiting(lines: &mut Lines, pool: &PoolExplanation, view: &ExplainView) {
    let behind = pool.behind.as_deref();
    let behind = behind.map_or(String::new(), |step| format!(", behind {}", safe(step)));
    let share = match pool.in_share {
        true => "within its reserved share",
        false => "it would borrow",
    };
    let head = format!(
        "pool {}: place {} of {}{behind}; priority {}, {share}",
        safe(&pool.pool),
        pool.place,
        pool.waiting,
        pool.priority
    );
    lines.put(1, head);
    if !pool.fair_share.is_empty() {
        let standings: Vec<String> = pool.fair_share.iter().map(standing).collect();
        lines.put(
            2,
            format!("fair share: {}", standings.join("; ahead of it ")),
        );
    }
    // The first line has said it already.
    if pool.reason.message != view.reason.message {
        let code = pool.reason.code;
        lines.put(2, format!("{code}: {}", safe(&pool.reason.message)));
    }
    let told = pool.keys.iter().filter(|terms| is_told(terms));
    for terms in told {
        lines.put(2, key(terms, &view.subject));
    }
    if let Some(promise) = &pool.promised {
        promised(lines, promise);
    }
    lines.put(2, safe(&pool.preemption));
    holders(lines, pool);
    for (n, remedy) in pool.would_start_if.iter().enumerate() {
        let word = match n {
            0 => "would start if",
            _ => "            or if",
        };
        lines.put(2, format!("{word} {}", safe(&remedy.message)));
    }
}

/// Renders what a subject borrowed, such as "research borrowed 5.2 GPU-hours at weight 2".
fn standing(of: &FairShareView) -> String {
    let hours = |seconds: u64| match seconds {
        0..3600 => format!("{seconds} GPU-seconds"),
        _ => format!("{:.1} GPU-hours", seconds as f64 / 3600.0),
    };
    let user = of.user.as_deref().zip(of.user_gpu_seconds);
    let user = user.map_or(String::new(), |(user, used)| {
        format!(", its user {} used {}", safe(user), hours(used))
    });
    let borrowed = hours(of.borrowed_gpu_seconds);
    format!(
        "{} borrowed {borrowed} at weight {}{user}",
        safe(&of.subject),
        of.weight
    )
}

/// Whether anything bounds the key.
fn is_told(terms: &KeyUsageView) -> bool {
    let bounds = [
        &terms.reserved,
        &terms.limit,
        &terms.free,
        &terms.free_there,
    ];
    bounds.into_iter().any(Option::is_some)
}

fn key(terms: &KeyUsageView, subject: &str) -> String {
    let counted = |amount: &DocumentAmount| amount.counted(&terms.key);
    let told = |amount: &DocumentAmount| {
        let (key, amount) = counted(amount);
        safe(&figure(&key, amount))
    };
    let (asked, used) = (told(&terms.asked), told(&terms.used));
    let noun = safe(resource_noun(&counted(&terms.asked).0));
    let mut line = format!("{noun}: asks for {asked}");
    line.push_str(&format!("; {} uses {used}", safe(subject)));
    if counted(&terms.used_firmly).1 > 0 {
        let firmly = told(&terms.used_firmly);
        line.push_str(&format!(" ({firmly} of them not preemptible)"));
    }
    if counted(&terms.promised).1 > 0 {
        let promised = told(&terms.promised);
        line.push_str(&format!(" and {promised} more promised to others of it"));
    }
    for (name, amount) in [("reserved", &terms.reserved), ("limit", &terms.limit)] {
        if let Some(amount) = amount {
            line.push_str(&format!(", {name} {}", told(amount)));
        }
    }
    if let Some(free) = &terms.free {
        line.push_str(&format!("; {} free in the pool", told(free)));
    }
    if let (Some(node), Some(free)) = (&terms.freest_node, &terms.free_there) {
        let free = told(free);
        line.push_str(&format!(
            "; most free on one host: {free} on {}",
            safe(node)
        ));
    }
    line
}

fn promised(lines: &mut Lines, promise: &NominationView) {
    let nodes: Vec<String> = promise.nodes.iter().map(|node| safe(node)).collect();
    let how = match promise.firm {
        true => "reserved for it",
        false => "preemptible steps may be started around it meanwhile",
    };
    lines.put(2, format!("nominated for {}: {how}", nodes.join(", ")));
    if let Some(by) = promise.starts_by {
        let by = rounded(by);
        lines.put(3, format!("starts by {by} at the latest, by time limits"));
    }
    for run in &promise.awaits {
        lines.put(3, format!("waits for {}", awaited(run)));
    }
}

fn awaited(run: &AwaitedRunView) -> String {
    let mut line = safe(&run.step);
    if let Some(subject) = &run.subject {
        line.push_str(&format!(" of {}", safe(subject)));
    }
    match (run.stopping_since, run.grace_ends_at) {
        (Some(since), Some(ends)) => line.push_str(&format!(
            ", stopping since {}; its grace ends at {}",
            rounded(since),
            rounded(ends)
        )),
        (Some(since), None) => {
            line.push_str(&format!(
                ", stopping since {}; it has ended",
                rounded(since)
            ));
        }
        (None, _) => line.push_str(", running to its end"),
    }
    line
}

fn holders(lines: &mut Lines, pool: &PoolExplanation) {
    if pool.holders.is_empty() {
        return;
    }
    let named: Vec<String> = pool.holders.iter().map(holder).collect();
    for line in named.iter().take(MAX_HOLDERS) {
        lines.put(3, line);
    }
    let shown = named.len().min(MAX_HOLDERS) as u64;
    let more = pool.holders_total.saturating_sub(shown);
    if more > 0 {
        lines.put(3, format!("and {more} more"));
    }
}

fn holder(holder: &HolderView) -> String {
    let spared = holder.spared.as_deref();
    let spared = spared.map_or("may be preempted".to_owned(), safe);
    format!(
        "held by {} of {}: {spared}",
        safe(&holder.step),
        safe(&holder.subject)
    )
}

fn held(lines: &mut Lines, state: StepState, holding: &HoldingView, now: Timestamp) {
    let places: Vec<String> = holding
        .placements
        .iter()
        .map(|part| match part.gpus.len() {
            0 => safe(&part.node),
            1 => format!("{} (1 GPU)", safe(&part.node)),
            n => format!("{} ({n} GPUs)", safe(&part.node)),
        })
        .collect();
    let places = shortened(places.into_iter(), MAX_HOLDERS);
    let pool = safe(&holding.pool);
    let since = moment(holding.since, now);
    // A suspended step holds only memory.
    let holds = match state {
        StepState::Suspended => {
            format!("holds only its memory, on {places} of pool {pool}, allocated {since}")
        }
        _ if holding.placements.is_empty() => format!("allocated in pool {pool} since {since}"),
        _ => format!("allocated on {places} of pool {pool} since {since}"),
    };
    lines.put(1, holds);
    if let Some(started) = holding.started_at {
        lines.put(1, format!("started {}", moment(started, now)));
    }
    let mut refused = holding.placements.iter();
    if let Some((node, why)) = refused.find_map(|it| Some((&it.node, it.workdir_refused?))) {
        let place = format!("in a directory of its own on {}", safe(node));
        lines.put(1, instead_of_preferred(&place, why));
    }
    // Keys that do not count in shares can be beyond them all the same; the exposure says so.
    match (holding.in_share, holding.beyond_share.is_empty()) {
        (true, true) => lines.put(1, "its subject is within its reserved share"),
        (true, false) => {}
        (false, _) => lines.put(1, format!("its subject borrows: {}", beyond(holding))),
    }
    if let Some(since) = holding.stopping_since {
        lines.put(1, format!("stopping since {}", moment(since, now)));
    }
    if let Some(ends) = holding.grace_ends_at {
        lines.put(
            1,
            format!(
                "its grace ends at {}: what is left then is killed",
                rounded(ends)
            ),
        );
    }
    for sentence in &holding.exposure {
        lines.put(1, safe(sentence));
    }
}

fn beyond(holding: &HoldingView) -> String {
    let keys = holding.beyond_share.iter();
    let keys = keys.map(|key| {
        let (name, used) = key.used.counted(&key.key);
        let (_, reserved) = key.reserved.counted(&key.key);
        let (used, reserved) = (quantity(&name, used), figure(&name, reserved));
        format!("{} used, {} reserved", safe(&used), safe(&reserved))
    });
    keys.collect::<Vec<_>>().join(", ")
}

fn attempts(lines: &mut Lines, view: &ExplainView, now: Timestamp) {
    let over = view
        .attempts
        .iter()
        .filter(|attempt| attempt.ended_at.is_some());
    for attempt in over {
        lines.put(1, ended(attempt, now));
        if let Some(why) = attempt.workdir_refused {
            lines.put(2, instead_of_preferred("in a directory of its own", why));
        }
    }
}

fn ended(attempt: &AttemptOutcomeView, now: Timestamp) -> String {
    let nodes = attempt.nodes.iter().map(|node| safe(node));
    let nodes = shortened(nodes.collect::<Vec<_>>().into_iter(), MAX_HOLDERS);
    let mut line = format!(
        "attempt {} on {nodes} (pool {})",
        attempt.number,
        safe(&attempt.pool)
    );
    if let Some(at) = attempt.ended_at {
        line.push_str(&format!(" ended {}", moment(at, now)));
    }
    match (&attempt.reason, &attempt.exit) {
        (Some(reason), _) => {
            line.push_str(&format!(": {}: {}", reason.code, safe(&reason.message)))
        }
        (None, Some(how)) => line.push_str(&format!(": {}", exit(how))),
        (None, None) => {}
    }
    if let Some(by) = &attempt.preempted_by {
        line.push_str(&format!(" (for {})", safe(by)));
    }
    line
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::step::tests::now;
    use super::*;
    use serde_json::json;

    /// Returns a step that waits for one that is being preempted for it.
    pub(crate) fn waiting() -> ExplainView {
        serde_json::from_value(json!({
            "id": "k3v9", "state": "queued", "subject": "dev",
            "reason": {"code": "waiting_for_units", "message": "it asks for 2 gpu", "detail": {"key": "gpu"}},
            "pools": [{
                "pool": "default", "priority": 3, "in_share": false,
                "reason": {"code": "waiting_for_units", "message": "it asks for 2 gpu"},
                "place": 2, "waiting": 3, "behind": "x1",
                "keys": [
                    {"key": "gpu", "asked": 2, "used": 1, "used_firmly": 1, "reserved": 1, "limit": 4, "free": 1,
                     "freest_node": "gpu-1", "free_there": 1, "promised": 1},
                    {"key": "step_run", "asked": 1, "used": 1, "used_firmly": 0, "reserved": null, "limit": null,
                     "free": null, "freest_node": null, "free_there": null}
                ],
                "promised": {"nodes": ["gpu-1"], "firm": true, "awaits": [
                    {"step": "v", "attempt": 1, "subject": "prod", "stopping_since": "2026-11-20T10:02:50Z",
                     "grace_ends_at": "2026-11-20T10:03:20Z"},
                    {"step": "w", "attempt": 2, "subject": null, "stopping_since": null, "grace_ends_at": null}
                ]},
                "preemption": "its victims are stopping",
                "holders": [{"step": "v", "attempt": 1, "subject": "prod", "spared": "stopping already"},
                            {"step": "w", "attempt": 2, "subject": "prod", "spared": null}],
                "holders_total": 7,
                "would_start_if": [
                    {"message": "1 more gpu were free on `gpu-1`", "stops": 0, "after_others": false,
                     "changes": [{"kind": "free", "key": "gpu", "node": "gpu-1", "amount": 1}]},
                    {"message": "it asked for 1 gpu", "stops": 0, "after_others": false,
                     "changes": [{"kind": "ask", "key": "gpu", "node": null, "amount": 1}]}
                ]
            }],
            "refused": [], "holding": null,
            "attempts": [{"number": 1, "pool": "default", "nodes": ["gpu-1"],
                          "allocated_at": "2026-11-20T10:00:01Z", "ended_at": "2026-11-20T10:01:00Z",
                          "reason": {"code": "preempted", "message": "it was preempted by another step"},
                          "exit": {"code": null, "signal": 15, "message": null}, "preempted_by": "x1"}]
        }))
        .unwrap()
    }

    /// Returns a step that runs on borrowed resources.
    pub(crate) fn borrowing() -> ExplainView {
        serde_json::from_value(json!({
            "id": "k3v9", "state": "running", "subject": "dev",
            "reason": {"code": "running", "message": "its process runs on `gpu-1`"},
            "pools": [], "refused": [{"pool": "p", "message": "no"}],
            "holding": {
                "attempt": 1, "pool": "default",
                "placements": [{"node": "gpu-1", "gpus": ["GPU-a", "GPU-b"], "rank": 0}],
                "since": "2026-11-20T10:00:01Z", "started_at": "2026-11-20T10:00:02Z", "in_share": false,
                "beyond_share": [{"key": "gpu", "used": 4, "reserved": 2}], "backfill_to": ["x1"],
                "exposed": true, "spared_until": "2026-11-20T10:10:02Z",
                "exposure": ["a step that is short of that may preempt it"],
                "stopping_since": "2026-11-20T10:02:00Z", "gives_way_to": "x1",
                "grace_ends_at": "2026-11-20T10:03:30Z"
            },
            "attempts": []
        }))
        .unwrap()
    }

    #[test]
    fn one_that_waits_is_told_why_and_what_would_help() {
        insta::assert_snapshot!(explain(&waiting(), now(), Out::plain()));
    }

    #[test]
    fn one_that_is_frozen_holds_its_memory_alone() {
        let mut view = borrowing();
        view.state = StepState::Suspended;
        let said = explain(&view, now(), Out::plain());
        assert!(
            said.contains("holds only its memory, on gpu-1 (2 GPUs) of pool default, allocated "),
            "{said}"
        );
    }

    #[test]
    fn a_key_that_no_share_counts_does_not_contradict_the_share() {
        let mut view = borrowing();
        let holding = view.holding.as_mut().unwrap();
        holding.in_share = true;
        let said = explain(&view, now(), Out::plain());
        assert!(!said.contains("its subject"), "{said}");
        assert!(said.contains("may preempt it"), "{said}");
    }

    #[test]
    fn one_that_runs_is_told_who_could_stop_it() {
        insta::assert_snapshot!(explain(&borrowing(), now(), Out::plain()));
    }
}
