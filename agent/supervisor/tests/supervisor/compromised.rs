//! A compromised agent, which may violate the protocol, reaches nothing that the config does not allow.
//! `hostile` tests peers that are not the agent.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::Path;

use sluice_codec::frame;
use sluice_common::id::AttemptId;
use sluice_common::supervision::{
    Exit, MAX_SUPERVISION_FRAME_BYTES, SpawnSpec, StopSignal, ToSupervisor,
};
use sluice_common::time::Span;
use sluice_supervisor::clock::{after, boot_now};

use crate::client::{DEADLINE, sh, spec};
use crate::host::{Host, lives, until};

/// Eleven letters that the tests replace in the bytes of a message.
const NAME: &str = "climb-climb";

fn spawn_named(name: &[u8; NAME.len()]) -> Vec<u8> {
    let message = ToSupervisor::Spawn(sh(&format!("{NAME}.1"), "true"));
    let mut bytes = frame(&message, MAX_SUPERVISION_FRAME_BYTES).unwrap();
    // The step's mark in its environment has the name as well; the attempt's id comes first.
    let at = bytes
        .windows(NAME.len())
        .position(|window| window == NAME.as_bytes())
        .unwrap();
    bytes[at..at + NAME.len()].copy_from_slice(name);
    bytes
}

/// Whether the supervisor closes the connection.
fn is_dropped_after(socket: &Path, bytes: &[u8]) -> bool {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(e) => e.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn no_name_leads_out_of_the_attempts_directory() {
    let host = Host::start();
    for name in [
        b"../../climb",
        b"../attempts",
        b"/etc/shadow",
        b"climb/climb",
        b"...........",
        b".climb-clim",
        b"climb\0climb",
        b"climb\nclimb",
        b"climb\xff\xfelimb",
        b"~root/climb",
        b"climb climb",
        b"$HOME/climb",
    ] {
        assert!(
            is_dropped_after(&host.socket(), &spawn_named(name)),
            "{}",
            name.escape_ascii()
        );
    }
    let mut made: Vec<_> = fs::read_dir(host.dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    made.sort();
    let wanted = [
        "attempts",
        "groups",
        "keeper",
        "spool",
        "supervisor.lock",
        "supervisor.sock",
    ];
    assert_eq!(made, wanted);
    let attempts = fs::read_dir(host.dir.path().join("attempts")).unwrap();
    assert_eq!(attempts.count(), 0);
    assert!(host.client().list().is_empty());
}

#[test]
fn an_attempt_s_directory_that_is_a_link_is_replaced_and_what_it_leads_to_is_spared() {
    let host = Host::start();
    let elsewhere = tempfile::tempdir().unwrap();
    fs::write(elsewhere.path().join("stdout"), "precious").unwrap();
    symlink(elsewhere.path(), host.attempt_dir(&"link.1")).unwrap();
    assert_eq!(host.client().run(&sh("link.1", "echo mine")), Exit::Code(0));
    assert_eq!(host.output(&"link.1", "stdout"), "mine\n");
    let kept = fs::read_to_string(elsewhere.path().join("stdout")).unwrap();
    assert_eq!(kept, "precious");
    assert!(
        host.attempt_dir(&"link.1")
            .symlink_metadata()
            .unwrap()
            .is_dir()
    );
}

#[test]
fn the_agent_s_user_can_change_nothing_below_the_state_directory() {
    if !crate::left_out::needs_root() {
        // Only root can become another user.
        return;
    }
    let host = Host::start_under("agent_uid = 1234\n[users]\ns = \"nobody\"\n", &[]);
    let spec = sh("seen.1", "echo out; touch mine");
    assert_eq!(host.client().run(&spec), Exit::Code(0));
    let dir = host.attempt_dir(&"seen.1");
    let script = format!(
        "cat {0}/stdout; for at in {0} {0}/work {0}/begun {0}/.. {0}/../.. {0}/../../spool; do \
         [ -w $at ] && echo writes $at; done; mv {0} {0}2 2>/dev/null; ln -s /etc {0}/../evil.1 2>/dev/null; \
         ls {0}/work {0}/../../spool 2>/dev/null; true",
        dir.display()
    );
    let mut command = std::process::Command::new("sh");
    let output = std::os::unix::process::CommandExt::uid(command.args(["-c", &script]), 1234)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "out\n");
    for name in ["stdout", "stderr"] {
        assert_eq!(fs::metadata(dir.join(name)).unwrap().uid(), 1234, "{name}");
    }
    assert_eq!(fs::metadata(&dir).unwrap().uid(), 0);
}

#[test]
fn a_step_can_neither_see_nor_reach_the_supervisor() {
    if !crate::left_out::needs_root() {
        // The step runs as the supervisor's own user then.
        return;
    }
    let host = Host::start_under("[users]\ns = \"nobody\"\n", &[]);
    let script = "for at in ../../../supervisor.sock ../../../supervisor.lock ../../../spool ../..; do \
                  [ -r $at ] && echo reads $at; [ -w $at ] && echo writes $at; done; \
                  kill -9 $PPID 2>/dev/null && echo killed; \
                  ls /proc/$PPID/fd >/dev/null 2>&1 && echo looked; cat /proc/$PPID/environ 2>/dev/null; true";
    assert_eq!(host.client().run(&sh("spy.1", script)), Exit::Code(0));
    assert_eq!(host.output(&"spy.1", "stdout"), "");
}

#[test]
fn a_giant_environment_fails_its_own_step_and_nobody_else_s() {
    let host = Host::start();
    let mut client = host.client();
    let giants: [(usize, usize); 3] = [(1, 3_900_000), (30, 125_000), (3_000, 1_200)];
    for (n, (variables, bytes)) in giants.into_iter().enumerate() {
        let mut giant = spec(&format!("giant.{}", n + 1), &["true"]);
        giant
            .env
            .extend((0..variables).map(|v| (format!("V{v}"), "x".repeat(bytes))));
        match client.run(&giant) {
            Exit::StartFailed(why) => assert!(why.contains("this host's kernel accepts"), "{why}"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(client.run(&sh("small.1", "exit 3")), Exit::Code(3));
}

#[test]
fn a_flood_keeps_no_deadline_waiting() {
    let host = Host::start();
    let mut client = host.client();
    let leased = SpawnSpec {
        lease_until: Some(after(boot_now(), Span::from_secs(1))),
        lease_grace: Span::ZERO,
        ..sh("leased.1", "exec sleep 1000")
    };
    client.spawn(&leased);
    let pid = client.wait_running(&leased.attempt).pid;
    // Each message names something that exists already or never existed, and gets a short answer at most.
    let mut flood = Vec::new();
    for n in 0..2_000_u32 {
        let attempt: AttemptId = format!("ghost.{}", n + 1).parse().unwrap();
        for message in [
            ToSupervisor::Spawn(leased.clone()),
            ToSupervisor::Signal {
                attempt: attempt.clone(),
                signal: StopSignal::Kill,
            },
            ToSupervisor::Forget { attempt },
        ] {
            flood.extend(frame(&message, MAX_SUPERVISION_FRAME_BYTES).unwrap());
        }
    }
    let socket = host.socket();
    let mut rounds = 0;
    until("the lease has passed under the flood", || {
        // The agent is disconnected for not reading, and reconnects.
        let mut stream = UnixStream::connect(&socket).unwrap();
        let _ = stream.write_all(&flood);
        rounds += 1;
        !lives(pid)
    });
    assert!(rounds > 0);
    assert_eq!(
        host.client().wait_gone(&leased.attempt).exit,
        Exit::LeaseExpired
    );
}

#[test]
fn an_agent_that_asks_and_never_listens_is_dropped() {
    let host = Host::start();
    let mut stream = UnixStream::connect(host.socket()).unwrap();
    for n in 1..=50 {
        host.client().run(&sh(&format!("some.{n}"), "exit 0"));
    }
    let mut asked = UnixStream::connect(host.socket()).unwrap();
    let list = frame(&ToSupervisor::List, MAX_SUPERVISION_FRAME_BYTES).unwrap();
    let many = list.repeat(1_000);
    until("it is dropped", || asked.write_all(&many).is_err());
    until("it says so", || {
        host.log.lock().unwrap().contains("bytes unread")
    });
    // The first connection was replaced long ago.
    let mut rest = Vec::new();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    assert!(stream.read_to_end(&mut rest).is_ok());
    assert_eq!(host.client().run(&sh("after.1", "exit 3")), Exit::Code(3));
}

#[test]
fn no_agent_leaves_a_list_that_the_next_one_cannot_be_told() {
    let host = Host::start();
    let mut client = host.client();
    for n in 1..=3 {
        let mut greedy = sh(&format!("greedy.{n}"), "exit 3");
        greedy.launch_record.gpus = vec!["x".repeat(MAX_SUPERVISION_FRAME_BYTES * 2 / 3)];
        client.spawn(&greedy);
        match client.wait_gone(&greedy.attempt).exit {
            Exit::StartFailed(why) => assert!(why.contains("names of its GPUs"), "{why}"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(host.client().run(&sh("after.1", "exit 3")), Exit::Code(3));
}
