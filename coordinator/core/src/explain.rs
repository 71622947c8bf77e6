//! Why a step is where it is. For a queued step this asks the scheduler's own decision (`schedule.rs`) and puts it into
//! words; it holds no second copy of its rules.

use alloc::format;
use alloc::string::String;

use sluice_common::amount::STEP_RUN;
use sluice_common::id::PoolName;
use sluice_common::limit::MAX_ATTEMPTS_PER_NODE;
use sluice_common::reason::{Reason, ReasonCode};
use sluice_common::state::StepState;

use crate::admit::no_host_fits;
use crate::core::Core;
use crate::schedule::first_in_turn;
use crate::state::{HostUnits, Members, Step};

impl Core {
    /// Why a step is where it is now. Of a step that waits again after an attempt, the code says why that attempt is
    /// over, and the message and the detail `waiting` say for what it waits.
    pub fn reason(&self, step: &Step) -> Reason {
        if step.state != StepState::Queued {
            return step.reason.clone();
        }
        let waiting = self.waiting(step);
        if step.reason.code == ReasonCode::Submitted {
            return waiting;
        }
        let mut again = step.reason.clone();
        again.message = format!("{}; {}", again.message, waiting.message);
        for (name, detail) in waiting.detail {
            again.detail.entry(name).or_insert(detail);
        }
        again.with("waiting", waiting.code.as_str())
    }

    fn waiting(&self, step: &Step) -> Reason {
        let pool = step.pool();
        let request = HostUnits::of(&step.spec.request);
        let Some(members) = self.state.index().members(&pool) else {
            return pool_empty(&pool);
        };
        let Some(tightest) = members.known.tightest(request) else {
            return still_too_large(no_host_fits(&pool, members, request));
        };
        if members.ready.tightest(request).is_none() {
            let state = self.state.node(tightest).map(|node| node.state);
            return Reason::new(
                ReasonCode::NoLiveHost,
                format!(
                    "no host of pool `{pool}` that could hold it takes work now: `{tightest}` is {}",
                    state.map_or("gone", |state| state.as_str())
                ),
            )
            .with("node", tightest.as_str());
        }
        match first_in_turn(&self.state, &pool, 0) {
            Some((first, _)) if first.place < step.place => turn(&pool, first),
            Some(_) | None => units(&pool, members, request),
        }
    }
}

fn pool_empty(pool: &PoolName) -> Reason {
    let message =
        format!("pool `{pool}` has no host yet: start an agent whose config names this pool");
    Reason::new(ReasonCode::PoolEmpty, message).with("pool", pool.as_str())
}

/// It was accepted all the same, because it may wait for a larger host or because hosts were larger then.
fn still_too_large(mut reason: Reason) -> Reason {
    reason.message = format!(
        "{}; it waits for a larger host and holds nobody up",
        reason.message
    );
    reason
}

fn turn(pool: &PoolName, first: &Step) -> Reason {
    let message = format!(
        "steps are granted in the order of their submission, and `{}` waits for units of pool `{pool}` before it",
        first.id
    );
    Reason::new(ReasonCode::WaitingForTurn, message).with("behind", first.id.as_str())
}

fn units(pool: &PoolName, members: &Members, request: HostUnits) -> Reason {
    let reason = |message: String| {
        Reason::new(ReasonCode::WaitingForUnits, message).with("pool", pool.as_str())
    };
    let closest = members.free.closest(request);
    if closest.is_none() {
        return reason(format!(
            "it is next in pool `{pool}`, when a host holds fewer than {MAX_ATTEMPTS_PER_NODE} steps, the most that one may"
        ))
        .with("key", STEP_RUN);
    }
    let miss = closest.and_then(|(node, free)| Some((node, free.first_shortage(request)?)));
    let Some((node, (key, asked, free))) = miss else {
        return reason(format!("it is next in pool `{pool}`"));
    };
    reason(format!(
        "it is next in pool `{pool}`, when enough is free on one host: it asks for {asked} {key}, and `{node}`, which \
         comes closest, has {free} free"
    ))
    .with("node", node.as_str())
    .with("key", key)
    .with("asked", asked)
    .with("free", free)
}
