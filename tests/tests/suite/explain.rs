//! Explanations of a live cluster: a victim and the step that preempts it, before, during and after.

use std::fs;

use serde_json::Value;
use sluice_tests::{Dev, DevOptions};

const ONE_HOST: &str = "
kind: pool
name: shared
---
{kind: policy, pool: shared, subject: red, priority: 10, reserved: {gpu: 2}}
---
{kind: policy, pool: shared, subject: blue, priority: 10, reserved: {gpu: 2}, limit: {gpu: 2}}
---
{kind: host, name: h1, pool: shared, gpus: 4, gpu_model: H100}
";

fn explained(dev: &Dev, id: &str) -> Value {
    let (status, explained) = dev.call("GET", &format!("/v1/steps/{id}/explain"), None);
    assert_eq!(status, 200, "{explained}");
    explained
}

#[test]
fn a_victim_and_its_waiter_are_both_explained() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hosts.yaml");
    fs::write(&file, ONE_HOST).unwrap();
    let dev = Dev::with(DevOptions {
        files: vec![file],
        ..DevOptions::default()
    });
    // It ignores its stop signal until it is released, so that there is time to ask.
    let go = folder.path().join("go");
    let script = format!(
        "trap '' TERM; until test -e {}; do sleep 0.05; done; exit 3",
        go.display()
    );
    let submit = |id: &str, subject: &str, gpus: &str, command: &[&str]| {
        let what = ["submit", "--id", id, "--subject", subject, "--gpus", gpus];
        let rest = ["--grace", "10m", "--"];
        dev.ok(&[&what[..], &rest, command].concat());
    };
    submit("victim", "red", "4", &["sh", "-c", &script]);
    dev.step_in("victim", &["running"]);
    let runs = explained(&dev, "victim");
    assert_eq!(runs["holding"]["exposed"], true, "{runs}");
    assert_eq!(runs["holding"]["in_share"], false, "{runs}");
    let text = dev.ok(&["explain", "victim"]);
    assert!(text.starts_with("victim is running"), "{text}");
    assert!(text.contains("inside its own reserved share"), "{text}");

    submit("waiter", "blue", "2", &["sleep", "1000"]);
    dev.step_in("victim", &["stopping"]);
    let waits = explained(&dev, "waiter");
    let pool = &waits["pools"][0];
    assert_eq!(pool["reason"]["code"], "waiting_for_release", "{waits}");
    let awaited = &pool["promised"]["awaits"][0];
    assert_eq!(awaited["step"], "victim", "{waits}");
    assert!(
        awaited["grace_ends_at"].as_str() > awaited["stopping_since"].as_str(),
        "{waits}"
    );
    let text = dev.ok(&["explain", "waiter"]);
    assert!(
        text.contains("waits for victim of red, stopping since"),
        "{text}"
    );
    let stops = explained(&dev, "victim");
    assert_eq!(stops["holding"]["gives_way_to"], "waiter", "{stops}");

    submit("limited", "blue", "1", &["sleep", "1000"]);
    fs::write(&go, "").unwrap();
    dev.step_in("waiter", &["running"]);
    let again = explained(&dev, "victim");
    assert_eq!(
        again["attempts"][0]["reason"]["code"], "preempted",
        "{again}"
    );
    assert_eq!(again["attempts"][0]["preempted_by"], "waiter", "{again}");
    let text = dev.ok(&["explain", "step/victim"]);
    assert!(
        text.contains("would start if 2 more gpu were free on `h1`"),
        "{text}"
    );

    // The suggested remedy helps.
    let limited = explained(&dev, "limited");
    let remedy = &limited["pools"][0]["would_start_if"][0];
    assert_eq!(remedy["changes"][0]["kind"], "limit", "{limited}");
    assert_eq!(remedy["changes"][0]["amount"], 3, "{limited}");
    let raised = r#"{"priority":10,"reserved":{"gpu":2},"limit":{"gpu":3}}"#;
    let path = "/v1/pools/shared/policies/blue";
    assert_eq!(dev.call("PUT", path, Some(raised)).0, 200);
    dev.step_in("limited", &["running"]);

    let json = dev.ok(&["explain", "limited", "-o", "json"]);
    let told: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(told["state"], "running", "{told}");
    let unknown = dev.sluice(&["explain", "nobody"]);
    assert_eq!(unknown.code, 1, "{unknown:?}");
    assert!(unknown.stderr.contains("nobody"), "{unknown:?}");
}
