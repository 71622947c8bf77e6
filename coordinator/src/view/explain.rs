//! Views of explanations.

use coordinator_core::{
    Attempt, AwaitedRun, Core, Explanation, HeldResources, NominationDetails, PastAttempt,
    PoolWait, RemedySearch, Step,
};
use sluice_common::amount::table::{DocumentAmount, key_name};
use sluice_common::api::{
    AttemptOutcomeView, AwaitedRunView, BeyondShareView, ExplainView, FairShareView, HolderView,
    HoldingView, KeyUsageView, NominationView, PoolExplanation, RefusalView, RemedyChange,
    RemedyKind, RemedyView, timestamp,
};
use sluice_common::id::{PoolName, StepId, Subject};
use sluice_common::state::StepState;
use sluice_reasons::messages::explanation;
use sluice_scheduler::{Change, FairShareUse, Holder, Remedy, Request, ResourceUse, Start};

/// Most listed holders of what a step lacks.
const MAX_HOLDERS: usize = 16;

/// Explains a step's state, if the step is remembered. [`add_remedies`] adds what the search finds.
pub fn explain(core: &Core, id: &StepId) -> Option<(ExplainView, Option<RemedySearch>)> {
    let explained = core.explain(id)?;
    let search = explained.pools.first().and_then(PoolWait::remedy_search);
    let refused = refused(&explained).into_iter();
    let step = &*explained.step;
    let past = explained.past.into_iter();
    let view = ExplainView {
        id: id.to_string(),
        state: explained.step.state,
        subject: step.spec.subject.to_string(),
        reason: explained.reason.to_reason(),
        moved_to: explained.step.moved_to().map(ToString::to_string),
        pools: explained.pools.into_iter().map(pool).collect(),
        refused: refused
            .map(|(pool, message)| RefusalView { pool, message })
            .collect(),
        holding: explained.holding.map(|it| holding(core, step, it)),
        attempts: past.map(|it| outcome(core, step, it)).collect(),
    };
    Some((view, search))
}

/// Adds what would let a step start, in each of its pools.
pub fn add_remedies(explained: &mut ExplainView, search: &RemedySearch) {
    let Some(request) = search.request() else {
        return;
    };
    for pool in &mut explained.pools {
        if let Ok(name) = PoolName::new(pool.pool.as_str()) {
            let found = search.in_pool(&name);
            let shown = found.iter().map(|it| remedy(request, &name, it));
            pool.would_start_if = shown.collect();
        }
    }
}

/// Lists the pools that rejected a step, or whose rules keep a waiting one out, with the reason.
fn refused(explained: &Explanation<'_>) -> Vec<(String, String)> {
    if explained.step.state == StepState::Rejected {
        return explained.step.reason.refusals();
    }
    let excluded_by = explained.excluded_by.iter();
    let excluded_by = excluded_by.map(|(pool, why)| (pool.to_string(), why.message(pool)));
    excluded_by.collect()
}

fn pool(pool: PoolWait<'_>) -> PoolExplanation {
    let PoolWait {
        request,
        inspection,
        ..
    } = &pool;
    let (ahead, waiting) = inspection.position;
    let holders = inspection.holders.iter().take(MAX_HOLDERS);
    PoolExplanation {
        pool: inspection.pool.to_string(),
        priority: inspection.priority,
        in_share: inspection.in_share,
        reason: pool.reason.to_reason(),
        place: ahead as u64 + 1,
        waiting: waiting as u64,
        behind: inspection.behind.map(ToString::to_string),
        fair_share: inspection.fair_share.iter().map(standing).collect(),
        keys: inspection.keys.iter().map(key).collect(),
        preemption: explanation::preemption_status(request, inspection),
        holders: holders.map(|it| holder(request, it)).collect(),
        holders_total: inspection.holders.len() as u64,
        would_start_if: Vec::new(),
        promised: pool.promised.map(promise),
    }
}

fn standing(of: &FairShareUse<'_>) -> FairShareView {
    FairShareView {
        subject: of.subject.to_string(),
        borrowed_gpu_seconds: of.borrowed,
        weight: of.weight,
        user: of.user.map(|(user, _)| user.to_string()),
        user_gpu_seconds: of.user.map(|(_, used)| used),
    }
}

fn key(terms: &ResourceUse<'_>) -> KeyUsageView {
    let of = |amount| DocumentAmount::of(terms.key, amount).1;
    let most_free = terms.most_free.filter(|(node, _)| !node.is_of_pool());
    KeyUsageView {
        key: key_name(terms.key).to_owned(),
        asked: of(terms.asked),
        used: of(terms.used),
        used_firmly: of(terms.non_preemptible),
        reserved: terms.reserved.map(of),
        limit: terms.limit.map(of),
        free: terms.free.map(of),
        freest_node: most_free.map(|(node, _)| node.to_string()),
        free_there: most_free.map(|(_, free)| of(free)),
        promised: of(terms.promised),
    }
}

fn promise(promised: NominationDetails<'_>) -> NominationView {
    let hosts = promised.hosts.iter().filter(|host| !host.is_of_pool());
    NominationView {
        nodes: hosts.map(ToString::to_string).collect(),
        firm: promised.firm,
        starts_by: promised.starts_by.map(timestamp),
        awaits: promised.awaits.iter().map(awaited).collect(),
    }
}

fn awaited(awaited: &AwaitedRun<'_>) -> AwaitedRunView {
    AwaitedRunView {
        step: awaited.attempt.step.to_string(),
        attempt: awaited.attempt.number,
        subject: awaited.subject.map(ToString::to_string),
        stopping_since: awaited.since.map(timestamp),
        grace_ends_at: awaited.grace_ends.map(timestamp),
    }
}

fn holder(request: &Request, holder: &Holder<'_>) -> HolderView {
    let spared = holder.protection;
    HolderView {
        step: holder.attempt.step.to_string(),
        attempt: holder.attempt.number,
        subject: holder.subject.to_string(),
        spared: spared.map(|why| explanation::protection(request, why)),
    }
}

fn remedy(request: &Request, pool: &PoolName, remedy: &Remedy) -> RemedyView {
    RemedyView {
        message: explanation::remedy(request, pool, remedy),
        changes: remedy.changes.iter().cloned().map(change).collect(),
        stops: match remedy.start {
            Start::AtOnce => 0,
            Start::AfterStops(stops) => stops as u64,
        },
        after_others: remedy.after_others,
    }
}

fn change(change: Change) -> RemedyChange {
    let plain = |kind| RemedyChange {
        kind,
        key: None,
        node: None,
        amount: None,
    };
    let of = |kind, key: &str, amount| {
        let (name, amount) = DocumentAmount::of(key, amount);
        RemedyChange {
            key: Some(name.to_owned()),
            amount: Some(amount),
            ..plain(kind)
        }
    };
    match change {
        Change::FreeOnHost { node, key, more } => RemedyChange {
            node: Some(node.to_string()),
            ..of(RemedyKind::Free, key, more)
        },
        Change::FreeInPool { key, more } => of(RemedyKind::Declared, key.as_str(), more),
        Change::MakeSchedulable { node } => RemedyChange {
            node: Some(node.to_string()),
            ..plain(RemedyKind::Open)
        },
        Change::RaiseLimit { key, to } => of(RemedyKind::Limit, key.as_str(), to),
        Change::RaiseReserved { key, to } => of(RemedyKind::Reserved, key.as_str(), to),
        Change::ReduceRequest { key, to } => of(RemedyKind::Ask, key.as_str(), to),
        Change::MakePreemptible => plain(RemedyKind::Preemptible),
    }
}

fn holding(core: &Core, step: &Step, holding: HeldResources<'_>) -> HoldingView {
    let (attempt, exposure) = (holding.attempt, &holding.exposure);
    let view = super::attempt(core, step, attempt);
    let beyond = exposure.above_reserved.iter();
    HoldingView {
        attempt: view.number,
        pool: attempt.pool.to_string(),
        placements: view.placements,
        since: view.allocated_at,
        started_at: view.started_at,
        in_share: exposure.in_share,
        beyond_share: beyond
            .map(|(key, used, reserved)| BeyondShareView {
                key: key_name(key).to_owned(),
                used: DocumentAmount::of(key, *used).1,
                reserved: DocumentAmount::of(key, *reserved).1,
            })
            .collect(),
        backfill_to: attempt.backfill.iter().map(ToString::to_string).collect(),
        exposed: holding.is_exposed(),
        spared_until: holding.protected_until().map(timestamp),
        exposure: exposed(&step.spec.subject, &holding),
        stopping_since: attempt.stopping_at.map(timestamp),
        gives_way_to: attempt.preempted_by.as_ref().map(ToString::to_string),
        grace_ends_at: holding.grace_ends.map(timestamp),
    }
}

/// Lists who could preempt a step, or does.
fn exposed(subject: &Subject, holding: &HeldResources<'_>) -> Vec<String> {
    let Attempt { stopping, pool, .. } = holding.attempt;
    match (stopping, holding.gives_way) {
        (None, _) => explanation::exposure(subject, pool, &holding.exposure),
        (Some(_), by) => {
            let by = by.map(|(by, waits)| explanation::gives_way(by, waits));
            by.into_iter().collect()
        }
    }
}

fn outcome(core: &Core, step: &Step, past: PastAttempt<'_>) -> AttemptOutcomeView {
    let view = super::attempt(core, step, past.attempt);
    let mut placements = view.placements.iter();
    AttemptOutcomeView {
        number: view.number,
        pool: past.attempt.pool.to_string(),
        workdir_refused: placements.find_map(|part| part.workdir_refused),
        nodes: view.placements.into_iter().map(|part| part.node).collect(),
        allocated_at: view.allocated_at,
        ended_at: view.ended_at,
        reason: past.outcome.map(|why| why.to_reason()),
        exit: view.exit,
        preempted_by: past.attempt.preempted_by.as_ref().map(ToString::to_string),
    }
}
