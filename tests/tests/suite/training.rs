//! A real training script on a fresh cluster of three hosts, from one `sluice run` in its directory: with a file system that
//! all hosts share, and without. Needs root and `ip`; says so and passes without them.

use std::fs;
use std::path::{Path, PathBuf};

use sluice_tests::{CommandOutput, run};

use crate::namespaces::Namespaces;

/// Fits a line to points by gradient descent, each rank to its own part of them; rank 0 averages what all have found.
const TRAIN: &str = r#"
import json, os, sys, time

rank, ranks = int(os.environ["SLUICE_NODE_RANK"]), int(os.environ["SLUICE_NODES"])
points = [(x / 100, 3 * x / 100 + 1) for x in range(rank, 300, ranks)]
slope = bias = 0.0
for epoch in range(1, 401):
    errors = [(slope * x + bias - y, x) for x, y in points]
    slope -= 0.1 * sum(error * x for error, x in errors) / len(points)
    bias -= 0.1 * sum(error for error, _ in errors) / len(points)
    if epoch % 100 == 0:
        loss = sum(error * error for error, _ in errors) / len(points)
        print(f"epoch {epoch} loss {loss:.6f}", flush=True)
        with open(f"model-{rank}.new", "w") as checkpoint:
            json.dump({"epoch": epoch, "slope": slope, "bias": bias}, checkpoint)
        os.rename(f"model-{rank}.new", f"model-{rank}.json")
        open(os.environ["SLUICE_CHECKPOINT_FILE"], "w").close()
if rank > 0:
    sys.exit()
models = []
while len(models) < ranks:
    try:
        found = [json.load(open(f"model-{other}.json")) for other in range(ranks)]
        models = [model for model in found if model["epoch"] == 400]
    except FileNotFoundError:
        pass
    time.sleep(0.05)
print("slope", round(sum(model["slope"] for model in models) / ranks, 1))
"#;

const HOSTS: &[&str] = &["1", "2", "3"];

const PROGRAM: &[&str] = &["--", "python3", "train.py"];

/// The program goes along, and each rank trains alone: they share no directory.
const ALONE: &[&str] = &[
    "--input",
    "train.py",
    "--",
    "env",
    "SLUICE_NODES=1",
    "SLUICE_NODE_RANK=0",
    "python3",
    "train.py",
];

/// The directory that hosts share or do not, and the project in it.
fn project(net: &Namespaces) -> (PathBuf, PathBuf) {
    let shared = net.path("shared");
    let project = shared.join("project");
    fs::create_dir_all(&project).unwrap();
    fs::write(project.join("train.py"), TRAIN).unwrap();
    (shared, project)
}

fn train(net: &Namespaces, project: &Path, id: &str, rest: &[&str]) -> CommandOutput {
    let line = [&["run", "--id", id, "--nodes", "3"], rest].concat();
    let mut command = net.command("c", "sluice", &line);
    command.env("SLUICE_CONTEXT", net.path("context.json"));
    command.current_dir(project);
    run(command)
}

fn cluster(tag: &str) -> Option<Namespaces> {
    if !Namespaces::can_be_made() {
        sluice_tests::left_out("network namespaces need root and `ip`");
        return None;
    }
    let mut net = Namespaces::new(tag, HOSTS);
    net.coordinator("");
    Some(net)
}

#[test]
fn a_script_is_trained_on_three_hosts_that_share_its_directory() {
    let Some(mut net) = cluster("t") else { return };
    let (_, project) = project(&net);
    for host in HOSTS {
        net.host(host);
        net.node_is(&format!("host-{host}"), "ready");
    }
    let ran = train(&net, &project, "shared", PROGRAM);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stdout.contains("epoch 400 loss 0.0"), "{ran:?}");
    assert!(ran.stdout.ends_with("slope 3.0\n"), "{ran:?}");
    assert_eq!(ran.stderr, "", "it runs where its caller stands");
    for rank in 0..HOSTS.len() {
        assert!(project.join(format!("model-{rank}.json")).exists());
    }
}

#[test]
fn a_script_that_no_host_has_fails_with_its_directory_and_the_way_out() {
    let Some(mut net) = cluster("u") else { return };
    let (shared, project) = project(&net);
    for host in HOSTS {
        net.host_without(host, Some(&shared));
        net.node_is(&format!("host-{host}"), "ready");
    }
    let ran = train(&net, &project, "apart", PROGRAM);
    assert_eq!(ran.code, 2, "{ran:?}");
    let place = project.display();
    for words in [
        &format!("{place} does not exist there"),
        "apart runs in an empty directory of its own on host-",
        "`--input FILE` sends files along, `--workdir DIR` insists on a directory",
        "can't open file",
        "train.py",
    ] {
        assert!(ran.stderr.contains(words), "{words}: {ran:?}");
    }
    let text = net.sluice(&["describe", "step", "apart"]);
    let words = "the attempt's own: the preferred one does not exist there";
    assert_eq!(text.matches(words).count(), HOSTS.len(), "{text}");
    // A script that is sent along is on each host.
    let ran = train(&net, &project, "sent", ALONE);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stdout.ends_with("slope 3.0\n"), "{ran:?}");
    assert_eq!(ran.stderr, "", "its own directory is the one that is meant");
    for rank in ["1", "2"] {
        let text = net.sluice(&["logs", "sent", "--rank", rank]);
        assert!(text.ends_with("slope 3.0\n"), "{rank}: {text}");
    }
    // A script on standard input needs no file on the hosts.
    let mut command = net.command("c", "sluice", &["run", "--", "python3"]);
    command.env("SLUICE_CONTEXT", net.path("context.json"));
    command.current_dir(&project);
    command.stdin(fs::File::open(project.join("train.py")).unwrap());
    let ran = command.output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    assert!(ran.stdout.ends_with(b"slope 3.0\n"), "{ran:?}");
}
