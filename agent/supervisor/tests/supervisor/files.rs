//! Files that get the output of steps: opened by the step's user, complete when the step has ended, and no concern of
//! the supervisor.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use sluice_common::streams::OutputPath;
use sluice_common::supervision::{Exit, SpawnSpec, StopSignal};

use crate::client::sh;
use crate::host::{Host, until};

/// A step with files for its streams; an empty path is none.
fn with_files(id: &str, script: &str, [out, err]: [&str; 2], append: bool) -> SpawnSpec {
    let path = |text: &str| (!text.is_empty()).then(|| OutputPath::new(text).unwrap());
    let mut spec = sh(id, script);
    (spec.streams.stdout, spec.streams.stderr) = (path(out), path(err));
    spec.streams.append = append;
    spec
}

fn shown(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_file_has_what_the_host_keeps_and_its_size_is_not_bounded() {
    let host = Host::start();
    let (out, err) = (host.dir.path().join("out"), host.dir.path().join("err"));
    let script = "seq 200000; echo bad >&2; seq 200001 400000; exit 7";
    let spec = with_files("both.1", script, [shown(&out), shown(&err)], false);
    assert_eq!(host.client().run(&spec), Exit::Code(7));
    let kept = host.output(&"both.1", "stdout");
    assert!(kept.ends_with("\n400000\n"));
    assert!(
        fs::read_to_string(&out).unwrap() == kept,
        "it has every line"
    );
    assert_eq!(fs::read_to_string(&err).unwrap(), "bad\n");
    assert_eq!(host.output(&"both.1", "stderr"), "bad\n");
    // One stream alone, and the other as ever.
    let spec = with_files("one.1", "echo a; echo b >&2", ["", shown(&out)], false);
    assert_eq!(host.client().run(&spec), Exit::Code(0));
    assert_eq!(fs::read_to_string(&out).unwrap(), "b\n");
    assert_eq!(host.output(&"one.1", "stdout"), "a\n");
    let spec = with_files("more.1", "echo c; echo d >&2", [shown(&out); 2], true);
    assert_eq!(host.client().run(&spec), Exit::Code(0));
    let text = fs::read_to_string(&out).unwrap();
    assert!(["b\nc\nd\n", "b\nd\nc\n"].contains(&&*text), "{text}");
}

#[test]
fn signals_reach_the_program_and_its_end_is_that_of_the_attempt() {
    let host = Host::start();
    let out = host.dir.path().join("out");
    let script = "trap 'echo stopping; exit 3' TERM; echo ready; while :; do sleep 0.1; done";
    let stopped = with_files("stopped.1", script, [shown(&out), ""], false);
    let mut client = host.client();
    client.spawn(&stopped);
    until("it is ready", || {
        fs::read_to_string(&out).is_ok_and(|text| text == "ready\n")
    });
    client.signal(&stopped.attempt, StopSignal::Terminate);
    assert_eq!(client.wait_gone(&stopped.attempt).exit, Exit::Code(3));
    assert_eq!(fs::read_to_string(&out).unwrap(), "ready\nstopping\n");
    for (id, script, signal) in [
        ("killed.1", "echo on its way; kill -9 $$", 9),
        ("piped.1", "trap - PIPE; echo on its way; kill -13 $$", 13),
    ] {
        let spec = with_files(id, script, [shown(&out), ""], false);
        assert_eq!(client.run(&spec), Exit::Signal(signal));
        assert_eq!(fs::read_to_string(&out).unwrap(), "on its way\n");
    }
    let mut missing = with_files("missing.1", "", [shown(&out), ""], false);
    missing.command = vec!["/no/such".to_owned()];
    let Exit::StartFailed(why) = client.run(&missing) else {
        panic!("nothing was there to start")
    };
    assert!(why.contains("/no/such"), "{why}");
}

#[test]
fn processes_that_the_program_leaves_write_on_and_supervisors_may_die() {
    let mut host = Host::start();
    let out = host.dir.path().join("out");
    let script =
        "(trap 'sleep 0.5; echo last; exit' TERM; while :; do sleep 0.1; done) & echo first";
    let spec = with_files("left.1", script, [shown(&out), ""], false);
    let mut client = host.client();
    client.spawn(&spec);
    assert_eq!(client.wait_ended(&spec.attempt).exit, Exit::Code(0));
    assert_eq!(fs::read_to_string(&out).unwrap(), "first\n");
    host.kill();
    host.restart();
    let mut client = host.client();
    client.signal(&spec.attempt, StopSignal::Terminate);
    client.wait_gone(&spec.attempt);
    assert_eq!(fs::read_to_string(&out).unwrap(), "first\nlast\n");
    assert_eq!(host.output(&"left.1", "stdout"), "first\nlast\n");
}

#[test]
fn a_full_disk_ends_the_file_and_not_the_step() {
    let host = Host::start();
    let spec = with_files("full.1", "seq 3; exit 4", ["/dev/full", ""], false);
    assert_eq!(host.client().run(&spec), Exit::Code(4));
    assert_eq!(host.output(&"full.1", "stdout"), "1\n2\n3\n");
    let note = host.output(&"full.1", "stderr");
    assert!(
        note.starts_with("sluice: `/dev/full` cannot be written: No space left"),
        "{note}"
    );
    assert_eq!(note.lines().count(), 1);
}

#[test]
fn files_are_those_of_the_step_s_user() {
    if !crate::left_out::needs_root() {
        return;
    }
    let config = "default_user = \"nobody\"\nshared_users = [\"nobody\"]\n";
    let host = Host::start_under(config, &[]);
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let own = dir.path().join("own");
    fs::create_dir(&own).unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o777)).unwrap();
    let pattern = format!("{}/%u.log", shown(&own));
    let mut client = host.client();
    let spec = with_files("own.1", "echo mine", [&pattern, ""], false);
    assert_eq!(client.run(&spec), Exit::Code(0));
    let found = fs::metadata(own.join("nobody.log")).unwrap();
    let nobody = nix::unistd::User::from_name("nobody").unwrap().unwrap();
    assert_eq!((found.uid(), found.len()), (nobody.uid.as_raw(), 5));
    let secret = dir.path().join("secret");
    fs::write(&secret, "root's").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    symlink(&secret, own.join("link")).unwrap();
    let closed = dir.path().join("closed");
    fs::create_dir(&closed).unwrap();
    for path in [secret.clone(), own.join("link"), closed.join("new")] {
        let spec = with_files(
            &format!("no.{}", path.as_os_str().len()),
            "echo",
            [shown(&path), ""],
            false,
        );
        let Exit::StartFailed(why) = client.run(&spec) else {
            panic!("{path:?} was written")
        };
        assert!(
            why.contains(shown(&path)) && why.contains("may not be written by the step's user"),
            "{why}"
        );
    }
    assert_eq!(fs::read_to_string(&secret).unwrap(), "root's");
    assert!(fs::read_dir(&closed).unwrap().next().is_none());
}
