//! Steps in containers of bubblewrap, over a small root file system.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sluice_tests::{Dev, DevOptions, eventually, needs_root};

/// Programs of the image, all of which are busybox.
const PROGRAMS: [&str; 6] = ["sh", "cat", "ls", "sleep", "touch", "readlink"];

/// An image: busybox and a file that the host does not have.
struct SmallImage(tempfile::TempDir);

impl SmallImage {
    fn make() -> Self {
        let dir = tempfile::tempdir().unwrap();
        open(dir.path(), 0o755);
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("usr/bin")).unwrap();
        fs::create_dir_all(root.join("etc")).unwrap();
        fs::create_dir_all(root.join("var/lib/own")).unwrap();
        fs::copy("/bin/busybox", root.join("usr/bin/busybox"))
            .expect("tests/run.sh installs busybox-static");
        for name in PROGRAMS {
            symlink("/usr/bin/busybox", root.join("usr/bin").join(name)).unwrap();
        }
        symlink("usr/bin", root.join("bin")).unwrap();
        fs::write(root.join("etc/image"), "small\n").unwrap();
        Self(dir)
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("root")
    }
}

/// A cluster whose steps are not root's, so that bubblewrap has no right of its own.
fn cluster() -> Dev {
    Dev::with(DevOptions {
        ordinary_user: nix::unistd::geteuid().is_root(),
        ..DevOptions::default()
    })
}

/// Lets everyone enter a directory.
fn open(dir: &Path, mode: u32) {
    fs::set_permissions(dir, fs::Permissions::from_mode(mode)).unwrap();
}

fn submit(dev: &Dev, id: &str, image: &Path, script: &str, more: &Value) -> Value {
    let mut body =
        json!({"id": id, "image": image, "command": ["sh", "-c", script], "grace_period": "10s"});
    let body = body.as_object_mut().unwrap();
    body.extend(more.as_object().unwrap().clone());
    let body = Value::Object(body.clone()).to_string();
    let (status, answer) = dev.call("POST", "/v1/steps", Some(&body));
    assert_eq!(status, 201, "{answer}");
    answer
}

fn output_of(dev: &Dev, id: &str) -> String {
    dev.ok(&["logs", id])
}

#[test]
fn a_step_sees_its_image_its_directory_and_its_mounts_and_nothing_else_of_the_host() {
    let (dev, image) = (cluster(), SmallImage::make());
    let shared = tempfile::tempdir_in("/var/tmp").unwrap();
    open(shared.path(), 0o777);
    fs::write(shared.path().join("in"), "given\n").unwrap();
    let script = "cat /etc/image; cat in; ls /usr/lib 2>/dev/null; echo made >out; echo $A $HOME; \
                  touch /usr/bin/x 2>/dev/null || echo read-only; echo w >/dev/null; ls /var/lib; \
                  touch $SLUICE_CHECKPOINT_FILE && echo saved";
    let more = json!({"workdir": shared.path(), "env": {"A": "a\"b\nc", "HOME": "/h"}});
    submit(&dev, "seen", &image.path(), script, &more);
    dev.step_in("seen", &["succeeded"]);
    let said = output_of(&dev, "seen");
    assert_eq!(said, "small\ngiven\na\"b c /h\nread-only\nown\nsaved\n");
    let made = fs::read_to_string(shared.path().join("out")).unwrap();
    assert_eq!(made, "made\n");
    assert!(!image.path().join("usr/bin/x").exists());

    let more = json!({"keep": ["out"]});
    submit(&dev, "keeps", &image.path(), "echo k >out", &more);
    dev.step_in("keeps", &["succeeded"]);
    let kept = shared.path().join("kept");
    dev.ok(&["cp", "keeps:out", kept.to_str().unwrap()]);
    assert_eq!(fs::read_to_string(kept).unwrap(), "k\n");

    let shown = dev.ok(&["describe", "step", "seen"]);
    let line = format!("Image: {}", image.path().display());
    let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(&line), "{shown}");
    let (_, step) = dev.call("GET", "/v1/steps/seen", None);
    let name = step["placements"][0]["node"].as_str().unwrap().to_owned();
    let selected = dev.ok(&["get", "nodes", "-l", "sluice/container.bubblewrap"]);
    assert!(selected.contains(&name), "{selected}");
    let node = dev.ok(&["describe", "node", &name]);
    assert!(node.contains("bubblewrap "), "{node}");
}

#[test]
fn a_step_in_a_container_is_stopped_and_entered_like_any_other() {
    let (dev, image) = (cluster(), SmallImage::make());
    let script = "trap 'echo stopping; exit 7' TERM; echo ready; while :; do sleep 0.1; done";
    submit(&dev, "stopped", &image.path(), script, &json!({}));
    eventually("the program to be ready", || {
        output_of(&dev, "stopped").contains("ready").then_some(())
    });
    let inside = dev.ok(&["exec", "stopped", "--", "cat", "/etc/image"]);
    assert_eq!(inside, "small\n");
    let own = dev.ok(&["exec", "stopped", "--", "sh", "-c", "echo $SLUICE_STEP_ID"]);
    assert_eq!(own, "stopped\n");
    let missing = dev.sluice(&["exec", "stopped", "--", "apt-get"]).stderr;
    let words = "`apt-get` was not found in the container";
    assert!(missing.contains(words), "{missing}");

    dev.ok(&["cancel", "stopped"]);
    let step = dev.step_in("stopped", &["cancelled"]);
    assert_eq!(step["exit"]["code"], 7, "{step}");
    assert!(output_of(&dev, "stopped").contains("stopping"));

    submit(&dev, "killed", &image.path(), "kill -9 $$", &json!({}));
    let step = dev.step_in("killed", &["failed"]);
    assert_eq!(step["exit"]["code"], 137, "{step}");
}

#[test]
fn a_container_is_frozen_as_a_whole() {
    if !needs_root() {
        return;
    }
    let (dev, image) = (Dev::start(), SmallImage::make());
    let script = "echo ready; while :; do echo x >>count; sleep 0.02; done";
    let shared = tempfile::tempdir_in("/var/tmp").unwrap();
    let more = json!({"workdir": shared.path()});
    submit(&dev, "frozen", &image.path(), script, &more);
    eventually("the program to be ready", || {
        output_of(&dev, "frozen").contains("ready").then_some(())
    });
    dev.ok(&["suspend", "frozen"]);
    dev.step_in("frozen", &["suspended"]);
    let count = || fs::read(shared.path().join("count")).unwrap().len();
    let at_rest = count();
    dev.ok(&["get", "nodes"]);
    assert_eq!(count(), at_rest);
    dev.ok(&["resume", "frozen"]);
    dev.step_in("frozen", &["running"]);
    eventually("the program to go on", || (count() > at_rest).then_some(()));
    dev.ok(&["cancel", "frozen", "--grace", "0s"]);
    dev.step_in("frozen", &["cancelled"]);
}

#[test]
fn input_reaches_a_program_in_a_container() {
    let (dev, image) = (cluster(), SmallImage::make());
    let path = image.path().display().to_string();
    let mut run = dev.command(&["run", "--image", &path, "--", "cat"]);
    let file = image.0.path().join("input");
    fs::write(&file, "one\ntwo\n").unwrap();
    let output = run.stdin(fs::File::open(&file).unwrap()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout, b"one\ntwo\n");
    submit(
        &dev,
        "terminal",
        &image.path(),
        "test -t 0 && test -t 1 && test -t 2 && readlink /proc/self/fd/0",
        &json!({"terminal": true}),
    );
    dev.step_in("terminal", &["succeeded"]);
    let said = output_of(&dev, "terminal");
    assert!(said.starts_with("/dev/pts/"), "{said}");
}

#[test]
fn a_wrapper_runs_before_the_container() {
    let (dev, image) = (cluster(), SmallImage::make());
    let template = r#"{"wrapper": ["nice", "-n", "3"]}"#;
    let (status, answer) = dev.call("PUT", "/v1/templates/nicer", Some(template));
    assert!(status < 300, "{answer}");
    let pool = r#"{"templates": ["nicer"], "defaults": {"cpu": 0, "memory": "0B"}}"#;
    let (status, answer) = dev.call("PUT", "/v1/pools/default", Some(pool));
    assert!(status < 300, "{answer}");
    let script = "cat /etc/image; set -- $(cat /proc/self/stat); echo ${19}; echo \"$A\"";
    let more = json!({"env": {"A": "one\ntwo"}});
    submit(&dev, "wrapped", &image.path(), script, &more);
    dev.step_in("wrapped", &["succeeded"]);
    assert_eq!(output_of(&dev, "wrapped"), "small\n3\none\ntwo\n");
    let none = image.0.path().join("none");
    submit(&dev, "none", &none, "true", &json!({}));
    let step = dev.step_in("none", &["failed"]);
    assert_eq!(step["exit"]["code"], 126, "{step}");
    let said = dev.sluice(&["logs", "none"]).stderr;
    assert!(said.contains("sluice: image `"), "{said}");
}

#[test]
fn what_cannot_be_started_in_a_container_says_so_in_one_sentence() {
    let (dev, image) = (cluster(), SmallImage::make());
    let none = image.0.path().join("none");
    let empty = image.0.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let root = image.path();
    for (id, path, command, words) in [
        (
            "no-image",
            &none,
            "sh",
            "does not exist on this host: put it on each host of the pool",
        ),
        ("no-root", &empty, "sh", "holds no root file system"),
        (
            "no-program",
            &root,
            "python",
            "command `python` was not found in image",
        ),
    ] {
        let body = json!({"id": id, "image": path, "command": [command]}).to_string();
        let (status, answer) = dev.call("POST", "/v1/steps", Some(&body));
        assert_eq!(status, 201, "{answer}");
        let step = dev.step_in(id, &["failed"]);
        assert_eq!(step["reason"]["code"], "start_failed", "{step}");
        let why = step["reason"]["message"].as_str().unwrap();
        assert!(why.contains(words), "{why}");
    }
    let (status, answer) = dev.call(
        "POST",
        "/v1/steps",
        Some(r#"{"image": "python", "command": ["true"]}"#),
    );
    assert_eq!(status, 400, "{answer}");
    assert_eq!(answer["error"]["code"], "invalid_image", "{answer}");
}

#[test]
fn a_host_without_a_runtime_is_not_chosen() {
    let dev = cluster();
    let image = Path::new("/images/train.sif");
    let answer = submit(&dev, "nowhere", image, "true", &json!({}));
    assert_eq!(answer["state"], "rejected", "{answer}");
    let why = answer["reason"]["message"].as_str().unwrap();
    let words =
        "has no container runtime that runs a `.sif` image: install apptainer or singularity there";
    assert!(why.contains(words), "{why}");
    submit(
        &dev,
        "waits",
        image,
        "true",
        &json!({"allow_pending": true}),
    );
    let explained = dev.ok(&["explain", "waits"]);
    assert!(explained.contains(words), "{explained}");
}
