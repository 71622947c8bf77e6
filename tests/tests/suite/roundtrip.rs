//! Output of `get` can be applied again: of each kind, in both formats, that changes nothing; of a step it makes
//! another like it.

use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};
use sluice_tests::{CommandOutput, Dev, DevOptions};

/// One of each kind, with every field of its document.
const DOCUMENTS: &str = include_str!("../../../packaging/examples/every-key/terms.yaml");

/// Each applied kind, the name of one, and how `apply` calls it.
const KINDS: [(&str, &str, &str); 8] = [
    ("template", "base", "template/base"),
    ("validation", "small", "validation/small"),
    ("pool", "full", "pool/full"),
    ("platform", "full/big", "platform/full/big"),
    ("policy", "full/prod", "policy/full/prod"),
    ("cluster", "", "cluster"),
    ("role", "looker", "role/looker"),
    ("binding", "lookers", "binding/lookers"),
];

fn applied(dev: &Dev, text: &str) -> CommandOutput {
    handed_in(dev, &["apply", "-f", "-"], text)
}

fn handed_in(dev: &Dev, args: &[&str], text: &str) -> CommandOutput {
    let mut child = dev
        .command(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    CommandOutput {
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
        code: output.status.code().unwrap(),
    }
}

fn dev() -> Dev {
    let dev = Dev::start();
    let ran = applied(&dev, DOCUMENTS);
    assert_eq!(ran.code, 0, "{ran:?}");
    dev
}

fn got(dev: &Dev, kind: &str, name: &str, format: &str) -> String {
    let args = ["get", kind, name, "-o", format];
    let args: Vec<&str> = args.into_iter().filter(|word| !word.is_empty()).collect();
    dev.ok(&args)
}

#[test]
fn whatever_kind_is_got_applies_again_and_changes_nothing() {
    let dev = dev();
    for (kind, name, called) in KINDS {
        for format in ["yaml", "json"] {
            let text = got(&dev, kind, name, format);
            let ran = applied(&dev, &text);
            assert_eq!(ran.code, 0, "{format}: {ran:?}\n{text}");
            assert_eq!(
                ran.stdout,
                format!("{called} unchanged\n"),
                "{format}: {text}"
            );
            assert_eq!(got(&dev, kind, name, format), text);
        }
    }
}

#[test]
fn whole_lists_apply_again_and_what_nobody_wrote_is_left_as_it_is() {
    let dev = dev();
    let kinds = [
        "templates",
        "validations",
        "pools",
        "platforms",
        "policies",
        "roles",
        "bindings",
    ];
    for kind in kinds {
        for format in ["yaml", "json"] {
            let text = got(&dev, kind, "", format);
            let ran = applied(&dev, &text);
            assert_eq!(ran.code, 0, "{kind} {format}: {ran:?}\n{text}");
            assert!(!ran.stdout.is_empty(), "{kind} {format}");
            let all = ran.stdout.lines().all(|line| line.ends_with(" unchanged"));
            assert!(all, "{kind} {format}: {ran:?}");
            let told = ran.stderr.contains("left as it is");
            assert_eq!(
                told,
                matches!(kind, "platforms" | "roles"),
                "{kind}: {ran:?}"
            );
        }
    }
}

#[test]
fn an_edit_of_what_was_got_is_made_and_one_of_what_is_only_told_is_refused() {
    let dev = dev();
    let text = got(&dev, "pool", "full", "yaml");
    let ran = applied(&dev, &text.replace("seats: 2", "seats: 3"));
    assert_eq!(
        ran.stdout, "pool/full changed: capacity.seats 2 -> 3\n",
        "{ran:?}"
    );
    let mut pool: Value = serde_json::from_str(&got(&dev, "pool", "full", "json")).unwrap();
    pool["declared"]["seats"] = json!(2);
    pool["capacity"]["seats"] = json!(2);
    let ran = applied(&dev, &pool.to_string());
    assert_eq!(
        ran.stdout, "pool/full changed: capacity.seats 3 -> 2\n",
        "{ran:?}"
    );
    pool["capacity"]["seats"] = json!(9);
    let ran = applied(&dev, &pool.to_string());
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("change `declared`"), "{ran:?}");
    // A user's own document has no such fields.
    let ran = applied(&dev, "kind: pool\nname: full\nqueued: 3\n");
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("queued"), "{ran:?}");
}

#[test]
fn what_a_pool_leaves_out_is_gone_its_platforms_too() {
    let dev = dev();
    let ran = applied(
        &dev,
        "kind: pool\nname: full\ncapacity: {seats: 2}\n---\nkind: platform\npool: full\nname: old\nselector: {gpu_model: v100}\n",
    );
    assert_eq!(ran.code, 0, "{ran:?}");
    let pool: Value = serde_json::from_str(&got(&dev, "pool", "full", "json")).unwrap();
    let platforms = pool["declared_platforms"].as_array().unwrap();
    assert_eq!(platforms.len(), 1, "{pool}");
    assert_eq!(
        platforms[0]["selector"],
        json!({"gpu_model": "v100"}),
        "its own document stands"
    );
    let ran = applied(&dev, "kind: pool\nname: full\ncapacity: {seats: 2}\n");
    assert!(ran.stdout.contains("platforms.old"), "{ran:?}");
    let pool: Value = serde_json::from_str(&got(&dev, "pool", "full", "json")).unwrap();
    assert_eq!(pool.get("declared_platforms"), None, "{pool}");
}

/// Returns the request of a step, without its results.
fn asked(dev: &Dev, id: &str) -> Value {
    let mut step: Value = serde_json::from_str(&got(dev, "step", id, "json")).unwrap();
    let fields = step.as_object_mut().unwrap();
    for name in [
        "id",
        "state",
        "reason",
        "placements",
        "attempt",
        "attempts",
        "exit",
        "submitted_at",
        "allocated_at",
        "started_at",
        "finished_at",
        "pool",
        "merged",
        "warnings",
        "held",
    ] {
        fields.remove(name);
    }
    step
}

#[test]
fn a_step_that_was_got_submits_another_like_it() {
    let dev = Dev::with(DevOptions::default());
    let file = r#"
kind: training
id: rich
name: "a: name"
command: [sh, -c, "exit 0"]
env: {X: "1", Y: "a\nb"}
labels: {team: vision}
resources: {cpu_count: 0.25, memory: 16MiB}
platform: any
priority: 3
timeout: 1h
suspend_timeout: 2h
on_preempt: suspend
cpu_mode: weight
free_preemptions: false
allow_pending: true
---
kind: step
id: plain
command: ["true"]
---
kind: step
id: pooled
pool: default
command: ["true"]
priority_class: low
priority: 0
retries: 0
"#;
    let ran = handed_in(&dev, &["submit", "-f", "-"], file);
    assert_eq!(ran.code, 0, "{ran:?}");
    for id in ["rich", "plain", "pooled"] {
        dev.step_in(id, &["succeeded"]);
        for format in ["yaml", "json"] {
            let text = got(&dev, "step", id, format);
            let ran = handed_in(&dev, &["submit", "-f", "-"], &text);
            assert_eq!(ran.code, 0, "{id}: {ran:?}\n{text}");
            let again = ran.stdout.trim();
            assert_ne!(again, id);
            assert_eq!(asked(&dev, again), asked(&dev, id), "{format}");
        }
    }
    // Several at once, as in a list.
    let ran = handed_in(
        &dev,
        &["submit", "-f", "-"],
        &got(&dev, "steps", "", "yaml"),
    );
    assert_eq!((ran.code, ran.stdout.lines().count()), (0, 9), "{ran:?}");
    // Hidden values cannot be submitted again.
    let hidden = got(&dev, "step", "rich", "json").replace("\"1\"", "\"***\"");
    let ran = handed_in(&dev, &["submit", "-f", "-"], &hidden);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("env.X: its value is hidden"), "{ran:?}");
}
