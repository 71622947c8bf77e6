//! Why a step can never be granted, and what a dry run finds.

use sluice_common::pool_rules::Setting;
use sluice_common::reason::ReasonCode;
use sluice_common::state::StepState;
use sluice_common::step::OnPreempt;
use sluice_common::time::{Span, Time};
use sluice_reasons::check::AssertionOutcome;
use sluice_reasons::rejection::{
    AmountBound, AssertionSource, FailedAssertion, FailingHost, HostMismatch, RuleBreach,
    SettingValue,
};
use sluice_reasons::{Cause, Check, Exclusion, Refusal, Rejection, SimilarPools, StepReason, Wait};

use crate::wait::{forbidding, shortage, shortage_of_slices};
use crate::{Page, chain, name};

pub(crate) fn write(page: &mut Page) {
    page.heading("Why a step is rejected (Rejection)");
    for rejection in chain(after) {
        page.reason(&rejection.to_reason());
    }
    page.heading("Why a pool does not take a queued step (Exclusion)");
    for exclusion in chain(after_exclusion) {
        page.line(&exclusion.message(&name("training")));
    }
    page.heading("What a dry run of a submit checks (Check)");
    for check in chain(after_check) {
        page.line(&format!("{}: {}", check.about(), check.message()));
    }
}

pub(crate) fn similar() -> [SimilarPools; 2] {
    [
        SimilarPools::Near(name("training")),
        SimilarPools::Among(vec![name("training"), name("batch")]),
    ]
}

fn after(last: Option<&Rejection>) -> Vec<Rejection> {
    let pool = || name("training");
    match last {
        None => similar()
            .map(|near| Rejection::UnknownPool {
                pool: name("trainig"),
                near,
            })
            .into(),
        Some(Rejection::UnknownPool { .. }) => [Some(pool()), None]
            .map(|pool| Rejection::NoPolicy {
                subject: name("research"),
                pool,
            })
            .into(),
        Some(Rejection::NoPolicy { .. }) => ["gpus", "licences"]
            .map(|key| Rejection::UnknownResource {
                pool: pool(),
                key: crate::key(key),
                asked: 1,
            })
            .into(),
        Some(Rejection::UnknownResource { .. }) => {
            let bounds = chain(after_amount_bound).into_iter();
            let of = |bound, key, (asked, most), profile| Rejection::TooMuch {
                pool: pool(),
                key: crate::key(key),
                asked,
                most,
                bound,
                by_default: None,
                profile,
            };
            let whole = bounds.clone().map(|bound| of(bound, "gpu", (16, 8), None));
            let slices = bounds.map(|bound| {
                let is_of_cores = matches!(bound, AmountBound::Entitlement { .. });
                let key = if is_of_cores { "mcpu" } else { "mgpu" };
                of(bound, key, (426, 284), Some(name("1g.10gb")))
            });
            whole.chain(slices).collect()
        }
        Some(Rejection::TooMuch { .. }) => {
            let all = chain(after_mismatch).into_iter();
            let rejections = all.map(|hosts| Rejection::NoHostFits {
                pool: pool(),
                hosts,
            });
            rejections.collect()
        }
        Some(Rejection::NoHostFits { .. }) => vec![Rejection::ExceedsAllocation {
            allocation: crate::name("held"),
            key: crate::key("mgpu"),
            asked: 3000,
            has: 2000,
        }],
        Some(Rejection::ExceedsAllocation { .. }) => vec![Rejection::FewerHostsInside {
            allocation: crate::name("held"),
            asked: 3,
            has: 2,
        }],
        Some(Rejection::FewerHostsInside { .. }) => {
            let breaches = chain(after_breach).into_iter();
            let rejections = breaches.map(|breach| Rejection::BreaksRule {
                pool: pool(),
                breach,
            });
            rejections.collect()
        }
        Some(Rejection::BreaksRule { .. }) => {
            let invalid = |judge, unkept| Rejection::Invalid {
                pool: pool(),
                judge,
                validation: name("images"),
                advice: "use an image of our registry".to_owned(),
                unkept,
            };
            let sources = chain(after_source).into_iter();
            let failed = chain(after_failed).into_iter();
            let by_source = sources.map(|source| invalid(source, step_failed()));
            let by_failure = failed.map(|failed| invalid(AssertionSource::Pool, failed));
            by_source.chain(by_failure.skip(1)).collect()
        }
        Some(Rejection::Invalid { .. }) => Vec::new(),
    }
}

fn after_amount_bound(last: Option<&AmountBound>) -> Vec<AmountBound> {
    let next = match last {
        None => AmountBound::Capacity,
        Some(AmountBound::Capacity) => AmountBound::Limit(name("research")),
        Some(AmountBound::Limit(_)) => AmountBound::Reserved(name("research")),
        Some(AmountBound::Reserved(_)) => {
            let carried_by = |gpus| AmountBound::Entitlement {
                node: name("gpu-1"),
                gpus,
            };
            return [0, 1, 2].map(carried_by).into();
        }
        Some(AmountBound::Entitlement { .. }) => return Vec::new(),
    };
    vec![next]
}

fn after_mismatch(last: Option<&HostMismatch>) -> Vec<HostMismatch> {
    match last {
        None => [false, true]
            .map(|of_one_platform| HostMismatch::TooFew {
                asked: 4,
                large: 2,
                of_one_platform,
                closed: of_one_platform.then(|| forbidding(1)),
            })
            .into(),
        Some(HostMismatch::TooFew { .. }) => {
            let of = |asked: &[&str], declared: &[&str], by_default, there: &[&str]| {
                let names = |all: &[&str]| all.iter().map(|it| name(it)).collect();
                HostMismatch::OfNoPlatform {
                    asked: names(asked),
                    declared: names(declared),
                    by_default,
                    there: names(there),
                }
            };
            vec![
                of(&["h100"], &[], false, &["a100"]),
                of(&["h100"], &[], true, &[]),
                of(&["h100"], &["h100"], true, &["a100"]),
                of(&["h100"], &["h100"], false, &["a100", "l40s"]),
                of(&["h100", "fast"], &["h100", "fast"], false, &["a100"]),
            ]
        }
        Some(HostMismatch::OfNoPlatform { .. }) => {
            let of = |asked: Option<&str>, whole, slices: &[(&str, u64)]| HostMismatch::OfNoClass {
                asked: asked.map(String::from),
                whole,
                slices: (slices.iter())
                    .map(|(profile, n)| (String::from(*profile), *n))
                    .collect(),
            };
            vec![
                of(None, 0, &[("1g.10gb", 14), ("3g.40gb", 1)]),
                of(Some("3g.40gb"), 3, &[("1g.10gb", 1)]),
                of(Some("3g.40gb"), 0, &[("1g.10gb", 7)]),
                of(Some("3g.40gb"), 0, &[]),
            ]
        }
        Some(HostMismatch::OfNoClass { .. }) => {
            let of = |levels: &[&str]| HostMismatch::NoLevel {
                level: name("rack"),
                levels: levels.iter().map(|it| name(it)).collect(),
            };
            vec![of(&[]), of(&["zone", "row"])]
        }
        Some(HostMismatch::NoLevel { .. }) => [0, 2]
            .map(|has| HostMismatch::TooFewInDomain(crate::wait::domain_shortage(has)))
            .into(),
        Some(HostMismatch::TooFewInDomain(_)) => {
            let mut by_pool = forbidding(0);
            by_pool.platform = None;
            let mut by_platform = forbidding(1);
            by_platform.by_pool = None;
            let mut by_taint = by_platform.clone();
            by_taint.field = "taint".to_owned();
            [by_pool, by_platform, forbidding(2), by_taint]
                .map(HostMismatch::Closed)
                .into()
        }
        Some(HostMismatch::Closed(_)) => [None, Some(shortage("gpu")), Some(shortage_of_slices())]
            .map(HostMismatch::TooSmall)
            .into(),
        Some(HostMismatch::TooSmall(_)) => Vec::new(),
    }
}

fn after_breach(last: Option<&RuleBreach>) -> Vec<RuleBreach> {
    match last {
        None => {
            let above = |setting, asked, most| RuleBreach::Above {
                setting,
                asked,
                most,
            };
            let hours = |n: u64| SettingValue::Lasting(Span::from_secs(n * 3600));
            vec![
                above(Setting::Timeout, hours(48), hours(24)),
                above(Setting::Timeout, SettingValue::Unbounded, hours(24)),
                above(
                    Setting::Retries,
                    SettingValue::Times(9),
                    SettingValue::Times(3),
                ),
            ]
        }
        Some(RuleBreach::Above { .. }) => vec![RuleBreach::Mode {
            asked: OnPreempt::Fail,
            allowed: [OnPreempt::Requeue, OnPreempt::Suspend].into(),
        }],
        Some(RuleBreach::Mode { .. }) => vec![RuleBreach::NotPinned],
        Some(RuleBreach::NotPinned) => ["command", "resources", "nodes"]
            .map(|field| RuleBreach::NoHosts {
                field: field.to_owned(),
            })
            .into(),
        Some(RuleBreach::NoHosts { .. }) => vec![RuleBreach::Template {
            code: ReasonCode::ValidationFailed,
            field: "mounts".to_owned(),
            what: "the template allows no mount of `/etc`".to_owned(),
        }],
        Some(RuleBreach::Template { .. }) => Vec::new(),
    }
}

fn after_source(last: Option<&AssertionSource>) -> Vec<AssertionSource> {
    let next = match last {
        None => AssertionSource::Pool,
        Some(AssertionSource::Pool) => AssertionSource::Platform(name("h100")),
        Some(AssertionSource::Platform(_)) => AssertionSource::AnyPlatform(name("h100")),
        Some(AssertionSource::AnyPlatform(_)) => return Vec::new(),
    };
    vec![next]
}

fn step_failed() -> FailedAssertion {
    FailedAssertion::Step {
        assert: "image starts with registry.example/".to_owned(),
        found: "image is docker.io/trainer".to_owned(),
    }
}

fn after_failed(last: Option<&FailedAssertion>) -> Vec<FailedAssertion> {
    match last {
        None => vec![step_failed()],
        Some(FailedAssertion::Step { .. }) => vec![FailedAssertion::Hosts {
            asked: 3,
            nearest: vec![FailingHost {
                node: "gpu-1".to_owned(),
                broken: vec![("gpu_memory >= 80GiB".to_owned(), "40GiB".to_owned())],
            }],
        }],
        Some(FailedAssertion::Hosts { .. }) => Vec::new(),
    }
}

fn after_exclusion(last: Option<&Exclusion>) -> Vec<Exclusion> {
    let next = match last {
        None => Exclusion::MadeAfter,
        Some(Exclusion::MadeAfter) => Exclusion::Never(Rejection::NoPolicy {
            subject: name("research"),
            pool: Some(name("training")),
        }),
        Some(Exclusion::Never(_)) => Exclusion::Maintenance("new switches, until 18:00".to_owned()),
        Some(Exclusion::Maintenance(_)) => Exclusion::BeforeChange,
        Some(Exclusion::BeforeChange) => return Vec::new(),
    };
    vec![next]
}

fn after_check(last: Option<&Check>) -> Vec<Check> {
    let no_policy = || Rejection::NoPolicy {
        subject: name("research"),
        pool: Some(name("training")),
    };
    let standing = || StepReason::Recorded {
        why: Cause::Allocated {
            nodes: vec![name("gpu-1")],
        },
        host_block: None,
    };
    match last {
        None => {
            let policy = |by, by_default| Check::Policy {
                subject: name("research"),
                priority: 10,
                by,
                by_default,
            };
            vec![policy(None, false), policy(Some(name("*")), true)]
        }
        Some(Check::Policy { .. }) => vec![Check::NoPool(no_policy())],
        Some(Check::NoPool(_)) => [false, true]
            .map(|admin| Check::Maintenance {
                message: "new switches, until 18:00".to_owned(),
                admin,
            })
            .into(),
        Some(Check::Maintenance { .. }) => vec![Check::Filled {
            field: "timeout".to_owned(),
            value: "1h".to_owned(),
            from: "pool training".to_owned(),
        }],
        Some(Check::Filled { .. }) => vec![Check::Never(no_policy())],
        Some(Check::Never(_)) => {
            let outcomes = chain(after_outcome).into_iter();
            let checks = outcomes.map(|outcome| Check::Assertion {
                document: name("images"),
                platform: None,
                assert: "image starts with registry.example/".to_owned(),
                outcome,
            });
            checks.collect()
        }
        Some(Check::Assertion { .. }) => [
            vec![],
            vec![name("gpu-1")],
            vec![name("gpu-1"), name("gpu-2")],
        ]
        .map(|hosts| Check::Hosts {
            platforms: vec![name("h100")],
            hosts,
        })
        .into(),
        Some(Check::Hosts { .. }) => vec![Check::DeadlinePassed {
            deadline: Time::from_unix_millis(1_700_000_000_000),
        }],
        Some(Check::DeadlinePassed { .. }) => vec![Check::UnknownDependency { on: name("prep") }],
        Some(Check::UnknownDependency { .. }) => {
            vec![Check::Refused(Box::new(Refusal::NotAnArray {
                step: name("trial"),
                on: name("prep"),
            }))]
        }
        Some(Check::Refused(_)) => vec![Check::Rejected(StepReason::Recorded {
            why: Cause::rejected(no_policy()),
            host_block: None,
        })],
        Some(Check::Rejected(_)) => vec![Check::Later(StepReason::Waiting {
            after: None,
            wait: Box::new(Wait::Dependencies {
                unmet: vec![(name("prep"), StepState::Running)],
                count: 1,
            }),
        })],
        Some(Check::Later(_)) => vec![Check::Starts {
            standing: standing(),
            parts: vec![(name("gpu-1"), 1), (name("gpu-2"), 2), (name("cpu-1"), 0)],
        }],
        Some(Check::Starts { .. }) => vec![Check::Waits {
            place: (2, 5),
            wait: Wait::Next {
                pool: name("training"),
            },
        }],
        Some(Check::Waits { .. }) => Vec::new(),
    }
}

fn after_outcome(last: Option<&AssertionOutcome>) -> Vec<AssertionOutcome> {
    match last {
        None => vec![AssertionOutcome::Holds],
        Some(AssertionOutcome::Holds) => vec![AssertionOutcome::NotApplicable],
        Some(AssertionOutcome::NotApplicable) => [(0, 0), (2, 5)]
            .map(|(keep, of)| AssertionOutcome::HoldsOn { keep, of })
            .into(),
        Some(AssertionOutcome::HoldsOn { .. }) => vec![AssertionOutcome::Fails(
            "image is docker.io/trainer".to_owned(),
        )],
        Some(AssertionOutcome::Fails(_)) => Vec::new(),
    }
}
