//! What a submit would come to: each stage, and that nothing is left of having asked.

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

use super::rig::*;
use crate::input::WantedPool;
use crate::{Answer, Input, NewStep, Passage, Preview, Refusal, ReplyId, Wanted};

fn preview(rig: &mut Rig, spec: StepSpec) -> Preview {
    foreseen(rig, "trial", &spec).unwrap()
}

/// Each line, such as `queue +default waiting_for_units: ...`.
fn told(preview: &Preview) -> Vec<String> {
    let mut lines = Vec::new();
    for stage in &preview.stages {
        lines.push(format!("{:?} {:?}", stage.stage, stage.passage));
        for line in &stage.lines {
            let sign = match line.passage {
                Passage::Passed => "+",
                Passage::Failed => "-",
                Passage::NotReached => "?",
            };
            let pool = line.pool.as_ref().map_or("", |pool| pool.as_str());
            let (about, said) = (line.check.about(), line.check.said());
            lines.push(format!("  {sign}{pool} {about}: {said}"));
        }
    }
    lines
}

fn ruled(rules: PoolSpec) -> Vec<Wanted> {
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
        Wanted::Validation {
            validation: "half".parse().unwrap(),
            terms,
        },
        Wanted::Pool {
            pool: "default".parse().unwrap(),
            terms: alloc::boxed::Box::new(WantedPool::from(rules)),
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

/// A host of four cores, under rules.
fn rig() -> Rig {
    let mut rig = Rig::one_node(0, 4);
    rig.apply(ruled(strict()));
    rig
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
    let mut rig = rig();
    let preview = preview(&mut rig, silent(1000));
    let host = rig.core.state().nodes().keys().next().unwrap().to_string();
    assert_eq!(
        told(&preview),
        [
            "Access Passed",
            "  +default policy: `s` may, with priority 0",
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

fn ends(preview: &Preview) -> Vec<Passage> {
    let stages = preview.stages.iter();
    stages.map(|stage| stage.passage).collect()
}

/// The lines that did not let it through.
fn obstacles(preview: &Preview) -> Vec<String> {
    let failed = |line: &&String| line.starts_with("  -");
    told(preview).iter().filter(failed).cloned().collect()
}

#[test]
fn where_it_ends_is_told_and_what_comes_after_was_not_reached() {
    use Passage::{Failed, NotReached, Passed};
    let mut rig = rig();
    let broken = preview(&mut rig, silent(3000));
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
        obstacles(&preview(&mut rig, often)),
        ["  -default exceeds_maximum: its `retries` is 2, and pool `default` allows 1 at most"]
    );
    let large = preview(&mut rig, with_memory(spec(0, 0), 1_000_000_000));
    assert_eq!(ends(&large), [Passed, Passed, Passed, Failed, NotReached]);
    assert!(obstacles(&large)[0].starts_with(
        "  -default no_host_fits: no host of pool `default` could hold it even when empty"
    ));
    rig.put_policy(
        "default",
        "s",
        PolicySpec {
            limit: [(ResourceKey::new("mcpu").unwrap(), 500)].into(),
            ..PolicySpec::default()
        },
    );
    let limited = preview(&mut rig, silent(1000));
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
    let mut rig = rig();
    let stranger = StepSpec {
        subject: "x".parse().unwrap(),
        ..spec(0, 0)
    };
    let preview_of = preview(&mut rig, stranger);
    assert_eq!(preview_of.stages[0].passage, Passage::Failed);
    assert_eq!(
        obstacles(&preview_of),
        [
            "  - policy: `x` has no policy in any pool: whoever leads one gives it one by `echo '{kind: policy, pool: POOL, subject: x}' | sluice apply -f -`"
        ]
    );
    let nowhere = preview(&mut rig, in_pool(spec(0, 0), "defalt"));
    assert_eq!(
        obstacles(&nowhere),
        ["  -defalt policy: there is no pool `defalt`, did you mean `default`?"]
    );
    let closed = PoolSpec {
        maintenance: Some("racks until noon".into()),
        ..strict()
    };
    rig.apply(ruled(closed));
    let closed = preview(&mut rig, silent(0));
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
    let mut rig = Rig::one_node(0, 4);
    rig.submit("runs", spec(0, 4000)).unwrap();
    rig.submit("first", spec(0, 4000)).unwrap();
    let waits = preview(&mut rig, spec(0, 4000));
    let queue = told(&waits).pop().unwrap();
    assert!(
        queue.starts_with("  +default waiting_for_units: it waits at place 2 of 2: "),
        "{queue}"
    );
    rig.run("runs.1");
    let first = PolicySpec {
        priority: 9,
        limit: [(ResourceKey::new("mcpu").unwrap(), 4000)].into(),
        ..PolicySpec::default()
    };
    rig.put_policy("default", "vip", first);
    let vip = StepSpec {
        subject: "vip".parse().unwrap(),
        ..spec(0, 4000)
    };
    let vip = preview(&mut rig, vip);
    assert_eq!(vip.outcome.as_ref().unwrap().preempts, [step("runs")]);
    let queue = told(&vip).pop().unwrap();
    assert!(
        queue.starts_with("  +default waiting_for_release: it waits at place 1 of 2: "),
        "{queue}"
    );
}

/// What a submit would come to, in a life of its own; nothing where the id is taken.
pub(super) fn foreseen(rig: &mut Rig, id: &str, spec: &StepSpec) -> Option<Preview> {
    if rig.core.state().step(&step(id)).is_some() {
        return None;
    }
    let before = rig.core.state().clone();
    let fed = rig.feed(Input::Preview {
        reply: ReplyId(9),
        step: NewStep::new(step(id), spec.clone()).into(),
    });
    assert_eq!(rig.core.state(), &before, "nothing is left of it");
    match fed.answers.into_iter().next() {
        Some(Answer::Previewed(preview)) => Some(*preview),
        other => panic!("it is answered: {other:?}"),
    }
}

/// What was foreseen has come.
pub(super) fn compare(rig: &Rig, id: &str, foreseen: Option<Preview>) {
    let Some(preview) = foreseen else { return };
    let all = preview
        .stages
        .iter()
        .all(|stage| stage.passage == Passage::Passed);
    let now = rig.core.state().step(&step(id));
    match (preview.outcome, now) {
        (Ok(previewed), Some(now)) => {
            assert_eq!(&previewed.step, now);
            assert_eq!(previewed.reason, rig.core.reason(now));
            assert_eq!(
                all,
                now.state != StepState::Rejected,
                "{:#?}",
                preview.stages
            );
        }
        // A step that was rejected may have been forgotten at once.
        (Ok(previewed), None) => assert_eq!(previewed.step.state, StepState::Rejected),
        (Err(_), now) => assert!(now.is_none() && !all),
    }
}
