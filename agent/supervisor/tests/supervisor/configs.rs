//! The config from its file to the effective values: the supervisor opens it, its helper parses it.

use std::fs;
use std::process::{Command, Output};

use crate::host::{BINARY, helper};

struct Checked {
    dir: tempfile::TempDir,
}

impl Checked {
    fn new() -> Self {
        helper();
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn check(&self, text: &str, args: &[&str]) -> Output {
        let file = self.dir.path().join("c.toml");
        fs::write(&file, text).unwrap();
        let mut command = Command::new(BINARY);
        command.arg("--check-config").arg("--config").arg(&file);
        command
            .env_remove("SLUICE_LOG")
            .args(args)
            .output()
            .unwrap()
    }

    /// The effective config.
    fn good(&self, text: &str, args: &[&str]) -> String {
        let output = self.check(text, args);
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{told}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The error message.
    fn bad(&self, text: &str) -> String {
        let output = self.check(text, &[]);
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    }
}

#[test]
fn a_config_is_checked_without_a_state_directory() {
    let checked = Checked::new();
    // Root needs another user for steps, and other users cannot become one.
    let own = nix::unistd::geteuid();
    let user = match own.is_root() {
        true => "\"nobody\"".to_owned(),
        false => own.to_string(),
    };
    let good = format!("default_user = {user}\nshared_users = [{user}]\npids_max = 9\n");
    let text = checked.good(&good, &["--cgroup", "none"]);
    assert!(text.contains(&format!("default_user = {user}\n")), "{text}");
    let warned = text.contains("# warning: steps of several subjects run as user");
    assert_eq!(warned, own.is_root(), "{text}");
    for part in ["pids_max = 9\n", "output_max", "cgroup = \"none\"\n"] {
        assert!(text.contains(part), "{text}");
    }
    for (text, words) in [
        ("pids_max = 9\npids_mux = 9\n", ["line 2", "`pids_max`"]),
        (
            "log_filter = \"loud=x\"\n",
            ["log_filter: `loud=x`", "write a level"],
        ),
        (
            "default_user = \"no-such-user\"\n",
            ["default_user", "`no-such-user`"],
        ),
        (
            "as_submitter = [\"no-such-user\"]\n",
            ["as_submitter.no-such-user is `no-such-user`", "`useradd`"],
        ),
        (
            "as_submitter = [\"root\"]\nallow_root = true\n",
            ["as_submitter.root", "root"],
        ),
        (
            "as_submitter = [\"nobody\", \"nobody\"]\n",
            ["as_submitter", "`nobody` is listed twice"],
        ),
        (
            "uid_range = [9, 8]\n",
            ["c.toml: uid_range: ", "the lowest id"],
        ),
        (
            "[hooks]\nprolog = \"/no/such\"\n",
            ["c.toml: hooks.prolog: ", "/no/such"],
        ),
    ] {
        let error = checked.bad(text);
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
}

#[test]
fn without_a_helper_that_answers_nothing_is_taken_for_a_config() {
    let checked = Checked::new();
    let dir = checked.dir.path();
    let (binary, beside) = (dir.join("sluice-supervisor"), dir.join("sluice-helper"));
    fs::copy(BINARY, &binary).unwrap();
    let file = dir.join("c.toml");
    fs::write(&file, "").unwrap();
    for (program, told) in [
        (None, "sluice-helper: No such file"),
        (Some("/bin/true"), "an answer that cannot be read"),
        (Some("/bin/echo"), "an answer that cannot be read"),
        (Some("/usr/bin/yes"), "an answer that cannot be read"),
    ] {
        if let Some(program) = program {
            fs::copy(program, &beside).unwrap();
        }
        let mut command = Command::new(&binary);
        command.arg("--check-config").arg("--config").arg(&file);
        let output = command.output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{program:?}: {error}");
        assert!(error.contains(told), "{program:?}: {error}");
    }
}
