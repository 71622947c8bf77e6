//! The directory that a step prefers: used if the step's user can enter it and the host allows it; otherwise the step
//! starts in its own directory, and the view says why.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use sluice_common::attempt_dir::OWN_WORKDIR;
use sluice_common::directory_refusal::DirectoryRefusal;
use sluice_common::streams::{OutputPath, StepStreams};
use sluice_common::supervision::{Exit, SpawnSpec};
use sluice_common::template::launch::HookRun;
use sluice_common::time::Span;

use crate::client::{sh, spec};
use crate::host::Host;

/// Prints the working directory.
const WHERE: &str = "pwd -P";

/// A step that prints where it is, followed by a hook that does the same.
fn asking(id: &str) -> SpawnSpec {
    let mut spec = sh(id, WHERE);
    spec.hooks.after = vec![HookRun {
        name: "1".to_owned(),
        command: ["sh", "-c", WHERE].map(str::to_owned).into(),
        timeout: Span::from_secs(600),
    }];
    spec
}

fn preferring(dir: &Path, mut spec: SpawnSpec) -> SpawnSpec {
    spec.prefer_workdir = Some(dir.display().to_string());
    spec
}

fn own_directory(host: &Host, id: &str) -> String {
    let own = host.attempt_dir(&id).canonicalize().unwrap();
    format!("{}\n", own.join(OWN_WORKDIR).display())
}

/// Makes a directory with this mode.
fn directory(path: &Path, mode: u32) {
    fs::create_dir(path).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_step_works_in_the_directory_that_it_prefers_and_so_does_what_follows_it() {
    let host = Host::start();
    let mut client = host.client();
    let dir = tempfile::tempdir().unwrap();
    let mut spec = preferring(dir.path(), asking("there.1"));
    spec.streams = StepStreams {
        stdout: Some(OutputPath::new("copy").unwrap()),
        ..StepStreams::default()
    };
    client.spawn(&spec);
    let end = client.wait_gone(&spec.attempt);
    assert_eq!(
        (end.exit, end.process.unwrap().workdir_refused),
        (Exit::Code(0), None)
    );
    let here = format!("{}\n", dir.path().canonicalize().unwrap().display());
    assert_eq!(host.output(&"there.1", "stdout"), here.repeat(2));
    assert_eq!(fs::read_to_string(dir.path().join("copy")).unwrap(), here);
}

#[test]
fn a_step_whose_directory_is_missing_runs_in_its_own_and_the_view_says_why() {
    let host = Host::start();
    let mut client = host.client();
    let missing = Path::new("/no/such/directory");
    for (id, path, expected) in [
        ("missing.1", missing, DirectoryRefusal::Missing),
        (
            "file.1",
            Path::new("/dev/null"),
            DirectoryRefusal::NotADirectory,
        ),
    ] {
        let spec = preferring(path, asking(id));
        client.spawn(&spec);
        let end = client.wait_gone(&spec.attempt);
        assert_eq!(end.exit, Exit::Code(0), "{id}");
        assert_eq!(end.process.unwrap().workdir_refused, Some(expected), "{id}");
        assert_eq!(host.output(&id, "stderr"), "", "{id}");
        assert_eq!(
            host.output(&id, "stdout"),
            own_directory(&host, id).repeat(2)
        );
    }
    let script = preferring(missing, spec("script.1", &["./train.sh"]));
    let Exit::StartFailed(why) = client.run(&script) else {
        panic!("there is no such script");
    };
    let words = "command `./train.sh` does not exist in the working directory";
    assert!(why.starts_with(words), "{why}");
    let words =
        "it was in a directory of its own, because `/no/such/directory` does not exist there";
    assert!(why.ends_with(words), "{why}");
    // Its file would be removed with the directory.
    let mut lost = preferring(missing, sh("lost.1", WHERE));
    lost.streams.stdout = Some(OutputPath::new("copy").unwrap());
    let Exit::StartFailed(why) = client.run(&lost) else {
        panic!("its output would be lost");
    };
    assert!(why.contains("would be removed with the directory"), "{why}");
    assert!(why.contains("because `/no/such/directory`"), "{why}");
}

#[test]
fn the_reason_survives_the_supervisor() {
    let mut host = Host::start();
    let mut client = host.client();
    let spec = preferring(Path::new("/no/such/directory"), sh("kept.1", "sleep 1000"));
    client.spawn(&spec);
    let process = client.wait_running(&spec.attempt);
    assert_eq!(process.workdir_refused, Some(DirectoryRefusal::Missing));
    host.kill();
    host.restart();
    assert_eq!(host.client().wait_running(&spec.attempt), process);
}

#[test]
fn a_directory_is_entered_as_the_step_s_user_and_where_the_host_allows_it() {
    if !crate::left_out::needs_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let [open, roots, outside] = ["open", "roots", "outside"].map(|name| place.path().join(name));
    directory(&open, 0o755);
    directory(&roots, 0o700);
    directory(&outside, 0o755);
    std::os::unix::fs::symlink(&outside, open.join("link")).unwrap();
    let config = format!(
        "default_user = \"nobody\"\nshared_users = [\"nobody\"]\nworkdirs = [{open:?}, {roots:?}]\n"
    );
    let host = Host::start_under(&config, &[]);
    let mut client = host.client();
    for (id, path, expected) in [
        ("open.1", &open, None),
        ("roots.1", &roots, Some(DirectoryRefusal::Denied)),
        ("outside.1", &outside, Some(DirectoryRefusal::NotAllowed)),
        (
            "link.1",
            &open.join("link"),
            Some(DirectoryRefusal::NotAllowed),
        ),
    ] {
        let spec = preferring(path, asking(id));
        client.spawn(&spec);
        let end = client.wait_gone(&spec.attempt);
        assert_eq!(end.exit, Exit::Code(0), "{id}");
        assert_eq!(end.process.unwrap().workdir_refused, expected, "{id}");
        let there = match expected {
            None => format!("{}\n", path.canonicalize().unwrap().display()),
            Some(_) => own_directory(&host, id),
        };
        assert_eq!(host.output(&id, "stdout"), there.repeat(2), "{id}");
        assert_eq!(host.output(&id, "stderr"), "", "{id}");
    }
}
