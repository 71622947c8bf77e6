//! Documents of pools and policies from files: all or nothing, previewed, and without harm to running steps.

use std::fs;
use std::path::{Path, PathBuf};

use sluice_tests::{Dev, DevOptions};

const HOSTS: &str = "
{kind: pool, name: shared}
---
{kind: policy, pool: shared, subject: red, priority: 10, reserved: {gpu: 2}}
---
{kind: policy, pool: shared, subject: blue, priority: 10}
---
{kind: host, name: h1, pool: shared, gpus: 4, gpu_model: H100}
";

struct DocumentFiles {
    folder: tempfile::TempDir,
}

impl DocumentFiles {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let file = self.folder.path().join(name);
        fs::write(&file, text).unwrap();
        file
    }
}

fn dev(files: &DocumentFiles) -> Dev {
    Dev::with(DevOptions {
        files: vec![files.write("hosts.yaml", HOSTS)],
        ..DevOptions::default()
    })
}

fn apply(dev: &Dev, file: &Path, more: &[&str]) -> (i32, String, String) {
    let file = file.to_str().unwrap();
    let output = dev.sluice(&[&["apply", "-f", file][..], more].concat());
    (output.code, output.stdout, output.stderr)
}

fn submit(dev: &Dev, id: &str, subject: &str, gpus: &str) {
    let what = [
        "submit",
        "--id",
        id,
        "--subject",
        subject,
        "--gpus",
        gpus,
        "--grace",
        "1s",
    ];
    dev.ok(&[&what[..], &["--", "sleep", "1000"]].concat());
}

#[test]
fn a_share_that_is_granted_later_is_shown_first_and_then_taken() {
    let files = DocumentFiles::new();
    let dev = dev(&files);
    submit(&dev, "r1", "red", "4");
    dev.step_in("r1", &["running"]);
    submit(&dev, "b1", "blue", "2");
    dev.step_in("b1", &["queued"]);
    let file = files.write(
        "shares.yaml",
        "{kind: policy, pool: shared, subject: blue, priority: 10, reserved: {gpu: 2}}\n",
    );
    let (code, said, _) = apply(&dev, &file, &["--dry-run"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(
        said,
        "policy/shared/blue changed (dry run): reserved.gpu none -> 2\n\
         others could then preempt one step: r1\n\
         r1 would be preempted at once, for b1\n"
    );
    dev.step_in("r1", &["running"]);
    let (code, said, _) = apply(&dev, &file, &[]);
    assert_eq!(code, 0);
    assert!(said.contains("r1 was preempted at once, for b1"), "{said}");
    dev.step_in("b1", &["running"]);
    assert_eq!(dev.step_in("r1", &["queued"])["preempted_by"], "b1");
    let (_, again, _) = apply(&dev, &file, &[]);
    assert_eq!(again, "policy/shared/blue unchanged\n");
}

#[test]
fn one_bad_document_keeps_all_of_a_file_out() {
    let files = DocumentFiles::new();
    let dev = dev(&files);
    for (text, words) in [
        (
            "{kind: pool, name: new}\n---\n{kind: policy, pool: new, subject: a, reserved: {tpu: 1}}\n",
            "policy of `a` in pool `new`: the pool has no `tpu`",
        ),
        (
            "kind: pool\nname: new\n---\nkind: policy\npool: new\nsubject: a\nprio: 1\n",
            ":7, document 2: there is no field `prio`: did you mean `priority`?",
        ),
        (
            "kind: pool\nname: new\nname: newer\n",
            ":3: column 1: duplicate mapping key: name",
        ),
        (
            "{kind: pool, name: new, capacity: {gpu: 4}}\n---\n{kind: policy, pool: new, subject: a, reserved: {gpu: 3}}\n---\n\
             {kind: policy, pool: new, subject: b, reserved: {gpu: 2}}\n",
            "others have reserved 3 and the pool declares 4",
        ),
        ("{kind: host, name: h9}\n", "`host` is not applied"),
    ] {
        let (code, said, error) = apply(&dev, &files.write("bad.yaml", text), &[]);
        assert_eq!((code, said.as_str()), (1, ""), "{text}");
        assert!(error.contains(words), "{text}: {error}");
        assert_eq!(dev.call("GET", "/v1/pools/new", None).0, 404, "{text}");
    }
    let name = "n".repeat(300);
    let (code, _, error) = apply(
        &dev,
        &files.write("long.yaml", &format!("{{kind: pool, name: {name}}}")),
        &[],
    );
    assert_eq!(code, 1);
    assert!(error.contains("63") && error.len() < 600, "{error}");
}

#[test]
fn what_somebody_uses_is_deleted_by_force_alone_and_runs_on() {
    let files = DocumentFiles::new();
    let dev = dev(&files);
    submit(&dev, "r1", "red", "2");
    dev.step_in("r1", &["running"]);
    let output = dev.sluice(&["delete", "policy", "shared/red"]);
    assert_eq!(output.code, 1);
    let words = output.stderr;
    assert!(words.contains("steps of `red` run in it (`r1`)"), "{words}");
    let said = dev.ok(&["delete", "policy", "shared/red", "--force"]);
    assert!(said.starts_with("policy/shared/red deleted\n"), "{said}");
    dev.step_in("r1", &["running"]);
    let refused = dev.sluice(&["submit", "--subject", "red", "--", "true"]);
    assert_eq!(refused.code, 1, "it is let in no longer");
    let output = dev.sluice(&["delete", "pool", "shared", "--force"]);
    let words = output.stderr;
    assert!(words.contains("node `h1` is in pool `shared`"), "{words}");
}
