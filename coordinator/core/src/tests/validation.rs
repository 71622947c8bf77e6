//! Tests of validation documents: which steps pass, where, and the messages about the others.

use sluice_common::pool::PoolSpec;
use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

use sluice_common::pool::PolicySpec;
use sluice_common::pool_rules::{Setting, StepDefaults};
use sluice_common::reason::{Detail, ReasonCode};
use sluice_common::state::StepState;
use sluice_common::step::StepSpec;
use sluice_common::time::Span;
use sluice_common::validation::{Assertion, ValidationSpec};

use super::harness::*;
use crate::input::DesiredPool;
use crate::{Answer, Desired, Input, Refusal, ReplyId, TermsChange};

fn asserting(name: &str, rules: &[(&str, &str)]) -> Desired {
    let assertions = rules.iter().map(|(assert, message)| Assertion {
        assert: (*assert).into(),
        message: (*message).into(),
        when: None,
    });
    Desired::Validation {
        validation: name.parse().unwrap(),
        terms: ValidationSpec {
            description: String::new(),
            assertions: assertions.collect(),
        },
    }
}

fn rules(validations: &[&str]) -> PoolSpec {
    PoolSpec {
        validations: validations
            .iter()
            .map(|name| name.parse().unwrap())
            .collect(),
        ..PoolSpec::default()
    }
}

fn pool(name: &str, rules: PoolSpec) -> Desired {
    Desired::Pool {
        pool: name.parse().unwrap(),
        terms: alloc::boxed::Box::new(DesiredPool::from(rules)),
    }
}

/// Makes the pool `default` with these assertions and hosts of this many GPUs each; a host has as many GiB as cores.
fn harness(asserted: &[(&str, &str)], hosts: &[(&str, u32, u64)]) -> Harness {
    let mut harness = Harness::new();
    harness.start();
    harness.apply(vec![
        asserting("v", asserted),
        pool("default", rules(&["v"])),
    ]);
    for (name, gpus, memory) in hosts {
        let mut host = hello(name, *gpus, 8);
        host.inventory.memory_bytes = memory << 30;
        harness.hello(host);
    }
    harness
}

fn taking(gpus: u64, memory: &str) -> StepSpec {
    let json = std::format!(
        r#"{{"command":["a"],"resources":{{"gpu_count":{gpus},"memory":"{memory}"}}}}"#
    );
    let request: sluice_common::request::StepRequest = serde_json::from_str(&json).unwrap();
    request.check().unwrap()
}

#[test]
fn a_step_that_breaks_an_assertion_is_rejected_with_its_numbers() {
    let mut harness = harness(
        &[("gpu_count <= 2", "take no more than two GPUs")],
        &[("n", 4, 64)],
    );
    harness.submit("ok", taking(2, "1GiB")).unwrap();
    harness.submit("no", taking(3, "1GiB")).unwrap();
    assert_eq!(harness.state("ok"), StepState::Allocated);
    assert_eq!(
        (harness.state("no"), harness.code("no")),
        (StepState::Rejected, ReasonCode::ValidationFailed)
    );
    let reason = harness.reason("no");
    assert_eq!(
        reason.message,
        "take no more than two GPUs (validation `v` of pool `default`: gpu_count <= 2; gpu_count is 3)"
    );
    let text = |name: &str| reason.detail[name].clone();
    assert_eq!(text("validation"), Detail::from("v"));
    assert_eq!(text("found"), Detail::from("gpu_count is 3"));
}

#[test]
fn a_host_that_does_not_know_its_gpus_yet_fails_no_assertion() {
    let asserted = [("gpu_count == node.gpu_count", "take all GPUs of a host")];
    let mut harness = harness(&asserted, &[("n", 2, 64)]);
    harness.submit("before", taking(4, "1GiB")).unwrap();
    assert_eq!(harness.code("before"), ReasonCode::ValidationFailed);
    let mut silent = hello("silent", 0, 8);
    silent.inventory.gpus_unknown = true;
    harness.hello(silent);
    harness.submit("after", taking(4, "1GiB")).unwrap();
    assert_eq!(
        (harness.state("after"), harness.code("after")),
        (StepState::Queued, ReasonCode::GpusUnknown)
    );
}

#[test]
fn one_host_must_keep_all_assertions_about_hosts_together() {
    let asserted = [
        ("memory <= 0.5 * node.memory", "take half of a host at most"),
        ("gpu_count == node.gpu_count", "take all GPUs of a host"),
    ];
    let hosts = [("gpus", 4, 16), ("memory", 1, 64), ("poor", 1, 8)];
    let mut harness = harness(&asserted, &hosts);
    harness.submit("a", taking(4, "16GiB")).unwrap();
    let reason = harness.reason("a");
    assert_eq!(reason.code, ReasonCode::ValidationFailed);
    // Each host fails one assertion; the one with the closer numbers comes first.
    assert_eq!(
        reason.message,
        "take half of a host at most (no host of pool `default` passes all of its validations: \
         `gpus`: memory <= 0.5 * node.memory (memory is 16GiB, 0.5 * node.memory is 8GiB); \
         `memory`: gpu_count == node.gpu_count (gpu_count is 4, node.gpu_count is 1); \
         `poor`: memory <= 0.5 * node.memory (memory is 16GiB, 0.5 * node.memory is 4GiB); \
         gpu_count == node.gpu_count (gpu_count is 4, node.gpu_count is 1))"
    );
    assert_eq!(reason.detail["hosts"], Detail::from(3));
    let keys: Vec<&String> = reason
        .detail
        .keys()
        .filter(|key| key.starts_with("host "))
        .collect();
    assert_eq!(keys, ["host 01", "host 02", "host 03"]);
    harness.submit("b", taking(4, "8GiB")).unwrap();
    assert_eq!(harness.state("b"), StepState::Allocated);
}

#[test]
fn at_most_ten_hosts_are_told_of() {
    let names: Vec<String> = (0..12u64).map(|n| std::format!("n{n:02}")).collect();
    let hosts: Vec<(&str, u32, u64)> = names
        .iter()
        .zip(1..)
        .map(|(name, memory)| (name.as_str(), 1, memory))
        .collect();
    let mut harness = harness(&[("memory <= node.memory", "too much")], &hosts);
    harness.submit("a", taking(0, "16GiB")).unwrap();
    let message = harness.reason("a").message;
    assert!(
        message.contains(
            "`n11`: memory <= node.memory (memory is 16GiB, node.memory is 12GiB); `n10`"
        ),
        "{message}"
    );
    assert!(
        message.ends_with("node.memory is 3GiB); and 2 more)"),
        "{message}"
    );
}

#[test]
fn hosts_of_another_platform_do_not_count_and_what_is_lacking_is_said() {
    let asserted = [("node.gpu_memory >= 80GiB", "ask for a platform with 80 GiB")];
    let mut harness = harness(&asserted, &[]);
    harness
        .submit(
            "early",
            StepSpec {
                allow_pending: true,
                ..taking(0, "1GiB")
            },
        )
        .unwrap();
    assert_eq!(
        harness.state("early"),
        StepState::Queued,
        "there is no host to check"
    );
    harness.cancel("early");
    for (name, model, memory) in [("big", "a100", 80), ("small", "l40s", 48)] {
        let mut host = hello(name, 1, 8);
        host.inventory.gpus[0].platform = model.into();
        host.inventory.gpus[0].memory_bytes = memory << 30;
        harness.hello(host);
    }
    let on = |platform: &str| StepSpec {
        platform: Some(platform.into()),
        ..spec(1, 0)
    };
    harness.submit("a", on("a100")).unwrap();
    assert_eq!(harness.state("a"), StepState::Allocated);
    harness.submit("l", on("l40s")).unwrap();
    assert!(
        harness
            .reason("l")
            .message
            .contains("`small`: node.gpu_memory >= 80GiB (node.gpu_memory is 48GiB)")
    );
    harness.hello(hello("bare", 0, 8));
    harness.submit("c", on("cpu")).unwrap();
    assert!(
        harness
            .reason("c")
            .message
            .contains("`bare`: node.gpu_memory >= 80GiB (it cannot be evaluated: it has no GPU)")
    );
}

#[test]
fn what_is_judged_is_the_step_with_what_its_pool_fills_in() {
    let mut harness = harness(
        &[("timeout <= 1h", "say how long it may run")],
        &[("n", 1, 64)],
    );
    harness
        .submit(
            "endless",
            StepSpec {
                timeout: None,
                ..spec(0, 0)
            },
        )
        .unwrap();
    assert!(
        harness
            .reason("endless")
            .message
            .ends_with("timeout is without end)")
    );
    let defaults = StepDefaults {
        timeout: Some(Span::from_secs(60)),
        ..StepDefaults::default()
    };
    harness.apply(vec![pool(
        "default",
        PoolSpec {
            defaults,
            ..rules(&["v"])
        },
    )]);
    let silent = StepSpec {
        timeout: None,
        unset: [Setting::Timeout].into(),
        ..spec(0, 0)
    };
    harness.submit("silent", silent).unwrap();
    assert_eq!(harness.state("silent"), StepState::Allocated);
}

#[test]
fn a_pool_whose_assertions_it_breaks_is_not_among_those_that_it_waits_for() {
    let mut harness = Harness::new();
    harness.start();
    let nowhere_else = Desired::NoPolicy {
        pool: "default".parse().unwrap(),
        subject: "s".parse().unwrap(),
    };
    harness.apply(vec![
        asserting("small", &[("cpu_count <= 1", "take one core")]),
        pool("best", rules(&["small"])),
        pool("rest", PoolSpec::default()),
        nowhere_else,
    ]);
    for (name, priority) in [("best", 2), ("rest", 1)] {
        harness.put_policy(
            name,
            "s",
            PolicySpec {
                priority,
                ..PolicySpec::default()
            },
        );
        let mut host = hello(name, 0, 4);
        host.pool = name.parse().unwrap();
        harness.hello(host);
    }
    harness.submit("large", spec(0, 2000)).unwrap();
    assert_eq!(harness.placed("large").0, "rest");
    harness.submit("small", spec(0, 1000)).unwrap();
    assert_eq!(harness.placed("small").0, "best");
    harness
        .submit("named", in_pool(spec(0, 2000), "best"))
        .unwrap();
    assert_eq!(harness.code("named"), ReasonCode::ValidationFailed);
}

fn refusal(harness: &mut Harness, wanted: Vec<Desired>) -> (Option<usize>, String) {
    let changes = wanted.into_iter().map(|wanted| TermsChange {
        desired: wanted,
        version: None,
    });
    let effects = harness.feed(Input::Apply {
        reply: ReplyId(7),
        changes: changes.collect(),
        force: true,
        dry_run: false,
    });
    match effects.answers.into_iter().next() {
        Some(Answer::Applied(Err(refused))) => (refused.at, refused.refusal.to_string()),
        other => panic!("it is refused: {other:?}"),
    }
}

#[test]
fn a_document_is_there_as_long_as_a_pool_names_it() {
    let mut harness = harness(&[("gpu_count <= 2", "m")], &[]);
    let gone = Desired::NoValidation {
        validation: "v".parse().unwrap(),
    };
    let (at, why) = refusal(&mut harness, vec![gone.clone()]);
    assert_eq!(
        (at, why.as_str()),
        (
            Some(0),
            "validation `v` cannot be deleted, because pool `default` names it in `validations`: remove it there first"
        )
    );
    assert_eq!(
        harness.core.state().validations().len(),
        1,
        "nothing was changed"
    );
    let other = asserting("gpus-of-all", &[("gpu_count <= 8", "m")]);
    let misspelt = pool("default", rules(&["v", "gpus-of-al"]));
    let (at, why) = refusal(&mut harness, vec![other, misspelt]);
    assert_eq!(at, Some(1));
    assert!(why.ends_with("did you mean `gpus-of-all`?"), "{why}");
    assert_eq!(
        harness.core.state().validations().len(),
        1,
        "the other was not made either"
    );
    harness.apply(vec![gone.clone(), pool("default", PoolSpec::default())]);
    assert!(harness.core.state().validations().is_empty());
    let (_, why) = refusal(&mut harness, vec![gone]);
    assert_eq!(
        why,
        Refusal::UnknownValidation {
            validation: "v".parse().unwrap()
        }
        .to_string()
    );
}

#[test]
fn a_change_holds_for_what_is_submitted_after_it() {
    let mut harness = harness(&[("gpu_count <= 2", "m")], &[]);
    harness.submit("waits", taking(2, "1GiB")).unwrap();
    harness.apply(vec![asserting("v", &[("gpu_count <= 1", "m")])]);
    assert_eq!(harness.state("waits"), StepState::Queued);
    harness.submit("later", taking(2, "1GiB")).unwrap();
    assert_eq!(harness.state("later"), StepState::Rejected);
}

#[test]
fn the_hosts_of_a_declared_platform_are_those_that_its_selector_means() {
    let mut harness = harness(
        &[("memory <= 0.5 * node.memory", "take half of a host")],
        &[],
    );
    let big = serde_json::from_str(r#"{"selector":{"gpu_memory":">=60GB"}}"#).unwrap();
    let spec = PoolSpec {
        default_platform: Some("big".parse().unwrap()),
        ..rules(&["v"])
    };
    let platforms = Some([("big".parse().unwrap(), big)].into());
    let terms = DesiredPool { spec, platforms };
    let wanted = Desired::Pool {
        pool: "default".parse().unwrap(),
        terms: terms.into(),
    };
    harness.apply(vec![wanted]);
    for (name, gpu, memory) in [("big", 80, 32), ("small", 40, 256)] {
        let mut host = hello(name, 1, 8);
        host.inventory.gpus[0].memory_bytes = gpu << 30;
        host.inventory.memory_bytes = memory << 30;
        harness.hello(host);
    }
    let on = |platform: Option<&str>| StepSpec {
        platform: platform.map(String::from),
        ..taking(1, "20GiB")
    };
    for (id, platform) in [("named", Some("big")), ("default", None)] {
        harness.submit(id, on(platform)).unwrap();
        let reason = harness.reason(id);
        assert_eq!(reason.detail["hosts"], Detail::from(1), "{reason:?}");
        assert!(
            reason.message.contains("`big`: memory <= 0.5"),
            "{reason:?}"
        );
    }
    harness.submit("any", on(Some("any"))).unwrap();
    assert_eq!(harness.state("any"), StepState::Allocated);
}
