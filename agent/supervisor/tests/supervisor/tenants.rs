//! Isolation between steps of different subjects on one host, and between successive owners of a user id.
//! Only root can give steps users of their own, so these tests pass at once for others.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sluice_common::id::Subject;
use sluice_common::supervision::{Exit, SpawnSpec, StopSignal};

use crate::client::{sh, spec};
use crate::host::{Host, lives, until, until_some};

/// Every step runs as this one user.
const SHARED: &str = "default_user = \"nobody\"\nshared_users = [\"nobody\"]\n";

fn host(config: &str) -> Option<Host> {
    crate::left_out::needs_root().then(|| Host::start_under(config, &[]))
}

fn of(subject: &str, mut spec: SpawnSpec) -> SpawnSpec {
    spec.subject = Subject::new(subject).unwrap();
    spec
}

/// Tries everything that one user may do to a process of its own, and prints what succeeded.
const ATTACK: &str = r#"
import ctypes, os, sys
pid, work = int(sys.argv[1]), sys.argv[2]
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, act):
    try:
        if act() is not False: print(name, flush=True)
    except OSError: pass
def mem():
    line = next(l for l in open(f"/proc/{pid}/maps") if " rw-p " in l)
    with open(f"/proc/{pid}/mem", "rb") as f:
        f.seek(int(line.split("-")[0], 16)); f.read(16)
def fd():
    other = libc.syscall(434, pid, 0)
    stolen = libc.syscall(438, other, 1, 0)
    if stolen < 0: raise OSError
    os.write(stolen, b"forged\n")
def trace():
    if libc.ptrace(16, pid, 0, 0) < 0: raise OSError
    os.waitpid(pid, 0x40000000)
    libc.ptrace(17, pid, 0, 0)
attempt("environ", lambda: b"SECRET" in open(f"/proc/{pid}/environ", "rb").read())
attempt("mem", mem)
attempt("fds", lambda: os.readlink(f"/proc/{pid}/fd/1"))
attempt("work", lambda: os.listdir(work))
attempt("file", lambda: open(work + "/file").read())
attempt("ptrace", trace)
attempt("log", fd)
attempt("signal", lambda: os.kill(pid, 0))
attempt("kill", lambda: os.kill(pid, 9))
"#;

/// Actions of a step of one subject that succeed against a step of another.
fn reached(host: &Host) -> BTreeSet<String> {
    reached_by(host, |spec| of("a", spec), |spec| of("b", spec))
}

/// Actions of the second step that succeed against the first; each function prepares one of them.
pub(crate) fn reached_by(
    host: &Host,
    first: impl Fn(SpawnSpec) -> SpawnSpec,
    second: impl Fn(SpawnSpec) -> SpawnSpec,
) -> BTreeSet<String> {
    let mut client = host.client();
    let script = "echo mine > file; chmod 644 file; echo $$; exec sleep 1000";
    let mut victim = first(sh("victim.1", script));
    victim.env.insert("SECRET".to_owned(), "s3cret".to_owned());
    client.spawn(&victim);
    client.wait_running(&victim.attempt);
    let pid = host.number_in("victim.1", "stdout");
    until("the program is the sleep", || {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n")
    });
    let work = host.attempt_dir(&"victim.1").join("work");
    let command = [
        "python3",
        "-c",
        ATTACK,
        &pid.to_string(),
        work.to_str().unwrap(),
    ];
    let exit = client.run(&second(spec("attacker.1", &command)));
    assert_eq!(
        exit,
        Exit::Code(0),
        "{}",
        host.output(&"attacker.1", "stderr")
    );
    let reached = host.output(&"attacker.1", "stdout");
    if !reached.contains("kill") {
        assert!(lives(pid));
        assert_eq!(host.output(&"victim.1", "stdout"), format!("{pid}\n"));
        client.signal(&victim.attempt, StopSignal::Kill);
    }
    client.wait_gone(&victim.attempt);
    reached.lines().map(str::to_owned).collect()
}

#[test]
fn a_step_reaches_nothing_of_another_subject_s() {
    let Some(host) = host("") else { return };
    assert_eq!(reached(&host), BTreeSet::new());
}

#[test]
fn subjects_with_users_of_their_own_are_as_far_apart() {
    let Some(host) = host("[users]\na = \"nobody\"\nb = \"daemon\"\n") else {
        return;
    };
    assert_eq!(reached(&host), BTreeSet::new());
}

/// Shows that the two tests above can fail, and that a shared user is no boundary.
#[test]
fn subjects_that_share_a_user_reach_all_of_each_other_s() {
    let Some(host) = host(SHARED) else { return };
    let all = [
        "environ", "fds", "file", "kill", "log", "mem", "ptrace", "signal", "work",
    ];
    assert_eq!(reached(&host), all.map(str::to_owned).into());
    let log = host.log.lock().unwrap();
    assert!(
        log.contains("steps of several subjects run as user `nobody`"),
        "{log}"
    );
}

fn uid_in(host: &Host, id: &str) -> u32 {
    let record = fs::read_to_string(host.record(id)).unwrap();
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    u32::try_from(record["uid"].as_u64().unwrap()).unwrap()
}

/// Whether an id is in use, by the registry.
fn claimed(uid: u32) -> bool {
    let path = Path::new(sluice_supervisor::uids::REGISTRY).join(uid.to_string());
    fs::symlink_metadata(path).is_ok()
}

#[test]
fn what_runs_beside_and_after_a_step_has_the_step_s_own_user_over_a_restart_and_an_upgrade() {
    let Some(mut host) = host("") else { return };
    let before = {
        let mut client = host.client();
        let spec = sh("stays.1", "echo $HOME $USER; id -u; id -G; exec sleep 1000");
        client.spawn(&spec);
        client.wait_running(&spec.attempt);
        until_some("three lines", || {
            let text = host.output(&"stays.1", "stdout");
            (text.lines().count() == 3).then_some(text)
        })
    };
    let uid = uid_in(&host, "stays.1");
    let home = host.attempt_dir(&"stays.1").join("work");
    let wanted = format!("{} sluice-step\n{uid}\n{uid}\n", home.display());
    assert_eq!(before, wanted);
    host.kill();
    host.restart();
    assert!(claimed(uid));
    host.upgrade();
    let mut client = host.client();
    let other = sh("other.1", "id -u; exec sleep 1000");
    client.spawn(&other);
    client.wait_running(&other.attempt);
    assert_ne!(host.number_in("other.1", "stdout"), uid);
    let beside = crate::execs::whoami_beside(&host, &mut client, "stays.1", None);
    assert_eq!(beside, uid);
    for id in ["stays.1", "other.1"] {
        let id = id.parse().unwrap();
        client.signal(&id, StopSignal::Kill);
        client.wait_gone(&id);
    }
    until("its id is free", || !claimed(uid));
}

/// Everything that a user can leave on a host, some of it hard to remove.
const LITTER: &str = r#"
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
if libc.shmget(0, 4096, 0o1600) < 0 or libc.semget(0, 1, 0o1600) < 0 or libc.msgget(0, 0o1600) < 0: raise OSError
for top in "/tmp", "/dev/shm", "/var/tmp":
    base = f"{top}/sluice-test-{os.getuid()}"
    os.makedirs(base + "/a/b"); open(base + "/a/b/c", "w").close()
    os.mkdir(base + "/shut"); open(base + "/shut/x", "w").close(); os.chmod(base + "/shut", 0)
    os.symlink("/etc/passwd", base + "-link"); os.mkfifo(base + "-pipe")
open("file", "w").close()
"#;

fn litter(uid: u32) -> Vec<String> {
    let mut left = Vec::new();
    for dir in ["/tmp", "/dev/shm", "/var/tmp"] {
        for entry in fs::read_dir(dir).unwrap().flatten() {
            if fs::symlink_metadata(entry.path()).is_ok_and(|found| found.uid() == uid) {
                left.push(entry.path().display().to_string());
            }
        }
    }
    for table in ["shm", "sem", "msg"] {
        let text = fs::read_to_string(format!("/proc/sysvipc/{table}")).unwrap();
        let owned = text
            .lines()
            .filter(|line| line.split_whitespace().any(|it| it == uid.to_string()));
        left.extend(owned.map(|line| format!("{table} {line}")));
    }
    left
}

#[test]
fn an_id_is_given_again_only_when_nothing_is_left_of_it() {
    // Ids of its own: those of the default range may be given to a step of another test as soon as they are free.
    let range = "uid_range = [2100070000, 2100070015]\n";
    let Some(mut host) = host(range) else { return };
    let mut client = host.client();
    let spec = spec("litter.1", &["python3", "-c", LITTER]);
    client.spawn(&spec);
    let uid = until_some("its record", || {
        host.record("litter.1")
            .exists()
            .then(|| uid_in(&host, "litter.1"))
    });
    let end = client.wait_gone(&spec.attempt);
    assert_eq!(
        end.exit,
        Exit::Code(0),
        "{}",
        host.output(&"litter.1", "stderr")
    );
    let work = host.attempt_dir(&"litter.1").join("work");
    until("it is clean", || !claimed(uid));
    assert_eq!(litter(uid), Vec::<String>::new());
    assert!(!work.exists(), "it goes with the attempt");
    // Root owns what could not be removed.
    for dir in ["/tmp", "/dev/shm", "/var/tmp"] {
        let left = format!("{dir}/sluice-test-{uid}");
        assert_eq!(fs::metadata(&left).map_or(0, |found| found.uid()), 0);
        let _there_may_be_none = fs::remove_dir_all(left);
    }
    assert!(host.close_stdin().success());
}

#[test]
fn a_supervisor_that_lost_its_records_frees_no_id_that_is_in_use() {
    let Some(mut host) = host("") else { return };
    let mut client = host.client();
    // A process that leaves its process group, session and mark.
    let script = "setsid env -i sleep 1000 & echo $!; wait";
    let spec = sh("lost.1", script);
    client.spawn(&spec);
    client.wait_running(&spec.attempt);
    let (uid, inner) = (uid_in(&host, "lost.1"), host.number_in("lost.1", "stdout"));
    host.kill();
    fs::remove_file(host.record("lost.1")).unwrap();
    host.restart();
    until("its id is free", || !claimed(uid));
    assert!(!lives(inner), "nothing of it runs");
    let work = fs::metadata(host.attempt_dir(&"lost.1").join("work"));
    assert_eq!(work.map_or(0, |work| work.uid()), 0, "gone, or root's");
}
