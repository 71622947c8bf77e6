//! Sentences of explanations: what would let a step start, and who may preempt whom.

use std::collections::{BTreeMap, BTreeSet};

use sluice_common::amount::Amounts;
use sluice_common::id::{AttemptId, PoolName, StepId, Subject};
use sluice_common::time::Time;
use sluice_reasons::messages::explanation::{
    exposure, gives_way, preemption_status, protection, remedy,
};
use sluice_scheduler::{
    BeyondBudget, Change, Holder, HostResources, Inspection, NoPreemption, PreemptionRisk,
    PreemptionStatus, Protected, Remedy, Request, Start, demand,
};

use crate::{Page, chain, name};

pub(crate) fn write(page: &mut Page) {
    let request = request();
    let pool: PoolName = name("training");
    page.heading("What would let a step start: after \"would start if\" (Change, Start)");
    for change in chain(after_change) {
        page.line(&remedy(&request, &pool, &alone(change, Start::AtOnce)));
    }
    for start in chain(after_start) {
        let mut late = alone(Change::MakePreemptible, start);
        late.after_others = true;
        page.line(&remedy(&request, &pool, &late));
    }
    page.heading("What preemption could do for a step (PreemptionStatus)");
    let holder: AttemptId = name("train-7.1");
    let owner = name("product");
    for preemption in chain(after_status) {
        let holders = vec![Holder {
            attempt: &holder,
            subject: &owner,
            protection: Some(Protected::InShare),
        }];
        let inspection = inspection(&pool, preemption, holders);
        page.line(&preemption_status(&request, &inspection));
    }
    page.heading("What protects a run (Protected)");
    for protected in chain(after_protected) {
        page.line(&protection(&request, protected));
    }
    page.heading("What a stopping run makes room for");
    for waits in [true, false] {
        page.line(&gives_way(&name("train-9"), waits));
    }
    page.heading("Who may preempt a run (PreemptionRisk)");
    let (above, waiter) = (name("product"), name("train-9"));
    let risks = [
        risk(false, vec![], None, vec![], vec![]),
        risk(true, vec![], None, vec![&waiter], vec![]),
        risk(
            true,
            vec![("gpu", 6, 4)],
            Some(time()),
            vec![],
            vec![(&above, 20)],
        ),
    ];
    let node = name("gpu-1");
    let borrows = PreemptionRisk {
        borrowed_from_gpus: vec![(&node, "mcpu", 4000, 1000)],
        higher: vec![(&above, 20)],
        ..risk(true, vec![], None, vec![], vec![])
    };
    let costs = PreemptionRisk {
        beyond_budget: Some(beyond_budget()),
        ..risk(true, vec![("gpu", 6, 4)], None, vec![], vec![(&above, 20)])
    };
    for risk in risks.iter().chain([&borrows, &costs]) {
        exposure(&name("research"), &pool, risk)
            .iter()
            .for_each(|line| page.line(line));
    }
}

fn time() -> Time {
    Time::from_unix_millis(1_700_000_000_000)
}

fn beyond_budget() -> BeyondBudget {
    BeyondBudget {
        lost: 43_200,
        left: 17_300,
        has_gpus: true,
    }
}

fn request() -> Request {
    let each = Amounts::new().with_gpus(2);
    Request {
        step: name("train-8"),
        subject: name("research"),
        user: None,
        place: 1,
        priority: 0,
        preemptible: true,
        hosts: 1,
        each: HostResources::from_amounts(&each),
        class: Default::default(),
        demand: demand(&each, 1),
        pool: None,
        accepted_at: None,
        excluded_pools: BTreeSet::new(),
        guards: BTreeMap::new(),
        image: None,
        avoided_hosts: BTreeSet::new(),
        spread_in: None,
        time_limit: None,
        evictions: Vec::new(),
        suspends: false,
        resumes: None,
        platforms: Vec::new(),
        takes_default: true,
        within: None,
    }
}

fn alone(change: Change, start: Start) -> Remedy {
    Remedy {
        changes: vec![change],
        start,
        after_others: false,
    }
}

fn inspection<'a>(
    pool: &'a PoolName,
    preemption: PreemptionStatus,
    holders: Vec<Holder<'a>>,
) -> Inspection<'a> {
    Inspection {
        pool,
        priority: 10,
        in_share: false,
        keys: Vec::new(),
        block: None,
        position: (0, 1),
        behind: None,
        fair_share: Vec::new(),
        preemption,
        holders,
    }
}

fn risk<'a>(
    preemptible: bool,
    above_reserved: Vec<(&'a str, u64, u64)>,
    protected_until: Option<Time>,
    backfill: Vec<&'a StepId>,
    above: Vec<(&'a Subject, u64)>,
) -> PreemptionRisk<'a> {
    PreemptionRisk {
        in_share: above_reserved.is_empty(),
        above_reserved,
        protected_until,
        preemptible,
        backfill,
        above,
        borrowed_from_gpus: Vec::new(),
        higher: Vec::new(),
        beyond_budget: None,
    }
}

fn after_change(last: Option<&Change>) -> Vec<Change> {
    let key = || crate::key("gpu");
    let next = match last {
        None => Change::FreeOnHost {
            node: name("gpu-1"),
            key: "gpu",
            more: 2,
        },
        Some(Change::FreeOnHost { .. }) => Change::FreeInPool {
            key: crate::key("licences"),
            more: 2,
        },
        Some(Change::FreeInPool { .. }) => Change::MakeSchedulable {
            node: name("gpu-1"),
        },
        Some(Change::MakeSchedulable { .. }) => Change::RaiseLimit { key: key(), to: 8 },
        Some(Change::RaiseLimit { .. }) => Change::RaiseReserved { key: key(), to: 8 },
        Some(Change::RaiseReserved { .. }) => Change::ReduceRequest { key: key(), to: 1 },
        Some(Change::ReduceRequest { .. }) => Change::MakePreemptible,
        Some(Change::MakePreemptible) => return Vec::new(),
    };
    vec![next]
}

fn after_start(last: Option<&Start>) -> Vec<Start> {
    match last {
        None => vec![Start::AtOnce],
        Some(Start::AtOnce) => vec![Start::AfterStops(1), Start::AfterStops(3)],
        Some(Start::AfterStops(_)) => Vec::new(),
    }
}

fn after_status(last: Option<&PreemptionStatus>) -> Vec<PreemptionStatus> {
    match last {
        None => vec![PreemptionStatus::InProgress],
        Some(PreemptionStatus::InProgress) => {
            let victims: BTreeSet<AttemptId> = [name("train-7.1"), name("train-5.2")].into();
            vec![PreemptionStatus::Possible(victims)]
        }
        Some(PreemptionStatus::Possible(_)) => vec![PreemptionStatus::AwaitingRelease],
        Some(PreemptionStatus::AwaitingRelease) => {
            let whys = chain(after_no_preemption).into_iter();
            whys.map(PreemptionStatus::Impossible).collect()
        }
        Some(PreemptionStatus::Impossible(_)) => Vec::new(),
    }
}

fn after_no_preemption(last: Option<&NoPreemption>) -> Vec<NoPreemption> {
    let next = match last {
        None => NoPreemption::NotAllowed,
        Some(NoPreemption::NotAllowed) => NoPreemption::NoCandidates,
        Some(NoPreemption::NoCandidates) => NoPreemption::NotEnough,
        Some(NoPreemption::NotEnough) => NoPreemption::BeyondBudget,
        Some(NoPreemption::BeyondBudget) => NoPreemption::WouldBeReclaimed,
        Some(NoPreemption::WouldBeReclaimed) => return Vec::new(),
    };
    vec![next]
}

fn after_protected(last: Option<&Protected>) -> Vec<Protected> {
    let next = match last {
        None => Protected::NotPreemptible,
        Some(Protected::NotPreemptible) => Protected::Releasing,
        Some(Protected::Releasing) => Protected::Own,
        Some(Protected::Own) => Protected::InShare,
        Some(Protected::InShare) => Protected::Entitled,
        Some(Protected::Entitled) => Protected::BorrowsToo,
        Some(Protected::BorrowsToo) => Protected::Priority(20),
        Some(Protected::Priority(_)) => Protected::MinRuntime(time()),
        Some(Protected::MinRuntime(_)) => Protected::PriorityOff,
        Some(Protected::PriorityOff) => Protected::Budget(beyond_budget()),
        Some(Protected::Budget(_)) => Protected::Evicted(time()),
        Some(Protected::Evicted(_)) => Protected::Resuming,
        Some(Protected::Resuming) => return Vec::new(),
    };
    vec![next]
}
