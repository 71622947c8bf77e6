//! Tests of previews of a submit: each stage, and that nothing is stored.

use sluice_common::pool::PoolSpec;
use std::format;
use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

use sluice_common::amount::ResourceKey;
use sluice_common::pool::PolicySpec;
use sluice_common::pool_rules::{Setting, StepDefaults, StepMaxima};
use sluice_common::state::StepState;
use sluice_common::step::StepSpec;
use sluice_common::time::Span;
use sluice_common::validation::{Assertion, ValidationSpec};

use super::harness::*;
use crate::input::DesiredPool;
use crate::{Answer, CheckStatus, Desired, Input, NewStep, Preview, Refusal, ReplyId};

fn preview(harness: &mut Harness, spec: StepSpec) -> Preview {
    foreseen(harness, "trial", &spec).unwrap()
}

/// Each line as text, such as `queue +default waiting_for_units: ...`.
fn sentences(preview: &Preview) -> Vec<String> {
    let mut lines = Vec::new();
    for stage in &preview.stages {
        lines.push(format!("{:?} {:?}", stage.stage, stage.passage));
        for line in &stage.lines {
            let sign = match line.passage {
                CheckStatus::Passed => "+",
                CheckStatus::Failed => "-",
                CheckStatus::NotReached => "?",
            };
            let pool = line.pool.as_ref().map_or("", |pool| pool.as_str());
            let (about, message) = (line.check.about(), line.check.message());
            lines.push(format!("  {sign}{pool} {about}: {message}"));
        }
    }
    lines
}

fn ruled(rules: PoolSpec) -> Vec<Desired> {
    let assertion = Assertion {
        assert: "cpu_count <= 0.5 * node.cpu_count".into(),
        message: "half a host at most".into(),
        when: None,
    };
    let terms = ValidationSpec {
        description: String::new(),
        assertions: vec![assertion],
    };
    vec![
        Desired::Validation {
            validation: "half".parse().unwrap(),
            terms,
        },
        Desired::Pool {
            pool: "default".parse().unwrap(),
            terms: alloc::boxed::Box::new(DesiredPool::from(rules)),
        },
    ]
}

fn strict() -> PoolSpec {
    PoolSpec {
        defaults: StepDefaults {
            timeout: Some(Span::from_secs(60)),
            ..StepDefaults::default()
        },
        max: StepMaxima {
            retries: Some(1),
            ..StepMaxima::default()
        },
        validations: vec!["half".parse().unwrap()],
        ..PoolSpec::default()
    }
}

/// Makes a host of four cores in a pool with these rules.
fn harness() -> Harness {
    let mut harness = Harness::one_node(0, 4);
    harness.apply(ruled(strict()));
    harness
}

fn silent(mcpu: u64) -> StepSpec {
    StepSpec {
        timeout: None,
        unset: [Setting::Timeout, Setting::Retries].into(),
        ..spec(0, mcpu)
    }
}

#[test]
fn a_step_that_starts_is_told_where_and_what_it_would_be() {
    let mut harness = harness();
    let preview = preview(&mut harness, silent(1000));
    let host = harness
        .core
        .state()
        .nodes()
        .keys()
        .next()
        .unwrap()
        .to_string();
    assert_eq!(
        sentences(&preview),
        [
            "Access Passed",
            "  +default policy: `s` may submit, with priority 0",
            "Merge Passed",
            "  +default timeout: 1m, from `defaults` of pool `default`",
            "  +default queue_timeout: none, from the step",
            "  +default grace_period: 7s, from the step",
            "  +default retries: 0, from what is built in",
            "  +default on_preempt: requeue, from the step",
            "  +default cpu_mode: limit, from the step",
            "Validation Passed",
            "  +default half: cpu_count <= 0.5 * node.cpu_count: it holds on 1 of 1 hosts",
            "Platform Passed",
            &format!("  +default any: one host could hold it: `{host}`"),
            "Queue Passed",
            &format!("  +default allocated: it starts at once, on `{host}`"),
        ]
    );
    let previewed = preview.outcome.unwrap();
    assert_eq!(previewed.step.state, StepState::Allocated);
    assert_eq!(previewed.step.spec.timeout, Some(Span::from_secs(60)));
}

fn ends(preview: &Preview) -> Vec<CheckStatus> {
    let stages = preview.stages.iter();
    stages.map(|stage| stage.passage).collect()
}

/// The lines of failed checks.
fn obstacles(preview: &Preview) -> Vec<String> {
    let failed = |line: &&String| line.starts_with("  -");
    sentences(preview).iter().filter(failed).cloned().collect()
}

#[test]
fn where_it_ends_is_told_and_what_comes_after_was_not_reached() {
    use CheckStatus::{Failed, NotReached, Passed};
    let mut harness = harness();
    let broken = preview(&mut harness, silent(3000));
    assert_eq!(
        ends(&broken),
        [Passed, Passed, Failed, NotReached, NotReached]
    );
    assert_eq!(
        obstacles(&broken),
        [
            "  -default half: cpu_count <= 0.5 * node.cpu_count: `n`: cpu_count is 3, 0.5 * node.cpu_count is 2"
        ]
    );
    let often = StepSpec {
        retries: 2,
        ..spec(0, 0)
    };
    assert_eq!(
        obstacles(&preview(&mut harness, often)),
        ["  -default exceeds_maximum: its `retries` is 2, and pool `default` allows 1 at most"]
    );
    let large = preview(&mut harness, with_memory(spec(0, 0), 1_000_000_000));
    assert_eq!(ends(&large), [Passed, Passed, Passed, Failed, NotReached]);
    assert!(obstacles(&large)[0].starts_with(
        "  -default no_host_fits: no host of pool `default` could hold it even when empty"
    ));
    harness.put_policy(
        "default",
        "s",
        PolicySpec {
            limit: [(ResourceKey::new("mcpu").unwrap(), 500)].into(),
            ..PolicySpec::default()
        },
    );
    let limited = preview(&mut harness, silent(1000));
    assert_eq!(ends(&limited), [Passed, Passed, Passed, Passed, Failed]);
    assert_eq!(
        obstacles(&limited),
        [
            "  -default exceeds_limit: it asks for 1 core, and the limit of `s` in pool `default` is 0.5"
        ]
    );
}

#[test]
fn who_may_not_is_told_first() {
    let mut harness = harness();
    let unbound = StepSpec {
        subject: "x".parse().unwrap(),
        ..spec(0, 0)
    };
    let preview_of = preview(&mut harness, unbound);
    assert_eq!(preview_of.stages[0].passage, CheckStatus::Failed);
    assert_eq!(
        obstacles(&preview_of),
        [
            "  - policy: `x` has no policy in any pool: an admin of a pool can create one with `echo '{kind: policy, pool: POOL, subject: x}' | sluice apply -f -`"
        ]
    );
    let nowhere = preview(&mut harness, in_pool(spec(0, 0), "defalt"));
    assert_eq!(
        obstacles(&nowhere),
        ["  -defalt policy: there is no pool `defalt`, did you mean `default`?"]
    );
    let closed = PoolSpec {
        maintenance: Some("racks until noon".into()),
        ..strict()
    };
    harness.apply(ruled(closed));
    let closed = preview(&mut harness, silent(0));
    assert_eq!(
        obstacles(&closed),
        ["  -default maintenance: it takes no new steps: racks until noon"]
    );
    assert!(matches!(
        closed.outcome,
        Err(Refusal::PoolInMaintenance { .. })
    ));
}

#[test]
fn what_waits_is_told_its_place_and_who_gives_way_to_it() {
    let mut harness = Harness::one_node(0, 4);
    harness.submit("runs", spec(0, 4000)).unwrap();
    harness.submit("first", spec(0, 4000)).unwrap();
    let waits = preview(&mut harness, spec(0, 4000));
    let queue = sentences(&waits).pop().unwrap();
    assert!(
        queue.starts_with("  +default waiting_for_units: it waits at place 2 of 2: "),
        "{queue}"
    );
    harness.run("runs.1");
    let first = PolicySpec {
        priority: 9,
        limit: [(ResourceKey::new("mcpu").unwrap(), 4000)].into(),
        ..PolicySpec::default()
    };
    harness.put_policy("default", "vip", first);
    let vip = StepSpec {
        subject: "vip".parse().unwrap(),
        ..spec(0, 4000)
    };
    let vip = preview(&mut harness, vip);
    assert_eq!(vip.outcome.as_ref().unwrap().preempts, [step("runs")]);
    let queue = sentences(&vip).pop().unwrap();
    assert!(
        queue.starts_with("  +default waiting_for_release: it waits at place 1 of 2: "),
        "{queue}"
    );
}

/// Previews a submit; `None` if the id is taken.
pub(super) fn foreseen(harness: &mut Harness, id: &str, spec: &StepSpec) -> Option<Preview> {
    if harness.core.state().step(&step(id)).is_some() {
        return None;
    }
    let before = harness.core.state().clone();
    let effects = harness.feed(Input::Preview {
        reply: ReplyId(9),
        step: NewStep::new(step(id), spec.clone()).into(),
    });
    assert_eq!(harness.core.state(), &before, "nothing is left of it");
    match effects.answers.into_iter().next() {
        Some(Answer::Previewed(preview)) => Some(*preview),
        other => panic!("it is answered: {other:?}"),
    }
}

/// Compares a preview with the submit that followed.
pub(super) fn compare(harness: &Harness, id: &str, foreseen: Option<Preview>) {
    let Some(preview) = foreseen else { return };
    let all = preview
        .stages
        .iter()
        .all(|stage| stage.passage == CheckStatus::Passed);
    let now = harness.core.state().step(&step(id));
    match (preview.outcome, now) {
        (Ok(previewed), Some(now)) => {
            assert_eq!(&previewed.step, now);
            assert_eq!(previewed.reason, harness.core.reason(now));
            assert_eq!(all, !now.state.is_terminal(), "{:#?}", preview.stages);
        }
        // A step that has ended may have been forgotten at once.
        (Ok(previewed), None) => assert!(previewed.step.state.is_terminal()),
        (Err(_), now) => assert!(now.is_none() && !all),
    }
}
