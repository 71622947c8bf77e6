//! `sluice simulate` as a program: the published cases, broken ones, bad files, and the examples of the documentation.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use sluice_tests::binaries;

fn scenarios() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/published.json")
}

fn simulate(args: &[&str]) -> Output {
    let mut command = Command::new(binaries().join("sluice"));
    command.arg("simulate").args(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Writes a file for `simulate`.
fn file(folder: &Path, content: &Value) -> String {
    let path = folder.join("cases.json");
    fs::write(&path, content.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn every_published_case_comes_out_as_written() {
    let output = simulate(&[scenarios().to_str().unwrap()]);
    let text = stdout(&output);
    assert!(output.status.success(), "{text}{}", stderr(&output));
    let cases: Value = serde_json::from_str(&fs::read_to_string(scenarios()).unwrap()).unwrap();
    let cases = cases.as_array().unwrap().len();
    assert_eq!(
        text.lines().last(),
        Some(&*format!("{cases} cases: all ok"))
    );
    assert_eq!(text.lines().count(), cases + 1);
}

#[test]
fn a_case_that_ends_otherwise_says_in_what_and_exits_1() {
    let folder = tempfile::tempdir().unwrap();
    let mut cases: Value = serde_json::from_str(&fs::read_to_string(scenarios()).unwrap()).unwrap();
    let broken = cases.as_array_mut().unwrap().iter_mut();
    let broken = broken.filter(|case| case["expected"]["placed"].is_object());
    let mut broken: Vec<&mut Value> = broken.collect();
    broken[0]["expected"]["placed"] = json!({"x1": "n2"});
    broken[0]["expected"]["queued"] = json!([]);
    let id = broken[0]["id"].as_str().unwrap().to_owned();
    let path = file(folder.path(), &cases);

    let output = simulate(&[&path]);
    assert_eq!(output.status.code(), Some(1));
    let text = stdout(&output);
    let at = text
        .lines()
        .position(|line| line.starts_with("differs"))
        .unwrap();
    let lines: Vec<&str> = text.lines().skip(at).take(3).collect();
    assert!(lines[0].contains(&id), "{text}");
    assert_eq!(lines[1].trim(), "queued: expected nothing; got y");
    assert_eq!(lines[2].trim(), "placed: expected x1 on n2; got x1 on n1");
    assert!(text.ends_with("cases: 1 differs\n"), "{text}");

    let output = simulate(&[&path, "--case", &id, "-o", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let verdicts: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let verdicts = verdicts["items"].as_array().unwrap();
    assert_eq!(verdicts.len(), 1);
    assert_eq!(verdicts[0]["ok"], false);
    let queued = json!({"list": "queued", "expected": [], "got": ["y"]});
    assert_eq!(verdicts[0]["differences"][0], queued);
    assert_eq!(verdicts[0]["end"]["allocated"], json!(["x1", "x2"]));

    let names = simulate(&[&path, "-o", "name"]);
    assert_eq!(stdout(&names), format!("{id}\n"));
}

#[test]
fn a_bad_file_is_refused_with_case_place_and_field() {
    let folder = tempfile::tempdir().unwrap();
    let submit =
        json!({"op": "submit", "request": "a", "subject": "s", "resources": {"gpu": "four"}});
    let case = json!({"id": "c1", "pools": [{"name": "p"}], "events": [submit, {"op": "explode"}]});
    let path = file(folder.path(), &json!([case]));
    let output = simulate(&[&path]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    for words in [
        "case `c1`, event 1 (submit): resources.gpu: write a number up to 1000000000",
        "case `c1`, event 2 (explode): op: unknown variant `explode`",
    ] {
        assert!(text.contains(words), "{text}");
    }
    let lost =
        json!({"id": "c2", "pools": [{"name": "p"}], "events": [{"op": "node_lost", "node": "n"}]});
    let path = file(folder.path(), &lost);
    let output = simulate(&[&path]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(
        text.contains("case `c2`, event 1: there is no node `n`"),
        "{text}"
    );
    for (args, words) in [
        (&["/no/such/file"][..], "/no/such/file: cannot be read"),
        (
            &[&path, "--case", "c3"],
            "--case: there is no case `c3`: did you mean `c2`?",
        ),
    ] {
        let output = simulate(args);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    }
}

/// Returns the lines between one that begins with `begin` and the end of the block, in the page on `simulate`.
fn shown(page: &str, begin: &str) -> String {
    let lines = page.lines().skip_while(|line| *line != begin).skip(1);
    let lines: Vec<&str> = lines.take_while(|line| *line != "```").collect();
    lines.join("\n") + "\n"
}

#[test]
fn what_the_documentation_shows_is_what_comes_out() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/simulate.md");
    let page = fs::read_to_string(page).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("reclaim.json");
    fs::write(&path, shown(&page, "```json reclaim.json")).unwrap();
    let output = simulate(&[path.to_str().unwrap()]);
    assert_eq!(stderr(&output), "");
    assert_eq!(
        stdout(&output),
        shown(&page, "$ sluice simulate reclaim.json")
    );
}

/// Returns the report that a run prints with `-o json`.
fn report(args: &[&str]) -> Value {
    let output = simulate(&[args, &["-o", "json"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_str(&stdout(&output)).unwrap()
}

fn sample(file: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces");
    folder.join(file).to_str().unwrap().to_owned()
}

/// Removes the duration, which differs each time.
fn without_speed(text: &str) -> Vec<&str> {
    let lines = text.lines();
    lines
        .filter(|line| !line.starts_with("Simulated"))
        .collect()
}

#[test]
fn the_report_on_a_trace_is_the_one_in_the_documentation() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/simulate.md");
    let page = fs::read_to_string(page).unwrap();
    let line = "sluice simulate --hosts 8x8 --jobs philly-100.csv --policies shares.yaml";
    let mut command = Command::new(binaries().join("sluice"));
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("traces"));
    let output = command.args(line.split(' ').skip(1)).output().unwrap();
    assert_eq!(stderr(&output), "");
    let shown = shown(&page, &format!("$ {line}"));
    assert_eq!(without_speed(&stdout(&output)), without_speed(&shown));
}

#[test]
fn a_report_adds_up_and_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("plot.svg");
    let (jobs, shares) = (sample("philly-100.csv"), sample("shares.yaml"));
    let args = [
        "--hosts",
        "training=8x8",
        "--jobs",
        &jobs,
        "--policies",
        &shares,
    ];
    let plotted = [&args[..], &["--plot", plot.to_str().unwrap()]].concat();
    let report = report(&plotted);
    assert_eq!(report["cluster"], json!({"hosts": 8, "gpus": 64}));
    let jobs = &report["jobs"];
    assert_eq!(
        (&jobs["arrived"], &jobs["finished"]),
        (&json!(100), &json!(100))
    );
    let subjects = report["waiting_by_subject"].as_object().unwrap().values();
    let of_subjects: u64 = subjects
        .map(|waiting| waiting["jobs"].as_u64().unwrap())
        .sum();
    assert_eq!(of_subjects, 100);
    let series = report["allocation"]["series"].as_array().unwrap();
    assert!(
        series
            .iter()
            .all(|point| (0.0..=100.0001).contains(&point["pct"].as_f64().unwrap()))
    );
    assert!(report["preemptions"]["gpu_hours_lost"].as_f64().unwrap() > 0.0);
    let svg = fs::read_to_string(&plot).unwrap();
    assert!(
        svg.starts_with("<svg ") && svg.ends_with("</svg>\n"),
        "{svg}"
    );

    let stopped = self::report(&[&args[..], &["--until", "1h"]].concat());
    let arrived = stopped["jobs"]["arrived"].as_u64().unwrap();
    assert!((1..100).contains(&arrived), "{arrived}");
}

#[test]
fn what_cannot_give_way_runs_inside_what_is_reserved_alone() {
    let (jobs, shares) = (sample("philly-100.csv"), sample("shares.yaml"));
    let args = ["--hosts", "8x8", "--jobs", &jobs, "--policies", &shares];
    let report = report(&[&args[..], &["--non-preemptible", "e13805"]].concat());
    // It has nothing reserved.
    assert_eq!(report["jobs"]["rejected"], json!({"exceeds_reserved": 10}));
}

#[test]
fn a_bad_trace_is_refused_with_file_line_and_column() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.csv");
    let header = "timestamp,duration,num_gpus,cluster\n";
    fs::write(
        &path,
        format!("{header}2017-10-09 07:01:55,66.0,1,a\n2017-10-09 07:01:56,66.0,x,a\n"),
    )
    .unwrap();
    let path = path.to_str().unwrap();
    let jobs = sample("philly-100.csv");
    for (args, words) in [
        (
            &["--jobs", path, "--hosts", "1x1"][..],
            "jobs.csv, line 3, column `num_gpus`: `x` is not a whole number",
        ),
        (&["--jobs", path], "there are no hosts: write --hosts"),
        (
            &["--jobs", &jobs, "--hosts", path],
            "jobs.csv: its header `timestamp,duration,num_gpus,cluster` is not that of a list of hosts",
        ),
        (&["--jobs", &jobs, "--hosts", "0x8"], "there are no hosts"),
        (
            &["--jobs", &jobs, "--hosts", "1x1", "-o", "name"],
            "--output: `name` does not apply to a report",
        ),
        (&["--hosts", "1x1"], "--jobs"),
        (
            &["--jobs", &jobs, "--hosts", "1x1", "x.json"],
            "cannot be used with",
        ),
    ] {
        let output = simulate(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    }
}

/// Returns the public traces, if this machine has them.
fn traces() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces");
    let named = std::env::var_os("SLUICE_TRACES").map(PathBuf::from);
    named
        .into_iter()
        .chain([beside])
        .find(|folder| folder.exists())
}

#[test]
fn the_openb_cluster_is_filled_by_what_fits_it() {
    let Some(folder) = traces() else {
        sluice_tests::left_out("no folder with traces: name one in SLUICE_TRACES");
        return;
    };
    let file = |name: &str| folder.join("openb").join(name).to_str().unwrap().to_owned();
    let (hosts, jobs) = (
        file("openb_node_list_gpu_node.csv"),
        file("openb_pod_list_default.csv"),
    );
    let args = [
        "--hosts",
        &hosts,
        "--jobs",
        &jobs,
        "--arrivals",
        "130",
        "--seed",
        "3",
    ];
    let report = report(&args);
    let full = report["allocation"]["at_last_arrival_pct"]
        .as_f64()
        .unwrap();
    assert!(full > 99.9, "{full} % of the GPUs");
    assert_eq!(report["preemptions"]["count"], 0);
}
