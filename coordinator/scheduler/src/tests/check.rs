//! Properties that must hold after every decision, and once there is none left.

use crate::HostResources;
use crate::{Pool, Scheduler};

/// Nothing is granted that does not exist, and in-share nominations are kept.
pub(super) fn check(scheduler: &Scheduler) {
    for (name, pool) in &scheduler.pools {
        check_hosts(scheduler, pool);
        for (key, used) in pool.used().iter() {
            let declared = pool.declared(key.as_str());
            assert!(declared.is_none_or(|d| used <= d), "{name}: {used} {key}");
        }
        check_policies(pool);
    }
}

fn check_hosts(scheduler: &Scheduler, pool: &Pool) {
    for (node, host) in pool.hosts().iter() {
        let held = host.runs.iter().map(|id| scheduler.run(id).unwrap().each());
        let held = held.fold(HostResources::default(), HostResources::plus);
        assert!(host.capacity.cover(held), "{node} holds {held:?}");
    }
}

fn check_policies(pool: &Pool) {
    for (subject, policy) in pool.policies() {
        let (used, firm) = pool.used_by(subject).unwrap();
        for (key, limit) in &policy.limit {
            let used = used.get(key.as_str());
            assert!(used <= *limit, "{subject} over its limit of {key}");
        }
        for (key, reserved) in &policy.reserved {
            let firm = firm.get(key.as_str());
            assert!(firm <= *reserved, "{subject}: firm above reserved {key}");
        }
    }
}

/// Properties that must hold once no decision is left: no run was stopped in vain.
pub(super) fn check_settled(scheduler: &Scheduler) {
    for (step, nomination) in &scheduler.nominations {
        assert!(!nomination.firm, "{step} waits for nobody: {nomination:?}");
    }
    for (name, pool) in &scheduler.pools {
        assert!(
            pool.firm_nominations.is_empty() && pool.releasing.is_empty(),
            "{name}"
        );
        let soft = pool.soft_nomination.as_ref();
        let promised = soft.is_none_or(|step| scheduler.nomination(step).is_some());
        assert!(promised, "{name}: {:?}", pool.soft_nomination);
    }
}
