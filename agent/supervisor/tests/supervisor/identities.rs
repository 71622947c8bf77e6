//! The users of steps, what such a user may do and see, and which steps have no user. Most of it needs root.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::unistd::{User, geteuid};
use sluice_common::id::Subject;
use sluice_common::supervision::{Exit, SpawnSpec};

use crate::client::{Client, sh};
use crate::host::{BINARY, Host, copy_file, readable_binary};

const CONFIG: &str = "default_user = \"nobody\"\nshared_users = [\"nobody\"]\numask = \"027\"\n[users]\nd = \"daemon\"\n\
                      [limits]\nnofile = 321\ncore = 0\nnproc = 4321\n";

/// `None` if these tests cannot switch users.
fn host(config: &str) -> Option<Host> {
    crate::left_out::needs_root().then(|| Host::start_under(config, &[]))
}

fn user(name: &str) -> User {
    User::from_name(name).unwrap().unwrap()
}

fn of(subject: &str, mut spec: SpawnSpec) -> SpawnSpec {
    spec.subject = Subject::new(subject).unwrap();
    spec
}

fn refusal(client: &mut Client, spec: &SpawnSpec) -> String {
    match client.run(spec) {
        Exit::StartFailed(why) => why,
        other => panic!("{other:?}"),
    }
}

/// The output of a shell about itself, in lines of `name value`.
fn said(host: &Host, spec: &SpawnSpec) -> BTreeMap<String, String> {
    assert_eq!(host.client().run(spec), Exit::Code(0));
    let text = host.output(&spec.attempt, "stdout");
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect()
}

fn id_of(user: &str, what: &str) -> String {
    let output = Command::new("id").args([what, user]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

const WHO: &str = "echo uid $(id -u); echo gid $(id -g); echo groups $(id -G); echo umask $(umask); \
                   echo nofile $(ulimit -Sn) $(ulimit -Hn); echo core $(ulimit -c); \
                   grep -E '^(Cap|NoNewPrivs|Uid|Gid)' /proc/$$/status | sed 's/:\t/ /'; \
                   echo home $HOME; echo user $USER; echo logname $LOGNAME; echo shell $SHELL; touch mine";

#[test]
fn a_subject_s_steps_run_as_its_user_and_others_as_the_default() {
    let Some(host) = host(CONFIG) else { return };
    for (subject, name) in [("d", "daemon"), ("anybody", "nobody")] {
        let spec = of(subject, sh(&format!("{subject}.1"), WHO));
        let said = said(&host, &spec);
        let user = user(name);
        for (key, wanted) in [
            ("uid", user.uid.to_string()),
            ("gid", user.gid.to_string()),
            ("groups", id_of(name, "-G")),
            ("umask", "0027".to_owned()),
            ("nofile", "321 321".to_owned()),
            ("core", "0".to_owned()),
            ("home", user.dir.display().to_string()),
            ("user", name.to_owned()),
            ("logname", name.to_owned()),
            ("shell", user.shell.display().to_string()),
            ("NoNewPrivs", "1".to_owned()),
        ] {
            assert_eq!(said[key], wanted, "{key} of {name}");
        }
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(said[set], "0000000000000000", "{set} of {name}");
        }
        let four = |id: u32| [id; 4].map(|id| id.to_string()).join("\t");
        assert_eq!(said["Uid"], four(user.uid.as_raw()));
        assert_eq!(said["Gid"], four(user.gid.as_raw()));
    }
}

#[test]
fn a_step_owns_its_working_directory_and_nothing_beside_it() {
    let Some(host) = host(&format!("keep_work = \"1d\"\n{CONFIG}")) else {
        return;
    };
    let script = "echo through; for at in .. ../stdout ../stderr ../begun ../..; do \
                  [ -w $at ] && echo $at can be written; done; \
                  (: >> ../stdout) 2>/dev/null && echo opened; (: > ../new) 2>/dev/null && echo made; \
                  mv ../work ../other 2>/dev/null && echo moved; ls ../.. 2>/dev/null; cat ../stdout 2>/dev/null; true";
    let spec = sh("own.1", script);
    assert_eq!(host.client().run(&spec), Exit::Code(0));
    assert_eq!(host.output(&"own.1", "stdout"), "through\n");
    let nobody = user("nobody").uid.as_raw();
    for (name, mode, owner) in [
        ("", 0o711, 0),
        ("work", 0o700, nobody),
        ("stdout", 0o600, 0),
        ("stderr", 0o600, 0),
    ] {
        let found = fs::metadata(host.attempt_dir(&"own.1").join(name)).unwrap();
        assert_eq!((found.mode() & 0o777, found.uid()), (mode, owner), "{name}");
    }
}

#[test]
fn one_user_s_step_does_not_reach_another_s() {
    let Some(host) = host(CONFIG) else { return };
    let mut client = host.client();
    let secret = of(
        "d",
        sh(
            "secret.1",
            "echo secret > file; chmod 644 file; echo secret",
        ),
    );
    assert_eq!(client.run(&secret), Exit::Code(0));
    let dir = host.attempt_dir(&"secret.1");
    let script = format!(
        "cat {0}/work/file {0}/stdout; ls {0}; ls {0}/..",
        dir.display()
    );
    let spy = sh("spy.1", &script);
    assert!(matches!(client.run(&spy), Exit::Code(1..)));
    assert_eq!(host.output(&"spy.1", "stdout"), "");
}

#[test]
fn a_subject_without_a_user_is_refused_with_the_way_out_and_the_next_is_served() {
    let Some(host) = host("uid_range = \"none\"\n[users]\nd = \"daemon\"\n") else {
        return;
    };
    let mut client = host.client();
    let why = refusal(&mut client, &of("stranger", sh("no.1", "touch ran")));
    assert!(
        why.contains("may run steps of subject `stranger`") && why.contains("a uid_range, in /"),
        "{why}"
    );
    assert!(!host.attempt_dir(&"no.1").exists());
    assert_eq!(client.run(&of("d", sh("yes.1", "exit 4"))), Exit::Code(4));
}

#[test]
fn a_host_on_which_nobody_may_run_steps_starts_nothing() {
    let Some(host) = host("uid_range = \"none\"\n") else {
        return;
    };
    let mut client = host.client();
    let why = refusal(&mut client, &sh("root.1", "id -u"));
    assert!(why.contains("no user of this host"), "{why}");
    assert!(host.log.lock().unwrap().contains("no user may run steps"));
}

#[test]
fn steps_work_where_they_are_allowed_to_and_no_link_leads_out() {
    let place = tempfile::tempdir().unwrap();
    let (inside, outside) = (place.path().join("in"), place.path().join("out"));
    for dir in [place.path(), &inside, &outside] {
        fs::create_dir_all(dir).unwrap();
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    }
    symlink(&outside, inside.join("link")).unwrap();
    symlink(&inside, outside.join("back")).unwrap();
    let config = format!("workdirs = [\"{}\"]\n", inside.display());
    let Some(host) = host(&config) else { return };
    let mut client = host.client();
    let mut number = 0;
    let mut at = |dir: &Path| {
        number += 1;
        let mut spec = sh(&format!("at.{number}"), "pwd -P");
        spec.workdir = Some(dir.display().to_string());
        spec
    };
    for dir in [inside.clone(), outside.join("back")] {
        assert_eq!(client.run(&at(&dir)), Exit::Code(0), "{}", dir.display());
    }
    for dir in [
        outside.clone(),
        inside.join("link"),
        inside.join("../out"),
        place.path().to_owned(),
        "/".into(),
    ] {
        let why = refusal(&mut client, &at(&dir));
        assert!(
            why.contains("steps may not work in `/") && why.contains("`workdirs`"),
            "{}: {why}",
            dir.display()
        );
    }
    assert_eq!(client.run(&sh("own.1", "pwd")), Exit::Code(0), "its own");
}

#[test]
fn a_link_into_a_place_of_root_s_is_entered_by_nobody() {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("roots")).unwrap();
    fs::set_permissions(
        place.path().join("roots"),
        fs::Permissions::from_mode(0o700),
    )
    .unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    symlink(place.path().join("roots"), place.path().join("link")).unwrap();
    let Some(host) = host(CONFIG) else { return };
    let mut spec = sh("link.1", "touch here");
    spec.workdir = Some(place.path().join("link").display().to_string());
    let why = refusal(&mut host.client(), &spec);
    assert!(
        why.contains("may not be entered by the step's user"),
        "{why}"
    );
    assert_eq!(fs::read_dir(place.path().join("roots")).unwrap().count(), 0);
}

#[test]
fn a_program_that_only_root_may_read_is_not_run_and_set_user_id_gives_nothing() {
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (private, raised) = (place.path().join("private"), place.path().join("raised"));
    copy_file(Path::new("/usr/bin/id"), &private);
    fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).unwrap();
    copy_file(Path::new("/usr/bin/id"), &raised);
    fs::set_permissions(&raised, fs::Permissions::from_mode(0o6755)).unwrap();
    let Some(host) = host(CONFIG) else { return };
    let mut client = host.client();
    let why = refusal(&mut client, &spec_of("private.1", &private));
    assert!(why.contains("is not executable"), "{why}");
    assert_eq!(client.run(&spec_of("raised.1", &raised)), Exit::Code(0));
    let told = host.output(&"raised.1", "stdout");
    assert!(!told.contains("euid") && !told.contains("(root)"), "{told}");
}

fn spec_of(id: &str, program: &Path) -> SpawnSpec {
    crate::client::spec(id, &[program.to_str().unwrap()])
}

#[test]
fn a_directory_that_its_user_cannot_reach_is_the_host_s_fault() {
    let Some(host) = host(CONFIG) else { return };
    fs::set_permissions(host.dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
    match host.client().run(&sh("shut.1", "true")) {
        Exit::HostFailed(why) => assert!(why.contains("`chmod o+x`"), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_step_of_another_user_can_be_stopped_and_taken_over() {
    let Some(mut host) = host(CONFIG) else { return };
    let spec = sh("other.1", "trap '' TERM; setsid sleep 1000 & echo $!; wait");
    host.client().spawn(&spec);
    let inner = host.number_in("other.1", "stdout");
    host.kill();
    host.restart();
    let mut client = host.client();
    client.wait_running(&spec.attempt);
    client.signal(&spec.attempt, sluice_common::supervision::StopSignal::Kill);
    client.wait_gone(&spec.attempt);
    assert!(!crate::host::lives(inner));
}

/// Starts a supervisor that is expected to fail, and returns its message.
fn does_not_start(config: &str, change: impl FnOnce(&Path, &mut Command)) -> String {
    let dir = tempfile::tempdir().unwrap();
    let binary = readable_binary(dir.path());
    let file = dir.path().join("supervisor.toml");
    fs::write(&file, config).unwrap();
    let state = dir.path().join("state");
    fs::create_dir(&state).unwrap();
    let mut command = Command::new(if geteuid().is_root() {
        binary.as_os_str()
    } else {
        BINARY.as_ref()
    });
    command
        .arg("--state-dir")
        .arg(&state)
        .arg("--config")
        .arg(&file);
    change(dir.path(), &mut command);
    let output = command.output().unwrap();
    assert!(!output.status.success());
    assert!(!state.join("supervisor.sock").exists());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_config_that_cannot_be_obeyed_or_trusted_stops_the_start() {
    let nothing = |_: &Path, _: &mut Command| {};
    let told = does_not_start("default_user = \"no-such-user\"\n", nothing);
    assert!(told.contains("this host has no such user"), "{told}");
    let told = does_not_start("default_usr = \"nobody\"\n", nothing);
    assert!(told.contains("did you mean `default_user`?"), "{told}");
    let told = does_not_start("", |dir, _| {
        let file = dir.join("supervisor.toml");
        fs::set_permissions(file, fs::Permissions::from_mode(0o666)).unwrap();
    });
    assert!(told.contains("`chmod go-w /"), "{told}");
    if !crate::left_out::needs_root() {
        return;
    }
    let told = does_not_start("default_user = \"root\"\n", nothing);
    assert!(told.contains("set `allow_root = true`"), "{told}");
    let told = does_not_start("default_user = \"nobody\"\n", nothing);
    assert!(told.contains("`shared_users = [\"nobody\"]`"), "{told}");
    let told = does_not_start("default_user = \"daemon\"\n", |dir, command| {
        std::os::unix::fs::chown(dir.join("state"), Some(65534), Some(65534)).unwrap();
        command.uid(65534).gid(65534);
    });
    assert!(told.contains("can start steps as itself only"), "{told}");
}
