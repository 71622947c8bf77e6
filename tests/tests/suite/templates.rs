//! Templates on a running cluster: two of them with a real wrapper around a step that prints what it got, what a change
//! means for submitted steps, and what is rejected when they are applied.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use sluice_tests::{CommandOutput, Dev, DevOptions};

const CLUSTER: &str = r#"
kind: template
name: base
env: {WHERE: "{{pool}}/{{node}}", LEVEL: base, OWN: base}
limits: {nofile: 123}
resources: {gpu_count: 1, cpu_count: 0.5}
---
kind: template
name: wrapped
env: {LEVEL: wrapped}
wrapper: [WRAPPER, "--numa={{numa}}", "--gpus={{gpu_count}}", "{{mounts}}", "--"]
mount_argument: "--mount={{source}}:{{target}}:{{mode}}"
allowed_mounts: [{source: /data, read_only: true}]
hooks: {before: [{name: stage, command: [sh, -c, "echo staged {{step}}"]}]}
---
{kind: pool, name: laid, templates: [base, wrapped]}
---
{kind: policy, pool: laid, subject: default}
---
{kind: host, name: h1, pool: laid, gpus: 2, gpu_model: H100}
"#;

const WRAPPER: &str =
    "#!/bin/sh\nwhile [ \"$1\" != -- ]; do echo \"wrapper $1\"; shift; done\nshift\nexec \"$@\"\n";

fn dev() -> (tempfile::TempDir, Dev) {
    let folder = tempfile::tempdir().unwrap();
    let wrapper = folder.path().join("wrapper");
    fs::write(&wrapper, WRAPPER).unwrap();
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    let file = folder.path().join("cluster.yaml");
    fs::write(&file, CLUSTER.replace("WRAPPER", wrapper.to_str().unwrap())).unwrap();
    let dev = Dev::with(DevOptions {
        files: vec![file],
        ..DevOptions::default()
    });
    (folder, dev)
}

fn apply(folder: &Path, dev: &Dev, text: &str) -> CommandOutput {
    let file = folder.join("change.yaml");
    fs::write(&file, text).unwrap();
    dev.sluice(&["apply", "-f", file.to_str().unwrap()])
}

const PRINTS: &str = "echo $WHERE $LEVEL $OWN $(ulimit -n)";

fn submit<'a>(id: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let first = [
        "submit",
        "--subject",
        "default",
        "--pool",
        "laid",
        "--id",
        id,
        "--env",
        "OWN=mine",
    ];
    [&first[..], more, &["--", "sh", "-c", PRINTS]].concat()
}

#[test]
fn a_step_runs_inside_what_two_templates_put_around_it() {
    let (folder, dev) = dev();
    dev.ok(&submit("a", &["--mount", "/data/sets:/sets:ro"]));
    let step = dev.step_in("a", &["succeeded"]);
    assert_eq!(step["request"]["gpu"], 1, "{step}");
    assert_eq!(
        dev.ok(&["logs", "a"]),
        "staged a\nwrapper --numa=all\nwrapper --gpus=1\nwrapper --mount=/data/sets:/sets:ro\n\
         laid/h1 wrapped mine 123\n"
    );
    let told = dev.ok(&["describe", "step", "a"]);
    for line in [
        "env.LEVEL:             ***  (template wrapped of pool laid)",
        "env.OWN:               ***  (step)",
        "limits.nofile:         123  (template base of pool laid)",
        "resources.gpu_count:   1  (template base of pool laid)",
    ] {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_it = |told: &str| told.split_whitespace().collect::<Vec<_>>() == words;
        assert!(told.lines().any(is_it), "{line}\n{told}");
    }
    assert!(
        dev.ok(&["describe", "pool", "laid"])
            .contains("base, wrapped")
    );
    let changed = apply(
        folder.path(),
        &dev,
        "{kind: template, name: base, env: {WHERE: anew}}",
    );
    assert_eq!(changed.code, 0, "{}", changed.stderr);
    dev.ok(&submit("b", &[]));
    dev.step_in("b", &["succeeded"]);
    let logs = dev.ok(&["logs", "b"]);
    assert!(logs.contains("anew wrapped mine"), "{logs}");
    assert!(logs.contains("--gpus=0"), "{logs}");
    let before = dev.ok(&["describe", "step", "a"]);
    assert!(
        before.contains("123  (template base of pool laid)"),
        "{before}"
    );
}

#[test]
fn what_no_template_allows_is_rejected_and_what_is_wrong_is_refused_where_it_stands() {
    let (folder, dev) = dev();
    for (id, flag, code) in [
        ("p", &["--privileged"][..], "privileged_not_allowed"),
        ("n", &["--host-network"], "host_network_not_allowed"),
        ("m", &["--mount", "/etc:/etc:ro"], "mount_not_allowed"),
        ("w", &["--mount", "/data"], "mount_not_allowed"),
    ] {
        assert_eq!(dev.sluice(&submit(id, flag)).code, 1, "{id}");
        assert_eq!(
            dev.step_in(id, &["rejected"])["reason"]["code"],
            code,
            "{id}"
        );
    }
    let wrong = apply(
        folder.path(),
        &dev,
        "kind: template\nname: bad\nwrapper:\n- numactl\n- --cpunodebind={{nuna}}\n",
    );
    assert_eq!(wrong.code, 1);
    assert!(
        wrong.stderr.contains("change.yaml:5") && wrong.stderr.contains("did you mean `numa`?"),
        "{}",
        wrong.stderr
    );
    let kept = dev.sluice(&["delete", "template", "base"]);
    assert_eq!(kept.code, 1);
    assert!(
        kept.stderr.contains("pool `laid` names it"),
        "{}",
        kept.stderr
    );
    dev.ok(&["delete", "template", "base", "--force"]);
    assert!(!dev.ok(&["get", "templates"]).contains("base"));
    dev.ok(&submit("after", &[]));
    dev.step_in("after", &["succeeded"]);
}
