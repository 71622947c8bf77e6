//! Malformed, too large, misplaced and damaged input: one clear message each, and no partial effect.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use sluice_tests::{CommandOutput, Daemon, Dev, binaries};

/// Runs a binary of the product, which must end by itself.
fn run(name: &str, args: &[&str]) -> CommandOutput {
    let output = Command::new(binaries().join(name))
        .args(args)
        .env("SLUICE_LOG", "info")
        .output()
        .unwrap();
    CommandOutput {
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        code: output.status.code().unwrap_or(-1),
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn the_api_names_the_field_and_the_way_out() {
    let dev = Dev::start();
    for (body, status, code, said) in [
        (
            r#"{"command":["true"],"resources":{"gpus":1}}"#,
            400,
            "unknown_field",
            "gpu_count",
        ),
        (r#"{"comand":["true"]}"#, 400, "unknown_field", "command"),
        (
            r#"{"command":["true"],"resources":{"memory":"8gb"}}"#,
            400,
            "invalid_memory",
            "8GB",
        ),
        (r#"{"command":[]}"#, 400, "invalid_command", "command"),
        (r#"{"command":"true"}"#, 400, "invalid_body", "command"),
        (r#"{"command":["#, 400, "invalid_body", "line 1"),
        (
            r#"{"command":["true"],"id":"a/b"}"#,
            400,
            "invalid_id",
            "a/b",
        ),
        (
            r#"{"command":["true"],"resources":{"min_replicas":2}}"#,
            400,
            "unsupported_field",
            "min_replicas",
        ),
    ] {
        let (got, answer) = dev.call("POST", "/v1/steps", Some(body));
        assert_eq!(
            (got, answer["error"]["code"].as_str()),
            (status, Some(code)),
            "{body}: {answer}"
        );
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(said), "{body}: {message}");
    }
    let (_, steps) = dev.call("GET", "/v1/steps", None);
    assert_eq!(
        steps["items"],
        Value::Array(vec![]),
        "nothing was half-done"
    );
}

#[test]
fn bodies_ids_and_paths_that_do_not_fit_are_refused() {
    let dev = Dev::start();
    let large = format!(
        r#"{{"command":["true"],"env":{{"A":"{}"}}}}"#,
        "x".repeat(2 << 20)
    );
    let (status, answer) = dev.call("POST", "/v1/steps", Some(&large));
    assert_eq!(
        (status, answer["error"]["code"].as_str()),
        (413, Some("body_too_large")),
        "{answer}"
    );

    let body = r#"{"id":"twice","command":["true"]}"#;
    assert_eq!(dev.call("POST", "/v1/steps", Some(body)).0, 201);
    assert_eq!(
        dev.call("POST", "/v1/steps", Some(body)).0,
        200,
        "a repeat is harmless"
    );
    let (status, answer) = dev.call(
        "POST",
        "/v1/steps",
        Some(r#"{"id":"twice","command":["false"]}"#),
    );
    assert_eq!(
        (status, answer["error"]["code"].as_str()),
        (409, Some("id_in_use")),
        "{answer}"
    );
    assert!(
        answer["error"]["message"]
            .as_str()
            .unwrap()
            .contains("command"),
        "{answer}"
    );

    for (method, path, status, code) in [
        ("GET", "/v1/steps/nobody", 404, "unknown_step"),
        ("POST", "/v1/steps/nobody:cancel", 404, "unknown_step"),
        ("GET", "/v1/nodes/nobody", 404, "unknown_node"),
        ("GET", "/v1/pools/nobody", 404, "unknown_pool"),
        ("GET", "/v1/nothing", 404, "unknown_route"),
        ("DELETE", "/v1/steps", 405, "method_not_allowed"),
    ] {
        let (got, answer) = dev.call(method, path, None);
        assert_eq!(
            (got, answer["error"]["code"].as_str()),
            (status, Some(code)),
            "{method} {path}: {answer}"
        );
    }
}

#[test]
fn a_call_without_the_token_is_refused() {
    let dev = Dev::start();
    let error = ureq::get(format!("http://{}/v1/steps", dev.http))
        .call()
        .unwrap_err();
    assert!(matches!(error, ureq::Error::StatusCode(401)), "{error}");
    assert!(
        ureq::get(format!("http://{}/healthz", dev.http))
            .call()
            .is_ok()
    );
}

#[test]
fn what_cannot_be_started_says_why() {
    let dev = Dev::start();
    let folder = dev.folder().to_owned();
    fs::write(folder.join("plain"), "no program").unwrap();
    let plain = folder.join("plain");
    for (args, said) in [
        (vec!["run", "--", "no-such-program-here"], "was not found"),
        (vec!["run", "--", text(&plain)], "not executable"),
        (
            vec!["run", "--workdir", "/no/such/place", "--", "true"],
            "/no/such/place",
        ),
        (vec!["run", "--", "/tmp"], "directory"),
    ] {
        let ran = dev.sluice(&args);
        assert_eq!(ran.code, 125, "{args:?}: {ran:?}");
        assert!(ran.stderr.contains(said), "{args:?}: {}", ran.stderr);
        assert!(ran.stdout.is_empty(), "{ran:?}");
    }
}

#[test]
fn the_command_line_says_how_to_use_it() {
    let dev = Dev::start();
    for (args, code, said) in [
        (vec!["run"], 2, "CMD"),
        (vec!["run", "--gpus", "many", "--", "true"], 2, "many"),
        (vec!["rum"], 2, "run"),
        (vec!["run", "--memory", "8gb", "--", "true"], 2, "8GB"),
        (vec!["get", "stepz"], 2, "steps"),
        (vec!["describe", "step", "nobody"], 1, "nobody"),
        (vec!["cancel", "nobody"], 1, "nobody"),
        (vec!["logs", "nobody"], 1, "nobody"),
    ] {
        let ran = dev.sluice(&args);
        assert_eq!(ran.code, code, "{args:?}: {ran:?}");
        assert!(ran.stderr.contains(said), "{args:?}: {}", ran.stderr);
    }
    let ran = dev.sluice(&["submit", "--id", "waited", "--", "sleep", "1000"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(
        dev.sluice(&["wait", "waited", "--timeout", "200ms"]).code,
        75
    );
}

#[test]
fn a_command_line_without_a_cluster_says_what_to_start() {
    let empty = tempfile::tempdir().unwrap();
    let output = Command::new(binaries().join("sluice"))
        .args(["get", "steps"])
        .env_remove("SLUICE_CONTEXT")
        .env("XDG_CONFIG_HOME", empty.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("sluice dev"));
}

#[test]
fn two_daemons_on_one_directory_and_a_port_in_use_are_refused() {
    let dev = Dev::start();
    let data = dev.data().to_owned();
    let second = run("sluice", &["dev", "--data", text(&data)]);
    assert_eq!(second.code, 1, "{second:?}");
    assert!(second.stderr.contains(text(&data)), "{second:?}");

    let coordinator = data.join("coordinator");
    let args = [
        "--data-dir",
        text(&coordinator),
        "--http",
        "127.0.0.1:0",
        "--quic",
        "127.0.0.1:0",
    ];
    let second = run("sluice-coordinator", &args);
    assert_eq!(second.code, 1, "{second:?}");
    assert!(
        second.stderr.contains("in use by another coordinator"),
        "{second:?}"
    );

    let supervisor = data.join("supervisor");
    let second = run("sluice-supervisor", &["--state-dir", text(&supervisor)]);
    assert_eq!(second.code, 1, "{second:?}");
    assert!(second.stderr.contains(text(&supervisor)), "{second:?}");

    let config = data.join("agent/agent.toml");
    let second = run("sluice-agent", &["--config", text(&config)]);
    assert_eq!(second.code, 1, "{second:?}");
    assert!(
        second.stderr.contains("in use by another agent"),
        "{second:?}"
    );

    let elsewhere = tempfile::tempdir().unwrap();
    let args = [
        "--data-dir",
        text(elsewhere.path()),
        "--http",
        &dev.http,
        "--quic",
        "127.0.0.1:0",
    ];
    let second = run("sluice-coordinator", &args);
    assert_eq!(second.code, 1, "{second:?}");
    assert!(second.stderr.contains(&dev.http), "the address: {second:?}");
    assert_eq!(
        dev.ok(&["run", "--", "echo", "still here"]),
        "still here\n",
        "the first one is unharmed"
    );
}

#[test]
fn a_config_with_a_typo_names_key_and_file() {
    let folder = tempfile::tempdir().unwrap();
    for (binary, file, content, said) in [
        (
            "sluice-agent",
            "agent.toml",
            "coordinatros = [\"a:1\"]\n",
            "did you mean `coordinators`",
        ),
        (
            "sluice-coordinator",
            "coordinator.toml",
            "data_dri = \"/tmp\"\n",
            "did you mean `data_dir`",
        ),
    ] {
        let path = folder.path().join(file);
        fs::write(&path, content).unwrap();
        let ran = run(binary, &["--config", text(&path)]);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(
            ran.stderr.contains(said) && ran.stderr.contains(file),
            "{ran:?}"
        );
    }
    let path = folder.path().join("short.toml");
    fs::write(&path, "lost_after = \"1m\"\n").unwrap();
    let ran = run(
        "sluice-coordinator",
        &["--config", text(&path), "--data-dir", text(folder.path())],
    );
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(
        ran.stderr.contains("lost_after") && ran.stderr.contains("lease"),
        "{ran:?}"
    );
}

#[test]
fn addresses_beyond_loopback_need_certificates() {
    let folder = tempfile::tempdir().unwrap();
    for (flag, way_out) in [("--http", "api_token_file"), ("--quic", "tls")] {
        let ran = run(
            "sluice-coordinator",
            &["--data-dir", text(folder.path()), flag, "0.0.0.0:0"],
        );
        assert_eq!(ran.code, 1, "{flag}: {ran:?}");
        assert!(
            ran.stderr.contains("0.0.0.0") && ran.stderr.contains(way_out),
            "{ran:?}"
        );
    }
}

/// Makes a store with some history of a stopped coordinator.
fn filled_store() -> (tempfile::TempDir, std::path::PathBuf) {
    let kept = tempfile::tempdir().unwrap();
    let data = kept.path().join("data");
    let dev = Dev::with(sluice_tests::DevOptions {
        data: Some(data.clone()),
        ..Default::default()
    });
    for number in 0..5 {
        dev.ok(&["run", "--id", &format!("kept-{number}"), "--", "true"]);
    }
    assert!(dev.daemon(Daemon::Coordinator).is_some());
    let (status, log) = dev.stop();
    assert!(status.success(), "{log}");
    (kept, data.join("coordinator"))
}

fn store_file(dir: &Path) -> std::path::PathBuf {
    let mut files = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    files
        .find(|path| {
            path.extension()
                .is_some_and(|extension| extension == "redb")
        })
        .expect("the store is a .redb file")
}

#[test]
fn a_damaged_store_stops_the_start_with_file_and_way_out() {
    let (_kept, dir) = filled_store();
    let path = store_file(&dir);
    let whole = fs::read(&path).unwrap();
    let flipped = {
        let mut bytes = whole.clone();
        let needle = b"kept-3";
        let at = bytes
            .windows(needle.len())
            .position(|window| window == needle)
            .expect("records are readable");
        bytes[at] ^= 1;
        bytes
    };
    let damages = [
        ("garbage", vec![b'x'; 9000]),
        ("truncated", whole[..whole.len() / 2].to_vec()),
        ("flipped", flipped),
    ];
    for (what, bytes) in damages {
        fs::write(&path, bytes).unwrap();
        let args = [
            "--data-dir",
            text(&dir),
            "--http",
            "127.0.0.1:0",
            "--quic",
            "127.0.0.1:0",
        ];
        let ran = run("sluice-coordinator", &args);
        assert_eq!(ran.code, 1, "{what}: {ran:?}");
        assert!(
            ran.stderr
                .contains(path.file_name().unwrap().to_str().unwrap()),
            "{what}: {ran:?}"
        );
        assert!(!ran.stderr.contains("panicked"), "{what}: {ran:?}");
        assert!(
            ran.stdout.is_empty(),
            "it never says that it is ready: {ran:?}"
        );
    }
    fs::write(&path, whole).unwrap();
    let dev = Dev::with(sluice_tests::DevOptions {
        data: Some(dir.parent().unwrap().into()),
        ..Default::default()
    });
    assert_eq!(
        dev.call("GET", "/v1/steps/kept-3", None).1["state"],
        "succeeded",
        "the whole file still opens"
    );
}
