//! The API's description, checked by external programs: a validator, the schemas against real answers, and a generated
//! client. And its text in `docs/http.md` and `docs/integrating.md`.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use sluice_common::error_code::ErrorCode;
use sluice_common::reason::ReasonCode;
use sluice_tests::{Dev, DevOptions, binaries, python_with};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi")
}

/// Returns a Python with the validator and the generator; fails if it cannot be made.
fn python() -> PathBuf {
    let requirements = include_str!("../../openapi/requirements.txt");
    let python = python_with("openapi-python", requirements);
    python.unwrap_or_else(|why| panic!("pip cannot install tests/openapi/requirements.txt: {why}"))
}

/// Starts a cluster of one node with GPUs, so that answers have every field.
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
fn the_websockets_are_spoken_by_another_library() {
    let dev = dev();
    let said = ok(&script("streams.py", &dev).output().unwrap());
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

/// Each way in which the rules reject a step, with its sentence.
const REJECTIONS: &str = include_str!("../../rejections/steps.json");

/// The section of the page on troubleshooting that has the error codes.
const ERRORS: &str = "A call is refused";
/// The one that has the reasons of rejected steps, with a sentence for each.
const REJECTED: &str = "A step was rejected";
const REASONS: [&str; 4] = [
    "A step waits",
    REJECTED,
    "A step ended",
    "A step was stopped or is queued again",
];

fn troubleshooting() -> PathBuf {
    folder().join("../../docs/troubleshooting.md")
}

/// A row of the page as the code has it: everything but what to do, which is the page's own.
fn row(section: &str, line: &str) -> Option<String> {
    let cells: Vec<&str> = line.strip_prefix("| `")?.split(" | ").collect();
    let code = cells[0].trim_end_matches('`');
    let to_do = cells.last()?.trim_end_matches('|').trim();
    assert!(cells.len() > 2 && !to_do.is_empty(), "{line}");
    if section == ERRORS {
        let code = ErrorCode::ALL.iter().find(|it| it.as_str() == code)?;
        let (status, meaning) = (code.status(), code.meaning());
        return Some(format!("| `{code}` | {status} | {meaning} | {to_do} |"));
    }
    let code = ReasonCode::ALL.iter().find(|it| it.as_str() == code)?;
    let meaning = code.meaning();
    if section != REJECTED {
        return Some(format!("| `{code}` | {meaning} | {to_do} |"));
    }
    let cases: Vec<Value> = serde_json::from_str(REJECTIONS).unwrap();
    let case = cases.iter().find(|case| case["code"] == code.as_str());
    let said = case.and_then(|case| case["message"].as_str());
    let said = said.map_or("-".to_owned(), |it| it.replace('|', "\\|"));
    Some(format!("| `{code}` | {meaning} | {said} | {to_do} |"))
}

#[test]
fn the_page_on_troubleshooting_has_every_code_and_what_to_do() {
    let text = fs::read_to_string(troubleshooting()).unwrap();
    let (mut section, mut made) = ("", String::new());
    let (mut errors, mut reasons) = (BTreeSet::new(), BTreeSet::new());
    for line in text.lines() {
        section = line.strip_prefix("## ").unwrap_or(section);
        let known = section == ERRORS || REASONS.contains(&section);
        let row = known.then(|| row(section, line)).flatten();
        made.push_str(row.as_deref().unwrap_or(line));
        made.push('\n');
        let code = row.and_then(|row| Some(row.split('`').nth(1)?.to_owned()));
        let found = if section == ERRORS {
            &mut errors
        } else {
            &mut reasons
        };
        found.extend(code);
    }
    let all = ErrorCode::ALL.iter().map(ToString::to_string);
    assert_eq!(errors, all.collect::<BTreeSet<_>>());
    let all = ReasonCode::ALL.iter().map(ToString::to_string);
    assert_eq!(reasons, all.collect::<BTreeSet<_>>());
    if std::env::var("SLUICE_PAGES").is_ok_and(|word| word == "write") {
        fs::write(troubleshooting(), made).unwrap();
        return;
    }
    let old = text.lines().zip(made.lines()).find(|(old, new)| old != new);
    assert_eq!(old, None, "renew the page by SLUICE_PAGES=write");
}

/// Runs the fenced blocks of a page in order, and returns what they print. The first one sets the variables that the others
/// use.
fn said_by(page: &str, python: impl Fn(&str, &Dev) -> String) -> String {
    let dev = Dev::start();
    let config = dev.folder().join(".config/sluice");
    fs::create_dir_all(&config).unwrap();
    fs::copy(&dev.context, config.join("context.json")).unwrap();
    let fenced = page.split("```").skip(1).step_by(2);
    let mut blocks = fenced.map(|block| block.split_once('\n').unwrap());
    let (_, variables) = blocks.next().unwrap();
    let shell = |text: &str| {
        let mut shell = Command::new("bash");
        shell
            .args(["-euo", "pipefail", "-c", &format!("{variables}{text}")])
            .env("HOME", dev.folder())
            .current_dir(dev.folder());
        shell
    };
    let mut said = String::new();
    for (kind, text) in blocks {
        match kind {
            "sh" => said.push_str(&ok(&shell(text).output().unwrap())),
            "sh follow" => said.push_str(&first_event(shell(text))),
            "python" => said.push_str(&python(text, &dev)),
            _ => panic!("nobody runs this block: {kind}\n{text}"),
        }
    }
    said
}

#[test]
fn every_example_for_orchestrators_works() {
    // The package's own tests run those in Python.
    let page = include_str!("../../../docs/integrating.md");
    let said = said_by(page, |_, _| String::new());
    for expected in [
        "\nched\n",
        "event: coordinator_started",
        r#""labels":{"run":"nightly-7"}"#,
        r#""matched":0"#,
        r#"{"id":"nightly-7.fetch.1","state":"succeeded","exit":{"#,
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

#[test]
fn every_example_of_the_page_works() {
    let page = include_str!("../../../docs/http.md");
    let said = said_by(page, |text, dev| {
        ok(&in_python(text, dev).output().unwrap())
    });
    for expected in [
        "trained\n",
        "ne\n",
        "event: coordinator_started",
        r#""state":"succeeded""#,
        r#"{"started":{}}"#,
        "channel 1 HELLO\n",
        r#"{"exit":{"code":0}}"#,
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let made = said.matches(r#""command":["true"]"#).count();
    assert!(made >= 3, "{said}");
}

/// A script with the packages of the tests, and with the variables of the page.
fn in_python(script: &str, dev: &Dev) -> Command {
    let mut command = Command::new(python());
    command
        .args(["-c", script])
        .env("URL", format!("http://{}", dev.http))
        .env("TOKEN", dev.token());
    command
}

/// Reads a stream until its first event's type, then drops it.
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
