//! One file of documents, used by a running cluster through `apply` and by `simulate` on paper: both accept and reject
//! the same jobs, for the same reasons.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use sluice_tests::{Dev, DevOptions, binaries};

const HOSTS: &str = "
{kind: pool, name: lab}
---
{kind: host, name: h1, pool: lab, gpus: 2, gpu_model: H100}
---
{kind: host, name: h2, pool: lab, gpus: 2, gpu_model: L40S}
";

/// A document of each kind except hosts and steps.
const TERMS: &str = "
kind: pool
name: lab
capacity: {gpu: 4, step_run: 8}
defaults: {queue_timeout: 1s, grace_period: 1s}
max: {timeout: 24h}
default_platform: fast
validations: [small]
templates: [base]
---
kind: platform
pool: lab
name: fast
selector: {gpu_model: H100}
---
kind: validation
name: small
assertions:
- {assert: nodes <= 1, message: one host at a time}
---
kind: template
name: base
env: {CACHE: /scratch}
---
kind: policy
pool: lab
subject: ls
limit: {gpu: 3}
---
kind: cluster
subjects: {ls: {pool: lab}}
---
kind: role
name: looker
rules: [{effect: allow, resources: [steps], verbs: [get]}]
---
kind: binding
name: lookers
roles: [looker]
members: [token: ann]
";

/// Name, GPUs of each host, hosts, platform and subject of each job, in order.
const JOBS: [(&str, u64, u64, &str, &str); 6] = [
    ("runs", 2, 1, "", "ls"),
    ("waits", 1, 1, "", "ls"),
    ("beside", 1, 1, "l40s", "ls"),
    ("nowhere", 1, 1, "a100", "ls"),
    ("wide", 2, 2, "", "ls"),
    ("stranger", 1, 1, "", "be"),
];

/// Numbers of accepted and rejected jobs, by outcome.
type Counts = BTreeMap<String, u64>;

fn live(terms: &Path, hosts: PathBuf) -> Counts {
    let dev = Dev::with(DevOptions {
        files: vec![hosts],
        ..DevOptions::default()
    });
    let told = dev.ok(&["apply", "-f", terms.to_str().unwrap()]);
    assert!(told.contains("platform/lab/fast created"), "{told}");
    let mut counts = Counts::new();
    for (name, gpus, nodes, platform, subject) in JOBS {
        let (gpus, nodes) = (gpus.to_string(), nodes.to_string());
        let mut args = vec![
            "submit",
            "--id",
            name,
            "--subject",
            subject,
            "--gpus",
            &gpus,
        ];
        args.extend(["--nodes", &nodes]);
        if !platform.is_empty() {
            args.extend(["--platform", platform]);
        }
        args.extend(["--", "sleep", "1000"]);
        dev.sluice(&args);
    }
    for (name, ..) in JOBS {
        let step = dev.step_in(name, &["running", "rejected", "failed"]);
        let what = match step["state"].as_str().unwrap() {
            "running" => "running",
            _ => step["reason"]["code"].as_str().unwrap(),
        };
        *counts.entry(what.to_owned()).or_default() += 1;
    }
    counts
}

fn on_paper(terms: &Path, hosts: &Path, folder: &Path) -> (Counts, Vec<String>) {
    let header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,creation_time,deletion_time,scheduled_time";
    let rows = JOBS.map(|(name, gpus, nodes, platform, subject)| {
        let gpus = gpus * nodes;
        format!("{name},1000,100,{gpus},1000,{platform},{subject},0,,0")
    });
    let jobs = folder.join("jobs.csv");
    fs::write(&jobs, format!("{header}\n{}\n", rows.join("\n"))).unwrap();
    let both = folder.join("both.yaml");
    let hosts = fs::read_to_string(hosts).unwrap();
    let hosts = hosts.replace("{kind: pool, name: lab}\n---", "");
    let terms = fs::read_to_string(terms).unwrap();
    fs::write(&both, format!("{terms}---\n{hosts}")).unwrap();
    let output = Command::new(binaries().join("sluice"))
        .args(["simulate", "-o", "json", "--until", "1m", "--jobs"])
        .arg(&jobs)
        .arg("--policies")
        .arg(&both)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let jobs = &report["jobs"];
    let listed = [&jobs["rejected"], &jobs["failed"]];
    let listed = listed.into_iter().flat_map(|it| it.as_object().unwrap());
    let mut counts: Counts = listed
        .map(|(code, n)| (code.clone(), n.as_u64().unwrap()))
        .collect();
    counts.insert("running".to_owned(), jobs["running"].as_u64().unwrap());
    assert_eq!(jobs["arrived"], json!(JOBS.len()));
    let notes = report["notes"].as_array().unwrap();
    let notes = notes.iter().map(|note| note.as_str().unwrap().to_owned());
    (counts, notes.collect())
}

#[test]
fn one_file_of_terms_means_on_paper_what_it_means_in_a_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let (terms, hosts) = (
        folder.path().join("terms.yaml"),
        folder.path().join("hosts.yaml"),
    );
    fs::write(&terms, TERMS).unwrap();
    fs::write(&hosts, HOSTS).unwrap();
    let (paper, notes) = on_paper(&terms, &hosts, folder.path());
    let expected = [
        ("running", 2),
        ("queue_timeout", 1),
        ("no_host_fits", 1),
        ("validation_failed", 1),
        ("no_policy", 1),
    ];
    let expected: Counts = expected.map(|(what, n)| (what.to_owned(), n)).into();
    assert_eq!(paper, expected);
    for words in [
        "no effect in a simulation",
        "nothing in them is run",
        "whatever its grace period",
    ] {
        assert!(notes.iter().any(|note| note.contains(words)), "{notes:?}");
    }
    assert_eq!(live(&terms, hosts), expected);
}
