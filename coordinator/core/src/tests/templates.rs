//! Tests of templates under steps: in which order, for which steps, and what hosts are told.

use alloc::boxed::Box;
use sluice_common::pool::PoolSpec;
use std::string::{String, ToString};
use std::vec::Vec;
use std::{format, vec};

use sluice_common::amount::{MCPU, MEMORY_MB, MGPU, STORAGE_MB};
use sluice_common::directory_refusal::DirectoryRefusal;
use sluice_common::pool::PolicySpec;
use sluice_common::pool_rules::StepDefaults;
use sluice_common::reason::ReasonCode;
use sluice_common::request::StepRequest;
use sluice_common::state::StepState;
use sluice_common::step::StepSpec;
use sluice_common::template::Template;
use sluice_common::time::Span;
use sluice_common::wire::{Assignment, AttemptPhase, ToNode};

use crate::input::DesiredPool;
use crate::output::Refused;
use crate::submit::effective_spec::preview_effective_step;
use crate::{Answer, Desired, Input, Record, Refusal, ReplyId, Submitted, TermsChange};

use super::harness::*;

fn template(name: &str, json: &str) -> Desired {
    let terms: Template = serde_json::from_str(json).unwrap();
    terms.check().unwrap();
    Desired::Template {
        template: name.parse().unwrap(),
        terms: Box::new(terms),
    }
}

fn no_template(name: &str) -> Desired {
    Desired::NoTemplate {
        template: name.parse().unwrap(),
    }
}

fn rules(templates: &[&str]) -> PoolSpec {
    PoolSpec {
        templates: templates.iter().map(|name| name.parse().unwrap()).collect(),
        ..PoolSpec::default()
    }
}

fn pool(name: &str, rules: PoolSpec) -> Desired {
    Desired::Pool {
        pool: name.parse().unwrap(),
        terms: Box::new(DesiredPool::from(rules)),
    }
}

fn asks(fields: &str) -> StepSpec {
    let json = format!(r#"{{"command":["train"],"subject":"s"{fields}}}"#);
    let request: StepRequest = serde_json::from_str(&json).unwrap();
    request.check().unwrap()
}

/// Makes pools `best`, which subject `s` prefers, and `rest`, each with a host with 4 GPUs and 8 cores.
fn two(changes: Vec<Desired>) -> Harness {
    let mut harness = Harness::new();
    harness.start();
    let made = ["best", "rest"].map(|name| pool(name, PoolSpec::default()));
    harness.apply(made.into());
    for (pool, priority) in [("best", 2), ("rest", 1)] {
        let policy = PolicySpec {
            priority,
            ..PolicySpec::default()
        };
        harness.put_policy(pool, "s", policy);
    }
    for name in ["best", "rest"] {
        let mut host = hello(&format!("n-{name}"), 4, 8);
        host.pool = name.parse().unwrap();
        for (index, gpu) in (0..).zip(&mut host.inventory.gpus) {
            gpu.numa_node = Some(index / 2);
        }
        harness.hello(host);
    }
    harness.apply(changes);
    harness
}

fn assigned(harness: &mut Harness, id: &str, spec: StepSpec) -> Assignment {
    let steps = vec![crate::NewStep::new(step(id), spec)];
    let reply = ReplyId(900);
    let effects = harness.feed(Input::Submit { reply, steps });
    match effects.sent.first() {
        Some(ToNode::Assign(assignment)) => (**assignment).clone(),
        other => panic!("{other:?} {:?}", harness.reason(id)),
    }
}

fn refused(harness: &mut Harness, wanted: Vec<Desired>, force: bool) -> Refusal {
    let changes = wanted.into_iter().map(|wanted| TermsChange {
        desired: wanted,
        version: None,
    });
    let effects = harness.feed(Input::Apply {
        reply: ReplyId(901),
        changes: changes.collect(),
        force,
        dry_run: false,
    });
    match &effects.answers[..] {
        [Answer::Applied(Err(Refused { refusal, .. }))] => refusal.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn templates_apply_in_order_under_the_step_s_own_and_all_is_filled_in() {
    let mut harness = two(vec![
        template(
            "a",
            r#"{"env":{"A":"a","B":"a","W":"{{node}}"},"wrapper":["nice"],"limits":{"nofile":9},"workdir":"/scratch/{{subject}}"}"#,
        ),
        template(
            "b",
            r#"{"env":{"B":"b-{{pool}}"},"wrapper":["numactl","--cpunodebind={{numa}}","--gpus={{gpu_count}}","--"],
                "hooks":{"before":[{"command":["stage","{{step}}.{{attempt}}","{{workdir}}"]}]}}"#,
        ),
        pool("best", rules(&["a", "b"])),
    ]);
    let assigned_step = assigned(
        &mut harness,
        "x",
        asks(r#","env":{"A":"own"},"resources":{"gpu_count":1,"cpu_count":1}"#),
    );
    assert_eq!(assigned_step.command, ["train"]);
    assert_eq!(
        assigned_step.launch.wrapper,
        ["numactl", "--cpunodebind=0", "--gpus=1", "--"]
    );
    let env: Vec<String> = assigned_step
        .launch
        .env
        .iter()
        .map(|(k, v)| format!("{k}={v}"))
        .collect();
    assert_eq!(
        env,
        ["A=a", "B=b-best", "W=n-best"],
        "the step's own goes over them on its host, and takes none from a wrapper"
    );
    assert_eq!(assigned_step.workdir.as_deref(), Some("/scratch/s"));
    assert_eq!(assigned_step.launch.hooks.limits[0].name, "nofile");
    assert_eq!(
        assigned_step.launch.hooks.before[0].command,
        ["stage", "x.1", "/scratch/s"]
    );
    let both = assigned(
        &mut harness,
        "y",
        asks(r#","workdir":"/own","resources":{"gpu_count":3}"#),
    );
    assert_eq!(both.launch.wrapper[1], "--cpunodebind=0,1");
    assert_eq!(both.workdir.as_deref(), Some("/own"));
}

#[test]
fn the_directory_that_a_step_prefers_counts_where_no_template_has_or_uses_one() {
    let prefers = r#","prefer_workdir":"/home/me""#;
    for (text, workdir, preferred) in [
        (r#"{"wrapper":["nice"]}"#, None, Some("/home/me")),
        (r#"{"workdir":"/scratch"}"#, Some("/scratch"), None),
        (r#"{"wrapper":["run","-w","{{workdir}}"]}"#, None, None),
        (r#"{"env":{"AT":"{{workdir}}"}}"#, None, None),
        (r#"{"mounts":[{"source":"{{workdir}}"}]}"#, None, None),
        (
            r#"{"hooks":{"after":[{"command":["rm","{{workdir}}/x"]}]}}"#,
            None,
            None,
        ),
    ] {
        let mut harness = two(vec![template("a", text), pool("best", rules(&["a"]))]);
        let found = assigned(&mut harness, "x", asks(prefers));
        assert_eq!(found.workdir.as_deref(), workdir, "{text}");
        assert_eq!(found.prefer_workdir.as_deref(), preferred, "{text}");
        harness.status("n-best", "x.1", AttemptPhase::Running(process()));
        let (core, step) = (&harness.core, harness.step("x"));
        let attempt = step.latest().unwrap();
        let refused = core.workdir_refused(step, attempt, &attempt.parts[0]);
        let is_template = (workdir, preferred) == (None, None);
        let expected = is_template.then_some(DirectoryRefusal::Template);
        assert_eq!(refused, expected, "{text}");
    }
    let mut harness = two(vec![]);
    let both = asks(r#","prefer_workdir":"/home/me","workdir":"/own""#);
    let found = assigned(&mut harness, "x", both);
    assert_eq!(
        (found.workdir.as_deref(), found.prefer_workdir),
        (Some("/own"), None)
    );
}

#[test]
fn without_templates_nothing_goes_around_a_step() {
    let mut harness = two(vec![]);
    let assigned_step = assigned(&mut harness, "x", asks(""));
    assert_eq!(
        assigned_step.launch,
        sluice_common::template::launch::Launch::default()
    );
    assert_eq!(assigned_step.workdir, None);
    assert!(harness.step("x").provenance.is_empty());
}

#[test]
fn a_change_concerns_what_is_submitted_after_it() {
    let says = |word: &str| {
        template(
            "a",
            &format!(r#"{{"wrapper":["{word}"],"resources":{{"cpu_count":1}}}}"#),
        )
    };
    let mut harness = two(vec![says("old"), pool("best", rules(&["a"]))]);
    let first = assigned(&mut harness, "x", asks(""));
    assert_eq!(first.launch.wrapper, ["old"]);
    let full = asks(r#","pool":"best","resources":{"gpu_count":4,"cpu_count":1}"#);
    assigned(&mut harness, "big", full);
    harness
        .submit(
            "waits",
            asks(r#","pool":"best","resources":{"gpu_count":1}"#),
        )
        .unwrap();
    harness.apply(vec![says("new")]);
    assert_eq!(
        assigned(&mut harness, "z", asks("")).launch.wrapper,
        ["new"]
    );
    let effects = harness.status(
        "n-best",
        "big.1",
        released(sluice_common::supervision::Exit::Code(0)),
    );
    let ToNode::Assign(late) = effects
        .sent
        .iter()
        .find(|order| matches!(order, ToNode::Assign(_)))
        .unwrap()
    else {
        unreachable!();
    };
    assert_eq!(late.attempt, attempt("waits.1"));
    assert_eq!(late.launch.wrapper, ["old"], "it was submitted before");
}

#[test]
fn amounts_that_a_step_does_not_say_are_those_of_the_pool_that_it_prefers() {
    let mut harness = two(vec![
        template(
            "a",
            r#"{"resources":{"gpu_count":2,"cpu_count":1.5,"memory":"1GiB","storage":"1GB"}}"#,
        ),
        template("b", r#"{"resources":{"gpu_count":1,"cpu_count":8}}"#),
        pool("best", rules(&["a"])),
        pool("rest", rules(&["b"])),
    ]);
    let request = |harness: &Harness, id: &str| {
        let request = &harness.step(id).spec.request;
        [MGPU, MCPU, MEMORY_MB, STORAGE_MB].map(|key| request.get(key))
    };
    let units = |harness: &mut Harness, id: &str, fields: &str| {
        harness.submit(id, asks(fields)).unwrap();
        request(harness, id)
    };
    let memory = 1074;
    // The hosts of these tests have hardly any memory or disk: only the request matters.
    let mut counted = units(&mut harness, "x", r#","allow_pending":true"#);
    assert_eq!(counted, [2000, 1500, memory, 1000]);
    counted = units(
        &mut harness,
        "zero",
        r#","resources":{"gpu_count":0,"cpu_count":0,"memory":"0B","storage":"0B"}"#,
    );
    assert_eq!(counted, [0, 0, 0, 0], "zero is a value");
    counted = units(&mut harness, "there", r#","pool":"rest""#);
    assert_eq!(counted, [1000, 8000, 0, 0]);
    let merged = harness
        .core
        .merged(harness.step("there"), Some(&"rest".parse().unwrap()));
    assert_eq!(merged.template.resources.gpu_count, Some(1));
    assert_eq!(
        merged.origins["resources.gpu_count"].to_string(),
        "template b of pool rest"
    );
}

#[test]
fn the_same_submit_again_is_a_repeat_whatever_templates_have_added() {
    let mut harness = two(vec![
        template("a", r#"{"resources":{"gpu_count":2}}"#),
        pool("best", rules(&["a"])),
    ]);
    harness.submit("x", asks("")).unwrap();
    harness.apply(vec![template("a", r#"{"resources":{"gpu_count":1}}"#)]);
    let again = harness.submit("x", asks("")).unwrap();
    let expected = Submitted {
        step: step("x"),
        created: false,
    };
    assert_eq!(again, expected);
    let other = harness.submit("x", asks(r#","resources":{"gpu_count":3}"#));
    assert!(matches!(other, Err(Refusal::IdInUse { .. })), "{other:?}");
    let other = harness.submit("x", asks(r#","privileged":true"#));
    assert!(matches!(other, Err(Refusal::IdInUse { .. })), "{other:?}");
}

#[test]
fn a_pool_whose_templates_do_not_let_a_step_be_is_barred_or_rejects_it() {
    let open = r#"{"wrapper":["run","{{privileged}}"],"privileged_allowed":true,"privileged_argument":"--privileged"}"#;
    let mut harness = two(vec![template("open", open), pool("rest", rules(&["open"]))]);
    let assigned_step = assigned(&mut harness, "x", asks(r#","privileged":true"#));
    assert_eq!(assigned_step.pool.as_str(), "rest");
    assert_eq!(assigned_step.launch.wrapper, ["run", "--privileged"]);
    harness
        .submit("y", asks(r#","pool":"best","privileged":true"#))
        .unwrap();
    let reason = harness.reason("y");
    assert_eq!(harness.state("y"), StepState::Rejected);
    assert_eq!(reason.code, ReasonCode::PrivilegedNotAllowed);
    assert_eq!(
        reason.message,
        "pool `best`: it asks for `privileged`, which is not allowed there"
    );
    for (fields, code) in [
        (r#","host_network":true"#, ReasonCode::HostNetworkNotAllowed),
        (
            r#","mounts":[{"source":"/data"}]"#,
            ReasonCode::MountNotAllowed,
        ),
    ] {
        let id = code.as_str();
        harness.submit(id, asks(fields)).unwrap();
        assert_eq!(harness.code(id), code);
        let listed = &harness.reason(id).detail["in rest"];
        assert!(
            format!("{listed:?}").contains("pool `rest`: it "),
            "{listed:?}"
        );
    }
    let large = "x".repeat(1024 * 1024 - 10);
    harness.apply(vec![template("open", r#"{"env":{"A":"0123456789"}}"#)]);
    harness
        .submit(
            "large",
            asks(&format!(r#","pool":"rest","env":{{"B":"{large}"}}"#)),
        )
        .unwrap();
    assert_eq!(harness.code("large"), ReasonCode::MergeTooLarge);
}

/// Submits a step that names no pool and is queued in `best`, beside a free host of the pool `later`, which forbids
/// privileged steps. The step is privileged unless `before` says that the pool was made first.
fn waits_while_a_pool_is_made(before: bool) -> Harness {
    let open =
        r#"{"wrapper":["{{privileged}}"],"privileged_allowed":true,"privileged_argument":"--all"}"#;
    let mut harness = two(vec![
        template("open", open),
        template("strict", r#"{"wrapper":["wrap"]}"#),
        pool("best", rules(&["open"])),
    ]);
    let later = || vec![pool("later", rules(&["strict"]))];
    if before {
        harness.apply(later());
    }
    for id in ["holds", "too"] {
        harness.submit(id, spec(4, 8000)).unwrap();
    }
    let asked = match before {
        true => r#","resources":{"cpu_count":8}"#,
        false => r#","privileged":true,"resources":{"cpu_count":8}"#,
    };
    harness.submit("x", asks(asked)).unwrap();
    assert_eq!(harness.state("x"), StepState::Queued);
    harness.apply(later());
    harness.put_policy("later", "s", PolicySpec::default());
    let mut host = hello("n-later", 4, 8);
    host.pool = "later".parse().unwrap();
    harness.hello(host);
    harness
}

#[test]
fn a_step_runs_in_no_pool_that_was_made_after_it_was_submitted() {
    let mut harness = waits_while_a_pool_is_made(false);
    assert_eq!(harness.state("x"), StepState::Queued);
    let later = |harness: &Harness| {
        excluded_by(harness, "x")
            .into_iter()
            .find(|(pool, _)| pool == "later")
    };
    let why =
        "pool `later` was created after the step was submitted: submit it again to use this pool";
    assert_eq!(later(&harness).unwrap().1, why);
    // From a snapshot and the log after it, and from the log alone.
    harness.restart(3);
    harness.restart_over_log();
    let mut host = hello("n-later", 4, 8);
    host.pool = "later".parse().unwrap();
    harness.hello(host);
    assert_eq!(harness.state("x"), StepState::Queued);
    assert_eq!(later(&harness).unwrap().1, why);
    // Deletes the pool and its template later.
    harness.apply(vec![pool("later", PoolSpec::default())]);
    assert_eq!(harness.state("x"), StepState::Queued);
    // A step that is submitted after the pool was made goes there.
    harness.submit("y", spec(4, 8000)).unwrap();
    assert_eq!(harness.placed("y").0, "n-later");
}

#[test]
fn a_step_runs_in_a_pool_that_was_there_when_it_was_submitted_though_its_policy_came_later() {
    let harness = waits_while_a_pool_is_made(true);
    assert_eq!(harness.placed("x").0, "n-later");
}

#[test]
fn a_pool_of_a_snapshot_of_before_its_making_was_kept_is_open_to_all_steps_of_it() {
    let harness = waits_while_a_pool_is_made(false);
    let later = harness
        .core
        .state()
        .pool(&"later".parse().unwrap())
        .unwrap();
    assert!(later.made > harness.step("x").place);
    let mut older = serde_json::to_value(later).unwrap();
    older.as_object_mut().unwrap().remove("made");
    let older: crate::model::pool::Pool = serde_json::from_value(older).unwrap();
    assert_eq!(older.made, 0);
}

#[test]
fn a_pool_that_is_made_anew_is_another() {
    let mut harness = waits_while_a_pool_is_made(true);
    harness
        .submit("z", asks(r#","resources":{"cpu_count":8}"#))
        .unwrap();
    let gone = Desired::NoPool {
        pool: "spare".parse().unwrap(),
    };
    let spare = || pool("spare", PoolSpec::default());
    for (id, spares) in [("old", vec![spare()]), ("new", vec![gone, spare()])] {
        spares
            .into_iter()
            .for_each(|wanted| _ = harness.apply(vec![wanted]));
        harness
            .submit(id, asks(r#","resources":{"cpu_count":8}"#))
            .unwrap();
    }
    harness.put_policy("spare", "s", PolicySpec::default());
    let waits = |id: &str| {
        let scheduler = harness.core.state().scheduler();
        scheduler
            .pools_of(&step(id))
            .into_iter()
            .any(|pool| pool.as_str() == "spare")
    };
    assert_eq!(["z", "old", "new"].map(waits), [false, false, true]);
}

#[test]
fn a_template_that_is_not_there_is_named_by_no_pool_unless_it_is_forced_away() {
    let mut harness = two(vec![template("near", "{}")]);
    let refusal = refused(&mut harness, vec![pool("best", rules(&["neat"]))], false);
    assert_eq!(
        refusal.to_string(),
        "there is no template `neat`, and pool `best` names it: did you mean `near`?"
    );
    let missing = refused(&mut harness, vec![no_template("neat")], false);
    assert!(
        matches!(missing, Refusal::UnknownTemplate { .. }),
        "{missing}"
    );
    // Both in one call, in either order.
    harness.apply(vec![
        pool("best", rules(&["late"])),
        template("late", r#"{"wrapper":["w"]}"#),
    ]);
    let in_use = refused(&mut harness, vec![no_template("late")], false);
    assert!(
        in_use
            .to_string()
            .starts_with("template `late`: pool `best` names it: free it first"),
        "{in_use}"
    );
    harness.apply(vec![no_template("late"), pool("best", PoolSpec::default())]);
    harness.apply(vec![
        template("late", r#"{"wrapper":["w"]}"#),
        pool("best", rules(&["late"])),
    ]);
    let effects = harness.feed(Input::Apply {
        reply: ReplyId(902),
        changes: vec![TermsChange {
            desired: no_template("late"),
            version: None,
        }],
        force: true,
        dry_run: false,
    });
    assert!(
        matches!(&effects.records[..], [Record::TemplateDeleted { .. }]),
        "{effects:?}"
    );
    let assigned_step = assigned(&mut harness, "x", asks(""));
    assert_eq!(
        assigned_step.launch.wrapper,
        Vec::<String>::new(),
        "it says nothing any more"
    );
}

#[test]
fn what_is_so_already_is_not_recorded_and_all_survives_a_restart() {
    let mut harness = two(vec![
        template("a", r#"{"wrapper":["w"]}"#),
        pool("best", rules(&["a"])),
    ]);
    let again = harness.apply(vec![
        template("a", r#"{"wrapper":["w"]}"#),
        pool("best", rules(&["a"])),
    ]);
    assert_eq!(again.records, []);
    harness.submit("x", asks("")).unwrap();
    harness.restart(0);
    let template = harness
        .step("x")
        .provenance
        .at(&"best".parse().unwrap(), &[])
        .unwrap();
    assert_eq!(
        template.template.wrapper.as_deref(),
        Some(&["w".to_string()][..])
    );
    assert_eq!(harness.core.state().templates().len(), 1);
}

#[test]
fn each_value_of_a_merge_tells_where_it_came_from() {
    let ruled = PoolSpec {
        defaults: StepDefaults {
            timeout: Some(Span::from_secs(600)),
            ..StepDefaults::default()
        },
        ..rules(&["a", "b"])
    };
    let mut harness = two(vec![
        template(
            "a",
            r#"{"env":{"A":"a","B":"a","C":"a"},"wrapper":["w"],"resources":{"gpu_count":1}}"#,
        ),
        template("b", r#"{"env":{"B":"b"},"workdir":"/b"}"#),
        pool("best", ruled),
    ]);
    let spec = asks(
        r#","env":{"C":"own"},"work":"training","defaults":{"grace_period":"5s","env":{"D":"below"},"retries":1}"#,
    );
    harness.submit("x", spec.clone()).unwrap();
    let merged = harness.core.merged(harness.step("x"), None);
    let assigned_step: Vec<String> = merged
        .origins
        .iter()
        .map(|(field, origin)| format!("{field}: {origin}"))
        .collect();
    let expected = [
        "cpu_mode: built in",
        "env.A: template a of pool best",
        "env.B: template b of pool best",
        "env.C: step",
        "env.D: pipeline",
        "grace_period: pipeline",
        "on_preempt: built in",
        "preemptible: work",
        "queue_timeout: built in",
        "resources.gpu_count: template a of pool best",
        "retries: pipeline",
        "timeout: pool best, defaults",
        "workdir: template b of pool best",
        "wrapper: template a of pool best",
    ];
    assert_eq!(assigned_step, expected);
    let best = harness.core.state().pool(&"best".parse().unwrap()).unwrap();
    let (filled, would) = preview_effective_step(harness.core.context(), &spec, best);
    assert_eq!(would.origins, merged.origins, "a trial tells the same");
    assert_eq!(filled, *harness.step("x").spec);
}

#[test]
fn a_trial_leaves_templates_as_they_were() {
    let mut harness = two(vec![
        template("a", r#"{"wrapper":["w"]}"#),
        template("b", "{}"),
    ]);
    let before = harness.core.state().clone();
    let wanted = [
        template("a", r#"{"wrapper":["x"]}"#),
        no_template("b"),
        template("c", "{}"),
        pool("best", rules(&["a", "c"])),
    ];
    let changes = wanted.into_iter().map(|wanted| TermsChange {
        desired: wanted,
        version: None,
    });
    let effects = harness.feed(Input::Apply {
        reply: ReplyId(903),
        changes: changes.collect(),
        force: false,
        dry_run: true,
    });
    assert!(
        matches!(&effects.answers[..], [Answer::Applied(Ok(_))]),
        "{effects:?}"
    );
    assert_eq!(*harness.core.state(), before);
}
