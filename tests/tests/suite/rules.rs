//! Rules of pools and defaults of a running cluster: what is filled in, rejected, waited for and routed.

use std::fs;

use sluice_tests::{Dev, DevOptions};

const CLUSTER: &str = "
{kind: pool, name: strict, defaults: {timeout: 10m, retries: 1}, max: {timeout: 1h, grace_period: 1s},
 on_preempt_allowed: [fail]}
---
{kind: policy, pool: strict, subject: default, reserved: {gpu: 1}}
---
{kind: host, name: h1, pool: strict, gpus: 1, gpu_model: H100}
---
{kind: cluster, default_pool: {cpu: strict, gpu: strict}}
";

fn dev() -> (tempfile::TempDir, Dev) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cluster.yaml");
    fs::write(&file, CLUSTER).unwrap();
    let dev = Dev::with(DevOptions {
        files: vec![file],
        ..DevOptions::default()
    });
    (folder, dev)
}

fn apply(folder: &tempfile::TempDir, dev: &Dev, text: &str) -> String {
    let file = folder.path().join("change.yaml");
    fs::write(&file, text).unwrap();
    dev.ok(&["apply", "-f", file.to_str().unwrap()])
}

/// Runs a failing command as a user who may only submit for `stranger`; returns its message.
fn as_user(folder: &tempfile::TempDir, dev: &Dev, args: &[&str]) -> String {
    let role = ["--role", "submitter", "--subject", "stranger"];
    let token = dev.ok(&[&["api-token", "create", "user"][..], &role].concat());
    let own = fs::read_to_string(&dev.context).unwrap();
    let file = folder.path().join("user.json");
    fs::write(&file, own.replace(&dev.token(), token.trim())).unwrap();
    let ran = dev.command(args).env("SLUICE_CONTEXT", file).output();
    let ran = ran.unwrap();
    assert_eq!(ran.status.code(), Some(1), "{ran:?}");
    String::from_utf8(ran.stderr).unwrap()
}

/// Returns the arguments that submit a step of a subject without a policy.
fn submit<'a>(id: &'a str, more: &[&'a str], command: &[&'a str]) -> Vec<&'a str> {
    let first = ["submit", "--subject", "stranger", "--id", id];
    [&first[..], more, &["--"], command].concat()
}

#[test]
fn a_stranger_s_steps_go_to_the_default_pool_under_its_rules() {
    let (_folder, dev) = dev();
    dev.ok(&submit("a", &["--gpus", "1"], &["sleep", "1000"]));
    let step = dev.step_in("a", &["running"]);
    assert_eq!(
        (&step["pool"], &step["timeout"], &step["retries"]),
        (&"strict".into(), &"10m".into(), &1.into())
    );
    assert_eq!(step["grace_period"], "1s", "cut to what the pool allows");
    assert_eq!(step["on_preempt"], "fail");
    let told = dev.sluice(&submit("b", &["--timeout", "2h"], &["true"]));
    assert_eq!(told.code, 1, "{}", told.stdout);
    assert!(
        told.stderr
            .contains("its `timeout` is 2h, and pool `strict` allows 1h at most"),
        "{}",
        told.stderr
    );
    assert_eq!(
        dev.step_in("b", &["rejected"])["reason"]["code"],
        "exceeds_maximum"
    );
}

#[test]
fn one_that_waits_for_too_long_fails_and_one_that_need_not_wait_does_not() {
    let (_folder, dev) = dev();
    dev.ok(&submit(
        "a",
        &["--gpus", "1", "--queue-timeout", "0s"],
        &["sleep", "1000"],
    ));
    dev.step_in("a", &["running"]);
    dev.ok(&submit(
        "b",
        &["--gpus", "1", "--queue-timeout", "300ms"],
        &["true"],
    ));
    let step = dev.step_in("b", &["failed"]);
    assert_eq!(step["reason"]["code"], "queue_timeout");
    assert_eq!(dev.step_in("a", &["running"])["attempt"], 1);
}

#[test]
fn maintenance_is_told_to_whoever_submits_and_ends_when_it_is_left_out() {
    let (folder, dev) = dev();
    dev.ok(&submit("a", &["--gpus", "1"], &["sleep", "1000"]));
    dev.step_in("a", &["running"]);
    dev.ok(&submit("b", &["--gpus", "1"], &["true"]));
    let said = apply(
        &folder,
        &dev,
        "{kind: pool, name: strict, maintenance: new racks until noon}\n",
    );
    assert!(
        said.contains("maintenance none -> new racks until noon"),
        "{said}"
    );
    assert!(said.contains("max.timeout 1h -> none"), "{said}");
    let told = as_user(&folder, &dev, &submit("c", &[], &["true"]));
    assert!(told.contains("new racks until noon"), "{told}");
    // A caller who could end the maintenance is not kept out.
    dev.ok(&submit("d", &[], &["true"]));
    let pools = dev.ok(&["get", "pools"]);
    assert!(
        pools
            .lines()
            .any(|line| line.starts_with("strict ") && line.contains(" maintenance ")),
        "{pools}"
    );
    assert!(
        pools
            .lines()
            .any(|line| line.starts_with("default ") && line.contains(" offline ")),
        "{pools}"
    );
    dev.ok(&["cancel", "a"]);
    dev.step_in("b", &["succeeded"]);
    apply(&folder, &dev, "{kind: pool, name: strict}\n");
    dev.ok(&submit("c", &[], &["true"]));
    dev.step_in("c", &["succeeded"]);
}

#[test]
fn terms_of_the_cluster_are_applied_twice_and_changed_once() {
    let (folder, dev) = dev();
    let shown = dev.ok(&["get", "cluster"]);
    assert!(shown.contains("strict"), "{shown}");
    let text = "{kind: cluster, subjects: {prod: {pool: strict}}}\n";
    let said = apply(&folder, &dev, text);
    assert_eq!(
        said,
        "cluster changed: default_pool.cpu strict -> none, default_pool.gpu strict -> none, subjects.prod none -> \
         pool=strict\n"
    );
    assert_eq!(apply(&folder, &dev, text), "cluster unchanged\n");
    let told = dev.sluice(&submit("a", &[], &["true"]));
    assert_eq!(told.code, 1);
    assert_eq!(
        dev.step_in("a", &["rejected"])["reason"]["code"],
        "no_policy"
    );
}
