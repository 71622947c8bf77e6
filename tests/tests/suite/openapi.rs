//! The API's description, judged by programs that are not ours: a validator, the schemas held against real answers, and
//! a client that a generator made of it. And the words about it in `docs/http.md`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

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
