//! Upgrades of a supervisor in the same process: nothing is lost, and if an upgrade fails the old program
//! continues.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use nix::unistd::mkfifo;
use sluice_common::inventory::{Capability, Mechanism};
use sluice_common::supervision::{
    Exit, FreezerState, HostPhase, SpawnSpec, StopSignal, ToSupervisor,
};
use sluice_common::time::Span;
use sluice_supervisor::clock::{after, boot_now};

use crate::client::sh;
use crate::host::{BINARY, Host, copy_file, helper, lives, open_files, until};

#[test]
fn a_hundred_steps_run_through_ten_upgrades_and_each_end_is_seen() {
    let host = Host::start();
    let pid = host.pid();
    let gate = host.dir.path().join("gate");
    mkfifo(&gate, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let specs: Vec<SpawnSpec> = (1..=100)
        .map(|n| {
            let script = format!("read line < {}; exit {n}", gate.display());
            sh(&format!("kept.{n}"), &script)
        })
        .collect();
    let mut client = host.client();
    for spec in &specs {
        client.spawn(spec);
    }
    let running: Vec<_> = specs
        .iter()
        .map(|spec| client.wait_running(&spec.attempt))
        .collect();
    let before = open_files(pid);
    for _ in 0..10 {
        host.upgrade();
        let mut client = host.client();
        for (spec, process) in specs.iter().zip(&running) {
            assert_eq!(client.wait_running(&spec.attempt), *process);
        }
    }
    assert_eq!(host.pid(), pid);
    // The supervisor opens files briefly; a descriptor left open by an upgrade would be there ten times.
    until("none is left open by an upgrade", || {
        open_files(pid) <= before + 2
    });
    // All steps read from it and reach its end.
    drop(File::options().write(true).open(&gate).unwrap());
    let mut client = host.client();
    for (n, spec) in (1..).zip(&specs) {
        let end = client.wait_gone(&spec.attempt);
        assert_eq!(end.exit, Exit::Code(n), "{}", spec.attempt);
    }
    assert!(!host.log.lock().unwrap().contains("taken over"));
}

#[test]
fn what_ends_while_it_upgrades_ends_with_its_own_code() {
    let host = Host::start();
    let mut client = host.client();
    let specs: Vec<SpawnSpec> = (1..=120)
        .map(|n| {
            let script = format!("sleep 0.{:02}; exit {n}", n % 100);
            sh(&format!("ends.{n}"), &script)
        })
        .collect();
    for spec in &specs {
        client.spawn(spec);
    }
    client.list();
    let mut upgrades = 0;
    until("all have ended", || {
        host.upgrade();
        upgrades += 1;
        let mut client = host.client();
        let views = client.list();
        specs
            .iter()
            .all(|spec| matches!(views[&spec.attempt].phase, HostPhase::Gone(_)))
    });
    let mut client = host.client();
    for (n, spec) in (1..).zip(&specs) {
        assert_eq!(
            client.wait_gone(&spec.attempt).exit,
            Exit::Code(n),
            "{} after {upgrades} upgrades",
            spec.attempt
        );
    }
}

#[test]
fn what_was_asked_before_holds_after() {
    let mut host = Host::start();
    let mut client = host.client();
    let taken_over = sh("over.1", "exec sleep 1000");
    client.spawn(&taken_over);
    client.wait_running(&taken_over.attempt);
    host.kill();
    host.restart();
    let mut client = host.client();
    // The process clears its marks after they were read.
    let script = "setsid sh -c 'echo $$; while [ ! -e go ]; do sleep 0.01; done; exec env -i sleep 1000' & \
                  while [ ! -s ../stdout ]; do sleep 0.01; done; exit 6";
    let orphan = sh("orphan.1", script);
    client.spawn(&orphan);
    let stray = host.number_in("orphan.1", "stdout");
    client.wait_ended(&orphan.attempt);
    fs::write(host.attempt_dir(&"orphan.1").join("work/go"), "").unwrap();
    until("its marks are gone", || {
        fs::read(format!("/proc/{stray}/environ")).is_ok_and(|environ| environ.is_empty())
            && fs::read_to_string(format!("/proc/{stray}/comm")).is_ok_and(|c| c == "sleep\n")
    });
    let failed = sh("failed.1", "true");
    let failed = SpawnSpec {
        command: vec!["/no/such".to_owned()],
        ..failed
    };
    client.run(&failed);
    let leased = SpawnSpec {
        lease_until: Some(after(boot_now(), Span::from_secs(2))),
        ..sh("leased.1", "exec sleep 1000")
    };
    client.spawn(&leased);
    client.wait_running(&leased.attempt);
    let before = client.list().clone();

    host.upgrade();
    let mut client = host.client();
    assert_eq!(*client.list(), before);
    assert!(lives(stray));
    client.signal(&orphan.attempt, StopSignal::Kill);
    assert_eq!(client.wait_gone(&orphan.attempt).exit, Exit::Code(6));
    assert!(!lives(stray));
    client.signal(&taken_over.attempt, StopSignal::Kill);
    assert_eq!(
        client.wait_gone(&taken_over.attempt).exit,
        Exit::Unknown,
        "an upgrade does not make a child of what was none"
    );
    assert_eq!(client.wait_gone(&leased.attempt).exit, Exit::LeaseExpired);
    assert_eq!(client.run(&sh("next.1", "exit 3")), Exit::Code(3));
}

#[test]
fn a_kill_that_has_begun_goes_on() {
    let host = Host::start();
    let mut client = host.client();
    let script =
        "echo $$; i=0; while [ $i -lt 100 ]; do setsid sleep 1000 & i=$((i+1)); done; wait";
    let spec = sh("hydra.1", script);
    client.spawn(&spec);
    host.number_in("hydra.1", "stdout");
    client.signal(&spec.attempt, StopSignal::Kill);
    host.upgrade();
    assert_eq!(host.client().wait_gone(&spec.attempt).exit, Exit::Signal(9));
}

#[test]
fn it_is_alone_after_an_upgrade_as_before() {
    let host = Host::start();
    host.upgrade();
    let second = Command::new(BINARY)
        .arg("--state-dir")
        .arg(host.dir.path())
        .output()
        .unwrap();
    let told = String::from_utf8(second.stderr).unwrap();
    assert!(told.contains("another supervisor (pid"), "{told}");
    let limits = "ulimit -Sn";
    let mut client = host.client();
    client.run(&sh("limit.1", limits));
    host.upgrade();
    host.client().run(&sh("limit.2", limits));
    let (before, after) = (
        host.output(&"limit.1", "stdout"),
        host.output(&"limit.2", "stdout"),
    );
    assert_eq!(before, after, "what it raised for itself is not its steps'");
    let (soft, _) =
        nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).unwrap();
    assert_eq!(after.trim(), soft.to_string());
}

fn install(at: &Path, text: &str) {
    let (text_file, new) = (at.with_extension("text"), at.with_extension("new"));
    fs::write(&text_file, text).unwrap();
    copy_file(&text_file, &new);
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(&new, at).unwrap();
}

/// A supervisor whose program can be replaced.
fn exchangeable() -> (Host, tempfile::TempDir) {
    let place = tempfile::tempdir().unwrap();
    let mut host = Host::start();
    host.kill();
    host.binary = place.path().join("supervisor");
    copy_file(Path::new(BINARY), &host.binary);
    copy_file(&helper(), &place.path().join("sluice-helper"));
    host.restart();
    (host, place)
}

#[test]
fn the_program_that_is_installed_now_is_taken() {
    let (host, place) = exchangeable();
    let mut client = host.client();
    let spec = sh("kept.1", "read line; exit 4");
    let spec = SpawnSpec {
        command: vec!["sleep".into(), "1000".into()],
        ..spec
    };
    client.spawn(&spec);
    let process = client.wait_running(&spec.attempt);
    let trace = place.path().join("trace");
    // A newer release that records that it was run.
    install(
        &host.binary,
        &format!(
            "#!/bin/sh\necho \"$@\" >> {}\nexec {BINARY} \"$@\"\n",
            trace.display()
        ),
    );
    host.upgrade();
    let mut client = host.client();
    assert_eq!(client.wait_running(&spec.attempt), process);
    let trace = fs::read_to_string(trace).unwrap();
    // A supervisor that finds no keeper at work yet starts one.
    let runs = trace.lines().filter(|run| !run.starts_with("keep "));
    let runs: Vec<&str> = runs.collect();
    assert_eq!(runs.len(), 2, "{trace}");
    assert!(runs[0].contains("--rehearse 1") && runs[1].contains("--handover "));
}

#[test]
fn where_the_new_program_or_its_config_is_no_good_the_old_goes_on() {
    let (mut host, _place) = exchangeable();
    let mut client = host.client();
    let spec = sh("kept.1", "exec sleep 1000");
    client.spawn(&spec);
    let process = client.wait_running(&spec.attempt);
    let good = host.binary.with_extension("good");
    copy_file(Path::new(BINARY), &good);
    let beside = host.binary.with_file_name("sluice-helper");
    let broken: [&dyn Fn(&mut Host); 6] = [
        &|host| fs::remove_file(&host.binary).unwrap(),
        &|host| install(&host.binary, "no program"),
        &|host| install(&host.binary, "#!/no/such/interpreter\n"),
        // An older release, which has no rehearsal.
        &|host| install(&host.binary, "#!/bin/sh\nexit 2\n"),
        &|host| {
            copy_file(&good, &host.binary);
            fs::remove_file(&beside).unwrap();
        },
        &|host| {
            copy_file(&helper(), &beside);
            host.configure("default_usr = 0\n");
        },
    ];
    for (n, break_it) in (1..).zip(broken) {
        break_it(&mut host);
        host.signal(Signal::SIGHUP);
        if n == broken.len() && !crate::left_out::needs_root() {
            // Only root's supervisor has a config here.
            break;
        }
        host.says("not upgraded, this one goes on", n);
        assert_eq!(client.wait_running(&spec.attempt), process);
        assert_eq!(
            client.run(&sh(&format!("still.{n}"), "exit 3")),
            Exit::Code(3),
            "even its connection is the same"
        );
    }
    client.signal(&spec.attempt, StopSignal::Kill);
    assert_eq!(client.wait_gone(&spec.attempt).exit, Exit::Signal(9));
}

#[test]
fn it_reads_its_config_anew() {
    if !crate::left_out::needs_root() {
        // Another user's supervisor has no choice of users.
        return;
    }
    let mut host = Host::start_under("[users]\ns = \"nobody\"\n", &[]);
    host.client().run(&sh("before.1", "id -un"));
    host.configure("[users]\ns = \"daemon\"\n");
    host.upgrade();
    host.client().run(&sh("after.1", "id -un"));
    assert_eq!(host.output(&"before.1", "stdout"), "nobody\n");
    assert_eq!(host.output(&"after.1", "stdout"), "daemon\n");
}

#[test]
fn a_terminal_that_goes_away_stops_everything_and_upgrades_harmlessly() {
    let mut host = Host::start_with(&["--stop-on-exit"]);
    let mut client = host.client();
    let spec = sh("doomed.1", "exec sleep 1000");
    client.spawn(&spec);
    let pid = client.wait_running(&spec.attempt).pid;
    host.signal(Signal::SIGHUP);
    assert!(host.close_stdin().success());
    assert!(!lives(pid));
    host.restart();
    host.upgrade();
    assert!(host.close_stdin().success(), "stdin is what it was");
}

#[test]
fn a_handover_that_is_none_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for fd in ["0", "77", "-1"] {
        let output = Command::new(BINARY)
            .arg("--state-dir")
            .arg(dir.path())
            .args(["--handover", fd])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{fd}");
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains("holds no handover"), "{told}");
    }
}

#[test]
fn one_that_hangs_before_its_program_holds_no_upgrade_up_and_is_frozen_when_it_has_come_through() {
    let dir = tempfile::tempdir().unwrap();
    let gate = dir.path().join("gate");
    mkfifo(&gate, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let prolog = dir.path().join("prolog");
    install(
        &prolog,
        &format!("#!/bin/sh\nread line < {}\nexit 0\n", gate.display()),
    );
    let config = format!(
        "default_user = 0\nallow_root = true\n[hooks]\nprolog = \"{}\"\n",
        prolog.display()
    );
    let host = Host::start_under(&config, &[]);
    let mut client = host.client();
    if client.capabilities[&Capability::Freeze] == Mechanism::None {
        return;
    }
    let spec = sh("slow.1", "exec sleep 1000");
    client.spawn(&spec);
    client.send(&ToSupervisor::Freeze {
        attempt: spec.attempt.clone(),
    });
    // Messages are handled in order, so the earlier one is done.
    client.list();
    host.upgrade();
    let mut client = host.client();
    drop(File::options().write(true).open(&gate).unwrap());
    client.wait("freeze", |c| {
        (c.views.get(&spec.attempt)?.freezer == FreezerState::Frozen).then_some(())
    });
    client.signal(&spec.attempt, StopSignal::Kill);
    assert_eq!(client.wait_gone(&spec.attempt).exit, Exit::Signal(9));
}
