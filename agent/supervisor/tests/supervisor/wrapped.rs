//! A step cannot influence the wrapper and hooks that an admin has put around it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use sluice_common::supervision::{Exit, SpawnSpec};
use sluice_common::template::launch::HookRun;
use sluice_common::time::Span;

use crate::client::spec;
use crate::host::Host;

fn program(path: &Path, script: &str) -> String {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    path.parent().unwrap().to_str().unwrap().to_owned()
}

/// A step with a `wrap` and a `stage` of its own in `PATH`, and a library in `LD_PRELOAD`.
fn hostile(id: &str, dir: &Path, command: &[&str]) -> SpawnSpec {
    let own = program(&dir.join("own/wrap"), "echo steered; exec \"$@\"");
    program(&dir.join("own/stage"), "echo steered");
    let host = program(
        &dir.join("host/wrap"),
        "echo \"wrapper: ${LD_PRELOAD-none} ${SECRET-none} $SLUICE_STEP_ID\"; export ADDED=1; exec \"$@\"",
    );
    program(
        &dir.join("host/stage"),
        "echo \"hook: ${LD_PRELOAD-none} ${SECRET-none}\"",
    );
    let mut spec = spec(id, command);
    spec.hook_env
        .insert("PATH".to_owned(), format!("{host}:/usr/bin:/bin"));
    for (name, value) in [
        ("PATH", format!("{own}:/usr/bin:/bin")),
        ("LD_PRELOAD", "/no/such/library.so".to_owned()),
        ("SECRET", "line one\nline two".to_owned()),
    ] {
        spec.env.insert(name.to_owned(), value);
    }
    spec.hooks.before = vec![HookRun {
        name: "stage".to_owned(),
        command: vec!["stage".to_owned()],
        timeout: Span::from_secs(60),
    }];
    spec
}

#[test]
fn wrapper_and_hooks_are_the_host_s_and_the_step_gets_its_variables_all_the_same() {
    let (host, dir) = (Host::start(), tempfile::tempdir().unwrap());
    let mut client = host.client();
    let script = "echo \"step: $SECRET $ADDED $LD_PRELOAD\"; command -v wrap";
    let mut spec = hostile("a.1", dir.path(), &["wrap", "sh", "-c", script]);
    spec.wrapper = 1;
    assert_eq!(client.run(&spec), Exit::Code(0));
    let own = dir.path().join("own/wrap");
    let expected = format!(
        "hook: none none\nwrapper: none none a\nstep: line one\nline two 1 /no/such/library.so\n{}\n",
        own.display()
    );
    assert_eq!(host.output(&"a.1", "stdout"), expected);
    assert!(!host.attempt_dir(&"a.1").join("env").exists());
}

#[test]
fn a_wrapper_that_takes_a_file_of_variables_gets_one_for_its_user_alone() {
    let (host, dir) = (Host::start(), tempfile::tempdir().unwrap());
    let mut client = host.client();
    let file = host.attempt_dir(&"a.1").join("env");
    let file = file.to_str().unwrap();
    let script = format!("grep SECRET {file}; stat -c %a {file}");
    let mut spec = hostile("a.1", dir.path(), &["wrap", "sh", "-c", &script]);
    spec.hooks.before.clear();
    (spec.wrapper, spec.env_file) = (1, true);
    let exit = client.run(&spec);
    assert!(
        matches!(&exit, Exit::StartFailed(why) if why.contains("`SECRET` contains a line break")),
        "{exit:?}"
    );
    spec.attempt = "b.1".parse().unwrap();
    spec.command[3] = script.replace("a.1", "b.1");
    spec.env.insert("SECRET".to_owned(), "one line".to_owned());
    assert_eq!(client.run(&spec), Exit::Code(0));
    let out = host.output(&"b.1", "stdout");
    assert_eq!(out, "wrapper: none none a\nSECRET=one line\n600\n");
}

#[test]
fn what_cannot_be_run_behind_a_wrapper_says_so() {
    let (host, dir) = (Host::start(), tempfile::tempdir().unwrap());
    let mut client = host.client();
    let mut spec = hostile("a.1", dir.path(), &["wrap", "no-such-program"]);
    spec.hooks.before.clear();
    spec.env.remove("LD_PRELOAD");
    spec.wrapper = 1;
    assert_eq!(client.run(&spec), Exit::Code(127));
    let err = host.output(&"a.1", "stderr");
    assert!(
        err.contains("sluice: command `no-such-program` was not found in PATH"),
        "{err}"
    );
}
