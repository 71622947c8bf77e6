//! The API's description, judged by programs that are not ours: a validator, the schemas held against real answers, and
//! a client that a generator made of it. And the words about it in `docs/http.md`.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use sluice_common::error_code::ErrorCode;
use sluice_common::reason::ReasonCode;
use sluice_tests::{Dev, DevOptions, binaries, python_with};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi")
}

/// A Python that has the validator and the generator. Where it cannot be made nothing is known, so the test fails.
fn python() -> PathBuf {
    let requirements = include_str!("../../openapi/requirements.txt");
    let python = python_with("openapi-python", requirements);
    python.unwrap_or_else(|why| panic!("pip cannot install tests/openapi/requirements.txt: {why}"))
}

/// A cluster of one node with GPUs, so that answers have everything in them.
fn dev() -> Dev {
    let library = binaries().join("libsluice_nvml_standin.so");
    assert!(library.exists(), "run `cargo build --workspace` first");
    let host = folder().join("../nvml/hosts/h100-mig.json");
    Dev::with(DevOptions {
        gpus: Some((library, host)),
        ..DevOptions::default()
    })
}

fn script(name: &str, dev: &Dev) -> Command {
    let mut command = Command::new(python());
    command
        .arg(folder().join(name))
        .arg(format!("http://{}", dev.http))
        .arg(dev.token());
    command
}

fn ok(output: &Output) -> String {
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stdout}\n{stderr}");
    stdout
}

#[test]
fn every_answer_is_what_the_document_says() {
    let dev = dev();
    let said = ok(&script("answers.py", &dev).output().unwrap());
    assert_eq!(said, "OK\n");
}

#[test]
fn a_generated_client_drives_the_api() {
    let dev = dev();
    let python = python();
    let generator = python.with_file_name("openapi-python-client");
    let made = Command::new(generator)
        .args(["generate", "--meta", "none", "--fail-on-warning", "--url"])
        .arg(format!("http://{}/openapi.json", dev.http))
        .arg("--config")
        .arg(folder().join("generator.yaml"))
        .arg("--output-path")
        .arg(dev.folder().join("sluice_client"))
        .output()
        .unwrap();
    ok(&made);
    let mut client = script("client.py", &dev);
    let said = ok(&client.env("PYTHONPATH", dev.folder()).output().unwrap());
    assert_eq!(said, "OK\n");
}

const PAGE: &str = include_str!("../../../docs/http.md");
const TROUBLE: &str = include_str!("../../../docs/troubleshooting.md");

/// The rows of the tables below some headings of the page on troubleshooting, without those that head them.
fn rows(headings: &[&str]) -> Vec<Vec<&'static str>> {
    let section = |heading: &&str| {
        let (_, below) = TROUBLE.split_once(&format!("\n## {heading}\n")).unwrap();
        below.split("\n## ").next().unwrap()
    };
    let lines = headings.iter().map(section).flat_map(str::lines);
    let rows = lines.filter(|line| line.starts_with("| `"));
    let cells = |row: &'static str| row.trim_matches('|').split(" | ").map(str::trim).collect();
    rows.map(cells).collect()
}

#[test]
fn the_page_on_troubleshooting_has_every_error_code_and_what_to_do() {
    let rows = rows(&["A call is refused"]);
    let expected = ErrorCode::ALL.iter().map(|code| {
        let status = code.status().to_string();
        vec![format!("`{code}`"), status, code.meaning().to_owned()]
    });
    let found = rows.iter().map(|row| row[..3].to_vec());
    assert_eq!(found.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    let lost = rows.iter().find(|row| row.len() != 4 || row[3].is_empty());
    assert_eq!(lost, None, "an error without a way out");
}

#[test]
fn the_page_on_troubleshooting_has_every_reason_code_and_what_to_do() {
    let mut rows = rows(&[
        "A step waits",
        "A step was rejected",
        "A step ended",
        "A step was stopped or is queued again",
    ]);
    let lost = rows.iter().find(|row| row.len() != 3 || row[2].is_empty());
    assert_eq!(lost, None, "a reason without what to do");
    let expected = ReasonCode::ALL
        .iter()
        .map(|code| vec![format!("`{code}`"), code.meaning().to_owned()]);
    let mut expected: Vec<Vec<String>> = expected.collect();
    rows.iter_mut().for_each(|row| row.truncate(2));
    rows.sort();
    expected.sort();
    assert_eq!(rows, expected);
}

/// The fenced blocks of the page in order, each with what its fence says.
fn blocks() -> Vec<(&'static str, &'static str)> {
    let fenced = PAGE.split("```").skip(1).step_by(2);
    fenced
        .map(|block| block.split_once('\n').unwrap())
        .collect()
}

#[test]
fn every_example_of_the_page_works() {
    let dev = Dev::start();
    let shell = |text: &str| {
        let mut shell = Command::new("bash");
        shell
            .args(["-euo", "pipefail", "-c", text])
            .env("URL", format!("http://{}", dev.http))
            .env("TOKEN", dev.token())
            .current_dir(dev.folder());
        shell
    };
    let mut said = String::new();
    for (kind, text) in blocks() {
        match kind {
            "sh" => said.push_str(&ok(&shell(text).output().unwrap())),
            "sh follow" => said.push_str(&first_event(shell(text))),
            // It takes address and token from the context file of whoever reads.
            "sh installed" => {}
            _ => panic!("nobody runs this block: {kind}\n{text}"),
        }
    }
    for expected in [
        "trained\n",
        "ne\n",
        "event: coordinator_started",
        r#""state":"succeeded""#,
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let made = said.matches(r#""command":["true"]"#).count();
    assert!(made >= 3, "{said}");
}

/// What a stream says until its first event's type; the stream is let go then.
fn first_event(mut command: Command) -> String {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let found = lines
        .map_while(Result::ok)
        .find(|line| line.starts_with("event: "));
    child.kill().unwrap();
    child.wait().unwrap();
    found.unwrap()
}
