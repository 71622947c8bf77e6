//! Files and commands of other tools against a cluster: what they change beside documents of ours, and that a wrong one
//! changes nothing. The pages for their users run what works.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use sluice_tests::{CommandOutput, Dev, DevOptions, binaries, eventually};

/// A cluster of two declared hosts with eight H100 each.
fn cluster() -> Dev {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let hosts: PathBuf = tests.join("../packaging/examples/commands.yaml");
    Dev::with(DevOptions {
        files: vec![hosts],
        ..DevOptions::default()
    })
}

fn create(dev: &Dev, text: &str) -> CommandOutput {
    let file = dev.folder().join("foreign.yaml");
    fs::write(&file, text).unwrap();
    dev.sluice(&["create", "-f", file.to_str().unwrap()])
}

fn json(dev: &Dev, args: &[&str]) -> Value {
    serde_json::from_str(&dev.ok(&[args, &["-o", "json"]].concat())).unwrap()
}

#[test]
fn a_pool_of_gpuctl_takes_its_nodes_or_changes_nothing() {
    let dev = cluster();
    let pool =
        |nodes: &str| format!("kind: pool\nversion: v0.1\npool: {{name: night}}\nnodes: {nodes}\n");
    let wrong = "---\nkind: inference\njob: {name: a}\nenvironment: {command: [b]}\nservice: {timeout: 1s}\n";
    for (text, words) in [
        (
            pool("{gpu-1: , gpu-9: }"),
            "nodes.gpu-9: there is no node `gpu-9`: let the host join",
        ),
        (
            pool("{gpu-1: }") + wrong,
            "document 2: service.timeout: `1s`: it is that of `healthCheck`",
        ),
    ] {
        let refused = create(&dev, &text);
        assert_eq!(refused.code, 1, "{refused:?}");
        assert!(refused.stderr.contains(words), "{refused:?}");
        assert_eq!(dev.sluice(&["get", "pool", "night"]).code, 1, "it was made");
        assert_eq!(json(&dev, &["get", "node", "gpu-1"])["pool"], "default");
    }
    let made = create(&dev, &pool("{gpu-1: {gpu-type: A100-80G}}"));
    assert_eq!(made.code, 0, "{made:?}");
    let warning = "nodes.gpu-1.gpu-type: the file says `A100-80G`, and the host has";
    assert!(made.stderr.contains(warning), "{made:?}");
    eventually("gpu-1 to be in its pool", || {
        (json(&dev, &["get", "node", "gpu-1"])["pool"] == "night").then_some(())
    });
    let rest = create(&dev, &pool("{gpu-2: {gpu-type: H100}}"));
    assert!(
        rest.stderr
            .contains("gpu-1 is in pool night too and stays there"),
        "{rest:?}"
    );

    dev.ok(&[
        "resource-pool",
        "attach-policy",
        "night",
        "alice",
        "--reserved",
        "{gpu: 1}",
    ]);
    let quota = create(&dev, "kind: quota\nnamespace: {alice: {gpu: 2, cpu: 8}}\n");
    assert_eq!(quota.code, 0, "{quota:?}");
    assert!(
        quota
            .stderr
            .contains("a limit here in each by itself: default, inference, night"),
        "{quota:?}"
    );
    let policy = json(&dev, &["get", "policy", "night/alice"]);
    assert_eq!(policy["reserved"]["gpu"], 1, "{policy}");
    assert_eq!(policy["limit"]["gpu"], 2, "{policy}");
    assert_eq!(
        json(&dev, &["get", "policy", "default/alice"])["limit"]["cpu"],
        8
    );
}

#[test]
fn pools_of_a_master_leave_the_settings_of_subjects() {
    let dev = cluster();
    let made = create(&dev, "kind: cluster\nsubjects: {alice: {gpu: inference}}\n");
    assert_eq!(made.code, 0, "{made:?}");
    let master = "resource_manager: {default_aux_resource_pool: inference}\n";
    let made = create(&dev, master);
    assert_eq!(made.code, 0, "{made:?}");
    let cluster = json(&dev, &["get", "cluster"]);
    assert_eq!(cluster["default_pool"]["cpu"], "inference", "{cluster}");
    assert_eq!(
        cluster["subjects"]["alice"]["gpu"], "inference",
        "{cluster}"
    );
    let again = create(&dev, master);
    assert_eq!(again.stdout, "cluster unchanged\n", "{again:?}");
}

#[test]
fn a_counting_pool_of_zenml_grants_its_units_without_hosts() {
    let dev = cluster();
    let create = ["resource-pool", "create", "licences"];
    let capacity = ["--capacity", r#"{"seats": 2}"#, "--no-hosts"];
    dev.ok(&[create, capacity].concat());
    dev.ok(&["resource-pool", "attach-policy", "licences", "prod"]);
    let ask = ["allocate", "--subject", "prod", "--pool", "licences"];
    let seat = ["--resource", "seats=1", "--", "echo", "has it"];
    assert_eq!(dev.ok(&[&ask[..], &seat].concat()), "has it\n");
    let wrong = dev.sluice(&["resource-pool", "create", "b", "--capacity", "{\"a b\": 1}"]);
    assert!(
        wrong.code == 2
            && wrong
                .stderr
                .contains("--capacity: `a b` is not a resource key"),
        "{wrong:?}"
    );
    let wrong = dev.sluice(&["resource-pool", "create", "B!"]);
    assert!(wrong.stderr.contains("error: name: `B!`"), "{wrong:?}");
    let file = dev.folder().join("step.yaml");
    std::fs::write(&file, "kind: step\ncommand: [a]\ntolerations: []\n").unwrap();
    let wrong = dev.sluice(&["submit", "-f", file.to_str().unwrap()]);
    assert!(wrong.stderr.contains("write `platform: NAME`"), "{wrong:?}");
}

#[test]
fn what_is_there_already_is_not_replaced_by_zenml_s_commands() {
    let dev = cluster();
    let pool = [
        "resource-pool",
        "create",
        "seats",
        "--capacity",
        r#"{"gpu": 4, "memory_mb": 2048, "tpu": 2}"#,
    ];
    dev.ok(&pool);
    let twice = dev.sluice(&pool);
    assert!(
        twice.code == 1
            && twice
                .stderr
                .contains("`sluice resource-pool update seats` changes it"),
        "{twice:?}"
    );
    dev.ok(&[
        "resource-pool",
        "update",
        "seats",
        "--capacity",
        "{tpu: 0, gpu: 8}",
    ]);
    let view = json(&dev, &["resource-pool", "describe", "seats"]);
    let declared = view["declared"].to_string();
    assert!(
        declared.contains("2GiB") && !declared.contains("tpu"),
        "{declared}"
    );
    assert_eq!(view["declared"]["gpu"], 8, "{declared}");
    let attach = [
        "resource-pool",
        "attach-policy",
        "seats",
        "prod",
        "--limit",
        "{gpu: 2}",
    ];
    dev.ok(&attach);
    let twice = dev.sluice(&attach);
    assert!(
        twice.code == 1 && twice.stderr.contains("update-policy seats prod"),
        "{twice:?}"
    );
    dev.ok(&[
        "resource-pool",
        "update-policy",
        "seats",
        "prod",
        "--priority",
        "7",
    ]);
    let policy = json(&dev, &["get", "policy", "seats/prod"]);
    assert_eq!(
        (&policy["priority"], &policy["limit"]["gpu"]),
        (&7.into(), &2.into()),
        "{policy}"
    );
    let wrong = dev.sluice(&[
        "resource-pool",
        "update",
        "seats",
        "--capacity",
        "{gpu: many}",
    ]);
    assert!(
        wrong.code == 2 && wrong.stderr.contains("--capacity: gpu: `many`"),
        "{wrong:?}"
    );
}

#[test]
fn a_host_joins_by_the_file_of_a_determined_agent() {
    let dev = Dev::start();
    let line = json(
        &dev,
        &["token", "create", "--pool", "default", "--uses", "2"],
    )["line"]
        .clone();
    let join = |text: &str| {
        let file = dev.folder().join("agent.yaml");
        fs::write(&file, text).unwrap();
        let mut agent = Command::new(binaries().join("sluice-agent"));
        agent.args(["--config", "/nonexistent/agent.toml", "--state-dir"]);
        agent
            .arg(dev.folder().join("state"))
            .args(["join", "--from"]);
        let output = agent
            .arg(file)
            .arg(line.as_str().unwrap())
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(said).unwrap())
    };
    for (text, words) in [
        (
            "agent_id: d-1\nvisible_gpus: \"0\"\n",
            "visible_gpus: `0`: all GPUs of the host join",
        ),
        (
            "agent_id: d-1\nresource_pool: other\n",
            "is for pool `default`",
        ),
    ] {
        let (joined, said) = join(text);
        assert!(!joined && said.contains(words), "{said}");
    }
    let (joined, said) = join("master_host: 10.0.0.1\nagent_id: d-1\nresource_pool: default\n");
    assert!(
        joined && said.contains("joined as node d-1 of pool default"),
        "{said}"
    );
    assert!(
        said.contains("master_host takes no effect: the join line names"),
        "{said}"
    );
}
