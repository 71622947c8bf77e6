//! Output of steps: its bound, its bytes over restarts, and full disks.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use sluice_common::api::parse_timestamp;
use sluice_tests::{Daemon, Dev, DevOptions, eventually, is_alive};

/// Starts a `dev` whose supervisor reads this config.
fn dev_with(folder: &Path, config: &str) -> Dev {
    let config = configure(folder, config);
    Dev::with(DevOptions {
        variables: vec![("SLUICE_SUPERVISOR_CONFIG", config)],
        ..DevOptions::default()
    })
}

/// Writes this config of a supervisor; returns its path.
fn configure(folder: &Path, config: &str) -> String {
    let file = folder.join("supervisor.toml");
    fs::write(&file, format!("{}{config}", sluice_tests::as_starter())).unwrap();
    file.display().to_string()
}

fn submit(dev: &Dev, id: &str, script: &str) {
    let body = json!({"id": id, "command": ["sh", "-c", script], "resources": {"cpu_count": 0.01}});
    let (status, answer) = dev.call("POST", "/v1/steps", Some(&body.to_string()));
    assert_eq!(status, 201, "{answer}");
}

fn attempt_dir(dev: &Dev, id: &str) -> PathBuf {
    dev.data()
        .join("supervisor/attempts")
        .join(format!("{id}.1"))
}

#[test]
fn a_stream_keeps_its_newest_part_and_its_readers_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let dev = dev_with(folder.path(), "output_max = \"1MiB\"\n");
    submit(&dev, "loud", "seq 1 1200000; echo end >&2");
    dev.step_in("loud", &["succeeded"]);
    let whole: String = (1..=1_200_000).map(|n| format!("{n}\n")).collect();
    let bound = 1 << 20;
    let ran = eventually("the last look at the output", || {
        let ran = dev.sluice(&["logs", "loud"]);
        (ran.stdout.len() < bound + 65_536).then_some(ran)
    });
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.len() >= bound);
    assert!(whole.ends_with(&ran.stdout), "what is kept is as it was");
    let told = format!("{} bytes were dropped", whole.len() - ran.stdout.len());
    assert!(ran.stderr.contains(&told), "{told}: {}", ran.stderr);
    assert!(ran.stderr.contains("end\n"), "the other stream is whole");
    let file = attempt_dir(&dev, "loud").join("stdout").metadata().unwrap();
    assert_eq!(file.len(), whole.len() as u64, "offsets stay valid");
    assert!(
        file.blocks() * 512 < 2 * bound as u64,
        "the room is free again"
    );
    let tail = dev.sluice(&["logs", "loud", "--stdout", "--tail", "2"]);
    assert_eq!(tail.stdout, "1199999\n1200000\n");
}

#[test]
fn a_follower_gets_each_byte_once_over_restarts_of_the_agent() {
    let dev = Dev::start();
    let copy = dev.folder().join("copy");
    let script = format!(
        "for i in $(seq 1 40); do \
           head -c 100000 /dev/urandom | tee -a {copy}.out; \
           head -c 10000 /dev/urandom | tee -a {copy}.err >&2; \
           sleep 0.05; \
         done",
        copy = copy.display()
    );
    submit(&dev, "noise", &script);
    let [to_out, to_err] = ["out", "err"].map(|name| dev.folder().join(name));
    let mut follower = dev
        .command(&["logs", "-f", "noise"])
        .stdin(Stdio::null())
        .stdout(File::create(&to_out).unwrap())
        .stderr(File::create(&to_err).unwrap())
        .spawn()
        .unwrap();
    let len = |path: &Path| path.metadata().map_or(0, |found| found.len());
    for kills in 1..=3u64 {
        eventually("bytes to arrive", || {
            (len(&to_out) > kills * 500_000).then_some(())
        });
        dev.kill(Daemon::Agent);
    }
    let ended = eventually("the follower to end", || follower.try_wait().unwrap());
    assert!(ended.success());
    let [out, err] =
        ["copy.out", "copy.err"].map(|name| fs::read(dev.folder().join(name)).unwrap());
    assert_eq!((out.len(), err.len()), (4_000_000, 400_000));
    assert!(fs::read(&to_out).unwrap() == out, "stdout, byte for byte");
    // Notes about the lost link are between the bytes on stderr, so that stream is compared by itself.
    let alone = dev
        .command(&["logs", "noise", "--stderr"])
        .output()
        .unwrap();
    assert!(alone.stdout == err, "stderr, byte for byte");
}

#[test]
fn output_goes_with_its_retention_and_that_of_a_live_attempt_stays() {
    let folder = tempfile::tempdir().unwrap();
    let dev = dev_with(
        folder.path(),
        "output_retention = \"1s\"\noutput_total_max = \"0B\"\n",
    );
    submit(&dev, "lives", "echo here; exec sleep 1000");
    dev.step_in("lives", &["running"]);
    submit(
        &dev,
        "over",
        "echo there; mkdir -p deep/er; echo x > deep/er/file",
    );
    dev.step_in("over", &["succeeded"]);
    eventually("the output to go", || {
        (!attempt_dir(&dev, "over").exists()).then_some(())
    });
    let bin = dev.data().join("supervisor/attempts/.removed");
    eventually("the bin to be emptied", || {
        (fs::read_dir(&bin).unwrap().count() == 0).then_some(())
    });
    let ran = dev.sluice(&["logs", "over"]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.stderr.contains("over.1 is no longer on its host"),
        "{}",
        ran.stderr
    );
    assert_eq!(dev.ok(&["logs", "lives"]), "here\n");
    submit(&dev, "never", "true");
    dev.step_in("never", &["succeeded"]);
}

/// A small file system, for as long as this lives.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn new(at: PathBuf, mib: u32) -> Self {
        fs::create_dir_all(&at).unwrap();
        let mut mount = Command::new("mount");
        mount.args([
            "-t",
            "tmpfs",
            "-o",
            &format!("size={mib}m,mode=755"),
            "tmpfs",
        ]);
        assert!(mount.arg(&at).status().unwrap().success());
        Self(at)
    }

    /// Fills the disk, until the returned file is removed.
    fn fill(&self) -> PathBuf {
        let filler = self.0.join("filler");
        let full = std::io::copy(
            &mut std::io::repeat(b'x'),
            &mut File::create(&filler).unwrap(),
        );
        assert_eq!(full.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
        filler
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_stops_no_step_and_nothing_is_lost_by_it() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let ours = SmallDisk::new(data.join("supervisor"), 16);
    let theirs = SmallDisk::new(data.join("coordinator"), 16);
    // Otherwise the steps that fill the disk are stopped.
    let config = configure(folder.path(), "min_free = \"0B\"\n");
    let dev = Dev::with(DevOptions {
        data: Some(data.clone()),
        // Some renewals of leases fail while the disk is full.
        variables: vec![
            ("SLUICE_HEARTBEAT", "200ms".to_owned()),
            ("SLUICE_SUPERVISOR_CONFIG", config),
        ],
        ..DevOptions::default()
    });
    let sign = |name: &str| dev.folder().join(name);
    let wait_for = |name: &str| {
        format!(
            "while [ ! -e {} ]; do sleep 0.02; done",
            sign(name).display()
        )
    };
    submit(&dev, "quiet", &format!("{}; exit 7", wait_for("go")));
    submit(
        &dev,
        "greedy",
        &format!(
            "head -c 24M /dev/zero; {}; echo more; exit 3",
            wait_for("room")
        ),
    );
    let greedy = dev.step_in("greedy", &["running"]);
    let pid = u32::try_from(greedy["attempts"][0]["pid"].as_u64().unwrap_or(0)).unwrap();
    let log = |name: &str| fs::read_to_string(data.join("logs").join(name)).unwrap_or_default();
    eventually("the disk to be full", || {
        log("supervisor.log")
            .contains("its output cannot be written now")
            .then_some(())
    });
    let filler = theirs.fill();
    let daemons = [Daemon::Supervisor, Daemon::Agent].map(|daemon| dev.daemon(daemon).unwrap());

    // Its end takes no more room than its record has, and the coordinator has none.
    fs::write(sign("go"), "").unwrap();
    let record = data.join("supervisor/spool/quiet.1.json");
    eventually("the end to be written on the full disk", || {
        let states = fs::read_to_string(&record).ok()?;
        states.contains("\"code\":7").then_some(())
    });
    // Keeping a promise needs space.
    let large = json!({"command": ["true"], "env": {"PAD": "x".repeat(500_000)}}).to_string();
    let mut accepted = Vec::new();
    eventually("the coordinator to take no more", || {
        let (status, step) = dev.try_call("POST", "/v1/steps", Some(&large))?;
        if status == 201 {
            accepted.push(step["id"].as_str().unwrap().to_owned());
        }
        (status == 507).then_some(())
    });
    assert!(pid == 0 || is_alive(pid), "what filled the disk runs on");

    fs::remove_file(filler).unwrap();
    File::options()
        .write(true)
        .open(attempt_dir(&dev, "greedy").join("stdout"))
        .and_then(|file| file.set_len(0))
        .unwrap();
    let quiet = dev.step_in("quiet", &["succeeded", "failed"]);
    assert_eq!(quiet["exit"]["code"], 7, "{quiet}");
    fs::write(sign("room"), "").unwrap();
    let greedy = dev.step_in("greedy", &["succeeded", "failed"]);
    assert_eq!(greedy["exit"]["code"], 3, "{greedy}");
    let written = fs::metadata(attempt_dir(&dev, "greedy").join("stdout")).unwrap();
    let wanted = (24 << 20) + 5;
    assert_eq!(written.len(), wanted, "it has waited until there was room");
    let again = [Daemon::Supervisor, Daemon::Agent].map(|daemon| dev.daemon(daemon).unwrap());
    assert_eq!(
        daemons, again,
        "neither the supervisor nor the agent has died of it"
    );
    assert_eq!(
        dev.call("GET", "/v1/steps/quiet", None).1["attempts"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
    for id in &accepted {
        dev.step_in(id, &["succeeded"]);
    }
    // Without space a renewal overwrites the last one, and fails only if there was none yet: one line when that begins
    // and one when it is over.
    let told = |words: &str| log("supervisor.log").matches(words).count();
    let began = || told("renewals of leases would not outlive");
    eventually("renewals to be written again", || {
        (told("renewals of leases outlive this supervisor again") == began()).then_some(())
    });
    assert!(began() <= 1);
    dev.stop();
    drop(ours);
}

#[test]
fn a_step_that_is_stopped_reads_why_and_until_when() {
    let dev = Dev::start();
    let script = "trap 'cat $SLUICE_NOTICE_FILE; exit 0' TERM; ls -A $SLUICE_NOTICE_FILE; echo ready; \
                  while :; do sleep 0.02; done";
    let body = json!({"id": "told", "command": ["sh", "-c", script], "grace_period": "20s"});
    let (status, answer) = dev.call("POST", "/v1/steps", Some(&body.to_string()));
    assert_eq!(status, 201, "{answer}");
    eventually("it to be ready", || {
        dev.ok(&["logs", "told", "--stdout"])
            .contains("ready")
            .then_some(())
    });
    dev.ok(&["cancel", "told"]);
    let step = dev.step_in("told", &["cancelled", "succeeded"]);
    let ran = dev.sluice(&["logs", "told"]);
    assert!(
        ran.stderr.contains("No such file"),
        "it was not there before: {ran:?}"
    );
    let notice: Value = serde_json::from_str(ran.stdout.trim_start_matches("ready\n")).unwrap();
    assert_eq!(notice["reason"], "cancelled", "{notice}");
    // Both are in UTC, so their texts sort by time.
    let [deadline, finished] = [&notice["deadline"], &step["finished_at"]]
        .map(|time| time.as_str().unwrap()[..19].to_owned());
    assert!(deadline > finished, "{notice} {step}");
}

#[test]
fn work_that_was_saved_is_an_event() {
    let dev = Dev::start();
    let script = "sleep 0.1; touch $SLUICE_CHECKPOINT_FILE; exec sleep 1000";
    submit(&dev, "saves", script);
    dev.step_in("saves", &["running"]);
    let event = eventually("the event", || {
        let (_, page) = dev.call("GET", "/v1/events?step=saves", None);
        let events = page["items"].as_array().unwrap();
        let found = events.iter().find(|event| event["type"] == "checkpointed");
        found.cloned()
    });
    assert_eq!(event["attempt"], "saves.1", "{event}");
    let time = |name: &str| parse_timestamp(event[name].as_str().unwrap()).unwrap();
    let late = time("at").since(time("saved_at")).millis();
    assert!((1..60_000).contains(&late), "{event}");
    let table = dev.ok(&["get", "events", "--step", "saves"]);
    assert!(table.contains("checkpointed"), "{table}");
}
