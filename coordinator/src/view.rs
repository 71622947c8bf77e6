//! Builds the API's views of the core's state. Pure functions, called on the engine's thread: they copy and decide
//! nothing.

mod allocation;
mod endpoint;
mod exit;
mod explain;
pub mod platform;
mod preview;
mod service;
mod template;

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

use coordinator_core::{
    Attempt, CarveState, Cordon, Core, Enforcement, Node, Part, Pool, State, Step, uncounted,
};

use jiff::Timestamp;
use sluice_common::amount::{Amounts, ResourceKey};
use sluice_common::api::{
    ArrayView, AttemptInfo, CarvingView, CordonView, HostView, MigUse, NodeView, PlacementView,
    PolicyView, PoolView, StepView, UnfitGpuView, duration, timestamp,
};
use sluice_common::array::IndexSet;
use sluice_common::facts::Labels;
use sluice_common::id::{AttemptId, PoolName, StepId, Subject};
use sluice_common::inventory::Readings;
use sluice_common::pool::PolicySpec;
use sluice_common::pool_rules::PoolStatus;
use sluice_common::state::StepState;
use sluice_common::step::StepSpec;
use sluice_common::time::Time;
use sluice_common::usage::Usage;

/// Most ranges of indexes of failed parts in the view of an array.
const MAX_FAILED_RANGES: usize = 100;

use endpoint::endpoint;
use exit::exit;
pub use explain::{add_remedies, explain};
pub use preview::preview;
pub use service::{endpoints, pool_of, service};
pub use template::template;

/// Returns the view of a step with its effective spec and templates, if it is remembered. Lists leave those out because
/// they are long.
pub fn step_by_id(core: &Core, id: &StepId) -> Option<StepView> {
    let found = &*core.state().find(id)?;
    Some(StepView {
        merged: Some(template::merged(core, found, core.state().pool_of(found))),
        ..warned(core, found, &mut Enforcement::new(core))
    })
}

/// Returns the view of a step with warnings about amounts that its hosts do not enforce, or that nobody counts.
pub fn warned(core: &Core, found: &Step, enforcement: &mut Enforcement<'_>) -> StepView {
    let unenforced = enforcement.warnings(found);
    let unenforced = unenforced.iter().map(ToString::to_string);
    let uncounted = uncounted(found).into_iter().map(|it| it.to_string());
    StepView {
        warnings: unenforced.chain(uncounted).collect(),
        ..step(core, found)
    }
}

fn labels(spec: &StepSpec) -> BTreeMap<String, String> {
    let labels = spec.labels.iter();
    labels
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect()
}

/// Returns the view of a step.
pub fn step(core: &Core, step: &Step) -> StepView {
    let spec = &step.spec;
    let of = |it| attempt(core, step, it);
    let latest = step.latest().map(of);
    let pool = core.state().pool_of(step);
    let barred = step.excluded_pools.iter();
    StepView {
        id: step.id.to_string(),
        name: spec.name.clone(),
        subject: spec.subject.to_string(),
        submitted_by: spec.submitted_by.as_ref().map(ToString::to_string),
        pool: pool.map(ToString::to_string),
        platform: spec.platform.clone(),
        state: step.state,
        reason: core.reason(step).to_reason(),
        resources: spec.resources.clone(),
        request: spec.request.clone(),
        command: spec.command.clone(),
        env: spec.env.clone(),
        workdir: spec.workdir.clone(),
        prefer_workdir: spec.prefer_workdir.clone(),
        nodes: spec.nodes,
        priority: spec.priority,
        placements: latest
            .as_ref()
            .map_or_else(Vec::new, |a| a.placements.clone()),
        attempt: latest.as_ref().map_or(0, |a| a.number),
        attempts: step.attempts.iter().map(of).collect(),
        exit: latest.as_ref().and_then(|a| a.exit.clone()),
        submitted_at: timestamp(step.submitted_at),
        allocated_at: latest.as_ref().map(|a| a.allocated_at),
        started_at: latest.as_ref().and_then(|a| a.started_at),
        finished_at: step.finished.map(|end| timestamp(end.at)),
        retries: spec.retries,
        free_preemptions: spec.free_preemptions,
        timeout: spec.timeout.map(duration),
        grace_period: duration(spec.grace),
        on_preempt: spec.on_preempt,
        preempted_by: gave_way_to(step).map(ToString::to_string),
        preemptible: spec.preemptible,
        priority_class: spec.priority_class,
        work: spec.work,
        suspend_timeout: spec.suspend_timeout.map(duration),
        held: step.held,
        queue_timeout: spec.queue_timeout.map(duration),
        begin: spec.begin.map(timestamp),
        deadline: spec.deadline.map(timestamp),
        after: spec.after.iter().map(ToString::to_string).collect(),
        waits_for: step.unmet.iter().map(ToString::to_string).collect(),
        allocation: allocation::allocation(step),
        array: array(core, step),
        part_of: step.part_of.as_ref().map(|it| it.array.to_string()),
        inside: spec.inside.as_ref().map(ToString::to_string),
        service: spec.service.as_ref().map(|it| it.name.to_string()),
        array_index: step.part_of.as_ref().map(|it| it.index),
        barred: barred.map(ToString::to_string).collect(),
        labels: labels(spec),
        cpu_mode: spec.cpu_mode,
        mounts: spec.mounts.clone(),
        privileged: spec.privileged,
        host_network: spec.host_network,
        image: spec.image.as_ref().map(ToString::to_string),
        stdin: spec.streams.stdin.written(),
        stdout: spec.streams.stdout.clone().map(String::from),
        stderr: spec.streams.stderr.clone().map(String::from),
        append: spec.streams.append,
        terminal: spec.streams.terminal,
        inputs: spec.inputs.clone(),
        keep: spec.keep.iter().map(ToString::to_string).collect(),
        ports: spec.ports.iter().map(ToString::to_string).collect(),
        probes: spec.probes.as_written(),
        within: spec.within.clone(),
        merged: None,
        requested_pool: spec.pool.as_ref().map(ToString::to_string),
        moved_to: step.moved_to().map(ToString::to_string),
        allow_pending: spec.allow_pending,
        unset: spec.unset.clone(),
        warnings: Vec::new(),
    }
}

/// Returns the view of an array.
fn array(core: &Core, step: &Step) -> Option<ArrayView> {
    let indexes = step.spec.array.clone()?;
    let ends = step.array.iter().flat_map(|array| &array.ends);
    let is_failure = |state| !matches!(state, StepState::Succeeded | StepState::Cancelled);
    let mut failed = IndexSet::default();
    for ends in ends.filter(|ends| is_failure(ends.state)) {
        failed.add_all(&ends.parts);
    }
    let failed = failed.to_string();
    let pieces: Vec<&str> = failed.splitn(MAX_FAILED_RANGES + 1, ',').collect();
    Some(ArrayView {
        indexes,
        parts: core.state().part_counts(step)?,
        failed: pieces[..pieces.len().min(MAX_FAILED_RANGES)].join(","),
    })
}

/// Returns the step for which this one was preempted last, even if that has ended.
fn gave_way_to(step: &Step) -> Option<&StepId> {
    let mut latest_first = step.attempts.iter().rev();
    latest_first.find_map(|attempt| attempt.preempted_by.as_ref())
}

fn attempt(core: &Core, step: &Step, attempt: &Attempt) -> AttemptInfo {
    let parts = &attempt.parts;
    AttemptInfo {
        number: attempt.number,
        placements: (0..)
            .zip(parts)
            .filter(|(_, part)| !part.node.is_of_pool())
            .map(|(rank, part)| PlacementView {
                workdir_refused: core.workdir_refused(step, attempt, part),
                kept: part
                    .end
                    .as_ref()
                    .and_then(|end| end.kept.as_deref().cloned()),
                ..endpoint(core, (step, attempt, part), rank)
            })
            .collect(),
        allocated_at: timestamp(attempt.allocated_at),
        started_at: parts
            .iter()
            .filter_map(|p| p.started.map(|s| s.at))
            .min()
            .map(timestamp),
        ended_at: last_of_all(parts, |part| part.end.as_ref().map(|end| end.at)),
        released_at: last_of_all(parts, |part| part.released_at),
        // Without a host nothing ran.
        exit: exit(attempt).filter(|_| !attempt.is_hostless()),
        usage: usage(attempt).filter(|_| !attempt.is_hostless()),
    }
}

/// Sums the usage of all parts, once all of them have ended.
fn usage(attempt: &Attempt) -> Option<Usage> {
    let ends = attempt
        .parts
        .iter()
        .map(|part| Some(part.end.as_ref()?.usage));
    let all: Option<Vec<Usage>> = ends.collect();
    all?.into_iter().reduce(Usage::and)
}

/// Returns the latest of the parts' times, once every part has one.
fn last_of_all(parts: &[Part], time: impl Fn(&Part) -> Option<Time>) -> Option<Timestamp> {
    let times: Option<Vec<Time>> = parts.iter().map(time).collect();
    times?.into_iter().max().map(timestamp)
}

/// Returns the view of a node, with its readings if it has sent any.
pub fn node(core: &Core, node: &Node, readings: Option<&Readings>) -> NodeView {
    let state = core.state();
    let mut steps: Vec<String> = state
        .attempts_on(&node.name)
        .map(|AttemptId { step, .. }| step.to_string())
        .collect();
    steps.dedup();
    let platforms = state.platforms_of(node, None).into_iter();
    NodeView {
        name: node.name.to_string(),
        pool: node.pool.to_string(),
        pool_of_config: node.pool_of_config.as_ref().map(ToString::to_string),
        state: node.state,
        unsupervised: node.unsupervised.clone(),
        cordon: node.cordon.as_ref().map(cordon),
        labels: node.labels_in_force(),
        version: node.version.clone(),
        capacity: node.capacity(),
        used: state.used_on(&node.name),
        slices: slices(core, node),
        steps,
        inventory: HostView::of(&node.inventory, readings),
        joined_at: timestamp(node.joined_at),
        heard_at: core.heard_at(&node.name).map(timestamp),
        leaving: node.leaving,
        lacks: state.missing_capabilities(node),
        unfit_gpus: unfit_gpus(state, node),
        facts: node.as_host(&Labels::new()).facts_by_gpu(),
        platforms: platforms.map(ToString::to_string).collect(),
        labels_of_config: node.labels_overridden(),
        carvings: carvings(core, node),
    }
}

/// Lists the GPUs of a node that platforms want to be cut otherwise.
fn carvings(core: &Core, node: &Node) -> Vec<CarvingView> {
    let states = core.carvings(node).into_iter();
    let views = states.map(
        |CarveState {
             gpu,
             wish,
             standing,
         }| {
            let all = node.inventory.gpus.iter().chain(&node.inventory.empty_gpus);
            let mut own = all.filter(|it| it.whole() == gpu);
            CarvingView {
                index: own.next().map(|it| it.index),
                needs_admin: standing.needs_admin(),
                message: wish.message(&standing),
                uuid: gpu,
            }
        },
    );
    let mut views: Vec<CarvingView> = views.collect();
    views.sort_by_key(|view| view.index);
    views
}

/// Counts the slices of a node by profile.
fn slices(core: &Core, node: &Node) -> BTreeMap<String, MigUse> {
    let granted = granted_on(core, node);
    let mut slices: BTreeMap<String, MigUse> = BTreeMap::new();
    for gpu in &node.inventory.gpus {
        if let Some(mig) = &gpu.mig {
            let of_profile = slices.entry(mig.profile.clone()).or_default();
            of_profile.count += 1;
            of_profile.used += u64::from(granted.contains(gpu.uuid.as_str()));
        }
    }
    slices
}

/// Lists the unfit units that the node still has, by index, then those that are gone.
fn unfit_gpus(state: &State, node: &Node) -> Vec<UnfitGpuView> {
    let gpus = node.inventory.gpus.iter();
    let index: BTreeMap<&String, u32> = gpus.map(|gpu| (&gpu.uuid, gpu.index)).collect();
    let named = node.gpu_cordons.keys().chain(node.gpus.faults.keys());
    let all: BTreeSet<&String> = named.chain(index.keys().copied()).collect();
    let is_cut = |uuid: &str| index.keys().any(|unit| node.parent_of(unit) == Some(uuid));
    let shown = all.into_iter().filter(|uuid| !is_cut(uuid));
    let views = shown.filter_map(|uuid| {
        Some(UnfitGpuView {
            index: index.get(uuid).copied(),
            uuid: uuid.clone(),
            cordon: node.cordon_of(uuid).map(|it| it.reason.clone()),
            fault: node.fault_of(uuid).cloned(),
            message: state.unfit(node, uuid)?,
        })
    });
    let mut views: Vec<UnfitGpuView> = views.collect();
    views.sort_by_key(|view| view.index.unwrap_or(u32::MAX));
    views
}

fn cordon(cordon: &Cordon) -> CordonView {
    CordonView {
        reason: cordon.reason.clone(),
        since: timestamp(cordon.since),
        drain: cordon.drain.is_some(),
        deadline: cordon.drain.and_then(|d| d.deadline).map(timestamp),
        empty_since: cordon.drain.and_then(|d| d.empty_since).map(timestamp),
        moves_to: cordon.moves.as_ref().map(|moves| moves.pool.to_string()),
    }
}

/// Returns the pool's status as shown to submitters.
fn status(core: &Core, pool: &Pool) -> PoolStatus {
    let state = core.state();
    match pool.status(state.nodes_of(&pool.name)) {
        PoolStatus::Online | PoolStatus::Offline if state.recovery().is_some() => {
            PoolStatus::Recovering
        }
        status => status,
    }
}

/// Returns the view of a pool.
pub fn pool(core: &Core, pool: &Pool) -> PoolView {
    let state = core.state();
    let mut spec = pool.spec.clone();
    let ready = state
        .nodes_of(&pool.name)
        .filter(|node| state.takes_work(node));
    let in_scheduler = state.scheduler().pool(&pool.name);
    let shares = in_scheduler.map(shares_of_all).unwrap_or_default();
    let asked = in_scheduler
        .map(|in_scheduler| in_scheduler.asked())
        .unwrap_or_default();
    PoolView {
        name: pool.name.to_string(),
        nodes: state.nodes_of(&pool.name).count() as u64,
        nodes_ready: ready.count() as u64,
        capacity: capped(state.capacity_of(&pool.name), &spec.capacity),
        detected: match pool.is_hostless() {
            true => Amounts::new(),
            false => state.capacity_of(&pool.name),
        },
        used: state.used_of(&pool.name),
        free: in_scheduler.map_or_else(Amounts::new, |it| free(pool, it.free())),
        in_share: shares.in_share,
        borrowed: shares.borrowed,
        asked,
        declared: take(&mut spec.capacity),
        platforms: platform::uses(core, pool),
        queued: state.queue_len(&pool.name) as u64,
        running: state.running_in(&pool.name) as u64,
        overcommitted: in_scheduler.is_some_and(sluice_scheduler::Pool::is_overcommitted),
        version: pool.version,
        status: status(core, pool),
        unmatched_platform: take(&mut spec.unmatched_platform),
        declared_platforms: platform::declared(pool),
        spec,
    }
}

/// Returns what is free of a pool. One without hosts counts only what it declares.
fn free(pool: &Pool, free: Amounts) -> Amounts {
    let declared = |key: &ResourceKey| pool.spec.capacity.contains_key(key);
    let shown = free
        .iter()
        .filter(|(key, _)| !pool.is_hostless() || declared(key));
    shown.fold(Amounts::new(), |mut sum, (key, amount)| {
        sum.set(key.clone(), amount);
        sum
    })
}

/// Returns the first steps of a pool's queue, in queue order.
pub fn queue(
    core: &Core,
    pool: &PoolName,
    limit: usize,
    wanted: impl Fn(&Step) -> bool,
) -> Vec<StepView> {
    let state = core.state();
    let waiting = state.queued_in(pool).filter_map(|id| state.step(id));
    let waiting = waiting.filter(|step| wanted(step)).take(limit);
    waiting.map(|found| step(core, found)).collect()
}

/// Returns the capacity: for keys that hosts report, the lesser of reported and declared; for others the declared
/// amount.
fn capped(mut has: Amounts, declared: &BTreeMap<ResourceKey, u64>) -> Amounts {
    for (key, declared) in declared {
        let most = match coordinator_core::counted_by_hosts(key.as_str()) {
            true => has.get(key.as_str()).min(*declared),
            false => *declared,
        };
        has.set(key.clone(), most);
    }
    has
}

/// Returns the UUIDs of the GPUs granted on a node; suspended steps hold none.
fn granted_on<'a>(core: &'a Core, node: &Node) -> BTreeSet<&'a str> {
    let state = core.state();
    let parts = state.attempts_on(&node.name).filter_map(|id| {
        let attempt = state.step(&id.step)?.attempt(id.number)?;
        attempt.on(&node.name).filter(|_| !attempt.is_frozen())
    });
    parts
        .flat_map(|part| part.gpus.iter().map(String::as_str))
        .collect()
}

/// Amounts within and beyond the holder's reserved share, of keys that count in shares.
#[derive(Default)]
struct Shares {
    in_share: Amounts,
    borrowed: Amounts,
}

fn shares(pool: &sluice_scheduler::Pool, policy: &PolicySpec, used: &Amounts) -> Shares {
    let mut shares = Shares::default();
    for (key, n) in used.iter().filter(|(key, _)| pool.is_metered(key.as_str())) {
        if let Some(reserved) = policy.reserved(key.as_str()) {
            shares.in_share.set(key.clone(), n.min(reserved));
            shares.borrowed.set(key.clone(), n.saturating_sub(reserved));
        }
    }
    shares
}

fn shares_of_all(pool: &sluice_scheduler::Pool) -> Shares {
    let mut sum = Shares::default();
    for (subject, policy) in pool.policies() {
        if let Some((used, _)) = pool.used_by(subject) {
            let its = shares(pool, policy, used);
            sum.in_share.add(&its.in_share);
            sum.borrowed.add(&its.borrowed);
        }
    }
    sum
}

/// Returns the policy of a subject in a pool, if there is one.
pub fn policy(core: &Core, name: &PoolName, subject: &Subject) -> Option<PolicyView> {
    let binding = core.state().pool(name)?.policies.get(subject)?;
    let policy = &binding.policy;
    let pool = core.state().scheduler().pool(name)?;
    let used = pool.used_by(subject);
    let used = used.map(|(used, _)| used.clone()).unwrap_or_default();
    let Shares { in_share, borrowed } = shares(pool, policy, &used);
    Some(PolicyView {
        pool: name.to_string(),
        subject: subject.to_string(),
        spec: policy.clone(),
        used,
        in_share,
        borrowed,
        queued: pool.waiting_for(subject) as u64,
        running: pool.running_for(subject) as u64,
        version: binding.version,
    })
}
