//! `sluice cp`: files and directories to and from running steps, over connections that break, and what is refused.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use sluice_tests::{CommandOutput, Daemon, Dev, DevOptions, cost, eventually, is_alive, kill};

/// Size of a file that no buffer holds.
const LARGE_BYTES: usize = 200 * 1024 * 1024;

/// Bytes of a file that have arrived before a daemon is killed. The command hears of each MiB a moment after it was
/// written, and later on a busy machine; it goes on after what it has heard of.
const ARRIVED_BYTES: u64 = 40_000_000;

/// Memory that no daemon may need for a copy, in KiB: a third of the file. The windows of a copy take up to 12 MiB, and
/// allocators keep what several threads have freed: 38 MiB were seen.
const MEMORY_KIB: u64 = 64 * 1024;

/// Submits a step that sleeps in a directory of its own; returns the directory.
fn sleeper(dev: &Dev, id: &str) -> PathBuf {
    dev.ok(&["submit", "--id", id, "--grace", "1s", "--", "sleep", "1000"]);
    dev.step_in(id, &["running"]);
    PathBuf::from(in_step(dev, id, "pwd").trim())
}

fn in_step(dev: &Dev, id: &str, command: &str) -> String {
    dev.ok(&["exec", id, "--", "sh", "-c", command])
}

fn cp(dev: &Dev, from: impl AsRef<Path>, to: impl AsRef<Path>) -> CommandOutput {
    let paths = [from.as_ref(), to.as_ref()].map(|path| path.to_str().unwrap());
    dev.sluice(&["cp", paths[0], paths[1]])
}

fn copied(dev: &Dev, from: impl AsRef<Path>, to: impl AsRef<Path>) -> CommandOutput {
    let copy = cp(dev, from, to);
    assert_eq!(copy.code, 0, "{copy:?}");
    copy
}

fn begin_cp(dev: &Dev, from: &str, to: &Path) -> Child {
    let mut command = dev.command(&["cp", from]);
    command.arg(to).stdin(Stdio::null());
    command.spawn().unwrap()
}

/// Writes a file of pseudo-random bytes.
fn write_large(path: &Path, bytes: usize) {
    let mut file = File::create(path).unwrap();
    let mut block = vec![0; 1024 * 1024];
    let mut state = 1_u64;
    for _ in 0..bytes / block.len() {
        for word in block.chunks_mut(8) {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            word.copy_from_slice(&state.to_le_bytes());
        }
        file.write_all(&block).unwrap();
    }
}

fn is_same(a: &Path, b: &Path) -> bool {
    fs::read(a).unwrap() == fs::read(b).unwrap()
}

/// The file in a directory that has not arrived as a whole.
fn part_in(dir: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(dir).ok()?.flatten();
    let mut paths = entries.map(|entry| entry.path());
    paths.find(|path| path.to_string_lossy().contains(".sluice-cp-"))
}

/// A line for each file below a directory, with its mode, its time and its contents.
fn listing(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(path) = left.pop() {
        let found = path.symlink_metadata().unwrap();
        let below = path.strip_prefix(root).unwrap().display().to_string();
        let (mode, time) = (found.mode() & 0o777, found.mtime());
        lines.push(match () {
            () if found.is_symlink() => format!("{below} -> {:?}", fs::read_link(&path).unwrap()),
            () if found.is_dir() => {
                left.extend(
                    fs::read_dir(&path)
                        .unwrap()
                        .map(|entry| entry.unwrap().path()),
                );
                format!("{below} {mode:o} {time}")
            }
            () => format!(
                "{below} {mode:o} {time} {:?}",
                fs::read_to_string(&path).unwrap()
            ),
        });
    }
    lines.sort();
    lines
}

#[test]
fn trees_and_files_go_both_ways_as_the_user_of_the_step() {
    let dev = Dev::start();
    let work = sleeper(&dev, "a");
    let here = tempfile::tempdir().unwrap();
    let tree = here.path().join("tree");
    fs::create_dir_all(tree.join("b/empty")).unwrap();
    fs::write(tree.join("b/run.sh"), "#!/bin/sh\necho ran\n").unwrap();
    fs::set_permissions(tree.join("b/run.sh"), Permissions::from_mode(0o750)).unwrap();
    fs::write(tree.join("top"), "top").unwrap();
    symlink("b/run.sh", tree.join("link")).unwrap();

    let quiet = copied(&dev, &tree, "a:");
    assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), ("", ""));
    assert_eq!(listing(&work.join("tree")), listing(&tree));
    assert_eq!(in_step(&dev, "a", "tree/link; id -u"), {
        let owner = work.join("tree/top").metadata().unwrap().uid();
        format!("ran\n{owner}\n")
    });
    copied(&dev, "a:tree", here.path().join("back"));
    assert_eq!(listing(&here.path().join("back")), listing(&tree));
    // Into a directory that exists, by an absolute path and under another name.
    copied(&dev, format!("a:{}/tree/b", work.display()), here.path());
    assert_eq!(listing(&here.path().join("b")), listing(&tree.join("b")));
    copied(&dev, "a:tree/link", here.path().join("program"));
    assert!(is_same(
        &here.path().join("program"),
        &tree.join("b/run.sh")
    ));
    fs::write(tree.join("top"), "newer").unwrap();
    copied(&dev, tree.join("top"), "a:tree");
    assert_eq!(
        in_step(&dev, "a", "cat tree/top; ls -A tree"),
        "newerb\nlink\ntop\n"
    );
}

#[test]
fn a_part_of_an_array_and_a_rank_of_a_gang_are_reached() {
    let folder = tempfile::tempdir().unwrap();
    let hosts = folder.path().join("hosts.yaml");
    let host = |name: &str| format!("{{kind: host, name: {name}, gpus: 1, gpu_model: H100}}\n");
    fs::write(&hosts, format!("{}---\n{}", host("h1"), host("h2"))).unwrap();
    let dev = Dev::with(DevOptions {
        files: vec![hosts],
        ..DevOptions::default()
    });
    let file = folder.path().join("file");
    fs::write(&file, "copied").unwrap();
    dev.ok(&[
        "submit", "--id", "many", "--array", "0-1", "--", "sleep", "1000",
    ]);
    dev.step_in("many.1", &["running"]);
    copied(&dev, &file, "many.1:");
    assert_eq!(in_step(&dev, "many.1", "cat file"), "copied");

    // Each rank works in a directory of its own.
    let script = "mkdir $SLUICE_NODE; cd $SLUICE_NODE; exec sleep 1000";
    let gang = ["submit", "--id", "g", "--gpus", "1", "--nodes", "2", "--"];
    dev.ok(&[&gang[..], &["sh", "-c", script]].concat());
    dev.step_in("g", &["running"]);
    let directory = |rank: &str| {
        let ran = dev.ok(&["exec", "g", "--rank", rank, "--", "pwd"]);
        PathBuf::from(ran.trim())
    };
    eventually("both ranks to be where they work", || {
        (directory("0").ends_with("h1") && directory("1").ends_with("h2")).then_some(())
    });
    let file = file.to_str().unwrap();
    dev.ok(&["cp", "--rank", "1", file, "g:new"]);
    assert_eq!(
        fs::read_to_string(directory("1").join("new")).unwrap(),
        "copied"
    );
    assert!(!directory("0").join("new").exists());
    let back = folder.path().join("back");
    dev.ok(&["cp", "--rank", "1", "g:new", back.to_str().unwrap()]);
    assert_eq!(fs::read_to_string(&back).unwrap(), "copied");

    // Each host keeps files of its own rank.
    let script = "echo $SLUICE_NODE_RANK > rank";
    let keeps = ["run", "--id", "k", "--nodes", "2", "--keep", "rank", "--"];
    dev.ok(&[&keeps[..], &["sh", "-c", script]].concat());
    for rank in ["0", "1"] {
        dev.ok(&["cp", "--rank", rank, "k:rank", back.to_str().unwrap()]);
        assert_eq!(fs::read_to_string(&back).unwrap(), format!("{rank}\n"));
    }
    eventually("both hosts say what they have kept", || {
        let shown = dev.ok(&["describe", "step", "k"]);
        (shown.matches("1 file, 2B").count() == 2).then_some(())
    });
}

#[test]
fn what_cannot_be_copied_is_named_and_the_rest_arrives() {
    let dev = Dev::start();
    let work = sleeper(&dev, "a");
    let here = tempfile::tempdir().unwrap();
    in_step(
        &dev,
        "a",
        "mkdir out; cd out; mkfifo pipe; ln -s /etc/passwd leak; ln -s ../../.. up; echo x > file",
    );
    let copy = copied(&dev, "a:out", here.path());
    for said in [
        "`out/leak` skipped: the link leads out",
        "`out/up` skipped",
        "`out/pipe` skipped: it is neither",
    ] {
        assert!(copy.stderr.contains(said), "{said}: {copy:?}");
    }
    assert_eq!(
        fs::read_to_string(here.path().join("out/file")).unwrap(),
        "x\n"
    );
    assert_eq!(fs::read_dir(here.path().join("out")).unwrap().count(), 1);

    for (from, to, said) in [
        (
            "a:none",
            "x",
            "cannot read `none`: No such file or directory",
        ),
        ("a:out/pipe", "x", "neither a file nor a directory"),
        ("a:out/file", "none/x", "cannot open the directory `none`"),
        ("none", "a:", "cannot read `none`"),
        ("a:x", "a:y", "both name a step"),
        ("x", "y", "neither SOURCE nor TARGET names a step"),
        ("a:x", "-", "sluice exec STEP -- cat PATH"),
        ("ghost:x", "y", "ghost"),
    ] {
        let copy = cp(&dev, from, to);
        assert_ne!(copy.code, 0, "{from} {to}: {copy:?}");
        assert!(copy.stderr.contains(said), "{from} {to}: {copy:?}");
    }
    let file = here.path().join("file");
    fs::write(&file, "y").unwrap();
    let copy = cp(&dev, &file, "a:/proc/none/x");
    assert!(
        copy.stderr
            .contains("cannot open the directory `/proc/none`"),
        "{copy:?}"
    );
    let copy = cp(&dev, &file, "a:/sys/file");
    assert!(
        copy.code != 0 && copy.stderr.contains("cannot write `/sys/file`"),
        "{copy:?}"
    );
    // A directory is not replaced by a file, nor the reverse.
    let copy = cp(&dev, here.path().join("out"), "a:out/file");
    assert!(
        copy.stderr.contains("cannot write into `out/file`"),
        "{copy:?}"
    );
    fs::rename(&file, here.path().join("out2")).unwrap();
    mkfifo(&here.path().join("fifo"), Mode::S_IRWXU).unwrap();
    let copy = cp(&dev, here.path().join("fifo"), "a:");
    assert!(
        copy.stderr.contains("neither a file nor a directory"),
        "{copy:?}"
    );
    assert_eq!(part_in(&work), None);
}

#[test]
fn a_step_that_does_not_run_says_what_to_do() {
    let dev = Dev::start();
    dev.ok(&["submit", "--id", "over", "--", "true"]);
    dev.step_in("over", &["succeeded"]);
    let waits = r#"{"id": "waits", "command": ["true"], "allow_pending": true, "resources": {"cpu_count": 100000}}"#;
    assert_eq!(dev.call("POST", "/v1/steps", Some(waits)).0, 201);
    for (id, way_out) in [("over", "sluice logs"), ("waits", "sluice wait")] {
        let copy = cp(&dev, format!("{id}:x"), "y");
        assert_eq!(copy.code, 1, "{copy:?}");
        assert!(copy.stderr.contains(way_out), "{id}: {copy:?}");
        assert!(
            copy.stderr.contains("no file can be copied"),
            "{id}: {copy:?}"
        );
    }
    sleeper(&dev, "a");
    let copy = dev.sluice(&["cp", "--rank", "3", "a:x", "y"]);
    assert!(
        copy.stderr.contains("the ranks of `a` are 0 to 0"),
        "{copy:?}"
    );
    let (status, error) = dev.call("GET", "/v1/steps/a/exec?attempt=7", None);
    assert_eq!(
        (status, &error["error"]["code"]),
        (400, &"invalid_parameter".into())
    );
}

/// Most private memory of each daemon while a copy runs, beyond what it had before, in KiB.
fn memory_of_copy(dev: &Dev, from: &str, to: &Path) -> [u64; 3] {
    let daemons = [Daemon::Coordinator, Daemon::Agent, Daemon::Supervisor];
    let pids = daemons.map(|daemon| dev.daemon(daemon).unwrap());
    let measure = || pids.map(|pid| cost(pid).unwrap().memory_kib);
    let before = measure();
    let mut most = before;
    let mut child = begin_cp(dev, from, to);
    let own = |child: &Child| cost(child.id()).map_or(0, |cost| cost.memory_kib);
    let status = eventually("the copy to end", || {
        for (most, now) in most.iter_mut().zip(measure()) {
            *most = now.max(*most);
        }
        assert!(
            own(&child) < MEMORY_KIB,
            "{} KiB of the command",
            own(&child)
        );
        child.try_wait().unwrap()
    });
    assert!(status.success(), "{status}");
    std::array::from_fn(|n| most[n] - before[n])
}

#[test]
fn a_large_file_takes_no_memory_on_its_way() {
    let dev = Dev::start();
    let work = sleeper(&dev, "a");
    let here = tempfile::tempdir().unwrap();
    let [large, back] = ["large", "back"].map(|name| here.path().join(name));
    write_large(&large, LARGE_BYTES);
    let up = memory_of_copy(&dev, large.to_str().unwrap(), Path::new("a:large"));
    assert!(is_same(&large, &work.join("large")));
    let down = memory_of_copy(&dev, "a:large", &back);
    assert!(is_same(&large, &back));
    for grown in up.into_iter().chain(down) {
        assert!(grown < MEMORY_KIB, "up {up:?}, down {down:?} KiB");
    }
}

#[test]
fn a_copy_goes_on_when_a_daemon_on_its_way_comes_back() {
    let dev = Dev::start();
    let work = sleeper(&dev, "a");
    let here = tempfile::tempdir().unwrap();
    let large = here.path().join("large");
    write_large(&large, LARGE_BYTES);
    fs::hard_link(&large, work.join("large")).unwrap();
    let target = here.path().join("copies");
    fs::create_dir(&target).unwrap();
    let up = in_step(&dev, "a", "mkdir copies; pwd").trim().to_owned() + "/copies";
    for (from, to, at) in [
        ("a:large", target.clone(), target.as_path()),
        (large.to_str().unwrap(), "a:copies".into(), Path::new(&up)),
    ] {
        for daemon in [Daemon::Agent, Daemon::Coordinator] {
            let mut child = begin_cp(&dev, from, &to);
            let part = eventually("a part to arrive", || {
                let part = part_in(at)?;
                (fs::metadata(&part).ok()?.len() > ARRIVED_BYTES).then_some(part)
            });
            let inode = fs::metadata(&part).unwrap().ino();
            dev.kill(daemon);
            assert!(
                !at.join("large").exists(),
                "it was whole before {daemon:?} was killed"
            );
            let status = eventually("the copy to end", || child.try_wait().unwrap());
            assert!(status.success(), "{from} {daemon:?}: {status}");
            let copy = at.join("large");
            assert!(is_same(&large, &copy), "{from} {daemon:?}");
            let went_on = fs::metadata(&copy).unwrap().ino() == inode;
            assert!(
                went_on,
                "{from} {daemon:?}: it was copied from its start again"
            );
            assert_eq!(part_in(at), None);
            fs::remove_file(copy).unwrap();
        }
    }
    assert_eq!(dev.step_in("a", &["running"])["attempt"], 1);
}

#[test]
fn a_file_that_grows_is_copied_up_to_the_size_that_it_had() {
    let dev = Dev::start();
    sleeper(&dev, "a");
    let here = tempfile::tempdir().unwrap();
    in_step(&dev, "a", "head -c 50000000 /dev/zero > log");
    let writer = "while echo more >> log; do :; done";
    let mut exec = dev.command(&["exec", "a", "--", "sh", "-c", writer]);
    let mut writer = exec.stdin(Stdio::piped()).spawn().unwrap();
    eventually("the file to grow", || {
        let size = in_step(&dev, "a", "stat -c %s log");
        (size.trim() != "50000000").then_some(())
    });
    let copy = copied(&dev, "a:log", here.path());
    assert!(
        copy.stderr.contains("`log` grew while it was copied"),
        "{copy:?}"
    );
    let size = fs::metadata(here.path().join("log")).unwrap().len();
    assert!(
        copy.stderr.contains(&format!("the first {size} bytes")),
        "{copy:?}"
    );
    kill(writer.id(), Signal::SIGTERM);
    writer.wait().unwrap();
}

#[test]
fn a_copy_that_is_interrupted_leaves_nothing_here_and_no_program_there() {
    let dev = Dev::start();
    let work = sleeper(&dev, "a");
    let here = tempfile::tempdir().unwrap();
    write_large(&work.join("large"), LARGE_BYTES);
    let mut child = begin_cp(&dev, "a:large", here.path());
    eventually("a part to arrive", || part_in(here.path()));
    let helper = eventually("the helper", || {
        let mut pids = dev.processes("a").into_iter();
        pids.find(|pid| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm"));
            name.is_ok_and(|name| name.trim() == "sluice-copy")
        })
    });
    kill(child.id(), Signal::SIGINT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(fs::read_dir(here.path()).unwrap().count(), 0);
    eventually("the helper to end", || (!is_alive(helper)).then_some(()));
    // On the way to the step the helper removes its part.
    let upload = here.path().join("up");
    write_large(&upload, LARGE_BYTES);
    let mut child = begin_cp(&dev, upload.to_str().unwrap(), Path::new("a:up"));
    eventually("a part to arrive", || part_in(&work));
    kill(child.id(), Signal::SIGINT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(part_in(&work), None);
    assert!(!work.join("up").exists());
    fs::remove_file(upload).unwrap();
    // The step ends during a copy.
    let mut child = begin_cp(&dev, "a:large", here.path());
    eventually("a part to arrive", || part_in(here.path()));
    dev.ok(&["cancel", "a"]);
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(fs::read_dir(here.path()).unwrap().count(), 0);
}
