//! Explanations in the words of the API.

use coordinator_core::{Awaited, Core, Holding, InPool, Past, Promised, Spare, WouldStart};
use sluice_common::amount::Key;
use sluice_common::api::{
    AwaitedView, BeyondView, ExplainPool, ExplainView, HolderView, HoldingView, KeyView,
    OutcomeView, PromiseView, RefusalView, RemedyChange, RemedyKind, RemedyView, timestamp,
};
use sluice_common::id::StepId;
use sluice_scheduler::{Change, KeyTerms, Start};

/// Why a step is where it is, if it is remembered.
pub fn explain(core: &Core, id: &StepId) -> Option<ExplainView> {
    let explained = core.explain(id)?;
    let refused = explained.refused.into_iter();
    Some(ExplainView {
        id: id.to_string(),
        state: explained.step.state,
        subject: explained.step.spec.subject.to_string(),
        reason: explained.reason,
        pools: explained.pools.into_iter().map(pool).collect(),
        refused: refused
            .map(|(pool, message)| RefusalView { pool, message })
            .collect(),
        holding: explained.holding.map(holding),
        attempts: explained.past.into_iter().map(outcome).collect(),
    })
}

fn pool(pool: InPool<'_>) -> ExplainPool {
    ExplainPool {
        pool: pool.pool.to_string(),
        priority: pool.priority,
        in_share: pool.in_share,
        reason: pool.reason,
        place: pool.ahead as u64 + 1,
        waiting: pool.waiting as u64,
        behind: pool.behind.map(ToString::to_string),
        keys: pool.keys.iter().filter_map(key).collect(),
        promised: pool.promised.map(promise),
        preemption: pool.stops,
        holders: pool.spares.into_iter().map(holder).collect(),
        holders_total: pool.holders as u64,
        would_start_if: pool.would_start_if.into_iter().map(remedy).collect(),
    }
}

fn key(terms: &KeyTerms<'_>) -> Option<KeyView> {
    Some(KeyView {
        key: Key::new(terms.key).ok()?,
        asked: terms.asked,
        used: terms.used,
        used_firmly: terms.firm,
        reserved: terms.reserved,
        limit: terms.limit,
        free: terms.free,
        freest_node: terms.most_free.map(|(node, _)| node.to_string()),
        free_there: terms.most_free.map(|(_, free)| free),
        promised: terms.promised,
    })
}

fn promise(promised: Promised<'_>) -> PromiseView {
    PromiseView {
        nodes: promised.hosts.iter().map(ToString::to_string).collect(),
        firm: promised.firm,
        awaits: promised.awaits.iter().map(awaited).collect(),
    }
}

fn awaited(awaited: &Awaited<'_>) -> AwaitedView {
    AwaitedView {
        step: awaited.attempt.step.to_string(),
        attempt: awaited.attempt.number,
        subject: awaited.subject.map(ToString::to_string),
        stopping_since: awaited.since.map(timestamp),
        grace_ends_at: awaited.grace_ends.map(timestamp),
    }
}

fn holder(spare: Spare<'_>) -> HolderView {
    HolderView {
        step: spare.attempt.step.to_string(),
        attempt: spare.attempt.number,
        subject: spare.subject.to_string(),
        spared: spare.why,
    }
}

fn remedy(would: WouldStart) -> RemedyView {
    RemedyView {
        message: would.message,
        changes: would.remedy.changes.into_iter().map(change).collect(),
        stops: match would.remedy.start {
            Start::AtOnce => 0,
            Start::AfterStops(stops) => stops as u64,
        },
        after_others: would.remedy.after_others,
    }
}

fn change(change: Change) -> RemedyChange {
    let of = |kind, key: Option<String>, amount| RemedyChange {
        kind,
        key,
        node: None,
        amount,
    };
    match change {
        Change::Free { node, key, more } => RemedyChange {
            node: Some(node.to_string()),
            ..of(RemedyKind::Free, Some(key.to_owned()), Some(more))
        },
        Change::Declared { key, more } => of(RemedyKind::Declared, Some(key.into()), Some(more)),
        Change::Open { node } => RemedyChange {
            node: Some(node.to_string()),
            ..of(RemedyKind::Open, None, None)
        },
        Change::Limit { key, to } => of(RemedyKind::Limit, Some(key.into()), Some(to)),
        Change::Reserved { key, to } => of(RemedyKind::Reserved, Some(key.into()), Some(to)),
        Change::Ask { key, to } => of(RemedyKind::Ask, Some(key.into()), Some(to)),
        Change::Preemptible => of(RemedyKind::Preemptible, None, None),
    }
}

fn holding(holding: Holding<'_>) -> HoldingView {
    let view = super::attempt(holding.attempt);
    let beyond = holding.beyond.iter();
    HoldingView {
        attempt: view.number,
        pool: holding.attempt.pool.to_string(),
        placements: view.placements,
        since: view.allocated_at,
        started_at: view.started_at,
        in_share: holding.in_share,
        beyond_share: beyond
            .map(|(key, used, reserved)| BeyondView {
                key: (*key).to_owned(),
                used: *used,
                reserved: *reserved,
            })
            .collect(),
        backfill_to: holding
            .attempt
            .backfill
            .iter()
            .map(ToString::to_string)
            .collect(),
        exposed: holding.exposed,
        spared_until: holding.spared_until.map(timestamp),
        exposure: holding.exposure,
        stopping_since: holding.attempt.stopping_at.map(timestamp),
        gives_way_to: holding
            .attempt
            .preempted_by
            .as_ref()
            .map(ToString::to_string),
        grace_ends_at: holding.grace_ends.map(timestamp),
    }
}

fn outcome(past: Past<'_>) -> OutcomeView {
    let view = super::attempt(past.attempt);
    OutcomeView {
        number: view.number,
        pool: past.attempt.pool.to_string(),
        nodes: view.placements.into_iter().map(|part| part.node).collect(),
        allocated_at: view.allocated_at,
        ended_at: view.ended_at,
        reason: past.outcome,
        exit: view.exit,
        preempted_by: past.attempt.preempted_by.as_ref().map(ToString::to_string),
    }
}
