//! The environment of a new step, and why a step does not start.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use nix::sys::resource::{Resource, getrlimit};
use sluice_common::supervision::{Exit, SpawnSpec};

use crate::client::{Client, sh, spec};
use crate::host::Host;

fn refusal(client: &mut Client, spec: &SpawnSpec) -> String {
    client.spawn(spec);
    let end = client.wait_gone(&spec.attempt);
    assert_eq!(end.process, None);
    match end.exit {
        Exit::StartFailed(why) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_environment_is_what_was_asked_for_and_what_its_user_is_known_by() {
    let host = Host::start();
    let mut spec = spec("env.1", &["/usr/bin/env"]);
    spec.env.insert("A".to_owned(), "x=y z\n!".to_owned());
    spec.env
        .insert("HOME".to_owned(), "/the/step's/own".to_owned());
    assert_eq!(host.client().run(&spec), Exit::Code(0));
    let known = known_by().chain(own_files(&host, "env.1"));
    let wanted = spec.env.clone().into_iter().chain(known);
    let wanted: std::collections::BTreeMap<_, _> = wanted
        .filter(|(k, v)| k != "HOME" || v == "/the/step's/own")
        .collect();
    let wanted: String = wanted.iter().map(|(k, v)| format!("{k}={v}\n")).collect();
    let mut lines: Vec<String> = host
        .output(&"env.1", "stdout")
        .lines()
        .map(str::to_owned)
        .collect();
    let mut wanted: Vec<&str> = wanted.lines().collect();
    lines.sort();
    wanted.sort_unstable();
    assert_eq!(lines, wanted);
}

#[test]
fn an_empty_environment_stays_empty_but_for_what_its_user_is_known_by() {
    let host = Host::start();
    let mut spec = spec("bare.1", &["/usr/bin/env"]);
    spec.env = Default::default();
    assert_eq!(host.client().run(&spec), Exit::Code(0));
    let wanted: std::collections::BTreeMap<_, _> =
        known_by().chain(own_files(&host, "bare.1")).collect();
    let wanted: String = wanted.iter().map(|(k, v)| format!("{k}={v}\n")).collect();
    assert_eq!(host.output(&"bare.1", "stdout"), wanted);
}

/// Paths that only the supervisor knows.
fn own_files(host: &Host, id: &str) -> [(String, String); 2] {
    let dir = host.dir.path().canonicalize().unwrap();
    let dir = dir.join("attempts").join(id).display().to_string();
    [("CHECKPOINT", "step/checkpoint"), ("NOTICE", "notice")]
        .map(|(name, file)| (format!("SLUICE_{name}_FILE"), format!("{dir}/{file}")))
}

/// Variables from the user database about the user who runs these tests.
fn known_by() -> impl Iterator<Item = (String, String)> {
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap();
    let known = user.map(|user| {
        [
            ("HOME", user.dir.to_str().unwrap().to_owned()),
            ("LOGNAME", user.name.clone()),
            ("SHELL", user.shell.to_str().unwrap().to_owned()),
            ("USER", user.name),
        ]
    });
    known
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.to_owned(), value))
}

#[test]
fn signals_are_at_their_defaults() {
    let host = Host::start();
    let spec = spec(
        "mask.1",
        &["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"],
    );
    assert_eq!(host.client().run(&spec), Exit::Code(0));
    let text = host.output(&"mask.1", "stdout");
    // The C library reserves two signals and lets no program change them.
    let set = |line: &str| {
        let bits = line.split_whitespace().last().unwrap();
        u64::from_str_radix(bits, 16).unwrap() & !(0b11 << 31)
    };
    assert_eq!(text.lines().map(set).collect::<Vec<_>>(), [0, 0], "{text}");
}

#[test]
fn nothing_of_the_supervisor_is_inherited() {
    let host = Host::start();
    let script = "pwd; cut -d' ' -f1,5,6 /proc/$$/stat; ulimit -n; \
                  for fd in /proc/$$/fd/*; do readlink $fd; done; true";
    assert_eq!(host.client().run(&sh("born.1", script)), Exit::Code(0));
    let text = host.output(&"born.1", "stdout");
    let lines: Vec<&str> = text.lines().collect();
    let dir = host.attempt_dir(&"born.1").canonicalize().unwrap();
    let dir = dir.display();
    assert_eq!(lines[0], format!("{dir}/work"));
    let ids: Vec<&str> = lines[1].split(' ').collect();
    assert!(
        ids.iter().all(|id| *id == ids[0]),
        "leads group and session: {text}"
    );
    let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    assert_eq!(
        lines[2],
        soft.to_string(),
        "the limit that the supervisor was given"
    );
    let fds = [
        "/dev/null".to_owned(),
        format!("{dir}/stdout.pipe"),
        format!("{dir}/stderr.pipe"),
    ];
    assert_eq!(lines[3..], fds);
}

#[test]
fn an_attempt_whose_name_was_used_before_begins_with_nothing() {
    let host = Host::start();
    let mut client = host.client();
    let first = sh("again.1", "echo first; echo first >&2; touch left-over");
    client.run(&first);
    client.forget(&first.attempt);
    assert!(client.list().is_empty());
    client.views.clear();
    let second = sh("again.1", "echo second; ls");
    assert_eq!(client.run(&second), Exit::Code(0));
    assert_eq!(host.output(&"again.1", "stdout"), "second\n");
    assert_eq!(host.output(&"again.1", "stderr"), "");
}

#[test]
fn output_is_private_and_kept_after_forget() {
    let host = Host::start();
    let mut client = host.client();
    let spec = sh("out.1", "echo hello; echo oops >&2");
    assert_eq!(client.run(&spec), Exit::Code(0));
    client.forget(&spec.attempt);
    assert!(client.list().is_empty());
    assert!(!host.record("out.1").exists());
    assert_eq!(host.output(&"out.1", "stdout"), "hello\n");
    assert_eq!(host.output(&"out.1", "stderr"), "oops\n");
    for (name, mode) in [("", 0o700), ("stdout", 0o600), ("stderr", 0o600)] {
        let found = fs::metadata(host.attempt_dir(&"out.1").join(name)).unwrap();
        assert_eq!(found.permissions().mode() & 0o777, mode, "{name}");
    }
}

#[test]
fn a_working_directory_is_taken_as_given() {
    let host = Host::start();
    let mut spec = spec("cwd.1", &["./here"]);
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("here"), "#!/bin/sh\npwd -P\n").unwrap();
    fs::set_permissions(dir.path().join("here"), fs::Permissions::from_mode(0o755)).unwrap();
    spec.workdir = Some(dir.path().to_str().unwrap().to_owned());
    assert_eq!(host.client().run(&spec), Exit::Code(0));
    let wanted = dir.path().canonicalize().unwrap();
    assert_eq!(
        host.output(&"cwd.1", "stdout").trim_end(),
        wanted.to_str().unwrap()
    );
}

#[test]
fn a_command_that_cannot_run_says_why() {
    let host = Host::start();
    let mut client = host.client();
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_str().unwrap();
    for (name, text, mode) in [
        ("plain", "#!/bin/sh\n", 0o644),
        ("orphan", "#!/no/such/shell\n", 0o755),
        ("noise", "no program\n", 0o755),
    ] {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let big = "x".repeat(200_000);
    let cases: &[(&[&str], &str)] = &[
        (&[""], "the command is empty"),
        (
            &["no-such-tool"],
            "command `no-such-tool` was not found in PATH (/usr/local/bin:/usr/bin:/bin)",
        ),
        (&["/no/such/tool"], "command `/no/such/tool` does not exist"),
        (&[root], "is a directory, not a program"),
        (&[&format!("{root}/plain")], "is not executable"),
        (
            &[&format!("{root}/orphan")],
            "interpreter `/no/such/shell` does not exist",
        ),
        (
            &[&format!("{root}/noise")],
            "is not a program that this host can run",
        ),
        (&["true", &big], "more than this host's kernel accepts"),
        (&["true", "a\0b"], "command[1] contains a NUL byte"),
    ];
    for (n, (command, wanted)) in cases.iter().enumerate() {
        let why = refusal(&mut client, &spec(&format!("bad.{}", n + 1), command));
        assert!(why.contains(wanted), "{why}");
    }
}

#[test]
fn an_impossible_directory_or_variable_says_why() {
    let host = Host::start();
    let mut client = host.client();
    let cases: &[(&str, &str)] = &[
        (
            "/no/such/dir",
            "working directory `/no/such/dir` does not exist",
        ),
        (
            "/dev/null",
            "working directory `/dev/null` is not a directory",
        ),
        (
            "relative",
            "working directory `relative` is not an absolute path",
        ),
        ("/a\0b", "the working directory contains a NUL byte"),
    ];
    for (n, (workdir, wanted)) in cases.iter().enumerate() {
        let mut spec = spec(&format!("dir.{}", n + 1), &["true"]);
        spec.workdir = Some((*workdir).to_owned());
        let why = refusal(&mut client, &spec);
        assert!(why.contains(wanted), "{why}");
    }
    for (n, (name, value, wanted)) in [
        ("", "x", "cannot be the name"),
        ("A=B", "x", "`A=B` cannot be the name"),
        ("A", "\0", "environment variable `A` contains a NUL byte"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut spec = spec(&format!("var.{}", n + 1), &["true"]);
        spec.env.insert(name.to_owned(), value.to_owned());
        let why = refusal(&mut client, &spec);
        assert!(why.contains(wanted), "{why}");
    }
    let mut spec = spec("path.1", &["true"]);
    spec.env.remove("PATH");
    assert!(refusal(&mut client, &spec).contains("has no PATH"));
}

#[test]
fn a_repeated_spawn_starts_nothing() {
    let host = Host::start();
    let mut client = host.client();
    let spec = sh("twice.1", "echo once");
    client.spawn(&spec);
    client.spawn(&spec);
    client.wait_gone(&spec.attempt);
    client.views.clear();
    client.spawn(&spec);
    assert_eq!(client.wait_gone(&spec.attempt).exit, Exit::Code(0));
    assert_eq!(host.output(&"twice.1", "stdout"), "once\n");
}

#[test]
fn a_place_where_nothing_can_be_written_fails_the_start() {
    let host = Host::start();
    // A file instead of the directory for trash stops even root.
    let place = host.attempt_dir(&"blocked.1");
    fs::create_dir_all(place.join("left")).unwrap();
    fs::write(place.with_file_name(".removed"), b"").unwrap();
    let mut client = host.client();
    let blocked = spec("blocked.1", &["true"]);
    client.spawn(&blocked);
    let Exit::HostFailed(why) = client.wait_gone(&blocked.attempt).exit else {
        panic!("it is no fault of the step's");
    };
    assert!(
        why.contains("the host could not") && why.contains("blocked.1"),
        "{why}"
    );
}

#[test]
fn one_whose_inputs_the_agent_removed_has_not_begun() {
    let host = Host::start();
    let mut client = host.client();
    let mut early = sh("early.1", "echo begun");
    early.inputs = Some(host.attempt_dir(&"gone.1").display().to_string());
    client.spawn(&early);
    let Exit::NotBegun(why) = client.wait_gone(&early.attempt).exit else {
        panic!("neither the step nor the host is at fault");
    };
    assert!(why.contains("had removed its inputs"), "{why}");
    assert_eq!(host.output(&"early.1", "stdout"), "");
}

#[test]
fn one_that_is_being_started_is_listed() {
    let host = Host::start();
    let mut client = host.client();
    for number in 1..=50 {
        let spec = sh(&format!("early.{number}"), "exit 0");
        client.spawn(&spec);
        assert!(client.list().contains_key(&spec.attempt), "{number}");
    }
}
