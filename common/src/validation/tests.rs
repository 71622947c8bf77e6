//! Rules that hold, fail with their values, or cannot be parsed.

use super::*;
use crate::request::StepRequest;
use crate::step::StepSpec;
use alloc::collections::BTreeMap;
use alloc::vec;
use proptest::prelude::*;

fn spec(fields: &str) -> StepSpec {
    let json = format!(r#"{{"command":["a"],{fields}}}"#);
    let request: StepRequest = serde_json::from_str(&json).unwrap();
    request.check().unwrap()
}

fn usual() -> StepSpec {
    spec(
        r#""subject":"vision","nodes":2,"timeout":"3h","work":"training","labels":{"team":"vision"},
           "resources":{"gpu_count":4,"cpu_count":2.5,"memory":"60GiB","pool_resources":{"licence":2}}"#,
    )
}

fn host() -> NodeFacts {
    NodeFacts {
        name: "gpu-1".into(),
        memory: 64 << 30,
        storage: 1 << 40,
        mcpu: 32_000,
        gpus: 8,
        gpu_memory: Some(80 << 30),
        gpu_models: ["a100".into()].into(),
        arch: "x86_64".into(),
        labels: BTreeMap::from([("zone".into(), "a".into())]),
    }
}

fn judge(spec: &StepSpec, node: &NodeFacts, rule: &str) -> Result<(), String> {
    let step = StepFacts(spec);
    match Rule::parse(rule)
        .unwrap()
        .evaluate(&StepOnNode { step, node })
    {
        RuleResult::Holds => Ok(()),
        RuleResult::Fails(failure) => Err(failure.values),
    }
}

#[test]
fn rules_hold_or_tell_their_numbers() {
    for (rule, found) in [
        ("gpu_count <= 8", ""),
        ("gpu_count*nodes <= 8", ""),
        ("gpu_count >= 8", "gpu_count is 4"),
        (
            "cpu_count >= 1.5 * gpu_count",
            "cpu_count is 2.5, 1.5 * gpu_count is 6",
        ),
        (
            "memory <= 0.9 * node.memory",
            "memory is 60GiB, 0.9 * node.memory is 57.6GiB",
        ),
        ("memory < 64.5GB", ""),
        ("memory / gpu_count == 15GiB", ""),
        ("timeout <= 2h", "timeout is 3h"),
        ("timeout / 2 == 1h30m", ""),
        ("queue_timeout <= 1d", "queue_timeout is without end"),
        ("queue_timeout + 1h > 1d", ""),
        ("subject == \"vision\"", ""),
        ("subject != 'vision'", "subject is `vision`"),
        ("work == 'notebook'", "work is `training`"),
        ("preemptible == false", "preemptible is true"),
        ("labels.team == \"vision\"", ""),
        (
            "labels[\"example.com/run\"] == \"7\"",
            "it cannot be evaluated: the step has no label `example.com/run`",
        ),
        ("pool_resources.licence <= 1", "pool_resources.licence is 2"),
        ("(gpu_count + 4) * 10 == node.gpu_count * (20 - 10)", ""),
        (
            "node.gpu_memory >= 2 * 80GiB",
            "node.gpu_memory is 80GiB, 2 * 80GiB is 160GiB",
        ),
        ("node.gpu_model == \"a100\"", ""),
        ("node.labels.zone != 'a'", "node.labels.zone is `a`"),
        (
            "node.labels.rack == 'a'",
            "it cannot be evaluated: it has no label `rack`",
        ),
        (
            "gpu_count / (nodes - 2) < 8",
            "it cannot be evaluated: 4 would be divided by 0",
        ),
        ("storage == 0B", ""),
        ("node.arch == \"x86_64\"", ""),
    ] {
        let verdict = judge(&usual(), &host(), rule);
        assert_eq!(verdict.err().unwrap_or_default(), found, "{rule}");
    }
}

#[test]
fn what_a_host_lacks_is_said() {
    let bare = NodeFacts::default();
    let found = judge(&usual(), &bare, "node.gpu_memory >= 1GiB").unwrap_err();
    assert_eq!(found, "it cannot be evaluated: it has no GPU");
    let mixed = NodeFacts {
        gpu_models: ["a100".into(), "l40s".into()].into(),
        ..host()
    };
    let found = judge(&usual(), &mixed, "node.gpu_model == 'a100'").unwrap_err();
    assert_eq!(
        found,
        "it cannot be evaluated: it has GPUs of `a100` and `l40s`"
    );
}

#[test]
fn what_is_wrong_is_said_with_its_column_and_the_way_out() {
    for (rule, expected) in [
        (
            "gpu_cuont <= 8",
            "column 1: there is no `gpu_cuont`: did you mean `gpu_count`?",
        ),
        (
            "memory <= node.memry",
            "column 11: there is no `node.memry`: did you mean `node.memory`?",
        ),
        (
            "memory <= 16gi",
            "column 11: `16gi` is not a number: did you mean `16GiB`?",
        ),
        (
            "memory <= 16gb",
            "column 11: `16gb` is not a number: did you mean `16GB`?",
        ),
        (
            "timeout <= 2hours",
            "column 12: `2hours` is not a number: did you mean `2h`?",
        ),
        (
            "memory <= 16",
            "column 8: `memory` is an amount such as `8GiB` and `16` is a number: they cannot be compared; write amounts with their unit, such as `16GiB`",
        ),
        (
            "timeout <= 16GiB",
            "column 9: `timeout` is a time such as `2h` and `16GiB` is an amount such as `8GiB`: they cannot be compared",
        ),
        (
            "memory * node.memory > 1GiB",
            "column 8: `memory * node.memory`: an amount such as `8GiB` and an amount such as `8GiB` cannot be combined like this",
        ),
        (
            "memory + 1 > 1GiB",
            "column 8: `memory + 1`: an amount such as `8GiB` and a number cannot be combined like this",
        ),
        (
            "subject <= 'a'",
            "column 9: a text has no order: use `==` or `!=`",
        ),
        (
            "subject == vision",
            "column 12: there is no `vision`: there are gpu_count, cpu_count, memory, storage, nodes, retries, priority, preemptible, allow_pending, timeout, queue_timeout, grace_period, subject, name, platform, work, priority_class, on_preempt, labels.KEY, pool_resources.KEY, node.FACT",
        ),
        (
            "gpu_count = 8",
            "column 11: there is no `=`: write `==` to compare",
        ),
        (
            "gpu_count == 8 && nodes == 1",
            "column 16: one comparison is one assertion: write another assertion, or put the condition into `when`",
        ),
        (
            "gpu_count == 8 and nodes == 1",
            "column 16: one comparison is one assertion: write another assertion, or put the condition into `when`",
        ),
        (
            "gpu_count",
            "column 10: expected a comparison (==, !=, <=, <, >=, >), found nothing",
        ),
        (
            "gpu_count <= ",
            "column 14: expected a fact, a number, an amount or a text, found nothing",
        ),
        ("(gpu_count <= 8", "column 12: expected `)`, found `<=`"),
        (
            "1 < 2",
            "column 1: it mentions no fact, so its result is the same for every step",
        ),
        ("labels == 'a'", "column 8: expected `.`, found `==`"),
        (
            "labels['a b'] == 'a'",
            "column 1: label key `a b`: ` ` may not stand in it: use letters, digits, `-`, `_` and `.`; a key is a name such as `zone`, or `PREFIX/NAME` such as `example.com/zone`",
        ),
        (
            "subject == 'a",
            "column 12: the text that begins here has no end: close it with the same quote",
        ),
        ("ä <= 1", "column 1: `ä` is not allowed in a rule"),
        (
            "",
            "column 1: expected a fact, a number, an amount or a text, found nothing",
        ),
    ] {
        let error = Rule::parse(rule).unwrap_err().to_string();
        assert_eq!(error, expected, "{rule}");
    }
    let deep = format!("{}1{} < gpu_count", "(".repeat(17), ")".repeat(17));
    let error = Rule::parse(&deep).unwrap_err().to_string();
    assert_eq!(error, "column 17: brackets are nested more than 16 deep");
    let long = format!("gpu_count < {}", "9".repeat(500));
    let error = Rule::parse(&long).unwrap_err().to_string();
    assert!(
        error.starts_with("column 1: it has 512 bytes; the maximum is 500"),
        "{error}"
    );
}

fn document(json: &str) -> Result<Vec<ParsedAssertion>, String> {
    let terms: ValidationSpec = serde_json::from_str(json).unwrap();
    terms.read().map_err(|error| error.to_string())
}

#[test]
fn a_document_names_the_assertion_that_is_wrong() {
    for (json, expected) in [
        (
            r#"{"assertions":[]}"#,
            "assertions: 0 assertions: write 1 to 32",
        ),
        (
            r#"{"assertions":[{"assert":"nodes <= 2","message":"m"},{"assert":"nods <= 2","message":"m"}]}"#,
            "assertions[1].assert: `nods <= 2`: column 1: there is no `nods`: did you mean `nodes`?",
        ),
        (
            r#"{"assertions":[{"assert":"nodes <= 2","when":"work = 1","message":"m"}]}"#,
            "assertions[0].when: `work = 1`: column 6: there is no `=`: write `==` to compare",
        ),
        (
            r#"{"assertions":[{"assert":"nodes <= 2","message":" "}]}"#,
            "assertions[0].message: write 1 to 500 characters that tell users what to do",
        ),
    ] {
        assert_eq!(document(json).unwrap_err(), expected);
    }
}

#[test]
fn an_assertion_asks_for_nothing_where_its_when_does_not_hold() {
    let rules = document(
        r#"{"assertions":[{"assert":"timeout <= 1h","when":"work == \"notebook\"","message":"m"},
            {"assert":"timeout <= 1h","when":"labels.gone == \"x\"","message":"m"},
            {"assert":"timeout <= 1h","when":"node.gpu_count > 4","message":"m"}]}"#,
    )
    .unwrap();
    let spec = usual();
    let node = host();
    let facts = StepOnNode {
        step: StepFacts(&spec),
        node: &node,
    };
    let holds: Vec<bool> = rules
        .iter()
        .map(|rule| rule.evaluate(&facts) == RuleResult::Holds)
        .collect();
    assert_eq!(holds, [true, true, false]);
    let idle: Vec<bool> = rules
        .iter()
        .map(|rule| rule.is_inactive(&facts.step))
        .collect();
    assert_eq!(idle, [true, true, false]);
    let about: Vec<bool> = rules.iter().map(ParsedAssertion::is_about_hosts).collect();
    assert_eq!(about, [false, false, true]);
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused_and_judged_without_a_panic(text in "\\PC{0,60}") {
        if let Ok(rule) = Rule::parse(&text) {
            rule.evaluate(&StepFacts(&usual()));
        }
    }

    #[test]
    fn words_of_rules_in_any_order_are_read_or_refused(
        words in proptest::collection::vec(
            prop_oneof![
                Just("gpu_count"), Just("memory"), Just("timeout"), Just("node.memory"), Just("subject"), Just("<="),
                Just("=="), Just("*"), Just("/"), Just("-"), Just("("), Just(")"), Just("8"), Just("2h"), Just("1GiB"),
                Just("'a'"), Just("labels.a"), Just("9999999999999999999999999999999999")
            ],
            0..12,
        ),
    ) {
        if let Ok(rule) = Rule::parse(&words.join(" ")) {
            rule.evaluate(&StepOnNode { step: StepFacts(&usual()), node: &host() });
        }
    }

    #[test]
    fn comparison_is_that_of_the_numbers(gpus in 0u64..100, most in 0u64..100) {
        let spec = spec(&format!(r#""resources":{{"gpu_count":{gpus}}}"#));
        let node = host();
        for (sign, expected) in [("<=", gpus <= most), ("<", gpus < most), ("==", gpus == most)] {
            let verdict = judge(&spec, &node, &format!("gpu_count {sign} {most}"));
            prop_assert_eq!(verdict.is_ok(), expected);
        }
    }
}
