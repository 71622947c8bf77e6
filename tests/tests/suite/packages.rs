//! The packages of `packaging/debian`: they are built, installing them makes users and directories as the daemons need
//! them, an admin's files survive an upgrade, and a purge leaves nothing of a cluster. Tested with dpkg below a folder;
//! `tests/guest/` tests a real host.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sluice_tests::binaries;

const PACKAGES: [&str; 4] = [
    "sluice",
    "sluice-agent",
    "sluice-coordinator",
    "sluice-gateway",
];

/// A root folder for dpkg, and the package files.
struct DpkgRoot {
    folder: tempfile::TempDir,
    debs: Vec<PathBuf>,
}

impl DpkgRoot {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        for dir in [
            "var/lib/dpkg/info",
            "var/lib/dpkg/updates",
            "var/lib/dpkg/triggers",
            "etc",
        ] {
            fs::create_dir_all(root.join(dir)).unwrap();
        }
        for file in ["status", "available"] {
            fs::write(root.join("var/lib/dpkg").join(file), "").unwrap();
        }
        let debs = build(&folder.path().join("deb"));
        Self { folder, debs }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join("root").join(path)
    }

    /// The packages' scripts run for this root, and must not touch this machine.
    fn dpkg(&self, args: &[&str], debs: &[PathBuf]) {
        let root = format!("--root={}", self.path("").display());
        let force = [
            "--force-script-chrootless",
            "--force-depends",
            "--force-confdef",
            "--force-confold",
        ];
        let mut dpkg = as_root("dpkg");
        let output = dpkg
            .arg(root)
            .args(force)
            .args(args)
            .args(debs)
            .output()
            .expect("dpkg is there");
        assert!(output.status.success(), "{}", said(&output));
    }

    fn install(&self) {
        self.dpkg(&["--install"], &self.debs);
    }

    /// Lists every path except dpkg's and the users', with its mode.
    fn files(&self) -> BTreeMap<String, u32> {
        let mut found = BTreeMap::new();
        let root = self.path("");
        let mut folders = Vec::from([root.clone()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path
                    .strip_prefix(&root)
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned();
                let meta = fs::symlink_metadata(&path).unwrap();
                if meta.is_dir() && name != "var/lib/dpkg" {
                    folders.push(path);
                }
                found.insert(name, meta.mode() & 0o7777);
            }
        }
        found
    }
}

/// dpkg and the tools that make users need to be root, or to believe it.
fn as_root(program: &str) -> Command {
    if nix::unistd::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("fakeroot");
    command.arg(program);
    command
}

fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

/// Builds the packages with the programs of this build.
fn build(out: &Path) -> Vec<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/build-deb.sh");
    let mut build = Command::new(script);
    let built = build
        .arg(out)
        .env("SLUICE_BINARIES", binaries())
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", said(&built));
    let names = String::from_utf8(built.stdout).unwrap();
    let debs: Vec<PathBuf> = names.lines().map(PathBuf::from).collect();
    assert_eq!(debs.len(), PACKAGES.len(), "{names}");
    debs
}

/// Checks that the API requires a token that only the coordinator's user may read, and that root has a context with it;
/// returns the token.
fn check_way_in(host: &DpkgRoot) -> String {
    let config = fs::read_to_string(host.path("etc/sluice/coordinator.toml")).unwrap();
    let named = "\napi_token_file = \"/etc/sluice/api-token\"\n";
    assert!(config.contains(named), "{config}");
    let mode = |path: &str| fs::metadata(host.path(path)).unwrap().mode() & 0o7777;
    assert_eq!(mode("etc/sluice/api-token"), 0o600);
    assert_eq!(mode("etc/sluice/context.json"), 0o600);
    let token = fs::read_to_string(host.path("etc/sluice/api-token")).unwrap();
    assert_eq!(token.trim().len(), 64, "{token}");
    if nix::unistd::geteuid().is_root() {
        let owner = fs::metadata(host.path("etc/sluice/api-token"))
            .unwrap()
            .uid();
        let users = fs::read_to_string(host.path("etc/passwd")).unwrap();
        assert!(
            users.contains(&format!("sluice-coordinator:x:{owner}:")),
            "{owner}: {users}"
        );
    }
    let context = fs::read_to_string(host.path("etc/sluice/context.json")).unwrap();
    let context: serde_json::Value = serde_json::from_str(&context).unwrap();
    assert_eq!(context["token"], token.trim());
    token
}

#[test]
fn packages_install_upgrade_and_purge_cleanly() {
    let host = DpkgRoot::new();
    host.install();

    let users = fs::read_to_string(host.path("etc/passwd")).unwrap();
    for user in ["sluice-coordinator", "sluice-agent", "sluice-gateway"] {
        assert!(users.contains(&format!("{user}:x:")), "{users}");
    }
    let files = host.files();
    let expected = [
        ("usr/bin/sluice", 0o755),
        ("usr/bin/sluice-agent", 0o755),
        ("usr/bin/sluice-supervisor", 0o755),
        ("usr/bin/sluice-helper", 0o755),
        ("usr/bin/sluice-coordinator", 0o755),
        ("etc/sluice/agent.toml", 0o644),
        ("etc/sluice/supervisor.toml", 0o644),
        ("etc/sluice/coordinator.toml", 0o644),
        ("etc/sluice/gateway.toml", 0o644),
        ("etc/sluice/gateway", 0o750),
        ("usr/lib/systemd/system/sluice-gateway.service", 0o644),
        ("usr/lib/systemd/system/sluice-agent.service", 0o644),
        ("usr/lib/systemd/system/sluice-supervisor.service", 0o644),
        ("usr/lib/systemd/system/sluice-steps.service", 0o644),
        ("usr/lib/systemd/system/sluice-coordinator.service", 0o644),
        ("usr/share/man/man1/sluice-run.1.gz", 0o644),
        ("usr/share/man/man8/sluice-supervisor.8.gz", 0o644),
        ("usr/share/man/man8/sluice-helper.8.gz", 0o644),
        ("usr/share/bash-completion/completions/sluice", 0o644),
        ("var/lib/sluice/agent", 0o700),
        ("var/lib/sluice/coordinator", 0o700),
        ("var/lib/sluice/supervisor", 0o711),
    ];
    for (path, mode) in expected {
        assert_eq!(files.get(path), Some(&mode), "{path}");
    }
    let token = check_way_in(&host);
    let supervisor = fs::read_to_string(host.path("etc/sluice/supervisor.toml")).unwrap();
    assert!(
        supervisor.contains("\nagent_user = \"sluice-agent\"\n"),
        "{supervisor}"
    );
    // Nothing starts before an admin has named the cluster.
    assert!(
        !files.keys().any(|path| path.contains(".wants/")),
        "{files:?}"
    );

    let config = host.path("etc/sluice/agent.toml");
    fs::write(&config, "coordinators = [\"here:7443\"]\n").unwrap();
    let kept = host.path("var/lib/sluice/coordinator/store");
    fs::write(&kept, "facts").unwrap();
    host.install();
    assert_eq!(check_way_in(&host), token, "an upgrade keeps the token");
    assert_eq!(
        fs::read_to_string(&config).unwrap(),
        "coordinators = [\"here:7443\"]\n"
    );

    host.dpkg(&[&["--remove"], &PACKAGES[..]].concat(), &[]);
    assert!(
        kept.exists() && config.exists(),
        "a removal keeps what is the cluster's"
    );
    host.dpkg(&[&["--purge"], &PACKAGES[..]].concat(), &[]);
    let left: Vec<String> = host
        .files()
        .into_keys()
        .filter(|path| path.contains("sluice"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
