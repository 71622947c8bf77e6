//! The writer of output: steps cannot change what they have written, whichever process dies meanwhile.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use sluice_common::id::AttemptId;
use sluice_common::output::{MARK_BYTES, MARKS_FILE, read_mark};
use sluice_common::supervision::{Exit, HostPhase, StopSignal};
use sluice_supervisor::process;

use crate::client::{sh, spec};
use crate::host::{Host, is_writer, lives, send, until, until_some};

/// Everything that a program can do to a file of which it has a descriptor.
const FORGE: &str = r#"
import ctypes, os, sys
print("said before", flush=True)
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, act):
    try:
        if act() is not False: print("did", name, file=sys.stderr, flush=True)
    except OSError: pass
attempt("truncate", lambda: os.ftruncate(1, 0))
attempt("seek", lambda: os.lseek(1, 0, 0))
attempt("overwrite", lambda: os.pwrite(1, b"forged", 0))
attempt("allocate", lambda: libc.fallocate(1, 1, ctypes.c_long(0), ctypes.c_long(1 << 20)) == 0)
attempt("punch", lambda: libc.fallocate(1, 3, ctypes.c_long(0), ctypes.c_long(1 << 20)) == 0)
attempt("reopen the file", lambda: os.open("../stdout", os.O_WRONLY))
attempt("move it", lambda: os.rename("../stdout", "../other"))
with open("/dev/stdout", "w") as again: again.write("said after\n")
"#;

#[test]
fn a_step_can_give_its_output_words_and_take_none_back() {
    if !crate::left_out::needs_root() {
        return;
    }
    let host = Host::start_under("", &[]);
    let step = spec("forger.1", &["python3", "-c", FORGE]);
    assert_eq!(
        host.client().run(&step),
        Exit::Code(0),
        "{}",
        host.output(&"forger.1", "stderr")
    );
    assert_eq!(host.output(&"forger.1", "stderr"), "");
    assert_eq!(
        host.output(&"forger.1", "stdout"),
        "said before\nsaid after\n"
    );
    let found = fs::metadata(host.attempt_dir(&"forger.1").join("stdout")).unwrap();
    assert!(
        std::os::unix::fs::MetadataExt::blocks(&found) <= 8,
        "it holds what was said"
    );
    assert!(!host.attempt_dir(&"forger.1").join("stdout.pipe").exists());
}

/// The writer, which is a child of the supervisor.
fn writer(host: &Host) -> u32 {
    until_some("somebody writes", || {
        let mut all = process::all().unwrap().into_iter();
        let found = all.find(|p| p.parent == host.pid() && is_writer(p.pid));
        found.map(|p| p.pid)
    })
}

#[test]
fn every_byte_is_there_once_whoever_is_killed_while_a_step_writes() {
    let mut host = Host::start();
    let script = "i=0; while [ ! -e stop ]; do i=$((i+1)); echo line $i; [ $((i % 100)) = 0 ] && echo $i >&2; done; \
                  echo end $i";
    let step = sh("talks.1", script);
    host.client().spawn(&step);
    let path = host.attempt_dir(&"talks.1").join("stdout");
    let len = || fs::metadata(&path).map_or(0, |found| found.len());
    let grows = |what: &str| {
        let before = len();
        until(what, || len() > before);
    };
    grows("it writes");
    for round in 0..3 {
        send(writer(&host), Signal::SIGKILL);
        grows("it writes after the writer was killed");
        host.kill();
        grows("it writes while no supervisor is there");
        host.restart();
        grows("it writes after a restart");
        if round == 1 {
            host.upgrade();
            grows("it writes after an upgrade");
        }
    }
    fs::write(host.attempt_dir(&"talks.1").join("work/stop"), "").unwrap();
    host.client().wait_gone(&step.attempt);
    let said = fs::read_to_string(&path).unwrap();
    let count: u32 = said
        .lines()
        .last()
        .unwrap()
        .strip_prefix("end ")
        .unwrap()
        .parse()
        .unwrap();
    let wanted: String = (1..=count).map(|i| format!("line {i}\n")).collect();
    assert!(
        said == format!("{wanted}end {count}\n"),
        "{} bytes, {count} lines",
        said.len()
    );
    let other: String = (1..=count / 100)
        .map(|i| format!("{}\n", i * 100))
        .collect();
    assert_eq!(host.output(&"talks.1", "stderr"), other);
}

#[test]
fn the_last_words_of_a_step_are_kept_that_ends_while_no_supervisor_is_there() {
    let mut host = Host::start();
    let step = sh(
        "alone.1",
        "echo $$; while [ ! -e go ]; do sleep 0.01; done; echo last words; echo more >&2",
    );
    let mut client = host.client();
    client.spawn(&step);
    client.wait_running(&step.attempt);
    let pid = host.number_in("alone.1", "stdout");
    let old = writer(&host);
    host.kill();
    fs::write(host.attempt_dir(&"alone.1").join("work/go"), "").unwrap();
    until("it ends", || !lives(pid));
    until("nobody is left who writes", || !lives(old));
    host.restart();
    host.client().wait_gone(&step.attempt);
    assert_eq!(
        host.output(&"alone.1", "stdout"),
        format!("{pid}\nlast words\n")
    );
    assert_eq!(host.output(&"alone.1", "stderr"), "more\n");
}

#[test]
fn a_step_is_over_although_somebody_else_holds_what_it_wrote_to() {
    let host = Host::start();
    let mut client = host.client();
    let holder = sh(
        "holder.1",
        "exec 3<>../../gives.1/stdout.pipe; echo holds; while :; do echo not its own >&3; done",
    );
    let gives = sh(
        "gives.1",
        "echo mine; while [ ! -e go ]; do sleep 0.01; done; echo last",
    );
    client.spawn(&gives);
    client.wait_running(&gives.attempt);
    client.spawn(&holder);
    until("it is held", || {
        host.attempt_dir(&"holder.1").join("stdout").exists()
            && host.output(&"holder.1", "stdout") == "holds\n"
    });
    fs::write(host.attempt_dir(&"gives.1").join("work/go"), "").unwrap();
    client.wait_gone(&gives.attempt);
    let holder: AttemptId = "holder.1".parse().unwrap();
    client.signal(&holder, StopSignal::Kill);
    client.wait_gone(&holder);
}

#[test]
fn an_end_is_told_when_what_the_program_wrote_is_there_whoever_else_holds_its_output() {
    let host = Host::start();
    let mut client = host.client();
    // A daemon holds the pipes and continues to write.
    let step = sh(
        "quick.1",
        "setsid sh -c 'while :; do echo more; sleep 0.01; done' & until [ -e go ]; do sleep 0.01; done
         head -c 60000 /dev/zero; echo last >&2",
    );
    client.spawn(&step);
    let pid = client.wait_running(&step.attempt).pid;
    let writer = writer(&host);
    send(writer, Signal::SIGSTOP);
    fs::write(host.attempt_dir(&step.attempt).join("work/go"), "").unwrap();
    until("its program ends", || !lives(pid));
    until("that is recorded", || {
        host.log.lock().unwrap().contains("process ended")
    });
    // For an agent that is connected, and for one that connects now.
    for _ in 0..2 {
        let phase = &client.list()[&step.attempt].phase;
        assert!(matches!(phase, HostPhase::Running(_)), "{phase:?}");
        client = host.client();
    }
    send(writer, Signal::SIGCONT);
    let end = client.wait_ended(&step.attempt);
    let said = host.output(&step.attempt, "stdout").replace("more\n", "");
    assert_eq!((end.exit, said.len()), (Exit::Code(0), 60_000));
    assert_eq!(host.output(&step.attempt, "stderr"), "last\n");
    client.signal(&step.attempt, StopSignal::Kill);
    client.wait_gone(&step.attempt);
}

#[test]
fn a_step_that_ends_while_its_writer_is_replaced_loses_nothing() {
    let host = Host::start();
    let mut client = host.client();
    client.spawn(&sh("keeps.1", "exec sleep 1000"));
    for n in 1..=20 {
        let step = sh(
            &format!("late.{n}"),
            "echo $$; until [ -e go ]; do :; done; echo said; echo more >&2",
        );
        client.spawn(&step);
        let pid = client.wait_running(&step.attempt).pid;
        let old = writer(&host);
        fs::write(host.attempt_dir(&step.attempt).join("work/go"), "").unwrap();
        send(old, Signal::SIGKILL);
        client.wait_gone(&step.attempt);
        assert_eq!(
            host.output(&step.attempt, "stdout"),
            format!("{pid}\nsaid\n")
        );
        assert_eq!(host.output(&step.attempt, "stderr"), "more\n");
        until("another writes", || writer(&host) != old);
    }
}

#[test]
fn a_writer_that_does_not_answer_is_replaced_and_no_end_waits_for_it_for_ever() {
    let host = Host::start();
    let mut client = host.client();
    let step = sh("waits.1", "until [ -e go ]; do sleep 0.01; done; echo said");
    client.spawn(&step);
    client.wait_running(&step.attempt);
    let old = writer(&host);
    send(old, Signal::SIGSTOP);
    fs::write(host.attempt_dir(&step.attempt).join("work/go"), "").unwrap();
    host.says("does not answer", 1);
    assert_eq!(client.wait_gone(&step.attempt).exit, Exit::Code(0));
    assert_eq!(host.output(&step.attempt, "stdout"), "said\n");
    until("the stopped one is gone", || !lives(old));
}

#[test]
fn on_a_full_disk_a_step_waits_and_what_it_wrote_is_there_when_there_is_room() {
    if !crate::left_out::needs_root() {
        return;
    }
    let host = Host::start_on_disk(
        16,
        "default_user = 0\nallow_root = true\nmin_free = \"0B\"\n",
    );
    let mut client = host.client();
    let step = sh(
        "full.1",
        "until [ -e go ]; do sleep 0.01; done; head -c 3000000 /dev/zero | tr '\\0' x; echo end",
    );
    client.spawn(&step);
    client.wait_running(&step.attempt);
    let filler = host.attempt_dir(&step.attempt).join("filler");
    let bytes = vec![0; 64 << 20];
    let mut file = fs::File::create(&filler).unwrap();
    let _no_space_is_left = file.write_all(&bytes);
    fs::write(host.attempt_dir(&step.attempt).join("work/go"), "").unwrap();
    host.says("its output cannot be written now", 1);
    assert!(client.list().contains_key(&step.attempt));
    drop(file);
    fs::remove_file(&filler).unwrap();
    assert_eq!(client.wait_gone(&step.attempt).exit, Exit::Code(0));
    let said = host.output(&step.attempt, "stdout");
    assert_eq!(said.len(), 3_000_004);
    assert!(said.ends_with("xend\n"));
}

/// Different ways in which scripts use their output.
const HABITS: &str = "echo one > /dev/stdout; echo two > /dev/stderr; echo three >> /proc/self/fd/1
echo four | tee /dev/stderr; [ -t 1 ] && echo terminal
setsid sh -c 'echo five > /dev/stdout' > /proc/self/fd/2
exec >&-; echo six >&2; exec 2>&-; exit 7";

#[test]
fn a_step_may_open_its_output_anew_and_close_it() {
    if !crate::left_out::needs_root() {
        return;
    }
    // A user other than the supervisor's.
    let host = Host::start_under("", &[]);
    let step = sh("opens.1", HABITS);
    assert_eq!(host.client().run(&step), Exit::Code(7));
    assert_eq!(host.output(&"opens.1", "stdout"), "one\nthree\nfour\n");
    assert_eq!(host.output(&"opens.1", "stderr"), "two\nfour\nfive\nsix\n");
}

/// Processor time of a process, in nanoseconds.
fn time_of(pid: u32) -> u64 {
    let found = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
    found.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn whoever_writes_sleeps_while_nobody_says_anything() {
    let host = Host::start();
    let mut client = host.client();
    let quiet = [
        ("silent.1", "exec sleep 1000"),
        ("closed.1", "exec sleep 1000 >&- 2>&-"),
        ("daemon.1", "setsid sleep 1000 >&- 2>&- & exit 0"),
    ];
    for (id, script) in quiet {
        let step = sh(id, script);
        client.spawn(&step);
    }
    client.wait_ended(&"daemon.1".parse().unwrap());
    client.run(&sh("ended.1", "echo said"));
    let writer = writer(&host);
    until("it sleeps", || {
        let before = time_of(writer);
        std::thread::sleep(Duration::from_millis(300));
        time_of(writer) == before
    });
}

#[test]
fn nobody_is_left_who_writes_when_a_supervisor_has_stopped_its_steps() {
    let mut host = Host::start();
    let step = sh("stopped.1", "echo said; exec sleep 1000");
    host.client().spawn(&step);
    until("it has said", || {
        host.attempt_dir(&"stopped.1").join("stdout").exists()
            && host.output(&"stopped.1", "stdout") == "said\n"
    });
    let writer = writer(&host);
    assert!(host.close_stdin().success());
    until("it is gone", || !lives(writer));
}

#[test]
fn who_writes_is_a_program_of_its_own_without_any_right() {
    if !crate::left_out::needs_root() {
        return;
    }
    let host = Host::start_under("", &[]);
    let step = sh("seen.1", "echo said; exec sleep 1000");
    let mut client = host.client();
    client.spawn(&step);
    client.wait_running(&step.attempt);
    let proc = Path::new("/proc").join(writer(&host).to_string());
    let read = |name: &str| fs::read_to_string(proc.join(name)).unwrap();
    assert!(read("cmdline").starts_with("sluice-helper\0"));
    assert_eq!(read("environ"), "");
    let status = read("status");
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().split_whitespace().collect::<Vec<_>>()
    };
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(of(set), ["0000000000000000"], "{set}");
    }
    assert_eq!(of("NoNewPrivs:"), ["1"]);
    for ids in [of("Uid:"), of("Gid:")] {
        assert!(
            ids[0] != "0" && ids.iter().all(|id| *id == ids[0]),
            "{ids:?}"
        );
    }
    until("it has nothing open but what it needs", || {
        let open = fs::read_dir(proc.join("fd")).unwrap();
        let open = open.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
        let mut names: Vec<String> = open
            .map(|target| {
                let target = target.to_string_lossy();
                let name = target.rsplit('/').next().unwrap_or_default();
                name.split(":[").next().unwrap_or_default().to_owned()
            })
            .collect();
        names.sort_unstable();
        names
            == [
                "anon_inode",
                "dropped",
                "null",
                "socket",
                "stderr",
                "stderr.pipe",
                "stdout",
                "stdout.pipe",
                "writer.lock",
            ]
    });
}

#[test]
fn output_is_kept_within_its_bound_while_no_supervisor_is_there() {
    const KEPT: u64 = 64 * 1024;
    let mut host = match crate::left_out::needs_root() {
        true => Host::start_under(
            "default_user = 0\nallow_root = true\noutput_max = \"64KiB\"\n",
            &[],
        ),
        false => return,
    };
    let script = "while [ ! -e go ]; do sleep 0.01; done; head -c 1000000 /dev/zero | tr '\\0' x; exec sleep 1000";
    let step = sh("alone.1", script);
    let mut client = host.client();
    client.spawn(&step);
    client.wait_running(&step.attempt);
    let old = writer(&host);
    host.kill();
    let dir = host.attempt_dir(&"alone.1");
    fs::write(dir.join("work/go"), "").unwrap();
    until("the oldest part is dropped", || {
        let found = fs::metadata(dir.join("stdout")).unwrap();
        found.len() == 1_000_000 && found.blocks() * 512 <= KEPT + KEPT / 8
    });
    assert!(lives(old), "nobody has replaced it");
    let marks = fs::read(dir.join(MARKS_FILE)).unwrap();
    let first_kept = read_mark(marks[..MARK_BYTES].try_into().unwrap()).unwrap();
    let said = fs::read(dir.join("stdout")).unwrap();
    let (dropped, kept) = said.split_at(usize::try_from(first_kept).unwrap());
    assert!(kept.len() as u64 >= KEPT && kept.iter().all(|byte| *byte == b'x'));
    assert!(dropped.iter().all(|byte| *byte == 0));
}
