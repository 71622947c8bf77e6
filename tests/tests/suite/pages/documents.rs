//! Documents and configs that pages show without a command that reads them: the programs take them as they stand.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use sluice_tests::{Dev, DevOptions, binaries};

use super::{pages, root};

/// Users whom the configs on pages name.
const USERS: [&str; 4] = ["alice", "bob", "prod", "sluice-agent"];
/// Hooks that they name.
const HOOKS: [&str; 3] = ["epilog", "health", "prolog"];

/// Surroundings in which the step of the reference may run: its pool has the seats, the mount and the hosts.
const SURROUNDINGS: &str = r#"
{kind: pool, name: default, capacity: {seats: 2}, templates: [mounting]}
---
kind: template
name: mounting
wrapper: [env, "{{mounts}}"]
mount_argument: "MOUNT={{source}}"
allowed_mounts: [{source: /data}]
---
{kind: host, name: hopper-2, gpus: 2, gpu_model: H100}
"#;

/// Lists the blocks of a page that have these words behind their fence.
fn blocks(page: &str, info: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let fence = format!("```{info}\n");
    let blocks = text.split(&fence).skip(1);
    let blocks = blocks.filter_map(|rest| rest.split("```").next());
    blocks.map(str::to_owned).collect()
}

/// A folder that stands for `/etc`: with the users and hooks that pages name.
fn etc(folder: &Path) -> PathBuf {
    let etc = folder.join("etc");
    fs::create_dir_all(etc.join("sluice")).unwrap();
    for file in ["passwd", "group"] {
        let mut text = fs::read_to_string(Path::new("/etc").join(file)).unwrap();
        if file == "passwd" {
            for (id, user) in (64_200..).zip(USERS) {
                text.push_str(&format!("{user}:x:{id}:{id}::/nonexistent:/bin/sh\n"));
            }
        }
        fs::write(etc.join(file), text).unwrap();
    }
    for hook in HOOKS {
        let path = etc.join("sluice").join(hook);
        fs::write(&path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    etc
}

#[test]
fn the_supervisor_takes_the_configs_of_the_pages() {
    if !sluice_tests::needs_root() {
        // Only root can put other users before a program.
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let etc = etc(folder.path());
    let mut taken = 0;
    for page in pages() {
        for block in blocks(&page, "toml") {
            let config = folder.path().join("supervisor.toml");
            fs::write(&config, &block).unwrap();
            let script = "mount --bind \"$1\" /etc && exec \"$2\" --check-config --config \"$3\"";
            let mut check = Command::new("unshare");
            check.args(["-m", "bash", "-c", script, "bash"]);
            check
                .arg(&etc)
                .arg(binaries().join("sluice-supervisor"))
                .arg(config);
            let output = check.output().unwrap();
            assert!(output.status.success(), "{page}: {output:?}\n{block}");
            taken += 1;
        }
    }
    assert!(taken >= 6, "the search is broken: {taken} configs");
}

#[test]
fn a_cluster_takes_the_documents_of_the_reference() {
    let folder = tempfile::tempdir().unwrap();
    let page = blocks("docs/reference/documents.md", "yaml");
    let (steps, terms): (Vec<_>, Vec<_>) = page
        .into_iter()
        .partition(|text| text.starts_with("kind: step\n"));
    assert_eq!((steps.len(), terms.len()), (1, 10));
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    // What runs inside an allocation is submitted, because it has no preview.
    let documents = steps[0].split("---\n");
    let (inside, others): (Vec<_>, Vec<_>) = documents.partition(|it| it.contains("inside:"));
    let inside = write("inside.yaml", &inside.join("---\n"));
    let step = write("step.yaml", &others.join("---\n"));
    let files = vec![
        write("terms.yaml", &terms.join("---\n")),
        write("surroundings.yaml", SURROUNDINGS),
    ];
    let dev = Dev::with(DevOptions {
        files,
        ..DevOptions::default()
    });
    let step = step.to_str().unwrap();
    // The steps after which it starts.
    for id in ["nightly-prep", "nightly-clean"] {
        dev.ok(&["submit", "--id", id, "--", "true"]);
    }
    // The input of one of them.
    let input = write("train.csv", "1,2\n");
    dev.ok(&["submit", "--input", input.to_str().unwrap(), "--", "true"]);
    let said = dev.ok(&["submit", "-f", step, "--dry-run"]);
    assert!(said.contains("it would wait (dry run)"), "{said}");
    dev.ok(&["allocate", "--id", "held", "--gpus", "1"]);
    dev.ok(&["submit", "-f", inside.to_str().unwrap()]);
    let made = dev.ok(&["get", "platforms", "--pool", "full"]);
    assert!(made.contains("big"), "{made}");
}
