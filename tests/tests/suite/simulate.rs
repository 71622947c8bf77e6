//! `sluice simulate` as a program: the published cases, broken ones, bad files, and what the documentation shows.

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

/// A file that `simulate` is given.
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
        "case `c1`, event 1 (submit): resources: invalid type: string \"four\"",
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

/// What stands between a line that begins with `begin` and the end of the block, in the page on `simulate`.
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
    fs::write(&path, shown(&page, "```json")).unwrap();
    let output = simulate(&[path.to_str().unwrap()]);
    assert_eq!(stderr(&output), "");
    assert_eq!(
        stdout(&output),
        shown(&page, "$ sluice simulate reclaim.json")
    );
}
