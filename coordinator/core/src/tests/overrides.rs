//! Tests of platforms that override the templates of their pool and add assertions: for which steps, in which order,
//! and with which origins.

use alloc::boxed::Box;
use sluice_common::pool::PoolSpec;
use std::format;
use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

use sluice_common::platform::spec::PlatformSpec;
use sluice_common::pool::PolicySpec;
use sluice_common::reason::ReasonCode;
use sluice_common::request::StepRequest;
use sluice_common::state::StepState;
use sluice_common::step::StepSpec;
use sluice_common::template::Template;
use sluice_common::validation::ValidationSpec;
use sluice_common::wire::{Assignment, ToNode};

use super::harness::*;
use crate::input::DesiredPool;
use crate::output::Refused;
use crate::{Answer, CheckStatus, Desired, Input, NewStep, Refusal, ReplyId};

/// Makes host `a` with four A100, two of 40 GB before two of 80 GB; host `h` with four H100; host `c` with none.
fn mixed(wanted: Vec<Desired>) -> Harness {
    let mut harness = Harness::new();
    harness.start();
    for (name, model, gpus) in [("a", "a100", 4), ("h", "h100", 4), ("c", "", 0)] {
        let mut hello = hello(name, gpus, 64);
        for gpu in &mut hello.inventory.gpus {
            gpu.platform = model.into();
            let gib = if model == "a100" && gpu.index < 2 {
                40
            } else {
                80
            };
            gpu.memory_bytes = gib << 30;
        }
        harness.hello(hello);
    }
    let base = r#"{"env":{"A":"base","B":"base"},"wrapper":["nice"],"resources":{"cpu_count":1}}"#;
    let terms: Template = serde_json::from_str(base).unwrap();
    let template = Desired::Template {
        template: "base".parse().unwrap(),
        terms: Box::new(terms),
    };
    harness.put_policy("default", "s", PolicySpec::default());
    applied(&mut harness, vec![template, pool(None, &[])]).unwrap();
    applied(&mut harness, wanted).unwrap();
    harness
}

pub(super) fn applied(harness: &mut Harness, wanted: Vec<Desired>) -> Result<(), Refusal> {
    match &harness.apply(wanted).answers[..] {
        [Answer::Applied(Ok(_))] => Ok(()),
        [Answer::Applied(Err(Refused { refusal, .. }))] => Err(refusal.clone()),
        other => panic!("{other:?}"),
    }
}

pub(super) fn pool(default: Option<&str>, validations: &[&str]) -> Desired {
    let rules = PoolSpec {
        templates: vec!["base".parse().unwrap()],
        default_platform: default.map(|name| name.parse().unwrap()),
        validations: validations
            .iter()
            .map(|name| name.parse().unwrap())
            .collect(),
        ..PoolSpec::default()
    };
    Desired::Pool {
        pool: "default".parse().unwrap(),
        terms: Box::new(DesiredPool::from(rules)),
    }
}

pub(super) fn platform(name: &str, json: &str) -> Desired {
    let terms: PlatformSpec = serde_json::from_str(json).unwrap();
    Desired::Platform {
        pool: "default".parse().unwrap(),
        platform: name.parse().unwrap(),
        terms: terms.into(),
    }
}

fn validation(name: &str, json: &str) -> Desired {
    let terms: ValidationSpec = serde_json::from_str(json).unwrap();
    terms.read().unwrap();
    Desired::Validation {
        validation: name.parse().unwrap(),
        terms,
    }
}

pub(super) fn asks(fields: &str) -> StepSpec {
    let json = format!(r#"{{"command":["train"],"subject":"s"{fields}}}"#);
    let request: StepRequest = serde_json::from_str(&json).unwrap();
    request.check().unwrap()
}

fn assigned(harness: &mut Harness, id: &str, fields: &str) -> Vec<Assignment> {
    let spec = asks(fields);
    let steps = vec![NewStep::new(step(id), spec)];
    let reply = ReplyId(900);
    let effects = harness.feed(Input::Submit { reply, steps });
    let assigned_step: Vec<Assignment> = orders(&effects.sent).collect();
    assert!(!assigned_step.is_empty(), "{:?}", harness.reason(id));
    assigned_step
}

fn orders(sent: &[ToNode]) -> impl Iterator<Item = Assignment> {
    sent.iter().filter_map(|order| {
        let ToNode::Assign(assignment) = order else {
            return None;
        };
        Some((**assignment).clone())
    })
}

/// Returns the environment of the assignment as `NAME=VALUE`, and the wrapper.
fn launched(harness: &mut Harness, id: &str, fields: &str) -> String {
    let assigned_step = assigned(harness, id, fields).remove(0).launch;
    let env = assigned_step
        .env
        .iter()
        .map(|(name, value)| format!("{name}={value}"));
    let words: Vec<String> = env.chain(assigned_step.wrapper).collect();
    words.join(" ")
}

const A100: &str = r#"{"selector":{"gpu_model":"a100"},
    "override":{"env":{"B":"{{platform}}","C":"a"},"resources":{"cpu_count":2}}}"#;
const H100: &str = r#"{"selector":{"gpu_model":"h100"},"override":{"env":{"B":"{{platform}}"},"wrapper":["fast"]}}"#;

pub(super) fn named(gpus: u64, platform: &str) -> String {
    format!(r#","platform":"{platform}","resources":{{"gpu_count":{gpus}}}"#)
}

#[test]
fn an_override_goes_over_the_pool_s_templates_where_hardware_of_it_is_granted() {
    let mut harness = mixed(vec![platform("a100", A100), platform("h100", H100)]);
    assert_eq!(
        launched(&mut harness, "a", &named(1, "a100")),
        "A=base B=a100 C=a nice"
    );
    assert_eq!(
        launched(&mut harness, "h", &named(1, "h100")),
        "A=base B=h100 fast"
    );
    // In a list, the override of the granted platform applies; the step's own fields override it, on its host.
    let second = format!(r#"{},"env":{{"C":"own"}}"#, named(4, "h100,a100"));
    assert_eq!(harness.state("h"), StepState::Allocated);
    harness.submit("full", asks(&named(3, "h100"))).unwrap();
    let less = second.replace(":4", ":1");
    assert_eq!(
        launched(&mut harness, "list", &less),
        "A=base B=a100 C=a nice"
    );
    // A step for any platform gets the override of the model, or else the pool's templates.
    let any = r#","resources":{"gpu_count":1}"#;
    assert_eq!(launched(&mut harness, "any", any), "A=base B=a100 C=a nice");
    let cpu = r#","platform":"cpu","resources":{"cpu_count":1}"#;
    assert_eq!(launched(&mut harness, "cpu", cpu), "A=base B=base nice");
}

#[test]
fn who_takes_any_and_no_gpu_has_no_part_in_what_tells_gpus_apart() {
    let many = validation("many", MANY);
    let strict = A100.replace("\"override\"", "\"validations\":[\"many\"],\"override\"");
    let wide = r#"{"selector":{"labels":"sluice/gpu.model=a100"},"override":{"env":{"D":"{{platform}}"}}}"#;
    let mut harness = mixed(vec![
        many,
        platform("a100", &strict),
        platform("wide", wide),
    ]);
    for (id, kind) in [("h", "h100"), ("c", "cpu")] {
        let fields = format!(r#","platform":"{kind}","resources":{{"cpu_count":64}}"#);
        harness.submit(id, asks(&fields)).unwrap();
    }
    // On the host of the A100s the platform is that of the host alone.
    let assigned_step =
        assigned(&mut harness, "small", r#","resources":{"cpu_count":1}"#).remove(0);
    assert_eq!(harness.placed("small").0, "a");
    let env: Vec<String> = assigned_step.launch.env.values().cloned().collect();
    assert_eq!(env, ["base", "base", "wide"]);
    harness
        .submit(
            "named",
            asks(r#","platform":"a100","resources":{"cpu_count":1}"#),
        )
        .unwrap();
    assert_eq!(harness.code("named"), ReasonCode::ValidationFailed);
}

#[test]
fn amounts_are_those_of_the_platform_that_is_named_first_or_is_the_default() {
    let mut harness = mixed(vec![platform("a100", A100), platform("h100", H100)]);
    let cores = |harness: &mut Harness, id: &str, fields: &str| {
        harness.submit(id, asks(fields)).unwrap();
        let asked = &harness.step(id).spec.request;
        asked.get(sluice_common::amount::MCPU)
    };
    assert_eq!(cores(&mut harness, "a", &named(1, "a100,h100")), 2000);
    assert_eq!(cores(&mut harness, "h", &named(1, "h100,a100")), 1000);
    assert_eq!(cores(&mut harness, "any", &named(1, "any")), 1000);
    assert_eq!(cores(&mut harness, "none", ""), 1000);
    applied(&mut harness, vec![pool(Some("a100"), &[])]).unwrap();
    assert_eq!(cores(&mut harness, "default", ""), 2000);
    let merged = harness.core.merged(harness.step("default"), None);
    assert_eq!(merged.template.resources.cpu_count, Some(2.0));
    assert_eq!(
        merged.origins["resources.cpu_count"].to_string(),
        "platform a100 of pool default, override"
    );
    assert_eq!(
        merged.origins["env.C"].to_string(),
        "platform a100 of pool default, override"
    );
    assert_eq!(
        merged.origins["wrapper"].to_string(),
        "template base of pool default"
    );
    assert_eq!(merged.platform.unwrap().as_str(), "a100");
}

#[test]
fn of_platforms_that_share_a_gpu_the_one_that_is_asked_for_says_what_holds() {
    let large = r#"{"selector":{"gpu_model":"a100","gpu_memory":">=80GB"},"override":{"env":{"B":"large"}}}"#;
    let mut harness = mixed(vec![platform("a100", A100), platform("zz-large", large)]);
    assert_eq!(
        launched(&mut harness, "l", &named(1, "zz-large")),
        "A=base B=large nice"
    );
    harness.submit("fill", asks(&named(2, "a100"))).unwrap();
    let (_, gpus) = harness.placed("fill");
    assert_eq!(gpus, ["GPU-a-0", "GPU-a-1"]);
    // The last GPU is of both platforms: the wide one if the step asks for it or for any.
    assert_eq!(
        launched(&mut harness, "w", &named(1, "a100")),
        "A=base B=a100 C=a nice"
    );
    harness.cancel("w");
    harness.status(
        "a",
        "w.1",
        gone(
            sluice_common::supervision::Exit::Code(0),
            sluice_common::wire::StopReason::Cancelled,
        ),
    );
    harness.submit("others", asks(&named(4, "h100"))).unwrap();
    assert_eq!(
        launched(&mut harness, "any", &named(1, "any")),
        "A=base B=a100 C=a nice"
    );
}

#[test]
fn each_part_of_a_gang_stands_on_what_its_own_hardware_says() {
    let mut harness = mixed(vec![platform("a100", A100)]);
    let mut second = hello("a2", 4, 64);
    for gpu in &mut second.inventory.gpus {
        gpu.platform = "a100".into();
    }
    harness.hello(second);
    let fields = format!(r#"{},"nodes":2"#, named(4, "a100"));
    let assigned_step = assigned(&mut harness, "gang", &fields);
    assert_eq!(assigned_step.len(), 2);
    assert!(assigned_step.iter().all(|it| it.launch.env["C"] == "a"));
}

#[test]
fn a_change_of_an_override_concerns_what_is_submitted_after_it() {
    let mut harness = mixed(vec![platform("a100", A100)]);
    harness.submit("holds", asks(&named(4, "a100"))).unwrap();
    harness.submit("waits", asks(&named(1, "a100"))).unwrap();
    let changed = r#"{"selector":{"gpu_model":"a100"},"override":{"env":{"B":"new"}}}"#;
    applied(&mut harness, vec![platform("a100", changed)]).unwrap();
    let effects = harness.status(
        "a",
        "holds.1",
        released(sluice_common::supervision::Exit::Code(0)),
    );
    let late = orders(&effects.sent).next();
    let late = late.unwrap();
    assert_eq!(
        (&*late.launch.env["B"], &*late.launch.env["C"]),
        ("a100", "a")
    );
    assert_eq!(
        launched(&mut harness, "new", &named(1, "a100")),
        "A=base B=new nice"
    );
    harness.restart(0);
    let pool = harness
        .core
        .state()
        .pool(&"default".parse().unwrap())
        .unwrap();
    let pool = &pool.platforms[&"a100".parse().unwrap()].terms;
    assert_eq!(pool.overrides.as_ref().unwrap().env["B"], "new");
}

#[test]
fn what_an_override_does_not_let_be_is_refused_wherever_the_step_may_be_granted_it() {
    let open = r#"{"selector":{"gpu_model":"a100"},"override":{"privileged_allowed":true,
        "privileged_argument":"-p","wrapper":["run","{{privileged}}"]}}"#;
    let mut harness = mixed(vec![platform("a100", open)]);
    let privileged = |platform: &str| format!(r#"{},"privileged":true"#, named(1, platform));
    assert_eq!(
        launched(&mut harness, "a", &privileged("a100")),
        "A=base B=base run -p"
    );
    for (id, platform) in [("any", "any"), ("list", "a100,h100"), ("other", "h100")] {
        harness.submit(id, asks(&privileged(platform))).unwrap();
        let reason = harness.reason(id);
        assert_eq!(reason.code, ReasonCode::PrivilegedNotAllowed, "{platform}");
        assert_eq!(
            reason.message,
            "pool `default`: it asks for `privileged`, which is not allowed there"
        );
    }
}

#[test]
fn what_is_forbidden_on_the_hosts_of_a_platform_is_so_for_steps_without_gpus_too() {
    let shut = r#"{"selector":{"gpu_model":"a100"},"override":{"privileged_allowed":false}}"#;
    let mut harness = mixed(vec![platform("a100", shut)]);
    let base = r#"{"wrapper":["run","{{privileged}}"],"privileged_allowed":true,"privileged_argument":"-p"}"#;
    let open = Desired::Template {
        template: "base".parse().unwrap(),
        terms: Box::new(serde_json::from_str(base).unwrap()),
    };
    applied(&mut harness, vec![open]).unwrap();
    for (id, fields) in [
        ("none", r#","privileged":true,"resources":{"gpu_count":0}"#),
        ("unsaid", r#","privileged":true"#),
    ] {
        harness.submit(id, asks(fields)).unwrap();
        let reason = harness.reason(id);
        assert_eq!(reason.code, ReasonCode::PrivilegedNotAllowed, "{id}");
        let words = "not allowed there on hosts of platform `a100`, where it may run because it names no platform";
        assert!(reason.message.contains(words), "{}", reason.message);
    }
    let there = r#","privileged":true,"platform":"cpu","resources":{"gpu_count":0}"#;
    assert_eq!(launched(&mut harness, "there", there), "run -p");
    // A step that asks for nothing runs there as before.
    assert_eq!(launched(&mut harness, "plain", ""), "run");
}

const STRICT: &str = r#"{"selector":{"gpu_model":"h100"},"validations":["many"]}"#;
const MANY: &str =
    r#"{"assertions":[{"assert":"gpu_count >= 2","message":"take two H100 at least"}]}"#;

#[test]
fn a_step_keeps_the_assertions_of_each_platform_that_it_may_be_granted() {
    let mut harness = mixed(vec![validation("many", MANY), platform("h100", STRICT)]);
    let mut assigned_step = |id: &str, fields: &str| {
        harness.submit(id, asks(fields)).unwrap();
        let reason = harness.reason(id);
        (reason.code, reason.message)
    };
    let failed = ReasonCode::ValidationFailed;
    assert_eq!(
        assigned_step("one", &named(1, "h100")),
        (
            failed,
            "take two H100 at least (validation `many` of platform `h100` of pool `default`: gpu_count >= 2; \
             gpu_count is 1)"
                .to_string()
        )
    );
    assert_eq!(assigned_step("list", &named(1, "a100,h100")).0, failed);
    assert_eq!(
        assigned_step("any", &named(1, "any")).1,
        "take two H100 at least (validation `many` of platform `h100` of pool `default`, which it may get because it accepts any: gpu_count >= 2; gpu_count is 1)"
    );
    assert_eq!(
        assigned_step("other", &named(1, "a100")).0,
        ReasonCode::Allocated
    );
    assert_eq!(
        assigned_step("two", &named(2, "h100")).0,
        ReasonCode::Allocated
    );
    applied(&mut harness, vec![pool(Some("h100"), &[])]).unwrap();
    harness
        .submit("default", asks(r#","resources":{"gpu_count":1}"#))
        .unwrap();
    assert_eq!(harness.code("default"), failed);
}

#[test]
fn one_host_of_the_platform_keeps_what_it_and_its_pool_assert_of_hosts() {
    let half =
        r#"{"assertions":[{"assert":"cpu_count <= 0.5 * node.cpu_count","message":"half"}]}"#;
    let roomy = r#"{"assertions":[{"assert":"node.memory >= 64GB","message":"roomy"}]}"#;
    let own = r#"{"selector":{"gpu_model":"h100"},"validations":["roomy"]}"#;
    let mut harness = mixed(vec![
        validation("half", half),
        validation("roomy", roomy),
        platform("h100", own),
        pool(None, &["half"]),
    ]);
    // The second host has the cores and not the memory; the first the memory and not the cores.
    let mut poor = hello("h2", 4, 128);
    poor.inventory.memory_bytes = 1 << 30;
    for gpu in &mut poor.inventory.gpus {
        gpu.platform = "h100".into();
    }
    harness.hello(poor);
    let cores =
        |n: u64| format!(r#","platform":"h100","resources":{{"gpu_count":1,"cpu_count":{n}}}"#);
    harness.submit("fits", asks(&cores(32))).unwrap();
    assert_eq!(harness.state("fits"), StepState::Allocated);
    harness.submit("no", asks(&cores(40))).unwrap();
    let message = harness.reason("no").message;
    assert!(
        message
            .contains("no host of platform `h100` of pool `default` passes all of its validations"),
        "{message}"
    );
}

#[test]
fn a_document_that_a_platform_names_is_there() {
    let mut harness = mixed(vec![validation("many", MANY)]);
    let wrong = STRICT.replace("many", "manx");
    let refusal = applied(&mut harness, vec![platform("h100", &wrong)]).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "validation `manx` is not there, and platform `h100` of pool `default` names it in `validations`: did you mean \
         `many`?"
    );
    applied(&mut harness, vec![platform("h100", STRICT)]).unwrap();
    let gone = Desired::NoValidation {
        validation: "many".parse().unwrap(),
    };
    let refusal = applied(&mut harness, vec![gone]).unwrap_err();
    assert!(
        matches!(
            &refusal,
            Refusal::PoolNamesValidation {
                platform: Some(_),
                ..
            }
        ),
        "{refusal}"
    );
}

#[test]
fn a_dry_run_shows_what_a_platform_lays_and_asserts_and_judges_what_is_merged() {
    let two = r#"{"selector":{"gpu_model":"h100"},"override":{"resources":{"gpu_count":2},"env":{"KEY":"secret"}},
        "validations":["many"]}"#;
    let mut harness = mixed(vec![
        validation("many", MANY),
        platform("h100", two),
        pool(Some("h100"), &[]),
    ]);
    let effects = harness.feed(Input::Preview {
        reply: ReplyId(7),
        step: NewStep::new(step("trial"), asks("")).into(),
    });
    let [Answer::Previewed(preview)] = &effects.answers[..] else {
        panic!("{effects:?}");
    };
    let lines = preview.stages.iter().flat_map(|stage| &stage.lines);
    let lines: Vec<String> = lines
        .filter(|line| line.passage == CheckStatus::Passed)
        .map(|line| format!("{}: {}", line.check.about(), line.check.message()))
        .collect();
    for expected in [
        "env.KEY: ***, from platform h100 of pool default, override",
        "resources.gpu_count: 2, from platform h100 of pool default, override",
        "resources.cpu_count: 1, from template base of pool default",
        "wrapper: nice, from template base of pool default",
        "many of h100: gpu_count >= 2: it holds",
        "h100: one host could hold it: `h`",
        "allocated: it starts at once, on `h` with 2 GPUs",
    ] {
        assert!(
            lines.iter().any(|line| line == expected),
            "{expected}: {lines:#?}"
        );
    }
}
