//! `--check-config` of the three daemons, by the installed programs: the effective config of a valid file, the error
//! and the fix of an invalid one, without starting or making anything.

use std::fs;
use std::path::Path;
use std::process::Command;

use sluice_tests::binaries;

/// Output and exit code of a check.
struct CheckOutput {
    code: Option<i32>,
    out: String,
    err: String,
}

fn check(daemon: &str, file: &Path) -> CheckOutput {
    let mut command = Command::new(binaries().join(daemon));
    command.args(["--check-config", "--config"]).arg(file);
    // Variables that would override the file are removed.
    let variables = std::env::vars_os().map(|(name, _)| name);
    for name in variables.filter(|name| name.to_string_lossy().starts_with("SLUICE_")) {
        command.env_remove(name);
    }
    let output = command.output().unwrap();
    CheckOutput {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Checks a valid file: its effective config has all of `parts`.
fn good(daemon: &str, text: &str, parts: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let file = folder.path().join("good.toml");
    fs::write(&file, text.replace("STATE", state.to_str().unwrap())).unwrap();
    let checked = check(daemon, &file);
    assert_eq!((checked.code, checked.err.as_str()), (Some(0), ""));
    for part in parts {
        assert!(checked.out.contains(part), "{part}: {}", checked.out);
    }
    assert!(!state.exists(), "nothing is made");
}

/// Checks an invalid file: one line of stderr has the file and all of `parts`.
fn bad(daemon: &str, text: &str, parts: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.toml");
    fs::write(&file, text).unwrap();
    refused(daemon, &file, parts);
}

fn refused(daemon: &str, file: &Path, parts: &[&str]) {
    let checked = check(daemon, file);
    let code = if daemon == "sluice-supervisor" { 2 } else { 1 };
    assert_eq!(checked.code, Some(code), "{}", checked.err);
    assert_eq!(checked.out, "");
    let lines: Vec<&str> = checked.err.lines().collect();
    let [line] = lines[..] else {
        panic!("{}", checked.err);
    };
    assert!(line.starts_with("error: "), "{line}");
    assert!(!line.contains(char::is_control), "{line:?}");
    for part in parts {
        assert!(line.contains(part), "{part}: {line}");
    }
}

const DAEMONS: [&str; 3] = ["sluice-coordinator", "sluice-agent", "sluice-supervisor"];

#[test]
fn a_good_file_is_shown_as_it_would_be_used() {
    good(
        "sluice-coordinator",
        "data_dir = \"STATE\"\nlost_after = \"10m\"\nlog_filter = \"warn\"\n",
        &[
            "lost_after = \"10m\"\n",
            "lease = \"5m\"\n",
            "log_filter = \"warn\"\n",
        ],
    );
    good(
        "sluice-agent",
        "state_dir = \"STATE\"\ncoordinators = [\"c:7443\"]\nnode = \"n\"\nlog_filter = \"warn\"\n\
         tls = { ca = \"a\", cert = \"b\", key = \"c\" }\n[labels]\nrack = \"7\"\n",
        &[
            "coordinators = [\"c:7443\"]\n",
            "suspend_limit = \"2m\"\n",
            "log_filter = \"warn\"\n",
            "\"rack\" = \"7\"\n",
        ],
    );
    good(
        "sluice-supervisor",
        "output_max = \"1MiB\"\nlog_filter = \"warn\"\n",
        &[
            "output_max = \"1048576B\"\n",
            "allow_root = false\n",
            "log_filter = \"warn\"\n",
        ],
    );
}

#[test]
fn a_mistake_is_named_with_file_field_value_and_way_out() {
    for (daemon, text, parts) in [
        (
            "sluice-coordinator",
            "# one\nlost_afte = \"3m\"\n",
            &[
                "bad.toml",
                "line 2",
                "unknown key `lost_afte`",
                "did you mean `lost_after`?",
            ][..],
        ),
        (
            "sluice-coordinator",
            "lost_after = \"3m\"\n",
            &["bad.toml", "lost_after: 3m", "at least 5m50s"],
        ),
        (
            "sluice-coordinator",
            "retention = \"x\"\n",
            &["bad.toml", "line 1", "`retention = \"x\"`", "expected u64"],
        ),
        (
            "sluice-coordinator",
            "api_token_file = \"/no/such\"\n",
            &["bad.toml", "api_token_file", "/no/such"],
        ),
        (
            "sluice-agent",
            "node = \"a/b\"\n",
            &["bad.toml", "node: `a/b`", "use 1 to 63 letters"],
        ),
        (
            "sluice-agent",
            "nod = \"n\"\n",
            &["bad.toml", "line 1", "did you mean `node`?"],
        ),
        // On a host that has not joined yet, too.
        (
            "sluice-agent",
            "gpu_release_timeout = \"0s\"\n",
            &["bad.toml", "gpu_release_timeout: `0s`", "between 1s and"],
        ),
        (
            "sluice-agent",
            "state_dir = \"/no/such\"\n",
            &["bad.toml", "tls", "no certificate", "`sluice-agent join`"],
        ),
        (
            "sluice-supervisor",
            "umask = \"999\"\n",
            &["bad.toml", "umask: `999`", "octal digits, such as"],
        ),
        (
            "sluice-supervisor",
            "[limits]\nnofil = 3\n",
            &["bad.toml", "line 2", "did you mean `nofile`?"],
        ),
        (
            "sluice-supervisor",
            "default_user = \"no-such-user\"\n",
            &["default_user", "`no-such-user`"],
        ),
    ] {
        bad(daemon, text, parts);
    }
    // Control characters are escaped everywhere.
    for text in [
        "default_user = \"a\\u001b[2J\"\n",
        "workdirs = [\"a\\u001b[2J\"]\n",
    ] {
        bad("sluice-supervisor", text, &["`a\\u{1b}[2J`"]);
    }
    for daemon in DAEMONS {
        bad(daemon, "[[[", &["bad.toml", "line 1", "`[[[`"]);
        let filter = "log_filter = \"debgu\"\n";
        bad(
            daemon,
            filter,
            &["log_filter: `debgu`", "did you mean `debug`?"],
        );
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nowhere.toml");
    for daemon in DAEMONS {
        refused(
            daemon,
            &file,
            &["cannot read", file.to_str().unwrap(), "No such file"],
        );
        refused(daemon, folder.path(), &[folder.path().to_str().unwrap()]);
    }
}
