//! The cluster of a page and the folder in which its commands run.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use sluice_tests::{Dev, DevOptions, binaries};
use tempfile::TempDir;

use super::pieces::Start;
use super::root;
use super::secure::SecureCoordinator;
use crate::cli::RunningCommand;

/// The address of a trial's API as pages show it.
const SHOWN_API: &str = "127.0.0.1:40433";
/// The address of an installed coordinator as pages show it.
const SHOWN_COORDINATOR: &str = "coord-1:7070";
/// A token as pages show it, in JSON.
const SHOWN_TOKEN: &str = "\"...\"";

/// Programs of users that steps of pages run; stand-ins print their name and arguments.
const USER_PROGRAMS: [&str; 4] = ["make", "nvidia-smi", "python", "torchrun"];

/// Files that a user has, by the names that pages give them, and where such files lie here.
const USER_FILES: [(&str, &str); 3] = [
    ("philly.csv", "tests/traces/philly-100.csv"),
    ("scenarios.json", "tests/scenarios/published.json"),
    ("shares.yaml", "tests/traces/shares.yaml"),
];

/// Seconds that a block of commands may take.
const LONGEST: &str = "120";

/// The place where commands run, and the names to compare their output by.
pub(super) struct Trial {
    /// The cluster, on pages that start one.
    dev: Option<Dev>,
    /// The coordinator with TLS, on pages that log in to one.
    secure: Option<SecureCoordinator>,
    folder: TempDir,
    /// The name of this machine, and that of the machine which the page shows.
    pub(super) names: Option<(String, String)>,
}

impl Default for Trial {
    fn default() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let examples = root().join("packaging");
        std::os::unix::fs::symlink(examples, folder.path().join("packaging")).unwrap();
        fs::create_dir(folder.path().join("bin")).unwrap();
        for name in USER_PROGRAMS {
            program(folder.path(), name, "echo \"$(basename \"$0\") $*\"");
        }
        for (name, file) in USER_FILES {
            fs::copy(root().join(file), folder.path().join(name)).unwrap();
        }
        Self {
            dev: None,
            secure: None,
            folder,
            names: None,
        }
    }
}

/// Writes a program that a shell runs.
fn program(folder: &Path, name: &str, script: &str) {
    let path = folder.join("bin").join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
}

impl Trial {
    /// Starts the cluster. A script that would build the programs finds that they are built.
    pub(super) fn start(start: Start) -> Self {
        let mut trial = Self::default();
        let mut variables = vec![("PATH", trial.path())];
        if start.script.is_some() {
            let wanted = format!(
                "build --locked --manifest-path {}/Cargo.toml",
                root().display()
            );
            program(
                trial.folder.path(),
                "cargo",
                &format!("[ \"$*\" = \"{wanted}\" ]"),
            );
            let target = binaries().parent().unwrap().display().to_string();
            variables.push(("CARGO_TARGET_DIR", target));
        }
        trial.dev = Some(Dev::with(DevOptions {
            files: start.files,
            script: start.script,
            variables,
            default_amounts: true,
            ..DevOptions::default()
        }));
        trial
    }

    /// Returns where programs are looked up: the users' before all others.
    fn path(&self) -> String {
        let path = std::env::var("PATH").unwrap();
        let own = self.folder.path().join("bin");
        format!("{}:{path}", own.display())
    }

    /// Writes a file of the page, with the cluster's address and token for those that are shown.
    pub(super) fn write(&self, name: &str, content: &str) {
        let mut content = content.to_owned();
        if let Some(dev) = &self.dev {
            let token = format!("\"{}\"", dev.token());
            content = content.replace(SHOWN_COORDINATOR, &dev.http);
            content = content.replace(SHOWN_TOKEN, &token);
        }
        let path = self.folder.path().join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
    }

    /// Builds the shell that runs commands in the page's folder, against its cluster.
    fn shell(&self, shell: &[&str], command: &str) -> Command {
        let (program, flags) = shell.split_first().unwrap();
        let mut shell = Command::new(program);
        shell
            .args(flags)
            .env("PATH", format!("{}:{}", binaries().display(), self.path()))
            .env("HOME", self.folder.path())
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        let mut command = command.to_owned();
        if let Some(dev) = &self.dev {
            shell.env("SLUICE_CONTEXT", &dev.context);
            command = command.replace(SHOWN_API, &dev.http);
        }
        if let Some(secure) = &self.secure {
            shell.env("SLUICE_CONTEXT", &secure.context);
            command = command.replace(SHOWN_COORDINATOR, &secure.http);
        }
        shell.arg("-c").arg(command);
        shell
    }

    /// Returns the output of a command: first its standard output, then its standard error.
    pub(super) fn printed(&self, command: &str) -> String {
        let output = self.shell(&["bash"], command).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        text(&output.stdout) + &text(&output.stderr)
    }

    /// Runs a block of commands, each of which must succeed. One that logs in to a coordinator with TLS is given one.
    pub(super) fn run(&mut self, page: &str, script: &str) {
        if script.contains(&format!("https://{SHOWN_COORDINATOR}")) {
            self.secure = Some(SecureCoordinator::start(self.folder.path()));
        }
        let shell = ["timeout", LONGEST, "bash", "-xeuo", "pipefail"];
        let output = self.shell(&shell, script).output().unwrap();
        self.secure = None;
        assert!(
            output.status.success(),
            "{page}: {}: the last command of these fails:\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// Runs commands that follow something: each prints while steps come and go, and ends when it is interrupted.
    pub(super) fn follow(&self, commands: &str) {
        for line in commands.lines() {
            let going = RunningCommand::of(self.shell(&["bash"], &format!("exec {line}")));
            going.knocked(|| {
                let step = self
                    .shell(&["bash"], "sluice submit -- true")
                    .output()
                    .unwrap();
                assert!(step.status.success(), "{step:?}");
            });
            // The signal itself ends it, or it ends well because of it.
            let code = going.end(Some(Signal::SIGINT));
            assert!(matches!(code, None | Some(0)), "{line}: {code:?}");
        }
    }

    /// Compares a banner by its labels, since what it tells is of one machine, and notes the names of both.
    pub(super) fn compare_banner(&mut self, shown: &str) {
        let log = self.dev.as_ref().map(Dev::log).unwrap_or_default();
        let printed = log.split_once("\nSluice is ready").unwrap().1;
        let printed = format!("Sluice is ready{printed}");
        let label = |line: &str| line.split_whitespace().next().map(str::to_owned);
        let labels = |text: &str| -> BTreeSet<String> {
            let lines = text.lines().filter(|line| line.starts_with("  "));
            lines.filter_map(label).collect()
        };
        let always = ["agents", "api", "cpu", "data", "gpus", "memory", "node"];
        for word in always {
            assert!(labels(&printed).contains(word), "{word}: {printed}");
            assert!(labels(shown).contains(word), "{word}: {shown}");
        }
        let last = |text: &str, begin: &str| {
            let line = text.lines().find(|line| line.starts_with(begin));
            let line = line.unwrap_or_else(|| panic!("{begin}: {text}"));
            line.split(" run -- ").nth(1).map(str::to_owned)
        };
        for begin in [
            "Sluice is ready on this machine.",
            "Try it:",
            "Stop it: Ctrl-C",
        ] {
            assert_eq!(last(&printed, begin), last(shown, begin));
        }
        let node = |text: &str| {
            let line = text.lines().find(|line| line.starts_with("  node "));
            let word = line.and_then(|line| line.split_whitespace().nth(1));
            word.expect("a banner names its node").to_owned()
        };
        self.names = Some((node(&printed), node(shown)));
    }

    /// Stops it. The hooks of its steps have then removed what they made in `/tmp`.
    pub(super) fn end(self) {
        let Some(dev) = self.dev else { return };
        let log = fs::read_to_string(dev.data().join("logs/coordinator.log")).unwrap();
        let id = log.split("cluster=").nth(1).unwrap();
        let cluster = id.split_whitespace().next().unwrap();
        let scratch = format!("scratch-{cluster}");
        dev.stop();
        let mut left = fs::read_dir("/tmp")
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        let left = left.find(|name| name.to_string_lossy().starts_with(&scratch));
        assert_eq!(left, None);
    }
}
