//! Programs beside steps, ordered by a compromised agent: which start, as which user, how many, and that none
//! outlives its agent.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;

use sluice_common::attempt_dir::{EXEC_DIR_PREFIX, EXEC_STREAMS};
use sluice_common::exec::{ExecId, ExecOrder, ExecProgram, MAX_EXECS_PER_ATTEMPT};
use sluice_common::id::{AttemptId, UserName};
use sluice_common::inventory::{Capability, Mechanism};
use sluice_common::supervision::{Exit, FreezerState, StopSignal, ToSupervisor};

use crate::client::{Client, sh};
use crate::host::{Host, until};

fn exec_of(attempt: &AttemptId, number: u32) -> ExecId {
    ExecId {
        attempt: attempt.clone(),
        number,
    }
}

fn ask(client: &mut Client, exec: &ExecId, command: &[&str]) {
    ask_as(client, exec, command, None);
}

fn ask_as(client: &mut Client, exec: &ExecId, command: &[&str], by: Option<&str>) {
    client.send(&ToSupervisor::Exec {
        exec: exec.clone(),
        order: ExecOrder {
            program: ExecProgram::Command {
                command: command.iter().map(ToString::to_string).collect(),
                terminal: None,
            },
            by: by.map(|name| UserName::new(name).unwrap()),
        },
    });
}

/// The error message of a rejected program beside an attempt.
pub(crate) fn refused_beside(client: &mut Client, attempt: &AttemptId, by: Option<&str>) -> String {
    let exec = exec_of(attempt, 7);
    ask_as(client, &exec, &["id", "-u"], by);
    let why = refusal(client, &exec);
    let of_connection = match connection(client, attempt, by) {
        Exit::StartFailed(why) => why,
        other => panic!("a caller who may run nothing may connect: {other:?}"),
    };
    assert_eq!(of_connection, why);
    why
}

/// The answer to a caller who wants to connect to a port of an attempt.
fn connection(client: &mut Client, attempt: &AttemptId, by: Option<&str>) -> Exit {
    let exec = exec_of(attempt, 8);
    client.send(&ToSupervisor::Exec {
        exec: exec.clone(),
        order: ExecOrder {
            program: ExecProgram::Connect {
                port: "http".parse().unwrap(),
            },
            by: by.map(|name| UserName::new(name).unwrap()),
        },
    });
    let (_, exit) = client.wait("word of the connection", |c| {
        c.execs.iter().find(|(of, _)| *of == exec).cloned()
    });
    client.execs.clear();
    exit
}

/// Waits for the end of a program that never started.
fn refusal(client: &mut Client, exec: &ExecId) -> String {
    let ended = client.wait("word of the program", |c| {
        c.execs.iter().find(|(of, _)| of == exec).cloned()
    });
    client.execs.clear();
    match ended.1 {
        Exit::StartFailed(why) => why,
        other => panic!("{other:?}"),
    }
}

/// The users of a step's processes that are children of the supervisor.
fn users_of_children(host: &Host) -> Vec<u32> {
    let user = |pid: u32| Some(fs::metadata(format!("/proc/{pid}")).ok()?.uid());
    host.children().into_iter().filter_map(user).collect()
}

#[test]
fn nothing_begins_beside_a_step_that_is_not_there_or_does_not_run() {
    let host = Host::start();
    let mut client = host.client();
    let ghost: AttemptId = "ghost.1".parse().unwrap();
    let why = refusal_of(&mut client, &ghost);
    assert_eq!(why, "the step does not run now");
    assert!(!host.attempt_dir(&ghost).exists(), "nothing is made for it");

    let over = sh("over.1", "exit 0");
    assert_eq!(client.run(&over), Exit::Code(0));
    assert_eq!(
        refusal_of(&mut client, &over.attempt),
        "the step does not run now"
    );
    let none = Exit::StartFailed("the step does not run now".to_owned());
    assert_eq!(connection(&mut client, &ghost, None), none);

    let runs = sh("runs.1", "exec sleep 1000");
    client.spawn(&runs);
    client.wait_running(&runs.attempt);
    client.send(&ToSupervisor::EndExec {
        exec: exec_of(&runs.attempt, 77),
    });
    for (command, said) in [
        (&[][..], "the command is empty: name a program"),
        (&["a\0b"], "contains a NUL byte"),
    ] {
        let exec = exec_of(&runs.attempt, 1);
        ask(&mut client, &exec, command);
        let why = refusal(&mut client, &exec);
        assert!(why.contains(said), "{why}");
    }
    if client.capabilities[&Capability::Freeze] != Mechanism::None {
        assert_eq!(client.freeze(&runs.attempt), FreezerState::Frozen);
        let why = refusal_of(&mut client, &runs.attempt);
        assert!(why.starts_with("the step is frozen"), "{why}");
        assert_eq!(
            connection(&mut client, &runs.attempt, None),
            Exit::StartFailed(why)
        );
    }
    client.signal(&runs.attempt, StopSignal::Kill);
    client.wait_gone(&runs.attempt);
}

fn refusal_of(client: &mut Client, attempt: &AttemptId) -> String {
    let exec = exec_of(attempt, 1);
    ask(client, &exec, &["id"]);
    refusal(client, &exec)
}

/// The user of a program beside an attempt.
pub(crate) fn whoami_beside(
    host: &Host,
    client: &mut Client,
    attempt: &str,
    by: Option<&str>,
) -> u32 {
    let attempt: AttemptId = attempt.parse().unwrap();
    let exec = exec_of(&attempt, 1);
    ask_as(client, &exec, &["id", "-u"], by);
    let dir = host
        .attempt_dir(&attempt)
        .join(format!("{EXEC_DIR_PREFIX}1"));
    let [_, stdout, stderr] = EXEC_STREAMS.map(|name| dir.join(name));
    until("its streams are there", || stderr.exists());
    let mut said = String::new();
    let mut stdout = File::open(stdout).unwrap();
    let _stderr = File::open(stderr).unwrap();
    stdout.read_to_string(&mut said).unwrap();
    said.trim().parse().unwrap()
}

#[test]
fn however_many_are_asked_for_few_begin_and_all_end_with_their_agent() {
    let host = Host::start();
    let mut client = host.client();
    let step = sh("crowd.1", "exec sleep 1000");
    client.spawn(&step);
    client.wait_running(&step.attempt);
    // Each number twice, with streams that are never opened.
    for number in (0..500).flat_map(|number| [number, number]) {
        ask(
            &mut client,
            &exec_of(&step.attempt, number),
            &["sleep", "1000"],
        );
    }
    let refused = 1_000 - MAX_EXECS_PER_ATTEMPT;
    client.wait("all refusals", |c| (c.execs.len() == refused).then_some(()));
    assert_eq!(users_of_children(&host).len(), 1 + MAX_EXECS_PER_ATTEMPT);
    // For a connection nothing starts, so it needs no place.
    client.execs.clear();
    let connected = connection(&mut client, &step.attempt, None);
    assert_eq!(connected, Exit::Code(0));
    assert_eq!(users_of_children(&host).len(), 1 + MAX_EXECS_PER_ATTEMPT);
    // Probes of the step itself have places of their own, and only four.
    for number in 1_000..1_010 {
        client.send(&ToSupervisor::Exec {
            exec: exec_of(&step.attempt, number),
            order: ExecOrder {
                program: ExecProgram::Probe {
                    command: vec!["sleep".to_owned(), "1000".to_owned()],
                },
                by: None,
            },
        });
    }
    client.wait("refusals of probes", |c| {
        (c.execs.len() == 10 - 4).then_some(())
    });
    let all = 1 + MAX_EXECS_PER_ATTEMPT + 4;
    assert_eq!(users_of_children(&host).len(), all);
    drop(client);
    until("none is left but the step", || {
        users_of_children(&host).len() == 1
    });
    let is_exec = |name: &str| name.starts_with("exec");
    let left = fs::read_dir(host.attempt_dir(&step.attempt)).unwrap();
    let names = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| is_exec(name)).count(), 0);
    let mut client = host.client();
    client.wait_running(&step.attempt);
    assert_eq!(client.run(&sh("after.1", "exit 3")), Exit::Code(3));
}

/// A host with a step of another user than the supervisor's, and the id of a program beside it; `None` without root.
fn beside_a_step_of_nobody() -> Option<(Host, Client, ExecId)> {
    if !crate::left_out::needs_root() {
        // The step runs as the supervisor's own user then.
        return None;
    }
    let host = Host::start_under("[users]\ns = \"nobody\"\n", &[]);
    let mut client = host.client();
    let step = sh("nobody.1", "exec sleep 1000");
    client.spawn(&step);
    client.wait_running(&step.attempt);
    let exec = exec_of(&step.attempt, 1);
    Some((host, client, exec))
}

#[test]
fn a_program_beside_a_step_runs_as_the_step_s_user_whatever_it_is() {
    let Some((host, mut client, exec)) = beside_a_step_of_nobody() else {
        return;
    };
    let script = "id -u; grep -c '^CapEff:[[:space:]]*0*$' /proc/self/status; cat /etc/shadow";
    ask(&mut client, &exec, &["sh", "-c", script]);
    let stream = |name: &str| host.attempt_dir(&exec.attempt).join("exec-1").join(name);
    until("its streams are there", || stream("stderr").exists());
    // The program continues when both are open.
    let [mut out, mut errors] = ["stdout", "stderr"].map(|name| File::open(stream(name)).unwrap());
    let mut said = String::new();
    out.read_to_string(&mut said).unwrap();
    errors.read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(said, "65534\n1\n");
    client.wait("its end", |c| {
        c.execs
            .contains(&(exec.clone(), Exit::Code(1)))
            .then_some(())
    });
}

#[test]
fn files_are_copied_by_a_process_of_the_step_s_user_without_rights() {
    let Some((host, mut client, exec)) = beside_a_step_of_nobody() else {
        return;
    };
    client.send(&ToSupervisor::Exec {
        exec: exec.clone(),
        order: ExecOrder {
            program: ExecProgram::CopyFiles,
            by: None,
        },
    });
    let stream = |name: &str| host.attempt_dir(&exec.attempt).join("exec-1").join(name);
    until("its streams are there", || stream("stderr").exists());
    let mut stdin = File::options().write(true).open(stream("stdin")).unwrap();
    let [mut out, _errors] = ["stdout", "stderr"].map(|name| File::open(stream(name)).unwrap());
    let status = |pid: u32| fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mut copier = String::new();
    until("the helper runs", || {
        let all = host.children().into_iter().map(status);
        let found = all
            .into_iter()
            .find(|it| it.starts_with("Name:\tsluice-copy\n"));
        found.map(|it| copier = it).is_some()
    });
    for line in [
        "Uid:\t65534\t65534\t65534\t65534\n",
        "CapEff:\t0000000000000000\n",
        "NoNewPrivs:\t1\n",
    ] {
        assert!(copier.contains(line), "{line}: {copier}");
    }
    // A request that is none ends it.
    stdin.write_all(b"what is this?").unwrap();
    let mut said = Vec::new();
    out.read_to_end(&mut said).unwrap();
    assert_eq!(said, b"");
    client.wait("its end", |c| {
        c.execs
            .contains(&(exec.clone(), Exit::Code(1)))
            .then_some(())
    });
}
